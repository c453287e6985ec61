"""The problems of the RL comparisons."""

import json

import pytest

from benchmarks.gpu.__main__ import UPDATES
from benchmarks.rl import inputs
from magcli.verify.reward import RewardRule, reward


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(inputs, "FOLDER", tmp_path)
    return tmp_path


def test_each_update_has_four_problems_of_its_own_with_an_answer_that_can_be_graded(folder):
    rows = [json.loads(line) for line in inputs.problems(UPDATES).read_text().splitlines()]
    assert len({row["id"] for row in rows}) == len({row["prompt"] for row in rows}) == len(rows) == 4 * UPDATES
    for row in rows:
        assert reward(f"It is {row['answer']}.", 0, row, RewardRule()).correct_anywhere
        assert not reward("It is 123456789.", 0, row, RewardRule()).correct_anywhere


def test_fewer_updates_take_the_first_of_the_problems(folder):
    assert inputs.problems(8).read_text().startswith(inputs.problems(4).read_text())


def test_more_updates_than_there_are_problems_for_are_refused(folder):
    with pytest.raises(ValueError, match="100 updates take 400 problems; 260 are shipped"):
        inputs.problems(100)
