"""One flipped bit in any file of an unfinished run: resuming refuses it with one line, or ends without a crash."""

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from calling import TRAINED, flags_of, quiet

FLIPS = 40
REFUSALS = (2, 3, 4)
"""Exit codes for a damaged file: settings that differ, a table or record, a model."""
OPTIONS = {**TRAINED, "updates": 6, "checkpoint_every": 2}
IGNORED = (".lock",)


def resume(run: Path, letters: Path, model: Path, **options: object) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "magcli", "rl", str(letters), "--model", str(model), "--run", str(run)]
    command += flags_of(OPTIONS | options)
    return subprocess.run(command, capture_output=True, text=True, timeout=280, env=quiet())


@pytest.mark.faults
@pytest.mark.timeout(3000)
def test_a_flipped_bit_is_refused_or_harmless(guesser: Path, letters: Path, tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    # The run at the moment of a kill: after update 4, with the groups of the next ones on disk.
    assert resume(whole, letters, guesser, updates=4, schedule="async").returncode == 0
    unfinished = tmp_path / "unfinished"
    shutil.copytree(whole, unfinished)
    finished = resume(whole, letters, guesser, schedule="async")
    assert finished.returncode == 0, finished.stderr

    seed = int(os.environ.get("FAULT_SEED") or random.SystemRandom().randrange(10**6))
    print(f"FAULT_SEED={seed}")
    choose = random.Random(seed)
    files = [path for path in sorted(unfinished.rglob("*")) if path.is_file() and not path.name.endswith(IGNORED)]
    refused = 0
    for number in range(FLIPS):
        path = choose.choice(files)
        damaged = tmp_path / f"flip-{number}"
        shutil.copytree(unfinished, damaged)
        target = damaged / path.relative_to(unfinished)
        content = bytearray(target.read_bytes())
        if not content:
            continue
        bit = choose.randrange(8 * len(content))
        content[bit // 8] ^= 1 << bit % 8
        target.write_bytes(content)
        ended = resume(damaged, letters, guesser, schedule="async")
        where = f"{path.relative_to(unfinished)}, bit {bit}: exit code {ended.returncode}\n{ended.stderr}"
        assert "Traceback" not in ended.stderr, where
        assert ended.returncode in (0, *REFUSALS), where
        if ended.returncode:
            refused += 1
            assert ended.stderr.splitlines()[-1].startswith("error: "), where
        shutil.rmtree(damaged)
    assert refused > FLIPS // 4
