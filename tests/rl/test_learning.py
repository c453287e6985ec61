"""RL raises the reward of a model that can already answer, and does so because of the rewards."""

import json
from pathlib import Path

import numpy as np
import pytest
from calling import call_stage

RECIPE = {
    "updates": 8,
    "group_size": 8,
    "n_async": 64,
    "n_batch": 32,
    "n_mini": 16,
    "max_tokens": 24,
    "lr": 1e-3,
    "bf16": "no",
    "dtype": "fp32",
    "system": Path("none"),
    "language": False,
    "schedule": "sync",
}


@pytest.fixture(scope="module")
def threes(tmp_path_factory):
    """The answer is always 3: RL has to make one token of four likelier."""
    path = tmp_path_factory.mktemp("problems") / "threes.jsonl"
    rows = [{"id": letter, "prompt": f"{letter}?", "answer": "3"} for letter in "abcdefgh"]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def metrics(run, name):
    return [json.loads(line)[name] for line in (run / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"schedule": "async"},
        {"advantage_norm": "group", "loss_norm": "token"},
        {"advantage_norm": "none", "loss_norm": "sample"},
    ],
    ids=["sync", "async", "normalised by group and token", "not normalised, by sample"],
)
def test_the_share_of_correct_answers_rises_clearly(change, guesser, threes, tmp_path):
    call_stage("rl", threes, model=str(guesser), run=tmp_path / "run", **RECIPE | change)
    found = metrics(tmp_path / "run", "correct")
    assert found[0] < 0.45
    assert np.mean(found[-2:]) > 0.6


def test_with_shuffled_rewards_it_does_not_rise(guesser, threes, tmp_path):
    call_stage("rl", threes, model=str(guesser), run=tmp_path / "run", shuffle_rewards=True, **RECIPE)
    assert np.mean(metrics(tmp_path / "run", "correct")[-2:]) < 0.45
