"""Stages inside a run: what of its options changes on the way, and when the next stage begins (recipe, section 5).

The recipe trains in stages to keep three things true: the data do not become easy, completions do not stop growing
longer, and the KV cache fits. Each ``[[rl.stage]]`` table of a recipe is a stage; what a table leaves out is as the
run's own options say, whatever an earlier table said; only the problems are those of the stage before. A run without
tables is one stage.

The stage that a run is in follows from its lines of metrics alone, so a run that goes on is in the same one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar, Literal, Protocol, TypeVar

from magcli.errors import usage

LENGTH_WINDOW = 20
"""Updates whose mean lengths are averaged by ``length-stalled``."""

GROWTH = 0.02
"""Growth of the length from one such window to the next that still counts as growing.

With 15% of noise in an update's mean (16 groups whose lengths differ as much as they do) lengths that stay are noticed
within 60 updates in 98% of simulated runs; lengths that double in 100 updates are taken for stalled in 5%.
"""

EASY_WINDOW = 10
"""Updates whose groups are counted by ``data-easy``."""

EASY_SHARE = 0.5
"""Share of groups that are right throughout above which the data are easy: every group that trains costs two."""

Line = Mapping[str, Any]
"""The metrics of one update, as ``records.group_metrics`` makes them."""


class Sizes(Protocol):
    """The options of a run that a stage can change, and those that they must fit: a frozen dataclass."""

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    @property
    def group(self) -> int: ...
    @property
    def updates(self) -> int: ...
    @property
    def diverse_by(self) -> Literal["outcome", "reward"]: ...
    @property
    def n_async(self) -> int: ...
    @property
    def n_batch(self) -> int: ...
    @property
    def n_mini(self) -> int: ...
    @property
    def max_tokens(self) -> int: ...
    @property
    def max_length(self) -> int: ...
    @property
    def cache_length(self) -> int: ...
    @property
    def temperature(self) -> float: ...
    @property
    def clip_high(self) -> float: ...


Run = TypeVar("Run", bound=Sizes)


@dataclass(frozen=True)
class Phase:
    """One ``[[rl.stage]]`` table; None is as the run's options say.

    Args:
        max_length: l_max of the length penalty, in tokens.
        cache_length: l_cache: tokens before l_max over which the penalty grows.
        max_tokens: longest completion.
        n_async: completions being generated at once.
        n_batch: completions of one update.
        n_mini: completions of one optimizer step.
        temperature: of sampling, and of the log-probs of training.
        clip_high: upper clip of the ratio.
        data: table of problems; None goes on with the table of the stage before, the run's input in the first.
        band: lowest and highest pass rate of the problems to take.
        updates: updates after which the stage ends.
        until: what ends it, after ``updates`` at the latest.
    """

    max_length: int | None = None
    cache_length: int | None = None
    max_tokens: int | None = None
    n_async: int | None = None
    n_batch: int | None = None
    n_mini: int | None = None
    temperature: float | None = None
    clip_high: float | None = None
    data: Path | None = None
    band: tuple[float, ...] | None = None
    updates: int | None = None
    until: Literal["length-stalled", "data-easy"] | None = None


OPTIONS = (
    "max_length", "cache_length", "max_tokens", "n_async", "n_batch", "n_mini", "temperature", "clip_high"
)  # fmt: skip
"""The run's options that a stage can change; ``updates`` of a run counts those of all its stages."""


def options_in(phase: Phase, options: Run) -> Run:
    """The run's options as they are in a stage."""
    told = {name: getattr(phase, name) for name in OPTIONS}
    return dataclasses.replace(options, **{name: value for name, value in told.items() if value is not None})


def phase_at(phases: Sequence[Phase], lines: Sequence[Line]) -> int:
    """The index of the stage that makes the update after ``lines``, the metrics of all updates so far in order."""
    return len(starts(phases, lines)) - 1


def starts(phases: Sequence[Phase], lines: Sequence[Line]) -> list[int]:
    """How many updates were done when each stage that has begun did so. The last stage never ends."""
    begun = [0]
    for done in range(1, len(lines) + 1):
        if len(begun) < len(phases) and over(phases[len(begun) - 1], lines[begun[-1] : done]):
            begun.append(done)
    return begun


