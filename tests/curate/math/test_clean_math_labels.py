"""What clean-math decides on the labelled rows that rules were written with: those whose text is shipped.

The other half, and the rows that are not shipped, are measured by ``python -m tests.peers clean-math-labels``.
"""

import pytest

from tests.peers.clean_math_labels import Decision, Score, decide, lines, scores, shipped

LEAST = {
    "choice-drop": (0.95, 0.95),
    "choice-rewrite": (0.95, 0.95),
    "incomplete": (0.9, 0.9),
    "keep": (0.95, 0.95),
    "missing-answer": (1.0, 1.0),
    "multi-part": (0.9, 0.9),
    "proof": (0.95, 0.95),
    "prose-answer": (0.9, 0.9),
    "unparsable-answer": (0.75, 0.75),
}
"""Precision and recall; of the seen half only, so no measure of how well the rules do elsewhere."""


@pytest.fixture(scope="module")
def decisions() -> list[Decision]:
    return [decide(row, given) for row, given in shipped("seen")]


@pytest.mark.parametrize("label", LEAST)
def test_each_label_is_decided_well_on_the_seen_half(decisions: list[Decision], label: str) -> None:
    (score,) = (each for each in scores(decisions) if each.label == label)
    precision, recall = LEAST[label]
    assert score.precision >= precision, "\n".join(lines("seen", decisions))
    assert score.recall >= recall, "\n".join(lines("seen", decisions))


def test_scores_count_right() -> None:
    given = [("keep", "keep"), ("keep", "proof"), ("proof", "proof"), ("proof", "opened-otherwise")]
    found = [Decision({"label": label}, None, decided, "") for label, decided in given]
    assert scores(found) == [Score("keep", 2, 1, 1), Score("proof", 2, 2, 1)]
    assert (scores(found)[0].precision, scores(found)[0].recall) == (1.0, 0.5)


def test_a_wrong_rewrite_is_none() -> None:
    given = next(given for row, given in shipped("seen") if row["label"] == "choice-rewrite")
    assert decide({"open_answer": "123456789"}, given).found == "opened-otherwise"
