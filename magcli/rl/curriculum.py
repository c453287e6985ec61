"""Which problem the next group takes: the data must not become easy, and no problem is lost (recipe, section 5).

An epoch takes every active problem once, in an order drawn from the run's seed. Every finished group updates what is
known of its problem. One that is solved again and again retires; one that is never solved is deferred: left out of one
epoch, then of two, four, up to sixteen, and tried in between. With both rules off all problems are active always.

All of it is a function of the seed and of the groups' events in their order, so a run that goes on rebuilds it from its
ledger with ``follow``.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from magcli.errors import DataError, Stopped

FADE = 0.5
"""What a problem's earlier completions still count when a new group of it is finished."""

MAX_DOUBLINGS = 4
"""A deferred problem misses at most 2 to the power of this many epochs before it is tried again."""

EQUAL = 1e-6
"""Pass rates closer than this are the same: far above float32 rounding, which columns have."""

Row = Mapping[str, Any]


class AllSolved(Stopped):
    """Every problem of the present stage has retired."""


class Pool(NamedTuple):
    """The problems of one stage: those of a table whose pass rate is in a band, both ends included; None takes all."""

    rows: Sequence[Row]
    band: Sequence[float] | None = None


class Counts(NamedTuple):
    """Problems of the present stage by what becomes of them in the present epoch."""

    active: int
    retired: int
    deferred: int


@dataclass
class Record:
    """What is known of one problem.

    ``right`` and ``graded`` are counts of completions that fade by half with every group: the parameters of a Beta
    distribution with forgetting. A problem comes up once an epoch, and the policy changes in between; so some two
    groups' worth of completions count, and the last group as much as all before it. The filter's samples begin the
    counts and fade alike.
    """

    right: float = 0.0
    graded: float = 0.0
    groups: int = 0
    solved_in_a_row: int = 0
    unsolved_in_a_row: int = 0
    retired: bool = False
    back: int = -1
    """The first epoch that takes it (again)."""

    def add(self, right: int, graded: int) -> None:
        """Count a group of which ``right`` of ``graded`` completions were right."""
        self.right = FADE * self.right + right
        self.graded = FADE * self.graded + graded
        self.groups += 1
        self.solved_in_a_row = self.solved_in_a_row + 1 if right == graded else 0


