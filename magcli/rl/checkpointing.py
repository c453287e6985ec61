"""Checkpoints and records of a run, and how an interrupted run resumes from them.

Checkpoints are written at intervals, but the groups of every update are on disk before it begins. So an interrupted run
resumes from its last update: the updates since the checkpoint are repeated with the same groups, no finished group is
generated twice, and an update that had begun is trained once.
"""

import shutil
from dataclasses import dataclass, field
from typing import Any

from magcli.errors import DataError
from magcli.rl.ledger import Ledger
from magcli.rl.scheduler import Batch
from magcli.rl.store import RolloutStore
from magcli.rl.trainer import Trainer
from magcli.run.rundir import RunDir
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
    lines: list[dict[str, Any]] = field(default_factory=list)
    """The metrics of all updates so far."""

    def resume(self, trainer: Trainer) -> None:
        """Load the newest complete checkpoint, if there is one.

        Groups whose reservation is not in the ledger, after a power cut, are removed.

        Raises:
            DataError: the checkpoint is damaged, or the ledger or the metrics lack its update.
        """
        begun = max(self.ledger.batches, default=0)
        self.store.remove(number for number in self.store.numbers() if number not in self.ledger.problems)
        if last := checkpoint.latest(self.folder.checkpoints):
            state = trainer.controller.load(last)
            trainer.done, trainer.bad_updates = state["step"], state["bad_updates"]
        self.folder.rewind(begun)
        self.lines.extend(self.folder.metrics())
        for file, known in (("ledger", begun), ("metrics", len(self.lines))):
            if trainer.done > known:
                raise DataError(f"{self.folder.path}/{file}.jsonl lacks update {trainer.done}; give --restart")

    def begun_batch(self, step: int) -> Batch | None:
        """The batch of an update that was begun; None if it was not."""
        if self.store.has_table(step):
            batch = self.store.read_table(step)
            self.store.remove(group.number for groups in batch for group in groups)
            return batch
        if step not in self.ledger.batches:
            return None
        dropped = [group for group in map(self.store.load, self.store.numbers()) if group.dropped is not None]
        lost = f"update {step} cannot be repeated without it; give --restart"
        return Batch([self.store.load(number, lost) for number in self.ledger.batches[step]], dropped)

    def record(self, step: int, batch: Batch, advantages: dict[int, list[float]], line: dict[str, Any]) -> None:
        """Write the rollouts, ledger event and metrics of a finished update, unless they exist already."""
        if not self.store.has_table(step):
            self.store.write_table(step, batch, advantages)
        if step not in self.ledger.trained:
            self.ledger.record_batch([group.number for group in batch.trained], "trained", step=step)
        if len(self.lines) < step:
            self.folder.log(line)
            self.lines.append(line)

    def save_due(self, trainer: Trainer) -> None:
        """Write the weights for the landscape and a checkpoint if they are due."""
        self.save_trajectory(trainer)
        if trainer.done % self.checkpoint_every == 0 and trainer.done < trainer.updates:
            self.save(trainer)

    def save_trajectory(self, trainer: Trainer) -> None:
        """Write float32 weights for the landscape if due: at the start, at intervals, and at the end."""
        due = self.trajectory_every and (trainer.done % self.trajectory_every == 0 or trainer.done == trainer.updates)
        target = checkpoint.step_folder(self.folder.trajectory, trainer.done)
        if due and not target.exists():
            trainer.controller.save_model(target)

    def save(self, trainer: Trainer) -> None:
        """Write a checkpoint: weights, optimizer state and the number of the update."""
        self.ledger.sync()
        folder = checkpoint.step_folder(self.folder.checkpoints, trainer.done)
        trainer.controller.save(folder, {"step": trainer.done, "bad_updates": trainer.bad_updates})
        checkpoint.prune(self.folder.checkpoints, keep=self.keep_checkpoints)

    def finish(self, trainer: Trainer) -> None:
        """Write the trained model, which marks the run as finished."""
        self.ledger.sync()
        trainer.controller.save_model(self.folder.model)
        remove_checkpoints(self.folder)


def remove_checkpoints(folder: RunDir) -> None:
    """Remove the checkpoints of a finished run."""
    shutil.rmtree(folder.checkpoints, ignore_errors=True)
