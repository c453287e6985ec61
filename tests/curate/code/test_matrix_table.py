"""The table of runs: kept beside a stage's own, finished once, read in the order of the problems."""

from contextlib import closing

import pytest

from magcli.curate.code.agreement import Cell, MatrixReplay, MatrixTable
from magcli.data import manifest
from magcli.errors import DataError, UsageError

RUNS = [Cell(0, 0, "accepted", 0, None, 0.5), Cell(1, 0, "wrong-answer", 1, "x", 0.25)]
PROBLEMS = [("a", "d1"), ("b", "d2"), ("b", "d2"), ("c", "d3")]


def history(count, **settings):
    return (manifest.Link("filter-code", "1", settings, [], 4, count, {}),)


def opened(path, sandbox="full"):
    return MatrixTable(path, sandbox=sandbox, restart=False)


def finished(path, history=history):
    matrix = opened(path)
    for id, digest in dict.fromkeys(PROBLEMS):
        matrix.put(id, digest, RUNS)
    matrix.finish(PROBLEMS, history)


def test_runs_are_reused_only_under_the_same_isolation(tmp_path):
    with closing(opened(tmp_path / "m.arrow")) as matrix:
        matrix.put("a", "d1", RUNS)
    with closing(opened(tmp_path / "m.arrow")) as again:
        assert (again.get("a", "d1"), again.get("a", "d2")) == (RUNS, None)
    with pytest.raises(UsageError, match="sandbox 'full'"):
        opened(tmp_path / "m.arrow", "restricted")


def test_runs_that_the_machine_failed_are_repeated_and_recorded(tmp_path):
    failed = [Cell(0, 0, "infra-error", None, "not compiled")]
    with closing(opened(tmp_path / "m.arrow")) as matrix:
        matrix.put("a", "d1", failed)
    matrix = opened(tmp_path / "m.arrow")
    assert matrix.get("a", "d1") is None
    matrix.put("a", "d1", failed)
    matrix.finish(PROBLEMS[:1], history)
    assert MatrixReplay(tmp_path / "m.arrow").runs("a", "d1") == failed


def test_a_finished_table_survives_a_resumed_run(tmp_path):
    finished(tmp_path / "m.arrow")
    before = (tmp_path / "m.arrow").read_bytes()
    opened(tmp_path / "m.arrow").finish(PROBLEMS, history)
    assert (tmp_path / "m.arrow").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["m.arrow"]


def test_missing_runs_are_reported(tmp_path):
    finished(tmp_path / "m.arrow")
    with closing(opened(tmp_path / "m.arrow")) as matrix, pytest.raises(DataError, match="use --restart"):
        matrix.finish(PROBLEMS, lambda count: history(count, agreement=0.5))
    with closing(opened(tmp_path / "none.arrow")) as matrix, pytest.raises(DataError, match="use --restart"):
        matrix.finish(PROBLEMS, history)


def test_a_matrix_belongs_to_one_shard(tmp_path):
    finished(tmp_path / "m.arrow", lambda count: history(count, shard="1/2"))
    for shard in ("2/2", None):
        with pytest.raises(UsageError, match=r"m\.arrow is the matrix of shard 1/2; use one .* with magcli commit"):
            MatrixTable(tmp_path / "m.arrow", sandbox="full", restart=True, shard=shard)
    MatrixTable(tmp_path / "m.arrow", sandbox="full", restart=False, shard="1/2").close()
    with closing(MatrixTable(tmp_path / "n.arrow", sandbox="full", restart=False, shard="1/2")) as begun:
        begun.put("a", "d1", RUNS)
    with pytest.raises(UsageError, match=r"n\.arrow\.journal holds unfinished work .* shard '1/2' \(now '2/2'\)"):
        MatrixTable(tmp_path / "n.arrow", sandbox="full", restart=False, shard="2/2")


def test_a_replay_follows_the_order_of_the_problems(tmp_path):
    finished(tmp_path / "m.arrow")
    replay = MatrixReplay(tmp_path / "m.arrow")
    assert replay.runs("a", "d1") == RUNS
    assert replay.runs("b", "d2") == replay.runs("b", "d2") == RUNS
    assert replay.runs("c", "d3") == RUNS
    with pytest.raises(DataError, match="has no runs of problem a"):
        replay.runs("a", "d1")
    assert MatrixReplay(tmp_path / "m.arrow").runs("c", "d3") == RUNS
