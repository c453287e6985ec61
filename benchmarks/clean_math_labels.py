"""How well ``clean-math`` decides on the rows labelled by hand: precision and recall of each reason.

``python -m benchmarks clean-math-labels`` prints one table a part, over all its rows and over the clear ones: a note
that begins with "borderline" says that another careful reader may differ. ``HALF=`` with ``seen``, ``held-out``,
``unseen``, ``foreign``, ``outside``, ``fresh``, ``foreign-held-out``, ``outside-held-out`` or ``rl`` prints only that
one, and ``MISSES=1`` each row that is decided otherwise than labelled (never of the last four, which were labelled to
measure rules that are written without a look at them). Text that this project does not ship is read from the public
files.
"""

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.public import SHARED, GithubFile
from magcli.curate.math.answers import plain_value
from magcli.curate.math.choices import with_options
from magcli.curate.math.problems import Dropped, clean
from magcli.verify.math import equal, parsable
from tests.curate.math.labelled.columns import Fed, digest, fed, read

LABELLED = Path(__file__).parents[1] / "tests" / "curate" / "math" / "labelled"
LOOKED_AT = {
    "seen": "clean_math.jsonl",
    "held-out": "clean_math_held_out.jsonl",
    "unseen": "clean_math_unseen.jsonl",
    "foreign": "clean_math_foreign.jsonl",
    "outside": "clean_math_outside.jsonl",
}
HALVES = LOOKED_AT | {
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
"""The label that each reason of ``clean-math`` stands for."""


class Decision(NamedTuple):
    """One labelled row, and what ``clean-math`` makes of it: a label, or ``opened-otherwise`` for a wrong rewrite."""

    row: Mapping[str, Any]
    given: Fed
    found: str
    detail: str


class Score(NamedTuple):
    """Counts of one label: rows that carry it, rows decided so, and both."""

    label: str
    labelled: int
    decided: int
    both: int

    @property
    def precision(self) -> float:
        """Share of the rows decided so that carry the label."""
        return self.both / max(1, self.decided)

    @property
    def recall(self) -> float:
        """Share of the rows that carry the label that are decided so."""
        return self.both / max(1, self.labelled)


def decide(row: Mapping[str, Any], given: Fed) -> Decision:
    """What the rules make of a row; a missing answer is what the stage's door drops."""
    if given.answer is None:
        return Decision(row, given, "missing-answer", "")
    found = clean(with_options(given.problem, given.choices), given.answer, parsable=parsable)
    if isinstance(found, Dropped):
        return Decision(row, given, LABEL_OF[found.reason], found.detail)
    if found.note != "opened":
        return Decision(row, given, "keep", found.answer)
    truth = row.get("open_answer")
    right = truth is None or any(equal(found.answer, each) for each in (truth, plain_value(truth)))
    return Decision(row, given, "choice-rewrite" if right else "opened-otherwise", found.answer)


def scores(decisions: Sequence[Decision]) -> list[Score]:
    """One score a label."""
    labelled = Counter(str(each.row["label"]) for each in decisions)
    decided = Counter(each.found for each in decisions)
    both = Counter(each.found for each in decisions if each.found == each.row["label"])
    return [Score(label, labelled[label], decided[label], both[label]) for label in sorted(labelled)]


def shipped(half: str) -> Iterator[tuple[Mapping[str, Any], Fed]]:
    """The rows of a part whose text lies in this project."""
    for row in read(LABELLED / HALVES[half]):
        if "problem" in row:
            yield row, Fed(row["problem"], row["answer"], row.get("choices"))


def published(half: str) -> Iterator[tuple[Mapping[str, Any], Fed]]:
    """All rows of a part, from the public files.

    Raises:
        Missing: a file cannot be had.
    """
    files = {source["source"]: source for source in read(LABELLED / "sources.jsonl")}
    rows: dict[str, list[Mapping[str, Any]]] = {}
    for row in read(LABELLED / HALVES[half]):
        name = row["source"]
        if name not in rows:
            rows[name] = read(_file(files[name]).kept())
        original = rows[name][row["row"]]
        assert digest(original) == row["sha256"], f"{name}, row {row['row']}: another row than the labelled one"
        yield row, fed(name, original)


def _file(source: Mapping[str, str]) -> GithubFile:
    lies = next((str(path.relative_to(SHARED)) for path in SHARED.glob(f"*/{source['source']}")), "")
    return GithubFile(source["repository"], source["commit"], source["path"], source["sha256"], lies)


def lines(half: str, decisions: Sequence[Decision]) -> Iterator[str]:
    """The table of one part, as docs/benchmarks.md has it: of all rows, and of those that are not borderline."""
    clear = [each for each in decisions if not borderline(each.row)]
    beside = {score.label: _told(score) for score in scores(clear)}
    yield f"| {half}: label | rows | decided so | precision | recall | clear rows | decided so | precision | recall |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    for each in scores(decisions):
        yield f"| `{each.label}` | {_told(each)} | {beside.get(each.label, '0 | | | ')} |"
    for name, rows in ((half, decisions), (f"{half}, clear rows", clear)):
        yield f"{name}: {sum(each.found == each.row['label'] for each in rows)} of {len(rows)} rows as labelled"


def borderline(row: Mapping[str, Any]) -> bool:
    """Whether the labeller noted that another careful reader may differ."""
    return str(row.get("note", "")).lower().startswith("borderline")


def _told(score: Score) -> str:
    return f"{score.labelled} | {score.decided} | {score.precision:.2f} | {score.recall:.2f}"


def misses(decisions: Iterable[Decision]) -> Iterator[str]:
    """Each row that is decided otherwise than labelled, as one line of JSON."""
    for each in decisions:
        if each.found != each.row["label"]:
            told = {key: each.row[key] for key in ("source", "row", "label", "note")}
            told |= {"found": each.found, "detail": each.detail, "problem": each.given.problem}
            yield json.dumps(told | {"answer": each.given.answer, "choices": each.given.choices}, ensure_ascii=False)


def run() -> None:
    """Print the table of each part."""
    halves = [os.environ["HALF"]] if "HALF" in os.environ else list(HALVES)
    for half in halves:
        decisions = [decide(row, given) for row, given in published(half)]
        print("\n".join(lines(half, decisions)), flush=True)
        if os.environ.get("MISSES") and half in LOOKED_AT:
            print("\n".join(misses(decisions)), flush=True)
