"""The code task of ``recipes/tiny``: what its generator writes, and that the model's tokens suffice for it."""

import importlib.util
import json
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from magcli.verify import Grader, RewardRule

TINY = Path(__file__).parent.parent / "recipes" / "tiny"
MAX_TOKENS = 64
WRITERS = ("steps", "one-line")


def imported(name):
    spec = importlib.util.spec_from_file_location(name, TINY / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("code")
    imported("make_code").main(folder)
    return {path.stem: [json.loads(line) for line in path.read_text().splitlines()] for path in folder.glob("*.jsonl")}


def test_no_problem_is_in_two_files_and_each_has_over_twenty_tests(files):
    rows = [row for name in ("traces", "problems", "held_out") for row in files[name]]
    assert len({row["prompt"] for row in rows}) == len({row["id"] for row in rows}) == len(rows) == 2200
    assert {len(row["tests"]) for row in rows} == {24}
    assert {row["kind"] for row in rows} == {"code"}


def test_the_sandbox_accepts_stepwise_programs_and_part_of_the_one_line_programs(files):
    """A sample: every test of a program runs in a process of its own."""
    rows = [row for name in WRITERS for row in [each for each in files["traces"] if each["source"] == name][:25]]
    with Grader(workers=2) as grader:
        jobs = [(row["completion"], 0, row, RewardRule(use_language=False, num_tests=4)) for row in rows]
        found = list(zip(rows, grader.rewards(jobs), strict=True))
    right = {writer: [got.correct for row, got in found if row["source"] == writer] for writer in WRITERS}
    assert sum(right["steps"]) >= 0.9 * len(right["steps"]), "all but slips"
    assert 0.2 < sum(right["one-line"]) / len(right["one-line"]) < 0.8
    assert {got.reason for _, got in found} <= {"accepted", "wrong-answer", "runtime-error", "compile-error"}


def test_the_vocabulary_covers_prompts_and_programs(files):
    tokenizer = AutoTokenizer.from_pretrained(TINY / "model-code")
    assert len(tokenizer) == json.loads((TINY / "model-code" / "config.json").read_text())["vocab_size"]
    for row in files["traces"]:
        ids = tokenizer.encode(row["completion"])
        assert tokenizer.decode(ids) == row["completion"]
        assert len(ids) < MAX_TOKENS
    for row in files["problems"]:
        assert len(tokenizer.encode(row["prompt"])) < 40
