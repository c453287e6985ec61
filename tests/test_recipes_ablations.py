"""Every arm of ``recipes/ablations``, and of RL on code in ``recipes/tiny``, is a command that resolves."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from magcli.cli import app

RECIPES = Path(__file__).parent.parent / "recipes"
ENVIRONMENT = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def listed(folder, *arguments):
    """The magcli commands that make would run in a folder, as lists of words."""
    command = ["make", "-n", "--no-print-directory", "-C", str(RECIPES / folder), "MAGCLI=magcli", *arguments]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.replace("\\\n", " ").splitlines()
    return [shlex.split(line)[1:] for line in lines if line.startswith("magcli ")]


@pytest.fixture(scope="module")
def ablations():
    """Without what recipes/tiny makes for them, which runs in another folder."""
    commands = listed("ablations", "OUT=out-of-tests", "TINY=tiny-of-tests", "SEEDS=0 7")
    return [words for words in commands if "code.toml" not in words and words[0] != "clean-math"]


def flag(words, name):
    return words[words.index(name) + 1] if name in words else ""


def run_of(words):
    return flag(words, "--run").removeprefix("out-of-tests/")


def test_every_arm_resolves(ablations, monkeypatch):
    monkeypatch.chdir(RECIPES / "ablations")
    for words in {shlex.join(words): words for words in ablations}.values():
        app([*words, "--dry-run", *(["--allow-missing"] if "--model" in words else [])], standalone_mode=False)
    assert not Path("out-of-tests").exists()


@pytest.mark.parametrize("target", ["code", "mixed", "code-base"])
def test_rl_on_code_resolves(target, monkeypatch):
    commands = listed("tiny", target, "OUT=out-of-tests")
    monkeypatch.chdir(RECIPES / "tiny")
    for words in commands:
        app([*words, "--dry-run", *(["--allow-missing"] if "--model" in words else [])], standalone_mode=False)
    assert not Path("out-of-tests").exists()
    assert {"grade", "cold-start", "sft"} <= {words[0] for words in commands}
    assert target == "code-base" or sum(words[0] == "rl" for words in commands) == 1


def test_no_two_arms_are_the_same_experiment(ablations):
    """Up to the names of folders; a seed is the only thing that two runs of an arm differ in."""
    asked = {}
    for words in (words for words in ablations if words[0] == "rl"):
        command = shlex.join(words).replace(f"--run {flag(words, '--run')} ", "").replace(" --seed 0 ", " ")
        asked.setdefault(command, []).append(run_of(words))
    assert all(len(runs) == 1 for runs in asked.values()), asked
    assert {run.partition("/")[2] for runs in asked.values() for run in runs} == {"0", "7"}


def test_the_ablations_of_the_paper_exist(ablations):
    runs = [words for words in ablations if words[0] == "rl" and run_of(words).endswith("/0")]
    changed = {name for words in runs for name in words if name.startswith("--")}
    assert {
        "--advantage-norm", "--loss-norm", "--n-batch", "--n-mini", "--kl", "--entropy-bonus", "--clip-high",
        "--partial", "--system",
    } <= changed  # fmt: skip
    trained_on = {Path(words[1]).name for words in runs}
    assert trained_on == {"math.arrow", "problems.jsonl", "mixed.arrow"}
    assert {"rl-alone/0", "sft-rl/0"} <= {run_of(words) for words in runs}


def test_every_run_is_evaluated_and_in_the_table(ablations):
    """A run under a system prompt is evaluated under it; one of a domain, in both."""
    evaluated = {flag(words, "-o"): flag(words, "--system") for words in ablations if words[0] == "evaluate"}
    reported = {name for words in ablations if words[0] == "report" for name in words if name.endswith(".arrow")}
    assert reported == set(evaluated)
    for words in (words for words in ablations if words[0] == "rl"):
        run, system = run_of(words), flag(words, "--system")
        assert evaluated[f"out-of-tests/eval-math/{run}.arrow"] == system
        in_both = run.startswith(("domain-", "partial"))
        assert (f"out-of-tests/eval-code/{run}.arrow" in evaluated) == in_both
