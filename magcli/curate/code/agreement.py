"""Agreement of solutions: which tests of a code problem to keep, which expected outputs to replace, and whether to
keep the problem (recipe, section 4).

A test is kept if enough of the working solutions agree on its output. If they agree on another output and no solution
gives the expected one, the expected output is considered wrong and replaced. ``decide`` is a pure function of the
matrix of runs: results depend on neither the order of the solutions nor that of the runs.

The voters are the solutions labelled right or, if there are none, the unlabelled ones; never those labelled wrong. A
solution works if it produced output on at least one test; on a test without output it agrees with nobody. Unlabelled
solutions replace an output as labelled ones do, which is the recipe's rule, unless ``replace_unlabelled`` is false: the
most common mistake of a model's samples is often their majority.

The matrices of all problems are one table, in the order of the problems, written atomically at the end. The runs of a
problem are journalled before the problem itself is, so a resumed run never repeats them.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pyarrow as pa

from magcli import __version__
from magcli.curate.code.problems import Label
from magcli.data import durable, manifest, seal, table
from magcli.data.schema import MATRIX, require
from magcli.errors import DataError, usage
from magcli.run.journal import Journal
from magcli.run.shard import KEY
from magcli.run.types import Result

RIGHT = 0
"""The group of outputs that equal the expected one under the problem's comparison."""

TestOutcome = Literal["kept", "replaced", "disagree", "contested", "unconfirmed"]
"""``disagree``: no output has enough votes. ``contested``: enough agree on another output, but some solution gives the
expected one. ``unconfirmed``: no solution gives the expected output, and too few agree to replace it."""

DropReason = Literal["", "not-run", "bad-tests", "solutions-fail", "few-tests", "disputed", "weak"]

COLUMNS = ("solution", "test", "verdict", "group", "output", "seconds")
"""Columns of a cell, in the order of the fields of ``Cell``."""


class Cell(NamedTuple):
    """A cell of the matrix: a solution on a test.

    Equal outputs have the same ``group``: ``RIGHT`` for the expected one, None for no output. The
    verdict is one of ``magcli.verify.types``, or ``unrun`` if the test was skipped because the solution is slow.
    """

    solution: int
    test: int
    verdict: str
    group: int | None
    output: str | None = None
    seconds: float | None = None


class Rules(NamedTuple):
    """When tests and problems are kept.

    ``agreement``: fraction of the working solutions that must give the most common output. ``votes``: minimum number
    of votes to replace an expected output. ``min_tests``: minimum number of tests left. ``disputed``: maximum fraction
    of tests dropped or replaced; beyond it the problem itself is at fault, for example with several right answers.
    ``replace_unlabelled``: whether unlabelled solutions may replace an expected output.
    """

    agreement: float = 0.9
    votes: int = 2
    min_tests: int = 3
    disputed: float = 0.5
    drop_weak: bool = False
    replace_unlabelled: bool = True


class Decision(NamedTuple):
    """The decision for a problem: ``reason`` is empty if it is kept.

    ``kept`` maps tests, in order, to a new expected output or None. ``dropped`` counts tests by outcome. ``wrong`` is
    the number of solutions labelled wrong that ran; ``passing`` are those that pass all kept tests.
    """

    reason: DropReason
    detail: str
    kept: Mapping[int, str | None]
    dropped: Mapping[TestOutcome, int]
    wrong: int = 0
    passing: Sequence[int] = ()

    @property
    def replaced(self) -> int:
        """Number of replaced outputs."""
        return sum(output is not None for output in self.kept.values())


def decide(runs: Sequence[Cell], labels: Mapping[int, Label], rules: Rules) -> Decision:
    """Decide on a problem from its runs.

    Args:
        runs: Every solution on every test, or a single ``infra-error`` if the machine failed.
        labels: The labels of these solutions.
        rules: When tests and problems are kept.
    """
    for run in runs:
        # Either stands alone: it says nothing about single solutions.
        if run.verdict == "infra-error":
            return Decision("not-run", run.output or "", {}, {})
        if run.verdict == "bad-gold":
            return Decision("bad-tests", run.output or "", {}, {})
    by_test: dict[int, list[Cell]] = {}
    for run in sorted(runs, key=lambda run: run.test):
        by_test.setdefault(run.test, []).append(run)
    voting = voters(runs, labels)
    may_replace = rules.replace_unlabelled or "right" in labels.values()
    # More votes than there are voters: never enough.
    needed = rules.votes if may_replace else len(voting) + 1
    outcomes: Counter[TestOutcome] = Counter()
    right_groups: dict[int, int | None] = {}
    outputs: dict[int, str | None] = {}
    for test, test_runs in by_test.items():
        outcome, group = _judge_test(test_runs, voting, rules.agreement, needed)
        outcomes[outcome] += 1
        if outcome in ("kept", "replaced"):
            right_groups[test] = group
            # The expected output stays as it is written, whatever its equal spellings.
            outputs[test] = None if group == RIGHT else _output(test_runs, group)
    failing = _failing(runs, right_groups)
    wrong = {run.solution for run in runs if labels[run.solution] == "wrong"}
    passing = sorted(wrong - failing)
    reason, detail = _drop_reason(outcomes, voting, voting - failing, len(right_groups), rules)
    if not reason and passing and rules.drop_weak:
        reason = "weak"
        detail = f"{len(passing)} of {len(wrong)} wrong solutions pass"
    dropped = {outcome: count for outcome, count in outcomes.items() if outcome not in ("kept", "replaced")}
    return Decision(reason, detail, outputs, dropped, len(wrong), passing)


