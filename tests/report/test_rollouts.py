import shutil

import numpy as np
import pytest

from magcli.errors import DataError
from magcli.report import training
from magcli.run.rundir import RunDir


def test_updates_with_rollouts_are_found(pipeline):
    assert training.updates(pipeline / "rl") == [1, 2, 3, 4, 5, 6]
    assert training.updates(pipeline) == []


@pytest.mark.parametrize(
    ("at", "steps"),
    [
        (["0%", "25%", "50%", "100%"], [1, 3, 5, 9]),
        (["4"], [3]),
        (["100"], [9]),
        (["3", "25%"], [3]),
        ([], []),
    ],
)
def test_updates_are_chosen_by_fraction_or_number(at, steps):
    assert training.select_updates([1, 3, 5, 7, 9], at) == steps
    assert training.select_updates([], at) == []


def test_the_error_of_a_mean_over_groups_is_that_of_resampling_them():
    choose = np.random.default_rng(0)
    rewards = (choose.normal(size=(40, 1)) + 0.3 * choose.normal(size=(40, 16))).astype(np.float32)
    groups = np.repeat(np.arange(100, 140), 16)
    means = [rewards[choose.integers(0, 40, 40)].mean() for _ in range(4000)]
    found = training.standard_error(groups, rewards.ravel())
    assert found == pytest.approx(np.std(means), rel=0.06)
    assert found > 3 * rewards.std() / np.sqrt(rewards.size), "completions of one problem are not independent"


def test_one_group_has_no_error():
    assert training.standard_error(np.zeros(4, np.int64), np.ones(4, np.float32)) is None
    assert training.standard_error(np.zeros(0, np.int64), np.ones(0, np.float32)) is None


def test_every_update_has_an_error_about_its_logged_mean(pipeline):
    errors = training.reward_errors(pipeline / "rl")
    assert list(errors) == [line["step"] for line in RunDir(pipeline / "rl").metrics()]
    assert sum(errors.values()) > 0
    assert all(0 <= error < 0.5 for error in errors.values())


def test_samples_show_best_and_worst_and_a_group_that_was_dropped(pipeline):
    found = training.read_samples(pipeline / "rl", ["0%", "100%"], 3)
    lines = RunDir(pipeline / "rl").metrics()
    assert any(lines[update.step - 1]["groups_dropped"] for update in found)
    assert [update.step for update in found] == [1, 6]
    for update in found:
        dropped = bool(lines[update.step - 1]["groups_dropped"])
        assert [bool(group.dropped) for group in update.groups] == [False, False, dropped]
        for group in update.groups[:2]:
            best, worst = group.samples
            assert best.reward > worst.reward
            assert best.reward == pytest.approx(sum(value for _, value in best.parts))
            assert best.advantage > 0 > worst.advantage
            assert best.versions == [update.step - 1]


def test_no_samples_are_read_if_none_are_wanted(pipeline):
    assert training.read_samples(pipeline / "rl", ["0%"], 0) == []


def test_truncated_rollouts_are_named(pipeline, tmp_path):
    shutil.copytree(pipeline / "rl", tmp_path / "rl")
    path = tmp_path / "rl" / "rollouts" / "step-000003.arrow"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(DataError, match=r"step-000003\.arrow is truncated or damaged"):
        training.reward_errors(tmp_path / "rl")
