"""Choose the problem of each group, so that the data do not become easy and no problem is lost (recipe, section 5).

An epoch contains every active problem once, in an order shuffled by the run's seed. Every finished group updates the
statistics of its problem. A problem whose groups are all correct several times in a row is retired; one whose groups
stay all wrong is deferred: skipped for one epoch, then for two, four, up to sixteen, with one trial in between. Without
these rules every problem is always active.

The choice depends only on the seed and on the order of the groups' events, so a resumed run rebuilds it by replaying
its ledger.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from magcli.errors import DataError, Stopped

DECAY = 0.5
"""Factor on the counts of a problem's earlier completions when a new group of it is finished."""

MAX_DOUBLINGS = 4
"""A deferred problem is skipped for at most 2 to the power of this many epochs before it is tried again."""

TOLERANCE = 1e-6
"""Pass rates closer than this are equal: far above the float32 rounding of columns."""

Row = Mapping[str, Any]


class AllSolved(Stopped):
    """Every problem of the current stage has retired."""


class StageProblems(NamedTuple):
    """The problems of one stage: those of a table whose pass rate is in a band, both ends included; None takes all."""

    rows: Sequence[Row]
    band: Sequence[float] | None = None


class ProblemCounts(NamedTuple):
    """Problems of the current stage by their state in the current epoch."""

    active: int
    retired: int
    deferred: int


@dataclass
class ProblemStats:
    """The results of one problem so far.

    ``correct`` and ``graded`` count completions and are halved with every group: the parameters of a Beta distribution
    with forgetting. A problem comes up once an epoch, and the policy changes in between, so about two groups' worth of
    completions count, and the last group as much as all earlier ones. The filter's samples initialize the counts.
    """

    correct: float = 0.0
    graded: float = 0.0
    groups: int = 0
    solved_in_a_row: int = 0
    unsolved_in_a_row: int = 0
    retired: bool = False
    active_from: int = -1
    """The first epoch that includes it (again)."""

    def add(self, correct: int, graded: int, *, is_open: bool = False) -> None:
        """Count a group with ``correct`` of ``graded`` completions; ``is_open``: it is not solved in any case."""
        # Both by the same factor, so that the rate is a weighted mean.
        self.correct = DECAY * self.correct + correct
        self.graded = DECAY * self.graded + graded
        self.groups += 1
        is_solved = correct == graded and not is_open
        self.solved_in_a_row = self.solved_in_a_row + 1 if is_solved else 0

    @property
    def pass_rate(self) -> float | None:
        """The estimated pass rate, None while there is no completion."""
        return self.correct / self.graded if self.graded else None


