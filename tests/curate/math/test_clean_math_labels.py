"""What clean-math decides on the labelled rows that rules were written with: those whose text is shipped.

Rows that are not shipped are measured by ``python -m benchmarks clean-math-labels``.
"""

import pytest

from benchmarks.clean_math_labels import Decision, Score, decide, lines, scores, shipped

PARTS = ("seen", "held-out", "unseen")
LEAST = {
    "choice-drop": (0.93, 0.96),
    "choice-rewrite": (0.94, 0.96),
    "incomplete": (0.87, 0.77),
    "keep": (0.97, 0.97),
    "missing-answer": (1.0, 1.0),
    "multi-part": (0.94, 0.94),
    "proof": (1.0, 1.0),
    "prose-answer": (0.94, 0.92),
    "unparsable-answer": (0.82, 0.82),
}
"""Precision and recall; of rows that rules were written with, so no measure of how well the rules do elsewhere.

Of the incomplete ones, figures that are named but not needed and data that are left out are what the rules cannot tell.
"""


@pytest.fixture(scope="module")
def decisions() -> list[Decision]:
    return [decide(row, given) for part in PARTS for row, given in shipped(part)]


@pytest.mark.parametrize("label", LEAST)
def test_each_label_is_predicted_well_on_rows_in_view(decisions: list[Decision], label: str) -> None:
    (score,) = (each for each in scores(decisions) if each.label == label)
    precision, recall = LEAST[label]
    assert score.precision >= precision, "\n".join(lines("seen, held-out, unseen", decisions))
    assert score.recall >= recall, "\n".join(lines("seen, held-out, unseen", decisions))


def test_most_rows_of_later_files_are_predicted_well() -> None:
    found = [decide(row, given) for row, given in shipped("foreign")]
    assert sum(each.predicted == each.row["label"] for each in found) >= 0.84 * len(found)


def test_borderline_rows_are_reported_separately() -> None:
    notes = [("keep", "a unit"), ("keep", "Borderline: a figure"), ("proof", "borderline: an example")]
    rows = [Decision({"label": label, "note": note}, None, "keep", "") for label, note in notes]
    printed = list(lines("seen", rows))
    assert "| `keep` | 2 | 3 | 0.67 | 1.00 | 1 | 1 | 1.00 | 1.00 |" in printed
    assert printed[-2:] == ["seen: 2 of 3 rows as labelled", "seen, clear rows: 1 of 1 rows as labelled"]


def test_scores() -> None:
    given = [("keep", "keep"), ("keep", "proof"), ("proof", "proof"), ("proof", "wrong-rewrite")]
    found = [Decision({"label": label}, None, decided, "") for label, decided in given]
    assert scores(found) == [Score("keep", 2, 1, 1), Score("proof", 2, 2, 1)]
    assert (scores(found)[0].precision, scores(found)[0].recall) == (1.0, 0.5)


def test_a_rewrite_with_the_wrong_answer() -> None:
    given = next(given for row, given in shipped("seen") if row["label"] == "choice-rewrite")
    assert decide({"open_answer": "123456789"}, given).predicted == "wrong-rewrite"
