"""What a forecast of `sft` and `rl` needs of the problems, and what it says of this machine's shared memory."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping
from heapq import nlargest
from typing import TYPE_CHECKING, Any, Protocol

from magcli.errors import EnvironmentFault
from magcli.generate.weights.matching import SHARED_MEMORY
from magcli.plan import forecast as forecasts
from magcli.plan.forecast import size
from magcli.run.settings import PLAN
from magcli.stages.shared import engines

if TYPE_CHECKING:
    from pathlib import Path

    from magcli.console import Console
    from magcli.model.model import Model
    from magcli.plan.forecast import Forecast
    from magcli.plan.formats import TrainerPlan
    from magcli.run.rundir import RunDir

UNKNOWN_PROMPT = 512
"""Tokens of the longest prompt where no table was read."""

CANDIDATES = 8
"""Prompts that are tokenized to find the longest."""


class Planned(Protocol):
    """The plan of a run."""

    @property
    def trainer(self) -> TrainerPlan:
        """How each rank trains."""

    @property
    def forecast(self) -> Forecast:
        """What it takes."""

    def text(self) -> str:
        """It in one line."""


def warn_of_small_shared_memory(weights: int, console: Console) -> None:
    """Warn before a run if shared memory has less space than the float32 weights for the generators need."""
    if not SHARED_MEMORY.is_dir():
        return
    free = shutil.disk_usage(SHARED_MEMORY).free
    if free < weights:
        console.warn(
            f"rl: weights for generators take {size(weights)}, and {SHARED_MEMORY} has {size(free)} free; start "
            "the container with --ipc=host or a larger --shm-size",
            wanted=weights,
            free=free,
        )


def check(plan: Planned, folder: RunDir, console: Console) -> None:
    """Refuse at its start a run that does not fit its GPU; note its plan in its folder, and say if it had another one.

    Raises:
        EnvironmentFault: it does not fit.
    """
    forecasts.check(plan.forecast, folder.path, console)
    text = plan.text()
    earlier = folder.notes.get(PLAN, text)
    if earlier != text:
        stage = plan.forecast.stage
        console.say(f"{stage}: resumed with another plan: {text}; before, {earlier}", event="plan-changed")
    folder.note(PLAN, text)
    # For those who compute with it, as `magcli simulate` does.
    folder.note("micro_tokens", str(plan.trainer.micro_tokens))


def longest_prompt(rows: Iterable[Mapping[str, Any]], model: Model, system: str | None) -> int:
    """Tokens of the longest prompt, looked for among those with most characters."""
    # Tokenizing all prompts would take long; the one with most tokens has hardly fewer characters than others.
    candidates = nlargest(CANDIDATES, rows, key=lambda row: len(str(row["prompt"])))
    return max((engines.prompt_length(row, model, system) for row in candidates), default=UNKNOWN_PROMPT)


def announce(planned: Callable[[], Planned], model: Model, folder: Path, console: Console, *, stage: str) -> None:
    """Print the plan of a dry run, and refuse what cannot fit; a model that is not there yet is not checked.

    Args:
        planned: the plan of the run on the machine that it is checked for.
        model: what it trains.
        folder: that of the run.
        console: where the plan is printed.
        stage: `sft` or `rl`.

    Raises:
        EnvironmentFault: the run does not fit its GPU, or the model's folder is there and cannot be read.
    """
    try:
        plan = planned()
    except EnvironmentFault as error:
        # A hub id may be downloaded later; a folder that is there should be readable.
        if model.is_local:
            raise
        console.say(f"{stage}: dry run: memory is not checked: {error}", event="not-checked", reason=str(error))
        return
    # The figures are shown even if the run is refused for them.
    console.say(f"{stage}: {plan.text()}", event="plan")
    forecasts.show(plan.forecast, console)
    forecasts.warn_of_full_disk(plan.forecast, folder, console)
    forecasts.require(plan.forecast, console)
