"""What a run writes as it goes, and how one that was killed is taken up again.

A checkpoint is written every so often; the groups of every update are on disk before it begins. So a killed run goes on
from its last update: the updates since the checkpoint are made again from the same groups, nothing is generated twice
that was finished, and an update that was under way is trained once.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from magcli.errors import DataError
from magcli.rl.ledger import Ledger
from magcli.rl.metrics import UpdateMetrics
from magcli.rl.rollouts import Group
from magcli.rl.store import Store
from magcli.rl.trainer import Trainer
from magcli.run.rundir import RunDir
from magcli.train import checkpoint


@dataclass(frozen=True)
class Records:
    """Where a run writes: its folder, its ledger and groups, and how often it keeps what."""

    folder: RunDir
    ledger: Ledger
    store: Store
    checkpoint_every: int
    keep_checkpoints: int
    trajectory_every: int
    lines: list[dict[str, Any]] = field(default_factory=list)
    """The metrics of all updates so far."""

    def close_update(
        self,
        trainer: Trainer,
        groups: Sequence[Group],
        dropped: Sequence[Group],
        metrics: UpdateMetrics,
        line: dict[str, Any],
    ) -> None:
        """Write down an update that is done: rollouts, ledger, metrics. What is there already stays."""
        step = trainer.done
        if not self.store.has_table(step):
            self.store.write_table(step, groups, dropped, metrics.advantages)
        if step not in self.ledger.trained:
            self.ledger.note_batch([group.number for group in groups], "trained", step=step)
        if len(self.lines) < step:
            self.folder.log(line)
            self.lines.append(line)

    def keep(self, trainer: Trainer) -> None:
        """Write the weights for the landscape and a checkpoint, where they are due."""
        self.keep_weights(trainer)
        if trainer.done % self.checkpoint_every == 0 and trainer.done < trainer.updates:
            self.save(trainer)

    def keep_weights(self, trainer: Trainer) -> None:
        """Keep float32 weights for the landscape: at the start, every so often, and at the end."""
        due = self.trajectory_every and (trainer.done % self.trajectory_every == 0 or trainer.done == trainer.updates)
        target = checkpoint.step_folder(self.folder.trajectory, trainer.done)
        if due and not target.exists():
            trainer.controller.save_model(target)

    def save(self, trainer: Trainer) -> None:
        """Write a checkpoint: weights, optimizer, and which update they are of."""
        self.ledger.sync()
        folder = checkpoint.step_folder(self.folder.checkpoints, trainer.done)
        trainer.controller.save(folder, {"step": trainer.done, "bad_updates": trainer.bad_updates})
        checkpoint.prune(self.folder.checkpoints, keep=self.keep_checkpoints)

    def batch(self, step: int) -> tuple[list[Group], list[Group]] | None:
        """The groups of an update that was begun, and those that were dropped before it; None if it was not."""
        if self.store.has_table(step):
            groups = self.store.groups(step)
            self.store.remove(group.number for group in groups)
            return [g for g in groups if g.dropped is None], [g for g in groups if g.dropped is not None]
        if step not in self.ledger.taken:
            return None
        dropped = [group for group in map(self.store.load, self.store.numbers()) if group.dropped is not None]
        lost = f"update {step} cannot be made without it; give --restart"
        return [self.store.load(number, lost) for number in self.ledger.taken[step]], dropped


def load_checkpoint(trainer: Trainer, records: Records) -> None:
    """Go on from the newest whole checkpoint, if there is one.

    Groups whose reservation a power cut has taken from the ledger are made again under other numbers.

    Raises:
        DataError: it is damaged, or of an update that the ledger or the metrics do not know.
    """
    begun, known_groups = max(records.ledger.taken, default=0), records.ledger.problems
    records.store.remove(number for number in records.store.numbers() if number not in known_groups)
    if last := checkpoint.latest(records.folder.checkpoints):
        state = trainer.controller.load(last)
        trainer.done, trainer.bad_updates = state["step"], state["bad_updates"]
    records.folder.rewind(begun)
    records.lines.extend(records.folder.metrics())
    for file, known in (("ledger", begun), ("metrics", len(records.lines))):
        if trainer.done > known:
            raise DataError(f"{records.folder.path}/{file}.jsonl lacks update {trainer.done}; give --restart")
