"""What `magcli rl` shows of a run while it trains."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from magcli.console import duration
from magcli.rl import evaluation, pool
from magcli.rl.ledger import account, read
from magcli.rl.metrics import mismatch_text, summary

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from magcli.console import Console, Progress
    from magcli.rl.checkpointing import Checkpointing
    from magcli.rl.ledger import Ledger
    from magcli.rl.live import Curves
    from magcli.rl.outcomes import GroupOutcomes
    from magcli.rl.trainer import Trainer
    from magcli.run.rundir import Line, RunDir
    from magcli.run.trackers import LogLines
    from magcli.stages.rl.spec import RunSpec


class Display:
    """Shows a run on the terminal, in JSON events and in trackers; ``groups`` are those of an update."""

    def __init__(
        self,
        groups: int,
        checkpointing: Checkpointing,
        bar: Progress,
        curves: Curves,
        log_lines: LogLines,
        console: Console,
    ) -> None:
        self._checkpointing = checkpointing
        self._bar = bar
        self._curves = curves
        self._log_lines = log_lines
        self._console = console
        # Lines of an interrupted run are updates that are done.
        self._groups_left = ((bar.total or 0) - len(checkpointing.lines)) * groups
        """Groups that this process has to train."""
        self._started = time.monotonic()

    def update(self, line: Line) -> None:
        """Show the metrics of an update."""
        self._curves.add(line)
        self._bar.advance(note=summary(line))
        self._log_lines(self._checkpointing.complete_lines())
        # On a terminal the bar has the figures.
        if self._console.as_json:
            self._console.say("", event="update", **line)

    def evaluation(self, step: int, values: Line) -> None:
        """Show the accuracy on held-out problems after an update (0: before the first)."""
        when = f"after update {step}" if step else "before the first update"
        self._console.say(f"rl: {when}: {evaluation.text(values)}", event="evaluation", step=step, **values)
        self._curves.add_evaluation(values)
        self._log_lines(self._checkpointing.complete_lines())

    def groups(self, outcomes: GroupOutcomes, update: int) -> None:
        """Show what became of the groups so far; ``update`` is the next one."""
        updates = self._bar.total or update
        text = f"rl: {outcomes.text(update, updates)}{self._time_left(outcomes.admitted)}"
        self._console.say(text, event="groups", step=update, updates=updates, **outcomes.counts())

    def _time_left(self, admitted: int) -> str:
        """How long the run goes on at the rate at which groups were admitted so far; empty without one."""
        if not admitted:
            return ""
        # Groups that are dropped take time too, so the rate is that of admitted ones.
        seconds = (time.monotonic() - self._started) * max(self._groups_left - admitted, 0) / admitted
        return f"; about {duration(seconds)} left at this rate"

    def reward_failed(self, error: str) -> None:
        """Say at once that the reward function failed; counts and metrics tell how often it does."""
        self._console.warn(f"rl: the reward function failed for {error}; its group is not trained")

    def saved_first(self, step: int) -> None:
        """Say that a checkpoint was written before a signal ends the run."""
        self._console.say(f"rl: checkpoint of update {step} written before the end", event="saved-first", step=step)

    def mismatch(self, summary: Line) -> None:
        """Show the mismatch of engine and trainer before the first update."""
        self._console.say(f"rl: {mismatch_text(summary)}", event="mismatch", **summary)


def say_pool(spec: RunSpec, problems: Sequence[Mapping[str, Any]], console: Console) -> None:
    """Say what share of the groups will train, if the problems have the pass rates of ``filter-math``."""
    forecast = pool.forecast(problems, spec.group_size)
    # Pass rates say nothing about other rewards than right and wrong.
    if forecast is not None and spec.diverse_by == "outcome":
        console.say(f"rl: {forecast.text(spec.group_size)}", event="pool", **forecast._asdict())


def say_resumed(ledger: Ledger, trainer: Trainer, console: Console) -> None:
    """Report where an earlier run is resumed; updates since its last checkpoint are repeated."""
    last_started = max(ledger.batches, default=0)
    if last_started:
        # The ledger knows updates that were begun, the trainer those of its checkpoint.
        repeated_updates = last_started - trainer.done
        text = f"rl: resuming from update {last_started}; repeating {repeated_updates} with the same groups"
        console.say(text, event="resume", step=last_started)


def say_results(folder: RunDir, console: Console) -> None:
    """Report how many groups were trained or dropped, and where the model is."""
    console.result(f"rl: {account(read(folder.ledger))}", event="ledger")
    console.result(f"rl: model in {folder.model}", event="model", path=str(folder.model))
