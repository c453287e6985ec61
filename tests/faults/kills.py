"""Kills commands from outside, at uniform random instants of wall time, and runs them again until they are done."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from magcli.run.journal import FRAME

QUIET = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


def fresh_seed() -> int:
    """A seed from the environment, to repeat a run, or a new one; printed, so that it can be repeated."""
    seed = int(os.environ.get("FAULT_SEED") or random.SystemRandom().randrange(10**6))
    print(f"FAULT_SEED={seed}")
    return seed


def recorded(output: Path) -> list[str]:
    """The keys of the units in an output's journal, in the order they were recorded; without an incomplete last one."""
    journal = output.with_name(f".{output.name}.journal")
    data = journal.read_bytes() if journal.exists() else b""
    keys, place = [], 0
    while place + FRAME.size <= len(data):
        length, _ = FRAME.unpack_from(data, place)
        payload = data[place + FRAME.size : place + FRAME.size + length]
        if len(payload) < length:
            break
        header = json.loads(payload[: payload.index(b"\n")]) if place else {}
        keys += [header["key"]] if "key" in header else []
        place += FRAME.size + length
    return keys


def processes(session: int) -> list[int]:
    """Processes that live in a session."""
    living = []
    for entry in Path("/proc").iterdir():
        try:
            fields = (entry / "stat").read_text().rsplit(")", 1)[1].split() if entry.name.isdigit() else []
        except OSError:
            continue
        if fields and int(fields[3]) == session and fields[0] != "Z":
            living.append(int(entry.name))
    return living


@dataclass
class Story:
    """What happened until a command was done."""

    seconds: float = 0.0
    kills: int = 0
    progress: list[int] = field(default_factory=list)
    """Units recorded after each kill."""


def start(arguments: Sequence[object]) -> "subprocess.Popen[bytes]":
    """Start a command in a process group of its own."""
    command = [sys.executable, "-m", "magcli", *map(str, arguments)]
    return subprocess.Popen(
        command, start_new_session=True, env=QUIET, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE
    )


def run_whole(arguments: Sequence[object]) -> Story:
    """Run a command unbroken."""
    began = time.monotonic()
    process = start(arguments)
    _, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors.decode()
    return Story(time.monotonic() - began)


def run_killed(arguments: Sequence[object], output: Path, draw: random.Random, horizon: float, most: int) -> Story:
    """Run a command, killing its group at instants uniform in (0, horizon), until it is done.

    After ``most`` kills it is left alone. What was recorded before a kill must be there after the next one, once.
    """
    story, before = Story(), []
    while True:
        process = start(arguments)
        patience = draw.uniform(0, horizon) if story.kills < most else 240.0
        try:
            _, errors = process.communicate(timeout=patience)
            assert process.returncode == 0, errors.decode()
            return story
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        story.kills += 1
        after = recorded(output)
        assert after[: len(before)] == before or output.exists()
        assert len(set(after)) == len(after), "a finished unit was computed again"
        story.progress.append(len(after))
        before = after


def survive(
    command: Callable[[Path], Sequence[object]], outputs: Sequence[str], folder: Path, *, kills: int, seed: int
) -> list[Story]:
    """Kill a command ``kills`` times in as many rounds as that takes; each round must end in the unbroken run's bytes.

    ``command`` gives the arguments for a folder to write in; ``outputs`` are the files there, the main one first.
    """
    draw = random.Random(seed)
    whole = folder / "whole"
    horizon = run_whole(command(whole)).seconds
    stories: list[Story] = []
    while (left := kills - sum(story.kills for story in stories)) > 0:
        place = folder / f"round-{len(stories)}"
        stories.append(run_killed(command(place), place / outputs[0], draw, horizon, min(left, 5)))
        for name in outputs:
            assert (place / name).read_bytes() == (whole / name).read_bytes(), f"seed {seed}: {name} differs"
        hidden = [path.name for path in place.iterdir() if path.name.startswith(".")]
        left_over = [name for name in hidden if not name.endswith((".run.json", ".manifest.json"))]
        assert left_over == [], f"seed {seed}: {left_over} left behind"
    return stories
