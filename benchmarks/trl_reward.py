"""Runs ``examples/trl_reward.py``: three steps of TRL's GRPOTrainer with magcli's reward."""

import os
import re
import subprocess
import sys

from benchmarks.downloads import ROOT, TRL_TITLE, trl_path

STEPS = 3
SECONDS = 1800


def run() -> None:
    """Check that the mean reward which TRL logs at each step is that of the rewards which magcli returned.

    Raises:
        AssertionError: the example failed, or the means differ.
    """
    done = subprocess.run(
        [sys.executable, "trl_reward.py"],
        cwd=ROOT / "examples",
        env=os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{trl_path()}"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    returned = [mean_of(line) for line in done.stdout.splitlines() if line.startswith("graded:")]
    logged = [float(value) for value in re.findall(r"^step \d+: reward ([\d.]+)$", done.stdout, re.MULTILINE)]
    assert len(returned) == len(logged) == STEPS, done.stdout[-2000:]
    assert all(abs(ours - theirs) < 0.006 for ours, theirs in zip(returned, logged, strict=True)), (returned, logged)
    print(
        f"trl-reward: {STEPS} steps of the GRPOTrainer of {TRL_TITLE} with magcli's rewards, means {logged}",
        flush=True,
    )


def mean_of(line: str) -> float:
    """The mean of the rewards in a line such as ``graded: correct 1.00, wrong 0.10``."""
    values = [float(value) for value in re.findall(r" (\d\.\d\d)", line)]
    return sum(values) / len(values)
