"""Stages run as functions, in this process or in one that can be killed."""

import multiprocessing
import os
import random
import signal
import time

PRELOADED = ["calling", "torch", "transformers", "magcli.cli", "magcli.rl.loop", "magcli.rl.update", "sympy"]
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

    The seed is printed, and may be given as FAULT_SEED. Returns how many of the attempts to kill it came in time.
    """
    seed, killed = int(os.environ.get("FAULT_SEED") or random.SystemRandom().randrange(10**6)), 0
    choose = random.Random(seed)
    print(f"FAULT_SEED={seed}")
    for attempt in range(kills + 1):
        process = start_stage(name, *inputs, **options)
        process.join(choose.uniform(0.0, longest) if attempt < kills else 120)
        if process.is_alive():
            process.kill()
            killed += 1
        process.join()
        assert process.exitcode in (0, -signal.SIGKILL)
    assert process.exitcode == 0
    print(f"{killed} kills in runs of at most {longest:.1f} s")
    return killed


def seconds_of(name, *inputs, **options):
    """How long an unbroken run takes in a process that can be killed, the forking of the first one apart."""
    start_stage("doctor", dry_run=True).join()
    begun = time.monotonic()
    process = start_stage(name, *inputs, **options)
    process.join()
    assert process.exitcode == 0
    return time.monotonic() - begun


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