class Curriculum:
    """The problems of a run's stages, and what is known of each.

    ``epoch`` counts from 0; -1 before the first problem was taken. ``stage`` is that whose problems are taken.
    """

    def __init__(
        self,
        rows: Sequence[Row],
        seed: int,
        *,
        retire_after: int = 0,
        defer_after: int = 0,
        band: Sequence[float] | None = None,
        later: Sequence[Pool] = (),
    ) -> None:
        """Begin with the problems of the first stage.

        Args:
            rows: problems; a column ``pass_rate`` and its ``num_samples``, as ``filter-math`` gives them, begin the
                estimates.
            seed: of the order in each epoch.
            retire_after: groups in a row with every completion right after which a problem retires; 0 is never. This,
                not an estimate above some bound, is what solved means, because its chance is known: a problem of pass
                rate p retires by luck with p to the power of G times this number (at 0.9, G = 16 and 2: 3%).
            defer_after: groups in a row with no completion right after which a problem is deferred; 0 is never.
            band: lowest and highest pass rate of the problems to take.
            later: the problems of the other stages; ``rows`` itself where a stage goes on with them.

        Raises:
            DataError: a stage has no problem, or nothing to choose those of its band by.
        """
        self.seed, self.retire_after, self.defer_after = seed, retire_after, defer_after
        self.epoch, self.stage = -1, 0
        self._pools = (Pool(rows, band), *later)
        self._records: dict[str, Record] = {}
        self._by_id: dict[str, Row] = {}
        self._taken: dict[int, Row] = {}
        _check(self._pools)
        self._enter(0)

    def _enter(self, stage: int) -> None:
        """Go over to the problems of a stage, beginning a new epoch; what groups have shown of each problem stays.

        The band is of present estimates. Problems of which nothing is known are in every band.
        """
        rows, band = self._pools[stage]
        self.stage = stage
        for row in rows:
            self._by_id[row["id"]] = row
            if row["id"] not in self._records or not self._records[row["id"]].groups:
                self._records[row["id"]] = _first_record(row)
        self.rows = [row for row in rows if band is None or self._within(row["id"], band)]
        if band is not None and not self.rows:
            raise DataError(f"rl: none of {len(rows)} problems has a pass rate in the band {_told(band)}")
        self._left: deque[int] = deque()

    def _change(self, stage: int) -> None:
        """Enter another stage; one that takes all of the same rows goes on with the epoch."""
        before, after = self._pools[self.stage], self._pools[stage]
        if after.rows is before.rows and after.band is before.band is None:
            self.stage = stage
        else:
            self._enter(stage)

    def next(self, number: int, stage: int = 0) -> Row:
        """The problem of group ``number``, made in a stage: the next active one, or again that which it already took.

        Raises:
            AllSolved: there is none left.
            DataError: none is in the band of the stage.
        """
        if number not in self._taken:
            self._advance(stage)
            self._taken[number] = self.rows[self._left.popleft()]
        return self._taken[number]

    def place(self, number: int, problem_id: str, stage: int = 0) -> None:
        """Have group ``number`` take the problem that its ledger names, as ``next`` had it.

        Raises:
            DataError: there is no such problem.
        """
        if number in self._taken:
            return
        self._advance(stage)
        if problem_id not in self._by_id:
            raise DataError(f"rl: group {number} of the ledger took problem {problem_id!r}, which is not in the input")
        at = next((i for i, index in enumerate(self._left) if self.rows[index]["id"] == problem_id), None)
        self._taken[number] = self._by_id[problem_id] if at is None else self.rows[self._left[at]]
        if at is not None:
            del self._left[at]

    def observe(self, problem_id: str, right: int, graded: int) -> None:
        """Count a finished group: ``right`` of its ``graded`` completions.

        ``graded`` is 0 for a group that was dropped because grading failed: it says nothing.
        """
        if not graded:
            return
        record = self._records[problem_id]
        record.add(right, graded)
        record.retired |= 0 < self.retire_after <= record.solved_in_a_row
        if right:
            record.unsolved_in_a_row, record.back = 0, self.epoch
        elif record.back <= self.epoch:
            self._count_unsolved(record)

    def _count_unsolved(self, record: Record) -> None:
        """Defer a problem when it went unsolved too often. It is not deferred yet: a group of it that was under way and
        ends meanwhile must not keep it away for longer.
        """
        record.unsolved_in_a_row += 1
        if 0 < self.defer_after <= record.unsolved_in_a_row:
            gap = 2 ** min(record.unsolved_in_a_row - self.defer_after, MAX_DOUBLINGS)
            record.back = self.epoch + 1 + gap

    def follow(self, event: Mapping[str, Any]) -> None:
        """Take one event of the ledger as it was taken when it was noted: a reservation, or a group's outcome.

        The stage stands in the ledger too: it changes with a reservation, at no other moment.
        """
        match event:
            case {"event": "reserved", "group": number, "problem": problem_id}:
                self.place(number, problem_id, event.get("stage", 0))
            case {"event": "admitted" | "dropped", "group": number, "right": right, "graded": graded}:
                self.observe(self._taken[number]["id"], right, graded)

    def estimate(self, problem_id: str) -> float | None:
        """The present estimate of a problem's pass rate, None while nothing is known."""
        record = self._records[problem_id]
        return record.right / record.graded if record.graded else None

    def active(self) -> Counts:
        """How many problems of the present stage are active, retired and deferred."""
        retired = sum(self._records[row["id"]].retired for row in self.rows)
        active = sum(self._is_active(row) for row in self.rows)
        return Counts(active, retired, len(self.rows) - retired - active)

    def _advance(self, stage: int) -> None:
        """Bring an active problem of a stage to the front, in a new epoch where this one has none left."""
        if stage != self.stage:
            self._change(stage)
        while not (self._left and self._is_active(self.rows[self._left[0]])):
            if self._left:
                self._left.popleft()
            else:
                self._begin_epoch()

    def _begin_epoch(self) -> None:
        """Draw the order of the next epoch; all its problems may be deferred, or retired since."""
        if all(self._records[row["id"]].retired for row in self.rows):
            solved = f"{self.retire_after} groups in a row right throughout"
            raise AllSolved(f"rl: all {len(self.rows)} problems are solved ({solved}); use harder ones")
        self.epoch += 1
        order = np.random.default_rng([self.seed, self.epoch]).permutation(len(self.rows))
        self._left = deque(order.tolist())

    def _is_active(self, row: Row) -> bool:
        record = self._records[row["id"]]
        return not record.retired and record.back <= self.epoch

    def _within(self, problem_id: str, band: Sequence[float]) -> bool:
        low, high = band
        estimate = self.estimate(problem_id)
        return estimate is None or low - EQUAL <= estimate <= high + EQUAL


def _check(pools: Sequence[Pool]) -> None:
    """Fail at the door: every stage has problems, and pass rates for its band, be it from groups of earlier stages."""
    seen: set[str] = set()
    for rows, band in pools:
        if not rows:
            raise DataError("rl: a stage has no problem")
        known = any(row.get("pass_rate") is not None or row["id"] in seen for row in rows)
        if band is not None and not known:
            raise DataError(f"rl: no problem has a pass_rate for the band {_told(band)}; filter-math gives it")
        seen.update(row["id"] for row in rows)


def _first_record(row: Row) -> Record:
    """What a filter's columns say of a problem, as if its samples had been one group of the run.

    Raises:
        DataError: the pass rate is none.
    """
    rate, samples = row.get("pass_rate"), row.get("num_samples") or 1
    if rate is None:
        return Record()
    if not isinstance(rate, int | float) or not 0 <= rate <= 1:
        raise DataError(f"rl: problem {row['id']}: pass_rate {rate!r} is not a number from 0 to 1")
    return Record(right=rate * samples, graded=samples)


def _told(band: Sequence[float]) -> str:
    return " to ".join(f"{edge:g}" for edge in band)
