"""What a run of RL has on disk, and when it is written.

Checkpoints are written at intervals, but the groups of every update are on disk before it begins. So an interrupted run
resumes from its last update: the updates since the checkpoint are repeated with the same groups, no finished group is
generated twice, and an update that had begun is trained once.
"""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from magcli.errors import DataError
from magcli.rl.evaluation import EvaluationTimes
from magcli.rl.ledger import Ledger
from magcli.rl.store import RolloutStore
from magcli.rl.trainer import Trainer
from magcli.rl.types import Batch
from magcli.run.rundir import Line, RunDir
from magcli.train import checkpoint


@dataclass(frozen=True)
class Checkpointing:
    """A run's folder, ledger and groups on disk, and the intervals, in updates, at which it saves weights."""

    folder: RunDir
    ledger: Ledger
    store: RolloutStore
    checkpoint_every: int
    keep_checkpoints: int
    trajectory_every: int
    evaluations: EvaluationTimes = EvaluationTimes()
    lines: list[dict[str, Any]] = field(default_factory=list)
    """The metrics of all updates so far."""
    initial: dict[str, Any] = field(default_factory=lambda: {"step": 0})
    """The metrics before the first update, if the weights were evaluated."""

    def resume(self, trainer: Trainer) -> None:
        """Load the newest complete checkpoint, if there is one.

        Groups whose reservation is not in the ledger, after a power cut, are removed.

        Raises:
            DataError: the checkpoint is damaged, or the ledger or the metrics lack its update.
        """
        last_started = max(self.ledger.batches, default=0)
        unreserved = [number for number in self.store.numbers() if number not in self.ledger.problems]
        self.store.remove(unreserved)
        checkpoint.remove_unfinished(self.folder.checkpoints)
        if last := checkpoint.latest(self.folder.checkpoints):
            state = trainer.controller.load(last)
            trainer.done = state["step"]
            trainer.bad_updates = state["bad_updates"]
        # Lines of updates that the ledger lacks, after a power cut, are of updates that come anew.
        self.folder.rewind(last_started)
        for line in self.folder.metrics():
            if line["step"]:
                self.lines.append(line)
            else:
                self.initial.update(line)
        # An update is in both files before it is in a checkpoint, so one that lacks it has been damaged.
        for file, last_recorded in (("ledger", last_started), ("metrics", len(self.lines))):
            if trainer.done > last_recorded:
                raise DataError(f"{self.folder.path}/{file}.jsonl lacks update {trainer.done}; give --restart")

    def begun_batch(self, step: int) -> Batch | None:
        """The batch of an update that was begun; None if it was not."""
        if self.store.has_table(step):
            batch = self.store.read_table(step)
            # A kill may have come between the table and the removal of the files of its groups.
            self.store.remove(group.number for group in (*batch.trained, *batch.dropped))
            return batch
        if step not in self.ledger.batches:
            return None
        # What was dropped since the update before belongs to this update's table.
        waiting = [self.store.load(number) for number in self.store.numbers()]
        dropped = [group for group in waiting if group.dropped is not None]
        lost = f"update {step} cannot be repeated without it; give --restart"
        trained = [self.store.load(number, lost) for number in self.ledger.batches[step]]
        return Batch(trained, dropped)

    def record(self, step: int, batch: Batch, advantages: Mapping[int, Sequence[float]], line: dict[str, Any]) -> None:
        """Write the rollouts, ledger event and metrics of a finished update, unless they exist already."""
        if not self.store.has_table(step):
            self.store.write_table(step, batch, advantages)
        if step not in self.ledger.trained:
            self.ledger.record_batch([group.number for group in batch.trained], "trained", step=step)
        # A repeated update is recorded once, as it was the first time.
        if len(self.lines) < step:
            self.folder.log(line)
            self.lines.append(line)

    def lacks_evaluation(self, step: int, *, ends: bool = False) -> bool:
        """Whether the weights of an update (0: of the start) are to be evaluated; ``ends``: the run ends with it."""
        return self.evaluations.is_missing(self._line(step), ends=ends)

    def record_evaluation(self, step: int, values: Line) -> None:
        """Add an evaluation to the line of its update."""
        self._line(step).update(values)
        if step:
            self.folder.amend(step, values)
        else:
            self.folder.log(self.initial)

    def complete_lines(self) -> list[Line]:
        """All lines of metrics so far, those of the start included, without one that still gets its evaluation."""
        complete = [line for line in self.lines if not self.evaluations.is_missing(line)]
        # Without an evaluation the line of the start has only its step.
        first = [self.initial] if len(self.initial) > 1 else []
        return [*first, *complete]

    def _line(self, step: int) -> dict[str, Any]:
        return self.lines[step - 1] if step else self.initial

    def save_due(self, trainer: Trainer) -> bool:
        """Write the weights for the landscape and a checkpoint if they are due; whether the checkpoint was."""
        trainer.controller.check_save()
        self.save_trajectory(trainer)
        # The last checkpoint is written by ``finish``.
        is_due = trainer.done % self.checkpoint_every == 0 and trainer.done < trainer.updates
        if is_due:
            self.save(trainer)
        return is_due

    def save_trajectory(self, trainer: Trainer, *, ends: bool = False) -> None:
        """Write float32 weights for the landscape if due: at the start, at intervals, and at the end.

        ``ends``: the run ends with this update, perhaps an earlier one than the last.
        """
        if self.trajectory_every == 0:
            return
        is_due = ends or trainer.done % self.trajectory_every == 0 or trainer.done == trainer.updates
        target = checkpoint.step_folder(self.folder.trajectory, trainer.done)
        if is_due and not target.exists():
            trainer.controller.save_model(target, exact=True)

    def is_saved(self, trainer: Trainer) -> bool:
        """Whether the newest complete checkpoint is that of the last update."""
        folder = self.folder.checkpoints
        return checkpoint.latest(folder) == checkpoint.step_folder(folder, trainer.done)

    def save(self, trainer: Trainer) -> None:
        """Write a checkpoint and, once it is complete, remove old ones.

        It has weights, optimizer state and the number of the update, which the ledger has before. Several ranks write
        it during the next updates.
        """
        # After a power cut the ledger must not lack an update that the checkpoint has.
        self.ledger.sync()
        folder = checkpoint.step_folder(self.folder.checkpoints, trainer.done)
        state = {"step": trainer.done, "bad_updates": trainer.bad_updates}
        remove_old = partial(checkpoint.prune, self.folder.checkpoints, keep=self.keep_checkpoints)
        trainer.controller.save(folder, state, remove_old)

    def complete_save(self, trainer: Trainer) -> None:
        """Write the checkpoint of the last update, unless there is one, to its end."""
        if not self.is_saved(trainer):
            self.save(trainer)
        trainer.controller.finish_save()

    def finish(self, trainer: Trainer) -> None:
        """Write the last checkpoint, from which the run can be prolonged, and the model, which marks it as finished.

        The landscape's last weights are those of the model.
        """
        # A checkpoint that ranks still write is not complete yet.
        trainer.controller.finish_save()
        self.complete_save(trainer)
        self.ledger.sync()
        self.save_trajectory(trainer, ends=True)
        trainer.controller.save_adapter(self.folder.path / "adapter")
        trainer.controller.save_model(self.folder.model)
        keep_last_checkpoint(self.folder)


def keep_last_checkpoint(folder: RunDir) -> None:
    """Remove all but the last checkpoint of a finished run, and the model that it had before it was prolonged."""
    checkpoint.prune(folder.checkpoints, keep=1)
    shutil.rmtree(folder.shorter, ignore_errors=True)
