"""Stages run as functions, in this process or in one that can be killed."""

import multiprocessing
import os
import random
import signal
import time
from pathlib import Path

PRELOADED = ["calling", "torch", "transformers", "magcli.cli", "magcli.rl.loop", "magcli.rl.trainer", "sympy"]
"""What the process that others are forked from has imported."""


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
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    process = context.Process(target=call_stage, args=(name, *inputs), kwargs=options)
    process.start()
    return process


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
    assert ended(start_stage(name, *inputs, **options), 120)
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
