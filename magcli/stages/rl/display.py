"""What `magcli rl` shows of a run while it trains."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from magcli.console import Console, Progress
    from magcli.rl.live import Curves
    from magcli.rl.loop import Checkpointing
    from magcli.rl.outcomes import GroupOutcomes
    from magcli.rl.trackers import LogLines
    from magcli.run.rundir import Line


class Display:
    """Shows a run on the terminal, in JSON events and in trackers."""

    def __init__(
        self, checkpointing: Checkpointing, bar: Progress, curves: Curves, log_lines: LogLines, console: Console
    ) -> None:
        self._checkpointing = checkpointing
        self._bar = bar
        self._curves = curves
        self._log_lines = log_lines
        self._console = console

    def update(self, line: Line) -> None:
        """Show the metrics of an update."""
        from magcli.rl.metrics import summary

        self._curves.add(line)
        self._bar.advance(note=summary(line))
        self._log_lines(self._checkpointing.complete_lines())
        if self._console.as_json:
            self._console.say("", event="update", **line)

    def evaluation(self, step: int, values: Line) -> None:
        """Show the accuracy on held-out problems after an update (0: before the first)."""
        from magcli.rl import evaluation

        when = f"after update {step}" if step else "before the first update"
        self._console.say(f"rl: {when}: {evaluation.text(values)}", event="evaluation", step=step, **values)
        self._curves.add_evaluation(values)
        self._log_lines(self._checkpointing.complete_lines())

    def groups(self, outcomes: GroupOutcomes, update: int) -> None:
        """Show what became of the groups so far; ``update`` is the next one."""
        updates = self._bar.total or update
        text = f"rl: {outcomes.text(update, updates)}"
        self._console.say(text, event="groups", step=update, updates=updates, **outcomes.counts())

    def reward_failed(self, error: str) -> None:
        """Say at once that the reward function failed; counts and metrics tell how often it does."""
        self._console.warn(f"rl: the reward function failed for {error}; its group is not trained")

    def saved_first(self, step: int) -> None:
        """Say that a checkpoint was written before a signal ends the run."""
        self._console.say(f"rl: checkpoint of update {step} written before the end", event="saved-first", step=step)

    def mismatch(self, summary: Line) -> None:
        """Show the mismatch of engine and trainer before the first update."""
        from magcli.rl.metrics import mismatch_text

        self._console.say(f"rl: {mismatch_text(summary)}", event="mismatch", **summary)
