"""Precision and recall of ``clean-math`` on hand-labelled rows, by label.

Prints one table per part, over all its rows and over the clear ones: the note of an unclear row begins with
"borderline". ``HALF=NAME`` prints one part only. ``MISSES=1`` prints the misclassified rows, but not of parts that no
rule may be written with (see ``PARTS_IN_VIEW``). Text that is not shipped is downloaded.
"""

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.downloads import SHARED, GithubFile
from magcli.curate.math.answers import plain_value
from magcli.curate.math.choices import append_options
from magcli.curate.math.problems import Dropped, clean
from magcli.verify.math import equal, parsable
from tests.curate.math.labelled.columns import Problem, digest, problem_of, read

LABELLED = Path(__file__).parents[1] / "tests" / "curate" / "math" / "labelled"
PARTS_IN_VIEW = {
    "seen": "clean_math.jsonl",
    "held-out": "clean_math_held_out.jsonl",
    "unseen": "clean_math_unseen.jsonl",
    "foreign": "clean_math_foreign.jsonl",
    "outside": "clean_math_outside.jsonl",
}
PARTS = PARTS_IN_VIEW | {
    "fresh": "clean_math_fresh.jsonl",
    "foreign-held-out": "clean_math_foreign_held_out.jsonl",
    "outside-held-out": "clean_math_outside_held_out.jsonl",
    "rl": "clean_math_rl.jsonl",
}
LABEL_OF = {
    "incomplete": "incomplete",
    "empty-prompt": "incomplete",
    "proof": "proof",
    "multi-part": "multi-part",
    "multiple-choice": "choice-drop",
    "prose-answer": "prose-answer",
    "unverifiable": "unparsable-answer",
    "no-answer": "missing-answer",
}
"""The label of each reason of ``clean-math``."""


class Decision(NamedTuple):
    """A labelled row and the label that ``clean-math`` gives it, or ``wrong-rewrite`` for a wrong answer."""

    row: Mapping[str, Any]
    problem: Problem
    predicted: str
    detail: str


class Score(NamedTuple):
    """Counts of one label: labelled rows, predicted rows, and both."""

    label: str
    labelled: int
    predicted: int
    both: int

    @property
    def precision(self) -> float:
        """Of the predicted rows."""
        return self.both / max(1, self.predicted)

    @property
    def recall(self) -> float:
        """Of the labelled rows."""
        return self.both / max(1, self.labelled)


def decide(row: Mapping[str, Any], problem: Problem) -> Decision:
    """Run the rules on a row; a missing answer is dropped by the stage's validation."""
    if problem.answer is None:
        return Decision(row, problem, "missing-answer", "")
    outcome = clean(append_options(problem.problem, problem.choices), problem.answer, parsable=parsable)
    if isinstance(outcome, Dropped):
        return Decision(row, problem, LABEL_OF[outcome.reason], outcome.detail)
    if outcome.note != "opened":
        return Decision(row, problem, "keep", outcome.answer)
    truth = row.get("open_answer")
    correct = truth is None or any(equal(outcome.answer, gold) for gold in (truth, plain_value(truth)))
    return Decision(row, problem, "choice-rewrite" if correct else "wrong-rewrite", outcome.answer)


def scores(decisions: Sequence[Decision]) -> list[Score]:
    """One score per label."""
    labelled = Counter(str(decision.row["label"]) for decision in decisions)
    predicted = Counter(decision.predicted for decision in decisions)
    both = Counter(decision.predicted for decision in decisions if decision.predicted == decision.row["label"])
    return [Score(label, labelled[label], predicted[label], both[label]) for label in sorted(labelled)]


def shipped(part: str) -> Iterator[tuple[Mapping[str, Any], Problem]]:
    """The rows of a part whose text is shipped."""
    for row in read(LABELLED / PARTS[part]):
        if "problem" in row:
            yield row, Problem(row["problem"], row["answer"], row.get("choices"))


def published(part: str) -> Iterator[tuple[Mapping[str, Any], Problem]]:
    """All rows of a part, from the public files.

    Raises:
        Unavailable: a file cannot be downloaded.
    """
    files = {source["source"]: source for source in read(LABELLED / "sources.jsonl")}
    rows: dict[str, list[Mapping[str, Any]]] = {}
    for row in read(LABELLED / PARTS[part]):
        name = row["source"]
        if name not in rows:
            rows[name] = read(_file(files[name]).fetch())
        original = rows[name][row["row"]]
        assert digest(original) == row["sha256"], f"{name}, row {row['row']}: not the labelled row"
        yield row, problem_of(name, original)


def _file(source: Mapping[str, str]) -> GithubFile:
    shared = next((str(path.relative_to(SHARED)) for path in SHARED.glob(f"*/{source['source']}")), "")
    return GithubFile(source["repository"], source["commit"], source["path"], source["sha256"], shared)


def lines(part: str, decisions: Sequence[Decision]) -> Iterator[str]:
    """The table of one part: all rows, and those that are not borderline."""
    clear = [decision for decision in decisions if not borderline(decision.row)]
    clear_scores = {score.label: _cells(score) for score in scores(clear)}
    yield f"| {part}: label | rows | predicted | precision | recall | clear rows | predicted | precision | recall |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    for score in scores(decisions):
        yield f"| `{score.label}` | {_cells(score)} | {clear_scores.get(score.label, '0 | | | ')} |"
    for name, rows in ((part, decisions), (f"{part}, clear rows", clear)):
        as_labelled = sum(decision.predicted == decision.row["label"] for decision in rows)
        yield f"{name}: {as_labelled} of {len(rows)} rows as labelled"


def borderline(row: Mapping[str, Any]) -> bool:
    """Whether the labeller noted that the label is debatable."""
    return str(row.get("note", "")).lower().startswith("borderline")


def _cells(score: Score) -> str:
    return f"{score.labelled} | {score.predicted} | {score.precision:.2f} | {score.recall:.2f}"


def misses(decisions: Iterable[Decision]) -> Iterator[str]:
    """The misclassified rows as JSON lines."""
    for decision in decisions:
        if decision.predicted != decision.row["label"]:
            line = {key: decision.row[key] for key in ("source", "row", "label", "note")}
            line |= {"predicted": decision.predicted, "detail": decision.detail, **decision.problem._asdict()}
            yield json.dumps(line, ensure_ascii=False)


def run() -> None:
    """Print the table of each part."""
    parts = [os.environ["HALF"]] if "HALF" in os.environ else list(PARTS)
    for part in parts:
        decisions = [decide(row, problem) for row, problem in published(part)]
        print("\n".join(lines(part, decisions)), flush=True)
        if os.environ.get("MISSES") and part in PARTS_IN_VIEW:
            print("\n".join(misses(decisions)), flush=True)
