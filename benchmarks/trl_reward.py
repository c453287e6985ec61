"""``examples/trl_reward.py`` run for real: TRL's GRPOTrainer, three steps on the CPU, with magcli's reward.

TRL alone comes into ``.peers``; what it needs is in magcli's own environment already.
"""

import os
import re
import subprocess
import sys

from benchmarks.public import CACHE, ROOT, Missing

RELEASE = "1.16.0"
STEPS = 3
SECONDS = 1800


def run() -> None:
    """Run the example and check what TRL learned from: each step's mean reward is that of magcli's rewards.

    Raises:
        AssertionError: the example failed, or TRL saw other rewards than magcli gave.
    """
    try:
        place = trl()
    except Missing as missing:
        print(f"trl-reward: not run: {missing}", flush=True)
        return
    environment = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{place}"}
    command = [sys.executable, "trl_reward.py"]
    done = subprocess.run(
        command, cwd=ROOT / "examples", env=environment, capture_output=True, text=True, timeout=SECONDS
    )
    assert done.returncode == 0, done.stderr[-2000:]
    given = [mean_of(line) for line in done.stdout.splitlines() if line.startswith("graded:")]
    seen = [float(value) for value in re.findall(r"^step \d+: reward ([\d.]+)$", done.stdout, re.MULTILINE)]
    assert len(given) == len(seen) == STEPS, done.stdout[-2000:]
    assert all(abs(ours - theirs) < 0.006 for ours, theirs in zip(given, seen, strict=True)), (given, seen)
    print(f"trl-reward: {STEPS} steps of TRL {RELEASE}'s GRPOTrainer on magcli's rewards, means {seen}", flush=True)


def mean_of(line: str) -> float:
    """The mean of the rewards in a line such as ``graded: correct 1.00, wrong 0.10``."""
    values = [float(value) for value in re.findall(r" (\d\.\d\d)", line)]
    return sum(values) / len(values)


def trl() -> str:
    """The folder that TRL is in, installed there if need be.

    Raises:
        Missing: it cannot be had here.
    """
    place = CACHE / f"trl-{RELEASE}"
    if not (place / "trl").is_dir():
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(place)]
        done = subprocess.run([*command, f"trl=={RELEASE}"], capture_output=True, text=True)
        if done.returncode:
            raise Missing(f"trl {RELEASE} cannot be installed: {done.stderr.strip()[-300:]}")
    return str(place)


def hide_vllm() -> None:
    """Before TRL is imported: it takes any vLLM that is installed, and this release knows none as new as magcli's."""
    sys.modules["vllm"] = None  # type: ignore[assignment]


if __name__ == "__main__":
    run()
