"""Groups on disk: what is read back is what was written, a damaged file is refused, a table takes its groups' files."""

import random
from dataclasses import replace
from pathlib import Path

import pytest

from magcli.errors import DataError
from magcli.generate.types import Rollout
from magcli.rl.store import CUSTOM_ROLLOUT, RolloutStore
from magcli.rl.types import Batch, Group
from magcli.verify.reward import Reward


def group(number: int, dropped: str | None = None) -> Group:
    """Two rollouts of one prompt: one right, whose weights changed on the way, and one cut at the limit."""
    prompt, problem = (3, 40, 1, 4), {"id": f"p{number}", "prompt": "a?", "answer": "3"}
    rollouts = (
        Rollout(0, prompt, (7, 8, 1), (-0.5, -0.25, 0.0), ((0, 4), (2, 5)), "stop", 11),
        Rollout(1, prompt, (9,), (-1.5,), ((0, 4),), "length", 2**62 + 1),
    )
    right = Reward(1.0, 0.1, 0.9, 0.0, 0.0, True, True, "correct", "3", "equal", "en en en")
    wrong = Reward(-0.05, 0.0, 0.0, -0.05, 0.0, False, False, "no-think")
    return Group(number, problem, prompt, rollouts, ("<think>é\n</think>3", ""), (right, wrong), dropped, 0.75)


def facts(found: Group) -> tuple[object, ...]:
    """All of a group but the columns that a problem has not."""
    problem = {name: value for name, value in found.problem.items() if value and name != "kind"}
    return found.number, problem, found.prompt, found.rollouts, found.texts, found.dropped, found.temperature


def rewards(found: Group) -> list[tuple[object, ...]]:
    """Rewards to the precision of a column."""
    parts = [(r.total, r.format, r.correctness, r.length, r.language) for r in found.rewards]
    verdicts = [(r.correct, r.correct_anywhere, r.reason, r.extracted, r.detail, r.languages) for r in found.rewards]
    return [(pytest.approx(numbers), verdict) for numbers, verdict in zip(parts, verdicts, strict=True)]


@pytest.fixture
def store(tmp_path: Path) -> RolloutStore:
    return RolloutStore(tmp_path / "run")


def test_a_group_is_read_back_as_it_was_written(store: RolloutStore) -> None:
    written = store.add(group(12, "all-right"))
    assert store.load(12) == written
    assert facts(written) == facts(group(12, "all-right"))
    assert [
        ((r.total, r.format, r.correctness, r.length, r.language),
         (r.correct, r.correct_anywhere, r.reason, r.extracted, r.detail, r.languages))
        for r in written.rewards
    ] == rewards(group(12))  # fmt: skip


def test_waiting_groups_are_listed_in_order_and_removed(store: RolloutStore) -> None:
    for number in (10, 2, 300):
        store.add(group(number))
    assert store.numbers() == [2, 10, 300]
    store.remove([10, 11])
    assert store.numbers() == [2, 300]


@pytest.mark.parametrize("length", [0, 40, -9])
def test_a_damaged_group_is_named_with_what_to_do(store: RolloutStore, tmp_path: Path, length: int) -> None:
    store.add(group(1))
    (path,) = (tmp_path / "run" / "groups").iterdir()
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(DataError, match=rf"{path.name} is damaged \(.*\); start again"):
        store.load(1, "start again")


def test_no_flipped_bit_of_a_group_is_trained_on(store: RolloutStore, tmp_path: Path) -> None:
    written = store.add(group(1))
    (path,) = (tmp_path / "run" / "groups").iterdir()
    whole = path.read_bytes()
    choose = random.Random(0)
    refused = 0
    for bit in choose.sample(range(8 * len(whole)), 1000):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        try:
            loaded = store.load(1)
        except DataError:
            refused += 1
        else:
            assert loaded == written, f"bit {bit}"
    assert refused > 990


def test_a_missing_group_is_named(store: RolloutStore) -> None:
    with pytest.raises(DataError, match=r"g-00000007\.arrow is damaged"):
        store.load(7)


def test_a_table_contains_an_update_and_replaces_the_files_of_its_groups(store: RolloutStore) -> None:
    trained, dropped = [store.add(group(0)), store.add(group(2))], [store.add(group(1, "all-wrong"))]
    store.add(group(3))
    assert not store.has_table(5)
    store.write_table(5, Batch(trained, dropped), {0: [0.5, -0.5], 2: [1.0, -1.0]})
    assert store.has_table(5)
    assert store.numbers() == [3]
    found = store.read_table(5)
    assert (list(found.trained), list(found.dropped)) == (trained, dropped)
    assert [path.name for path in store.tables()] == ["step-000005.arrow"]


def test_rows_that_trained_have_step_and_advantage(store: RolloutStore) -> None:
    from magcli.data import table

    store.write_table(3, Batch([group(4)], [group(6, "all-wrong")]), {4: [0.5, -0.5]})
    (path,) = store.tables()
    rows = [row for batch in table.read(str(path)).rows for row in batch.to_pylist()]
    summaries = [(row["group"], row["step"], row["advantage"], row["dropped"]) for row in rows]
    assert summaries == [(6, 3, None, "all-wrong")] * 2 + [(4, 3, 0.5, None), (4, 3, -0.5, None)]


def test_the_parts_of_a_custom_reward_are_a_column(tmp_path: Path) -> None:
    own = RolloutStore(tmp_path / "run", schema=CUSTOM_ROLLOUT)
    right, wrong = group(3).rewards
    with_parts = replace(group(3), rewards=(replace(right, parts={"brevity": 0.25}), wrong))
    assert [reward.parts for reward in own.add(with_parts).rewards] == [{"brevity": 0.25}, {}]
    own.write_table(1, Batch([own.load(3)], []), {})
    assert [reward.parts for reward in own.read_table(1).trained[0].rewards] == [{"brevity": 0.25}, {}]
    plain = RolloutStore(tmp_path / "run")
    assert plain.add(group(4)) == own.load(4)
