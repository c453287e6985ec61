"""Options that are those of an RL run."""

from pathlib import Path

import pytest

from magcli.data import checksum
from magcli.errors import DataError
from magcli.run.rundir import RunDir
from magcli.stages.shared import run_options


def test_a_damaged_record_of_a_run_is_named(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(DataError, match=r"run.json is damaged .*; copy the folder again"):
        run_options.record(tmp_path)


@pytest.mark.parametrize("evaluates", [False, True])
def test_the_options_are_those_of_the_stage_of_the_last_update(tmp_path: Path, evaluates: bool) -> None:
    """The line of an evaluation before the first update is no update, and has none of its metrics."""
    stages = [{"max_tokens": 20, "updates": 2, "until": "length-stalled"}, {"max_tokens": 30}]
    record = {"command": "rl", "max_tokens": 10, "stage": stages}
    (tmp_path / "run.json").write_bytes(checksum.encode_object(record))
    folder = RunDir(tmp_path)
    if evaluates:
        folder.log({"step": 0, "accuracy": 0.5})
    lengths = []
    for step in (1, 2, 3):
        folder.log({"step": step, "length_mean": 9.0})
        lengths.append(run_options.options_of_run(tmp_path)["max_tokens"])
    assert lengths == [20, 20, 30]
