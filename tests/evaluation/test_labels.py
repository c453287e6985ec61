"""What several tables are called beside each other."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magcli.evaluation.labels import labels


def test_labels_keep_the_parts_that_differ() -> None:
    assert labels(["runs/a/m.arrow", "runs/b/m.arrow"]) == ["a/m", "b/m"]
    assert labels(["runs/m.arrow", "runs/m.parquet", "runs/n.arrow"]) == ["m.arrow", "m.parquet", "n"]
    assert labels(["runs/m.arrow", "runs/m.arrow"]) == ["m.arrow", "m.arrow (2)"]
    assert labels([]) == []


def test_relative_folders_have_a_label(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here" / "below").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    assert labels([".", "../m.arrow"])[0].endswith("here")
    monkeypatch.chdir(tmp_path / "here" / "below")
    assert labels(["..", str(tmp_path / "m.arrow")]) == ["here", "m"]
    assert len(labels(["/", "."])) == 2


@given(st.lists(st.sampled_from(["m", "m.arrow", "m.arrow (2)", "a/m.arrow", "m (2).arrow", "m.x.arrow"])))
def test_no_two_labels_are_equal(names: list[str]) -> None:
    assert len(set(labels(names))) == len(names)