class Curriculum:
    """The problems of a run's stages and their statistics.

    ``epoch`` counts from 0; it is -1 before the first group. ``stage`` is the current one, ``rows`` are its problems.

    Args:
        stages: the problems of each stage; the same ``rows`` object where a stage continues with the problems of the
            stage before. Columns ``pass_rate`` and ``num_samples``, which ``filter-math`` writes, initialize the
            estimates.
        seed: of the order in each epoch.
        retire_after: consecutive groups with every completion correct after which a problem retires; 0: never. Solved
            is defined by this count, not by a threshold on the estimate, because its error is known: a problem of pass
            rate p retires by chance with probability p^(G * retire_after), 3% for p = 0.9, G = 16 and 2 groups.
        defer_after: consecutive groups with no completion correct after which a problem is deferred; 0: never.
        any_scale: rewards of any scale are compared with each other, so that a group which trains says neither that its
            problem is solved nor that it is not.

    Raises:
        DataError: a stage has no problem, or no pass rates for its band.
    """

    def __init__(
        self,
        stages: Sequence[StageProblems],
        seed: int,
        *,
        retire_after: int = 0,
        defer_after: int = 0,
        any_scale: bool = False,
    ) -> None:
        _check(stages)
        self.seed = seed
        self.retire_after = retire_after
        self.defer_after = defer_after
        self.any_scale = any_scale
        self.epoch, self.stage = -1, 0
        self._stages = stages
        self._stats: dict[str, ProblemStats] = {}
        self._by_id: dict[str, Row] = {}
        self._assigned: dict[int, Row] = {}
        self._enter_stage()

    def _enter_stage(self) -> None:
        """Begin an epoch with the problems of the current stage; the statistics of earlier groups stay.

        The band selects by the current estimates. Problems without an estimate are in every band.
        """
        self._upcoming: deque[int] = deque()
        rows, band = self._stages[self.stage]
        for row in rows:
            problem_id = row["id"]
            self._by_id[problem_id] = row
            # The run's own groups say more of its policy than the columns of a table.
            was_sampled = problem_id in self._stats and self._stats[problem_id].groups > 0
            if not was_sampled:
                self._stats[problem_id] = _initial_stats(row)
        if band is None:
            self.rows = list(rows)
            return
        self.rows = [row for row in rows if _in_band(self.estimate(row["id"]), band)]
        if not self.rows:
            raise DataError(f"rl: none of {len(rows)} problems has a pass rate in the band {_band_text(band)}")

    def problem(self, number: int, stage: int = 0) -> Row:
        """The problem of group ``number``; the next active one of the stage if the group has none yet.

        Raises:
            AllSolved: there is none left.
            DataError: none is in the band of the stage.
        """
        # A group that is started once more keeps its problem.
        if number not in self._assigned:
            self._advance(stage)
            self._assigned[number] = self.rows[self._upcoming.popleft()]
        return self._assigned[number]

    def restore(self, number: int, problem_id: str, stage: int = 0) -> None:
        """Assign the problem that the ledger names to group ``number``.

        Raises:
            DataError: there is no such problem.
        """
        if number in self._assigned:
            return
        self._advance(stage)
        if problem_id not in self._by_id:
            raise DataError(f"rl: group {number} of the ledger has problem {problem_id!r}, which is not in the input")
        self._assigned[number] = self._by_id[problem_id]
        # Take it out of the epoch, where it usually is the next one.
        for index in self._upcoming:
            if self.rows[index]["id"] == problem_id:
                self._assigned[number] = self.rows[index]
                self._upcoming.remove(index)
                break

    def observe(self, problem_id: str, correct: int, graded: int, *, trains: bool = False) -> None:
        """Count a finished group with ``correct`` of ``graded`` completions; 0 graded: grading failed, nothing counts.

        A deferred problem is not deferred further by a group that had started before.
        """
        if not graded:
            return
        stats = self._stats[problem_id]
        is_open = self.any_scale and trains
        stats.add(correct, graded, is_open=is_open)
        # It stays retired, whatever a group finds that had started before.
        stats.retired |= 0 < self.retire_after <= stats.solved_in_a_row
        if correct or is_open:
            stats.unsolved_in_a_row = 0
            stats.active_from = self.epoch
            return
        is_deferred = stats.active_from > self.epoch
        if is_deferred:
            return
        stats.unsolved_in_a_row += 1
        if 0 < self.defer_after <= stats.unsolved_in_a_row:
            # Skipped for 1, 2, 4, 8 and 16 epochs, and then always for 16.
            doublings = min(stats.unsolved_in_a_row - self.defer_after, MAX_DOUBLINGS)
            skipped = 2**doublings
            stats.active_from = self.epoch + 1 + skipped

    def replay(self, event: Mapping[str, Any]) -> None:
        """Apply an event of the ledger: a reservation, which may also change the stage, or the outcome of a group."""
        match event:
            case {"event": "reserved", "group": number, "problem": problem_id}:
                self.restore(number, problem_id, event.get("stage", 0))
            case {"event": "admitted" | "dropped" as outcome, "group": number, "right": correct, "graded": graded}:
                self.observe(self._assigned[number]["id"], correct, graded, trains=outcome == "admitted")

    def estimate(self, problem_id: str) -> float | None:
        """The current estimate of a problem's pass rate, None while nothing is known."""
        return self._stats[problem_id].pass_rate

    def counts(self) -> ProblemCounts:
        """How many problems of the current stage are active, retired and deferred."""
        retired = sum(self._stats[row["id"]].retired for row in self.rows)
        active = sum(self._is_active(row) for row in self.rows)
        return ProblemCounts(active, retired, len(self.rows) - retired - active)

    def _advance(self, stage: int) -> None:
        """Bring an active problem of a stage to the front, in a new epoch if this one has none left."""
        if stage != self.stage:
            before = self._stages[self.stage]
            after = self._stages[stage]
            self.stage = stage
            # An epoch goes on with the same problems. A band selects anew, by the estimates of now.
            same_problems = after.rows is before.rows and after.band is before.band is None
            if not same_problems:
                self._enter_stage()
        while True:
            if not self._upcoming:
                self._begin_epoch()
            elif self._is_active(self.rows[self._upcoming[0]]):
                return
            else:
                self._upcoming.popleft()

    def _begin_epoch(self) -> None:
        """Shuffle the problems for the next epoch; all of them may be deferred in it."""
        stats = [self._stats[row["id"]] for row in self.rows]
        if all(problem.retired for problem in stats):
            rule = f"{self.retire_after} all-correct groups in a row"
            raise AllSolved(f"rl: all {len(self.rows)} problems are solved ({rule}); use harder ones")
        self.epoch += 1
        # A generator of its own for each epoch: the order does not depend on what was drawn before.
        random = np.random.default_rng([self.seed, self.epoch])
        self._upcoming = deque(random.permutation(len(self.rows)).tolist())

    def _is_active(self, row: Row) -> bool:
        stats = self._stats[row["id"]]
        return not stats.retired and stats.active_from <= self.epoch


def _check(stages: Sequence[StageProblems]) -> None:
    """Check that every stage has problems, and for its band pass rates from a column or from groups of earlier stages.

    Raises:
        DataError: a stage does not.
    """
    earlier: set[str] = set()
    for rows, band in stages:
        if not rows:
            raise DataError("rl: a stage has no problems")
        measured = any(row.get("pass_rate") is not None for row in rows)
        # Groups of an earlier stage will have given some of them a rate.
        was_sampled = any(row["id"] in earlier for row in rows)
        if band is not None and not (measured or was_sampled):
            raise DataError(f"rl: no problem has a pass_rate for the band {_band_text(band)}; filter-math computes it")
        earlier.update(row["id"] for row in rows)


def _initial_stats(row: Row) -> ProblemStats:
    """A problem's statistics from a filter's columns, whose samples count like one group.

    Raises:
        DataError: the pass rate is invalid.
    """
    rate, samples = row.get("pass_rate"), row.get("num_samples") or 1
    if rate is None:
        return ProblemStats()
    if not isinstance(rate, int | float) or not 0 <= rate <= 1:
        raise DataError(f"rl: problem {row['id']}: pass_rate {rate!r} is not a number from 0 to 1")
    return ProblemStats(correct=rate * samples, graded=samples)


def _in_band(pass_rate: float | None, band: Sequence[float]) -> bool:
    low, high = band
    return pass_rate is None or low - TOLERANCE <= pass_rate <= high + TOLERANCE


def _band_text(band: Sequence[float]) -> str:
    return " to ".join(f"{edge:g}" for edge in band)
