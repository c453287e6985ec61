"""Stages run as functions, in this process or in one that can be killed."""

import contextlib
import fcntl
import json
import os
import random
import shutil
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from forking import fork_magcli, fork_server


def others_slow(cases, *, kept):
    """The cases of a test, of which ``make test`` tries those in ``kept`` and ``make test-slow`` the others."""
    values = list(cases)
    assert set(kept) <= set(values)
    return [value if value in kept else _slow(value) for value in values]


def _slow(value):
    return pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.slow)


TRAINED = {
    "updates": 6,
    "group_size": 8,
    "n_async": 32,
    "n_batch": 16,
    "n_mini": 16,
    "max_tokens": 24,
    "lr": 1e-3,
    "bf16": "no",
    "dtype": "fp32",
    "system": Path("none"),
    "language": False,
    "checkpoint_every": 2,
    "schedule": "sync",
    "trajectory_every": 1,
}
"""Options of the run of RL that tests share: the fixture ``finished_run``."""


def made_once(factory, name, make):
    """A folder that the first process of a session makes, and all of them read; ``make`` fills it."""
    base = factory.getbasetemp()
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "shared"
    shared.mkdir(exist_ok=True)
    folder, done = shared / name, shared / f"{name}.done"
    with (shared / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            make(folder)
            done.touch()
    return folder


def call_stage(name, *inputs, **options):
    """Run a stage in this process, as the command line would; errors come as exceptions. Tables are paths."""
    from magcli.cli import STAGES
    from magcli.command import run_command, stage_of

    places = {"output": None, "dropped": None, "restart": False, "recipe": None, "dry_run": False}
    given = places | {"quiet": True, "json_events": False} | options
    given |= {key: str(given[key]) for key in ("output", "dropped") if given[key] is not None}
    run_command(stage_of(name), [stage.name for stage in STAGES], given | {"inputs": [str(i) for i in inputs]})


def start_stage(name, *inputs, **options):
    """Run a stage in a process of its own, forked from one that has imported everything, so it begins at once."""
    process = fork_server().Process(target=call_stage, args=(name, *inputs), kwargs=options)
    process.start()
    return process


def run_command_line(arguments, *, input=b"", timeout=240, **options):
    """The command line in a forked process, as ``subprocess.run`` returns it; options are those of ``fork_magcli``."""
    given, out, errors = os.pipe(), os.pipe(), os.pipe()
    theirs = [given[0], out[1], errors[1]]
    process = fork_magcli(arguments, theirs, **options)
    for number in theirs:
        os.close(number)
    with ThreadPoolExecutor(3) as pool:
        pool.submit(_feed, given[1], input)
        texts = [pool.submit(_drained, number) for number in (out[0], errors[0])]
        process.join(timeout)
        process.kill()
        process.join()
    return subprocess.CompletedProcess(arguments, process.exitcode, *(text.result() for text in texts))


def _feed(number, data):
    with contextlib.suppress(BrokenPipeError), open(number, "wb") as file:
        file.write(data)


def _drained(number):
    with open(number, "rb") as file:
        return file.read()


def kill_and_resume(kills, longest, name, *inputs, **options):
    """Run a stage to its end, killing it at uniform random instants of its first ``longest`` seconds.

    A run that ends before its first kill took less than was thought, as other work on the machine has gone: it begins
    from nothing again, with the time it took. So one kill at least comes in time. The seed is printed, and may be
    given as FAULT_SEED. Returns how many of the attempts to kill it came in time.
    """
    seed = int(os.environ.get("FAULT_SEED") or random.SystemRandom().randrange(10**6))
    choose, killed, attempts, too_quick = random.Random(seed), 0, 0, False
    print(f"FAULT_SEED={seed}")
    while attempts < kills:
        begun = time.monotonic()
        process = start_stage(name, *inputs, restart=too_quick, **options)
        killed += not ended(process, choose.uniform(0.0, longest))
        too_quick = not killed
        if too_quick:
            longest = 0.7 * (time.monotonic() - begun)
            for place in options.keys() & {"output", "dropped"}:
                Path(options[place]).unlink()  # else a killed restart leaves what the next run takes as up to date
        attempts += not too_quick
    assert ended(start_stage(name, *inputs, **options), 240)
    print(f"{killed} kills in runs of at most {longest:.1f} s")
    return killed


def ended(process, seconds):
    """Whether a stage ended of itself within that time, without an error; it is killed otherwise."""
    process.join(seconds)
    process.kill()
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL)
    return process.exitcode == 0


def seconds_of(name, *inputs, **options):
    """How long an unbroken run takes in a process that can be killed, the forking of the first one apart."""
    start_stage("doctor", dry_run=True).join()
    begun = time.monotonic()
    process = start_stage(name, *inputs, **options)
    process.join()
    assert process.exitcode == 0
    return time.monotonic() - begun


def journaled(out):
    """The keys of all records in a landscape's journal of points, however often they stand there."""
    from magcli.run.journal import FRAME

    data, start, keys = (out / "points.journal").read_bytes(), 0, []
    while start < len(data):
        length, _ = FRAME.unpack_from(data, start)
        payload = data[start + FRAME.size : start + FRAME.size + length]
        keys.append(json.loads(payload[: payload.find(b"\n")] or b"{}").get("key") if start else None)
        start += FRAME.size + length
    return [key for key in keys if key is not None]


def written_at(run):
    """When each file of a run's model and metrics was written, in nanoseconds."""
    files = [*run.glob("model/*"), run / "metrics.jsonl"]
    return {path: path.stat().st_mtime_ns for path in files}


def flags_of(options):
    """Options as the command line has them."""
    flags = []
    for name, value in options.items():
        flag = name.replace("_", "-")
        flags.append(f"--{flag}={value}" if not isinstance(value, bool) else f"--{'' if value else 'no-'}{flag}")
    return flags


def quiet():
    """The environment for a process on a machine that others use too."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