def _failing(runs: Iterable[Cell], right_groups: Mapping[int, int | None]) -> set[int]:
    """The solutions that fail a kept test; ``right_groups`` has the group of its right output."""
    failing = set()
    for run in runs:
        # Unlike a run without output, a skipped one is no failure.
        is_judged = run.test in right_groups and run.verdict != "unrun"
        if is_judged and run.group != right_groups[run.test]:
            failing.add(run.solution)
    return failing


def voters(runs: Iterable[Cell], labels: Mapping[int, Label]) -> set[int]:
    """The working solutions that vote."""
    label: Label = "right" if "right" in labels.values() else "unknown"
    return {run.solution for run in runs if run.group is not None and labels[run.solution] == label}


def _judge_test(
    runs: Sequence[Cell], voting: Collection[int], agreement: float, needed: int
) -> tuple[TestOutcome, int | None]:
    """The outcome of a test and the group that counts as right; ``needed`` votes replace an output."""
    # Without output a solution votes for nothing, but counts among the voters.
    votes = Counter(run.group for run in runs if run.solution in voting and run.group is not None)
    max_votes = max(votes.values(), default=0)
    leading = [group for group, count in votes.items() if count == max_votes]
    # In a tie, the output that the test has wins; two others decide nothing.
    winner = None
    if RIGHT in leading:
        winner = RIGHT
    elif len(leading) == 1:
        winner = leading[0]
    if winner is None or max_votes < agreement * len(voting):
        return "disagree", None
    if winner == RIGHT:
        return "kept", RIGHT
    # A voter that gives the expected output shows that it can be reached.
    if RIGHT in votes:
        return "contested", None
    if max_votes < needed or _output(runs, winner) is None:
        return "unconfirmed", None
    return "replaced", winner


def _output(runs: Iterable[Cell], group: int | None) -> str | None:
    """The output that represents a group of wrong outputs."""
    return next((run.output for run in runs if run.group == group and run.output is not None), None)


def _drop_reason(
    outcomes: Mapping[TestOutcome, int], voting: Collection[int], passed: Collection[int], kept: int, rules: Rules
) -> tuple[DropReason, str]:
    total = sum(outcomes.values())
    against = total - outcomes.get("kept", 0)
    if total < rules.min_tests:
        return "few-tests", count_tests(total)
    if not voting:
        return "solutions-fail", "no solution produces any output"
    if against > rules.disputed * total:
        # With too few voters the solutions may be wrong rather than the tests.
        too_few = len(voting) < rules.votes
        reason: DropReason = "solutions-fail" if too_few else "disputed"
        return reason, f"{against} of {total} tests"
    if unconfirmed := outcomes.get("unconfirmed"):
        return "solutions-fail", f"no solution gives the expected output on {unconfirmed} of {total} tests"
    if kept < rules.min_tests:
        return "few-tests", f"{kept} of {total} tests left"
    if not passed:
        return "solutions-fail", "no solution passes all tests left"
    return "", ""


def count_tests(tests: int) -> str:
    """``1 test`` or ``2 tests``."""
    return f"{tests} test{'' if tests == 1 else 's'}"


