from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from magcli.data import manifest, seal, table
from magcli.errors import DataError
from magcli_simulate.machine import LengthSpec
from magcli_simulate.workload import GroupShape, fit_lengths, group_source, read_groups, resampled_source


def drawn(lengths, *, group=8, max_tokens=100_000, seed=0, groups=2000):
    draw = group_source(lengths, group=group, max_tokens=max_tokens, seed=seed)
    return [draw(number) for number in range(groups)]


def flat(groups):
    return np.array([length for group in groups for length in group.lengths])


def test_log_normal_lengths_have_their_median_and_spread():
    tokens = flat(drawn(LengthSpec(median=500.0, sigma=0.8)))
    assert np.median(tokens) == pytest.approx(500, rel=0.04)
    assert np.log(tokens).std() == pytest.approx(0.8, rel=0.03)


def test_quantiles_are_met_and_lengths_end_at_the_limit():
    shape = LengthSpec(quantiles=((0.0, 10.0), (0.5, 100.0), (0.9, 1000.0), (1.0, 4000.0)))
    tokens = flat(drawn(shape))
    assert np.quantile(tokens, [0.5, 0.9]) == pytest.approx([100, 1000], rel=0.08)
    assert tokens.min() >= 10
    assert tokens.max() <= 4000
    assert flat(drawn(shape, max_tokens=300)).max() == 300


def test_completions_of_one_problem_have_the_given_correlation():
    for within in (0.0, 0.5, 1.0):
        logs = np.log(flat(drawn(LengthSpec(median=5000.0, sigma=0.5, correlation=within), group=2)).reshape(-1, 2))
        assert np.corrcoef(logs.T)[0, 1] == pytest.approx(within, abs=0.06)


def test_a_group_depends_only_on_its_number_and_the_seed():
    shape = LengthSpec(median=50.0, sigma=1.0, dropped=0.4, prompt=9)
    draw = group_source(shape, group=4, max_tokens=500, seed=3)
    assert [draw(7), draw(2), draw(7)] == [draw(7), draw(2), draw(7)]
    assert drawn(shape, group=4, max_tokens=500, seed=3, groups=5)[2] == draw(2)
    assert drawn(shape, seed=4, groups=9) != drawn(shape, seed=3, groups=9)
    share = np.mean([group.dropped for group in drawn(shape)])
    assert share == pytest.approx(0.4, abs=0.04)
    assert draw(0).prompt == 9


def rollouts(path, groups):
    """A table as `magcli rl` writes it, as far as it is read."""
    rows = [
        {"group": number, "num_tokens": length, "prompt_tokens": [1] * group.prompt, "dropped": reason}
        for number, group in groups.items()
        for length, reason in ((length, "all-wrong" if group.dropped else None) for length in group.lengths)
    ]
    fields = [("group", pa.int64()), ("num_tokens", pa.int32()), ("prompt_tokens", pa.list_(pa.int32()))]
    batch = pa.RecordBatch.from_pylist(rows, pa.schema([*fields, ("dropped", pa.string())]))
    with table.write(str(path), batch.schema, seal.pack({"stage": "rl"})) as sink:
        sink.write(batch)
        sink.finish((manifest.Link("rl", "", {}, rows_out=batch.num_rows),))
    return path


def test_groups_of_a_run_are_drawn_as_a_whole(tmp_path):
    groups = {0: GroupShape((5, 9), 3, dropped=False), 4: GroupShape((7, 2), 6, dropped=True)}
    rollouts(tmp_path / "step-000001.arrow", groups)
    rollouts(tmp_path / "step-000002.arrow", {5: GroupShape((1, 1), 2, dropped=False)})
    assert read_groups(tmp_path) == {**groups, 5: GroupShape((1, 1), 2, dropped=False)}
    assert read_groups(tmp_path / "step-000001.arrow") == groups
    like = drawn(LengthSpec(rollouts=str(tmp_path)), group=2, max_tokens=8, groups=300)
    assert set(like) == {
        GroupShape((5, 8), 3, dropped=False),
        GroupShape((7, 2), 6, dropped=True),
        GroupShape((1, 1), 2, False),
    }
    bigger = drawn(LengthSpec(rollouts=str(tmp_path)), group=5, groups=300)
    assert {length for group in bigger if group.prompt == 3 for length in group.lengths} == {5, 9}
    assert {len(group.lengths) for group in bigger} == {5}


def test_groups_of_a_fitted_distribution_are_drawn_alike():
    shape = LengthSpec(median=400.0, sigma=0.9, correlation=0.4, prompt=30, dropped=0.25)
    found = fit_lengths(drawn(shape))
    again = drawn(found, seed=1)
    shares = [0.1, 0.5, 0.9]
    assert np.quantile(flat(again), shares) == pytest.approx(np.quantile(flat(drawn(shape)), shares), rel=0.1)
    assert (found.prompt, found.dropped) == (30, pytest.approx(0.25, abs=0.03))
    assert found.correlation == pytest.approx(0.4, abs=0.04)
    assert fit_lengths([GroupShape((7, 7), 3, False)]).correlation == 0


def test_tables_without_rollouts_are_named(tmp_path):
    with pytest.raises(DataError, match="contains no rollouts"):
        read_groups(tmp_path)
    (tmp_path / "other.jsonl").write_text('{"group": 1, "dropped": null}\n')
    with pytest.raises(DataError, match="it lacks column num_tokens, prompt_tokens"):
        read_groups(Path(tmp_path / "other.jsonl"))
    with pytest.raises(DataError, match="none of 1 groups of rollouts trained"):
        resampled_source([GroupShape((1,), 1, dropped=True)], group=1, max_tokens=9, seed=0)
