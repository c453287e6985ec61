"""The stages in which a run trains, the options that change in them, and when the next one begins.

The recipe trains in stages so that the data do not become easy, completions do not stop growing longer, and the KV
cache fits (recipe, section 5). Each ``[[rl.stage]]`` table of a recipe is a stage. Options that a table omits have the
values of ``[rl]``, whatever an earlier table says, except ``data``: the problems stay those of the stage before. A run
without tables has one stage.

The current stage depends only on the metrics of the updates so far, so a resumed run is in the same one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Literal

from magcli.rl import saturation

if TYPE_CHECKING:
    from magcli.rl.types import StageSettings
    from magcli.run.rundir import Line

LENGTH_WINDOW = 20
"""Number of updates over which ``length-stalled`` averages."""

GROWTH = 0.02
"""Growth from one such window to the next below which lengths are stalled.

With 15% noise in an update's mean, as with 16 groups, constant lengths are detected within 60 updates in 98% of
simulated runs; lengths that double in 100 updates count as stalled in 5%.
"""

EASY_WINDOW = 10
"""Number of updates whose groups ``data-easy`` counts."""

EASY_SHARE = 0.5
"""Share of all-correct groups above which the data are easy: at most half of the generated groups then train."""


@dataclass(frozen=True)
class StageOptions:
    """One ``[[rl.stage]]`` table; None keeps the run's option of that name.

    Args:
        penalty_end: completion length in tokens at which the length penalty is largest (l_max).
        penalty_width: number of tokens below ``penalty_end`` over which the penalty grows (l_cache).
        max_tokens: maximum new tokens per completion.
        n_async: maximum number of concurrent completions.
        n_batch: completions per update.
        n_mini: completions per optimizer step.
        temperature: sampling temperature.
        clip_high: upper clipping bound of the importance ratio: 1 + clip_high.
        data: table of problems; None keeps that of the stage before, or the run's input in the first stage.
        band: lowest and highest pass rate of the problems to use.
        updates: number of updates after which the stage ends.
        until: rule that ends the stage, after ``updates`` at the latest; in the last stage it ends the run.
    """

    penalty_end: int | None = None
    penalty_width: int | None = None
    max_tokens: int | None = None
    n_async: int | None = None
    n_batch: int | None = None
    n_mini: int | None = None
    temperature: float | None = None
    clip_high: float | None = None
    data: Path | None = None
    band: tuple[float, ...] | None = None
    updates: int | None = None
    until: Literal["length-stalled", "data-easy", "saturated"] | None = None


STAGE_OPTIONS = (
    "penalty_end", "penalty_width", "max_tokens", "n_async", "n_batch", "n_mini", "temperature", "clip_high"
)  # fmt: skip
"""The run's options that a stage can change; a run's ``updates`` counts those of all its stages."""


@dataclass(frozen=True, slots=True)
class TrainingStages:
    """A run's stages in order, at least one: their tables, and the settings that follow from these."""

    options: Sequence[StageOptions]
    settings: Sequence[StageSettings]

    def stage_at(self, lines: Sequence[Line]) -> int:
        """The index of the stage of the update after ``lines``, the metrics of all updates so far."""
        return len(starts(self.options, lines)) - 1

    def end_of_run(self, lines: Sequence[Line]) -> str | None:
        """Why the run ends after ``lines`` by the rule of its last stage, or None."""
        last = self.options[-1]
        if last.until is None:
            return None
        stage_starts = starts(self.options, lines)
        last_has_begun = len(stage_starts) == len(self.options)
        lines_of_last = lines[stage_starts[-1] :]
        if not last_has_begun or not has_ended(last, lines_of_last):
            return None
        why: str = last.until
        # It ended by its number of updates.
        if not RULES[last.until](lines_of_last):
            why = f"the last stage has made its {last.updates} updates without reaching {last.until}"
        elif last.until == "saturated":
            curve = saturation.fit(rewards(lines_of_last))
            assert curve is not None, "the rule is decided by it"
            why += f": {curve.text()}"
        return f"{why}; ended after {len(lines)} updates"


def starts(stages: Sequence[StageOptions], lines: Sequence[Line]) -> list[int]:
    """The number of updates before each stage that has begun. The last stage never ends."""
    stage_starts = [0]
    # After each update in turn, by what was known then.
    for updates_done in range(1, len(lines) + 1):
        if len(stage_starts) >= len(stages):  # also for no stages
            break
        stage = stages[len(stage_starts) - 1]
        lines_of_stage = lines[stage_starts[-1] : updates_done]
        if has_ended(stage, lines_of_stage):
            stage_starts.append(updates_done)
    return stage_starts


def has_ended(stage: StageOptions, lines: Sequence[Line]) -> bool:
    """Whether a stage ends after ``lines``, the metrics of its own updates."""
    if stage.updates is not None and len(lines) >= stage.updates:
        return True
    return stage.until is not None and RULES[stage.until](lines)


def length_stalled(lines: Sequence[Line]) -> bool:
    """Whether completions have stopped growing: the mean length of the last 20 updates is less than 2% above that of
    the 20 before them. Lengths are those of all sampled completions, trained or not.
    """
    lengths = [line["length_mean"] for line in lines[-2 * LENGTH_WINDOW :]]
    if len(lengths) < 2 * LENGTH_WINDOW:
        return False
    # Two windows without overlap: the mean of one update varies too much to be compared.
    before = fmean(lengths[:LENGTH_WINDOW])
    recent = fmean(lengths[LENGTH_WINDOW:])
    return recent < (1 + GROWTH) * before


def data_easy(lines: Sequence[Line]) -> bool:
    """Whether more than half of the groups of the last 10 updates were all correct and so had zero advantage."""
    if len(lines) < EASY_WINDOW:
        return False
    all_right = generated = 0
    for line in lines[-EASY_WINDOW:]:
        dropped = line["groups_dropped"]
        all_right += dropped.get("all-right", 0)
        generated += line["groups_trained"] + sum(dropped.values())
    return all_right > EASY_SHARE * generated


def saturated(lines: Sequence[Line]) -> bool:
    """Whether the reward has reached nearly all of the gain that its curve is heading for."""
    return saturation.saturated(rewards(lines))


RULES: Mapping[str, Callable[[Sequence[Line]], bool]] = {
    "length-stalled": length_stalled,
    "data-easy": data_easy,
    "saturated": saturated,
}
"""The stopping rules of a stage, by the value of ``until``."""


def rewards(lines: Sequence[Line]) -> list[float]:
    """The mean rewards of updates with graded completions."""
    return [line["reward"] for line in lines if line["reward"] is not None]


def min_updates(stage: StageOptions) -> int:
    """The minimum number of updates of a stage."""
    # A rule needs some lines to decide; without one a stage ends by its updates.
    least = {
        None: stage.updates or 0,
        "length-stalled": 2 * LENGTH_WINDOW,
        "data-easy": EASY_WINDOW,
        "saturated": saturation.MIN_UPDATES,
    }[stage.until]
    return least if stage.updates is None else min(least, stage.updates)