class MatrixTable:
    """Writes the matrix table next to the output of the stage. Not thread-safe.

    Args:
        path: The table.
        sandbox: The isolation of programs; journalled runs of another one are not reused.
        restart: Discard the journal.
        shard: The shard that is run; None for all problems.

    Raises:
        UsageError: the journal belongs to another sandbox, or the table to another shard.
    """

    def __init__(self, path: Path, *, sandbox: str, restart: bool, shard: str | None = None) -> None:
        self._path = path
        _check_shard(path, shard)
        journal = path.with_name(f".{path.name}.journal")
        path.parent.mkdir(parents=True, exist_ok=True)
        if restart:
            durable.remove(journal)
        # Verdicts depend on both: an interrupted run is only resumed with the same.
        identity = {"sandbox": sandbox, "version": __version__, **({KEY: shard} if shard else {})}
        self._journal = Journal.open(journal, MATRIX, identity)

    def get(self, id: str, digest: str) -> list[Cell] | None:
        """The finished runs of a problem; None if there are none or the machine failed."""
        key = f"{digest} {id}"
        if key not in self._journal:
            return None
        runs = runs_of(self._journal.get(key).rows.to_pylist())
        # A fault of the machine is worth another attempt.
        if not runs or runs[0].verdict == "infra-error":
            return None
        return runs

    def put(self, id: str, digest: str, runs: Sequence[Cell]) -> None:
        """Store the runs of a problem durably."""
        names = {"id": id, "digest": digest}
        rows = pa.RecordBatch.from_pylist([names | run._asdict() for run in runs], MATRIX)
        self._journal.put(f"{digest} {id}", Result(rows))
        self._journal.sync()

    def finish(self, problems: Iterable[tuple[str, str]], history: Callable[[int], manifest.Chain]) -> None:
        """Write the table of problems (id, digest) in that order, unless this run has already written it.

        ``history`` returns the history for a number of rows.

        Raises:
            DataError: runs are missing because the journal was removed.
        """
        keys = [f"{digest} {id}" for id, digest in problems]
        if all(key in self._journal for key in keys):
            self._write(keys, history)
        # The journal is removed once the table is written, which then has this history.
        elif not self._is_finished(history(0)[-1]):
            raise DataError(f"{self._path}: the runs of finished problems are missing; use --restart to run them again")
        self._journal.remove()

    def close(self) -> None:
        """Close the journal, keeping it for the next run."""
        if not self._journal.file.closed:
            self._journal.close()

    def _write(self, keys: Iterable[str], history: Callable[[int], manifest.Chain]) -> None:
        count = 0
        with table.write(str(self._path), MATRIX, seal.pack({"stage": history(0)[-1].stage})) as sink:
            for batch in table.rechunk(self._journal.get(key).rows for key in keys):
                count += batch.num_rows
                sink.write(batch)
            sink.finish(history(count))

    def _is_finished(self, link: manifest.Link) -> bool:
        last = _last_link(self._path)
        return last is not None and _identity(last) == _identity(link)


def _check_shard(path: Path, shard: str | None) -> None:
    """Refuse to overwrite the finished matrix of another shard."""
    last = _last_link(path) if path.exists() else None
    other = last.config.get(KEY) if last else None
    usage(
        other in (None, shard),
        f"{path} is the matrix of shard {other}; use one --matrix per shard and join them with magcli commit",
    )


def _last_link(path: Path) -> manifest.Link | None:
    """The last entry of a table's history; None if there is no complete table."""
    try:
        chain = table.read(str(path)).chain
    except DataError:
        return None
    return chain[-1] if chain else None


def _identity(link: manifest.Link) -> tuple[Any, ...]:
    return link.stage, link.version, seal.pack(link.config), [source.sha256 for source in link.inputs]


def runs_of(rows: Iterable[Mapping[str, Any]]) -> list[Cell]:
    """Convert rows of a matrix to runs."""
    return [Cell(*(row[name] for name in COLUMNS)) for row in rows]


class MatrixReplay:
    """Reads a matrix in step with the problems it was made from, in the same order.

    Raises:
        DataError: the table is not a matrix.
    """

    def __init__(self, path: Path) -> None:
        source = table.read(str(path))
        require(source.schema, MATRIX.names, stage="filter-code", where=str(path))
        self._path = path
        # A problem may be asked for twice in a row.
        self._last: tuple[tuple[str, str], list[Cell]] = ("", ""), []
        rows = (row for batch in source.rows for row in batch.to_pylist())
        # Cells of a problem are next to each other, so only one problem is in memory.
        self._problems = groupby(rows, key=lambda row: (row["id"], row["digest"]))

    def runs(self, id: str, digest: str) -> list[Cell]:
        """The runs of a problem, skipping those of problems in between.

        Raises:
            DataError: there are none further on.
        """
        if (id, digest) == self._last[0]:
            return self._last[1]
        for key, rows in self._problems:
            if key == (id, digest):
                # A problem that follows itself has its runs twice, which would count as more votes.
                cells = {(run.solution, run.test): run for run in runs_of(rows)}
                self._last = key, list(cells.values())
                return self._last[1]
        raise DataError(
            f"{self._path} has no runs of problem {id} in its current form and order; "
            "use the problems and options that the matrix was made with"
        )