def over(phase: Phase, lines: Sequence[Line]) -> bool:
    """Whether a stage ends after ``lines``, the metrics of its own updates."""
    if phase.updates is not None and len(lines) >= phase.updates:
        return True
    rules = {"length-stalled": length_stalled, "data-easy": data_easy}
    return phase.until is not None and rules[phase.until](lines)


def length_stalled(lines: Sequence[Line]) -> bool:
    """Whether completions have stopped growing: the mean length of the last 20 updates is less than 2% above that of
    the 20 before them. Lengths are those of all that was sampled, not of what trained alone.
    """
    recent = [line["length_mean"] for line in lines[-2 * LENGTH_WINDOW :]]
    if len(recent) < 2 * LENGTH_WINDOW:
        return False
    return fmean(recent[LENGTH_WINDOW:]) < (1 + GROWTH) * fmean(recent[:LENGTH_WINDOW])


def data_easy(lines: Sequence[Line]) -> bool:
    """Whether more than half of the groups of the last 10 updates were right throughout, and so taught nothing."""
    if len(lines) < EASY_WINDOW:
        return False
    recent = lines[-EASY_WINDOW:]
    right = sum(line["groups_dropped"].get("all-right", 0) for line in recent)
    generated = sum(line["groups_trained"] + sum(line["groups_dropped"].values()) for line in recent)
    return bool(right > EASY_SHARE * generated)


def check(phases: Sequence[Phase], options: Sizes) -> None:
    """Refuse stages that contradict themselves or the run's options.

    Raises:
        UsageError: which table, counted from 1, and why.
    """
    for number, phase in enumerate(phases, 1):
        place = f"rl.stage {number}"
        _check_own(place, phase)
        check_sizes(place, options_in(phase, options))
    if phases:
        _check_ends(phases, options)


def check_sizes(place: str, options: Sizes) -> None:
    """Refuse batches, lengths and rates that cannot be; ``place`` is what the message begins with.

    Raises:
        UsageError: which option and why.
    """
    for name in ("n_async", "n_batch", "n_mini"):
        size = getattr(options, name)
        whole = size > 0 and size % options.group == 0
        usage(whole, f"{place}.{name}: {size} is not a multiple of group {options.group}")
    divides = options.n_batch % options.n_mini == 0
    usage(divides, f"{place}.n_mini: {options.n_mini} does not divide n_batch {options.n_batch}")
    for name in ("max_tokens", "temperature", "clip_high"):
        usage(getattr(options, name) > 0, f"{place}.{name}: {getattr(options, name)} is not positive")
    longest, growing = options.max_length, options.cache_length
    usage(longest >= 0, f"{place}.max_length: {longest} is negative")
    usage(
        0 <= growing <= (longest or growing),
        f"{place}.cache_length: {growing} is not between 0 and max_length {longest}",
    )


def _check_own(place: str, phase: Phase) -> None:
    usage(phase.updates is None or phase.updates > 0, f"{place}.updates: {phase.updates} is not positive")
    if phase.band is not None:
        right = len(phase.band) == 2 and 0 <= phase.band[0] <= phase.band[1] <= 1
        usage(right, f"{place}.band: {list(phase.band)} is not a lowest and a highest pass rate within 0 to 1")


def _check_ends(phases: Sequence[Phase], options: Sizes) -> None:
    """Every stage but the last has an end, and there are updates enough for all to begin."""
    *before, last = phases
    for number, phase in enumerate(before, 1):
        place = f"rl.stage {number}"
        usage(phase.updates is not None or phase.until is not None, f"{place} has no end; give it updates or until")
        usage(
            phase.until != "data-easy" or options.diverse_by == "outcome",
            f"{place}.until: groups that are right throughout are not told apart with diverse_by 'reward'",
        )
    usage(
        last.updates is None and last.until is None,
        f"rl.stage {len(phases)} is the last and lasts as long as the run: leave out its updates and until, and let "
        "rl.updates count those of all stages",
    )
    least = sum(map(shortest, before))
    usage(
        least < options.updates,
        f"rl.updates: {options.updates} would end the run before its last stage, which begins after {least} at least",
    )


def shortest(phase: Phase) -> int:
    """The fewest updates that a stage can have."""
    least = {None: phase.updates or 0, "length-stalled": 2 * LENGTH_WINDOW, "data-easy": EASY_WINDOW}[phase.until]
    return least if phase.updates is None else min(least, phase.updates)
