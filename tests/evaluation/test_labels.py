"""What several tables are called beside each other."""

from hypothesis import given
from hypothesis import strategies as st

from magcli.evaluation.labels import labels


def test_labels_keep_what_differs() -> None:
    assert labels(["runs/a/m.arrow", "runs/b/m.arrow"]) == ["a/m", "b/m"]
    assert labels(["runs/m.arrow", "runs/m.parquet", "runs/n.arrow"]) == ["m.arrow", "m.parquet", "n"]
    assert labels(["runs/m.arrow", "runs/m.arrow"]) == ["m.arrow", "m.arrow (2)"]
    assert labels([]) == []


@given(st.lists(st.sampled_from(["m", "m.arrow", "m.arrow (2)", "a/m.arrow", "m (2).arrow", "m.x.arrow"])))
def test_no_two_labels_are_equal(names: list[str]) -> None:
    assert len(set(labels(names))) == len(names)
