"""Training again on the stored rollouts of a run, off-policy: nothing is sampled, and nothing is graded.

An update of a replay trains on the groups of one update of the earlier run, in the same order, by the objective of now.
The old log-probs of the importance ratio are the sampler's, as they were stored. Advantages are computed anew from the
stored rewards, and which groups train is decided anew by ``--diverse-by``.
"""

import time
from typing import Any

from magcli.choices import DiverseBy
from magcli.rl.checkpointing import Checkpointing
from magcli.rl.ledger import Ledger
from magcli.rl.loop import Monitor
from magcli.rl.metrics import group_metrics, training_metrics
from magcli.rl.stored import StoredRollouts, batch_of
from magcli.rl.trainer import Trainer
from magcli.rl.training_stages import TrainingStages
from magcli.rl.types import Batch, UpdateMetrics
from magcli.rl.utilization import TRAINER_IDLE, idle_metrics
from magcli.run.shutdown import SaveFirst

OFF_POLICY = "off_policy"
"""The metric that tells a replay from a run that samples; its value is ``replay``."""


def replay(
    trainer: Trainer,
    stored: StoredRollouts,
    stages: TrainingStages,
    checkpointing: Checkpointing,
    monitor: Monitor,
    diverse_by: DiverseBy,
) -> None:
    """Train on the stored updates after those that the trainer has done.

    Raises:
        Stopped: several updates in a row had no finite gradient.
    """
    checkpointing.save_trajectory(trainer)
    remaining = stored.updates(after=trainer.done)
    with SaveFirst(polls=True) as ending:
        while trainer.done < trainer.updates:
            started = time.monotonic()
            update = next(remaining)
            batch = batch_of(update.groups, diverse_by)
            # Updates since the checkpoint are repeated, in the stages in which they were.
            stage = stages.stage_at(checkpointing.lines[: trainer.done])
            enter(checkpointing.ledger, batch, step=trainer.done + 1, stage=stage)
            ending.started()
            metrics = trainer.learn(batch.trained, stages.settings[stage])
            ending.finished(metrics.seconds)
            seconds = time.monotonic() - started
            line = metrics_of(trainer, batch, metrics, update.version, seconds)
            line |= checkpointing.ledger.batch_fields[trainer.done]
            checkpointing.record(trainer.done, batch, metrics.advantages, line)
            if checkpointing.save_due(trainer):
                ending.saved()
            monitor.update(line)
            if ending.requested:
                checkpointing.complete_save(trainer)
                monitor.saved_first(trainer.done)
                ending.end()


def enter(ledger: Ledger, batch: Batch, *, step: int, stage: int) -> None:
    """Write what became of an update's groups to the ledger, unless an earlier process has."""
    for group in (*batch.dropped, *batch.trained):
        was_reserved = group.number in ledger.problems
        if not was_reserved:
            # A group started with the oldest weights that generated any of it.
            oldest_version = min(rollout.versions[0][1] for rollout in group.rollouts)
            problem = group.problem["id"]
            ledger.record(group.number, "reserved", problem=problem, version=oldest_version, stage=stage)
    for group in batch.dropped:
        was_dropped = group.number not in ledger.outstanding
        if not was_dropped:
            ledger.record(group.number, "dropped", reason=group.dropped)
    if step not in ledger.batches:
        trained = [group.number for group in batch.trained]
        ledger.record_batch(trained, "taken", step=step, stage=stage)


def metrics_of(trainer: Trainer, batch: Batch, metrics: UpdateMetrics, version: int, seconds: float) -> dict[str, Any]:
    """The line of metrics of an update, with staleness as it was when the rollouts were sampled.

    There is none of engines, and no mismatch with one: these weights sampled nothing.
    """
    trained_share = metrics.seconds / seconds
    idle = idle_metrics("trainer_idle", {"saving": 1.0 - trained_share}, TRAINER_IDLE)
    line: dict[str, Any] = {"step": trainer.done, "lr": trainer.last_lr, OFF_POLICY: "replay"}
    line |= group_metrics(batch.trained, batch.dropped, version)
    for name, value in training_metrics(metrics).items():
        if not name.startswith("mismatch"):
            line[name] = value
    line["seconds"] = seconds
    line["train_tokens_per_s"] = line["trained_tokens"] / max(metrics.seconds, 1e-9)
    return line | idle
