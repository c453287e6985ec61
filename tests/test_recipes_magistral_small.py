"""``recipes/magistral-small``: its data part alone with one small model, and the plan of all of it."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

from magcli.cli import app

RECIPE = Path(__file__).parent.parent / "recipes" / "magistral-small"
ENVIRONMENT = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def make(*arguments: str) -> str:
    """What make prints in the recipe's folder."""
    command = ["make", "--no-print-directory", "-C", str(RECIPE), "OUT=out-of-tests", *arguments]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.replace("\\\n", " ")


def test_the_data_part_samples_one_model_and_trains_none(monkeypatch):
    printed = make("-n", "data", "MODEL=small", "RECIPE=recipe-trial.toml", "DEVICE=cpu", "AGAINST=")
    pieces = [piece.strip() for line in printed.splitlines() for piece in line.split("|")]
    commands = [shlex.split(piece)[1:] for piece in pieces if piece.startswith("magcli")]
    stages = [words[0] for words in commands]
    assert stages == [
        "clean-math", "filter-math", "filter-math", "filter-code", "make-tests", "filter-code", "duplicate", "convert",
        "translate", "report",
    ]  # fmt: skip
    assert {words[words.index("--model") + 1] for words in commands if "--model" in words} == {"small"}
    assert "--against" not in commands[0]
    monkeypatch.chdir(RECIPE)
    for words in commands:
        app([*words, "--dry-run", *(["--allow-missing"] if "--model" in words else [])], standalone_mode=False)
    assert not Path("out-of-tests").exists()


def test_the_landscape_takes_the_papers_sizes(monkeypatch, capsys):
    printed = make("-n", "landscape", "MAGCLI=magcli")
    (convert, landscape) = [
        shlex.split(line)[1:] for line in printed.splitlines() if "landscape-problems.arrow" in line
    ]
    assert convert[convert.index("--limit") + 1] == "512"
    monkeypatch.chdir(RECIPE)
    app([*landscape, "--dry-run"], standalone_mode=False)
    config = json.loads(capsys.readouterr().out)["config"]
    assert (config["samples"], config["shortest"], config["longest"]) == (16, 1500, 8000)


def test_evaluation_problems_are_kept_out_of_training():
    printed = make("-n", "all", "MAGCLI=magcli")
    (clean,) = [line for line in printed.splitlines() if line.startswith("magcli clean-math")]
    assert "--against aime24.parquet" in clean


def test_training_gets_the_options_of_a_machine():
    of_machine = {"rl": "--cluster auto --trainers 8 --generators 8", "sft": "--trainers 8"}
    printed = make("-n", "all", "MAGCLI=magcli", f"RL={of_machine['rl']}", f"SFT={of_machine['sft']}")
    commands = [line for line in printed.splitlines() if line.startswith(("magcli rl ", "magcli sft "))]
    stages = [line.split()[1] for line in commands]
    assert stages == ["rl", "rl", "sft", "rl"]
    assert all(of_machine[stage] in line for stage, line in zip(stages, commands, strict=True))
