"""The task in two languages of ``recipes/tiny``: what its generator writes, and that the model's tokens suffice."""

import importlib.util
import json
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from magcli.verify import RewardRule
from magcli.verify.reward import reward

TINY = Path(__file__).parent.parent / "recipes" / "tiny"
MAX_TOKENS = 64


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("languages")
    spec = importlib.util.spec_from_file_location("make_languages", TINY / "make_languages.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.main(folder)
    return {path.stem: [json.loads(line) for line in path.read_text().splitlines()] for path in folder.glob("*.jsonl")}


def test_no_problem_is_in_two_files_and_languages_are_balanced(files):
    rows = [row for part in files.values() for row in part]
    assert len({row["prompt"] for row in rows}) == len({row["id"] for row in rows}) == len(rows) == 2380
    for part in files.values():
        assert sum(row["source"] == "fr" for row in part) * 2 == len(part)


def test_every_worked_solution_is_correct_and_a_third_are_in_another_language(files):
    found = [reward(row["completion"], 0, row, RewardRule()) for row in files["traces"][:400]]
    assert all(each.correct for each in found)
    assert {tuple(each.languages.split()) for each in found} == {
        (question, answer, answer) for question in ("en", "fr") for answer in ("en", "fr")
    }
    assert 0.6 < sum(each.language > 0 for each in found) / len(found) < 0.73


def test_the_vocabulary_covers_the_texts(files):
    tokenizer = AutoTokenizer.from_pretrained(TINY / "model-languages")
    assert len(tokenizer) == json.loads((TINY / "model-languages" / "config.json").read_text())["vocab_size"]
    for row in files["traces"]:
        ids = tokenizer.encode(row["completion"])
        assert tokenizer.decode(ids) == row["completion"]
        assert len(ids) < MAX_TOKENS
