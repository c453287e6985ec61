"""Options that are those of an RL run."""

from pathlib import Path

import pytest

from magcli.errors import DataError
from magcli.stages.shared import run_options


def test_a_damaged_record_of_a_run_is_named(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(DataError, match=r"run.json is damaged .*; copy the folder again"):
        run_options.record(tmp_path)
