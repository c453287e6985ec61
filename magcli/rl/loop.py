"""The RL loop: take a batch of groups, update the policy, hand the new weights to the generator, write it down."""

import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch.optim import Optimizer
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from magcli.data import manifest, seal, table
from magcli.errors import Stopped
from magcli.model.load import save_model
from magcli.rl.flow import Flow
from magcli.rl.records import ROLLOUT, group_metrics, rollout_rows
from magcli.rl.rollouts import Group
from magcli.rl.update import Objective, Tally, update
from magcli.run.rundir import RunDir
from magcli.train import checkpoint, optim

MAX_BAD_UPDATES = 5
"""Updates in a row without a finite gradient before the run stops."""


@dataclass
class Trainer:
    """The weights being trained and where they stand. ``updates`` is how many there will be, ``done`` how many were."""

    model: PreTrainedModel
    optimizer: Optimizer
    tokenizer: PreTrainedTokenizerBase
    objective: Objective
    groups_per_step: int
    updates: int
    lr: float
    warmup: int
    shuffle_rewards: bool
    seed: int
    done: int = 0
    bad_updates: int = 0

    def learn(self, groups: Sequence[Group]) -> Tally:
        """One update.

        Raises:
            Stopped: several updates in a row had no finite gradient.
        """
        rate = min(1.0, (self.done + 1) / self.warmup) if self.warmup else 1.0
        optim.set_lr(self.optimizer, self.lr * rate)
        rewards = [[reward.total for reward in group.rewards] for group in groups]
        if self.shuffle_rewards:
            rewards = shuffled(rewards, [self.seed, self.done])
        tally = update(
            self.model,
            self.optimizer,
            groups,
            self.objective,
            groups_per_step=self.groups_per_step,
            rewards=rewards,
        )
        self.done += 1
        self.bad_updates = 0 if tally.norms else self.bad_updates + 1
        if self.bad_updates == MAX_BAD_UPDATES:
            raise Stopped(f"rl: no finite gradient in {MAX_BAD_UPDATES} updates up to {self.done}; try a lower --lr")
        return tally


def shuffled(rewards: Sequence[Sequence[float]], seed: Sequence[int]) -> list[list[float]]:
    """The control of the learning experiments: within each group the rewards change hands at random."""
    random = np.random.default_rng(list(seed))
    return [random.permutation(np.asarray(group)).tolist() for group in rewards]


@dataclass(frozen=True)
class Records:
    """Where a run writes: its folder, and how often it keeps what."""

    folder: RunDir
    checkpoint_every: int
    keep_checkpoints: int
    trajectory_every: int

    @property
    def rollouts(self) -> Path:
        """The rollouts of each update, a table each."""
        return self.folder.path / "rollouts"

    def write_rollouts(self, step: int, trained: Sequence[Group], dropped: Sequence[Group], tally: Tally) -> None:
        """Keep what was sampled for an update."""
        rows = rollout_rows([*dropped, *trained], step, tally.advantages)
        with table.write(str(self.rollouts / f"step-{step:06d}.arrow"), ROLLOUT, seal.pack({"stage": "rl"})) as sink:
            sink.write(rows)
            sink.finish((manifest.Link("rl", "", {"step": step}, rows_out=rows.num_rows),))

    def rewind(self, step: int) -> None:
        """Forget what was made after a checkpoint: it is made again."""
        self.folder.rewind(step)
        for path in self.rollouts.glob("step-*.arrow"):
            if int(path.stem.removeprefix("step-")) > step:
                path.unlink()

    def keep_weights(self, trainer: Trainer) -> None:
        """Keep float32 weights for the landscape: at the start, every so often, and at the end."""
        due = self.trajectory_every and (trainer.done % self.trajectory_every == 0 or trainer.done == trainer.updates)
        if due:
            target = checkpoint.step_folder(self.folder.trajectory, trainer.done)
            save_model(trainer.model, trainer.tokenizer, target, dtype=torch.float32)

    def save(self, trainer: Trainer, flow: Flow) -> None:
        """Write a checkpoint: weights, optimizer, and where the groups stand."""
        state = {
            "step": trainer.done,
            "next_number": flow.next_number,
            "again": sorted(flow.ledger.outstanding),
            "ledger_bytes": flow.ledger.sync(),
        }
        checkpoint.save(
            checkpoint.step_folder(self.folder.checkpoints, trainer.done),
            model=trainer.model,
            optimizer=trainer.optimizer,
            state=state,
            tokenizer=trainer.tokenizer,
        )
        checkpoint.prune(self.folder.checkpoints, keep=self.keep_checkpoints)


async def train(
    trainer: Trainer,
    flow: Flow,
    records: Records,
    *,
    schedule: Literal["sync", "async"],
    generating: Callable[[], float],
    report: Callable[[dict[str, Any]], None],
) -> None:
    """Run all updates that are not done yet.

    ``generating`` tells the seconds the generator has worked so far; ``report`` is called with each line of metrics.
    """
    if trainer.done == 0:
        records.keep_weights(trainer)
    collect = flow.synchronous if schedule == "sync" else flow.asynchronous
    try:
        while trainer.done < trainer.updates:
            begun, worked = time.monotonic(), generating()
            groups = await collect()
            version = flow.roller.policy.version
            with interruptible():
                tally = trainer.learn(groups)
            await flow.roller.policy.load(trainer.model.state_dict(), trainer.done)
            for group in groups:
                flow.ledger.note(group.number, "trained", step=trainer.done)
            dropped = flow.take_dropped()
            records.write_rollouts(trainer.done, groups, dropped, tally)
            line = {"step": trainer.done, "lr": trainer.optimizer.param_groups[0]["lr"]}
            line |= group_metrics(groups, dropped, version) | tally.metrics()
            line |= speeds(line, tally.seconds, generating() - worked, time.monotonic() - begun)
            records.folder.log(line)
            report(line)
            records.keep_weights(trainer)
            if trainer.done % records.checkpoint_every == 0 and trainer.done < trainer.updates:
                records.save(trainer, flow)
    finally:
        await flow.stop()


@contextmanager
def interruptible() -> Iterator[None]:
    """Let an interrupt end a long computation at once: asyncio's own handler takes effect at the next await only."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


def speeds(line: dict[str, Any], training: float, generating: float, wall: float) -> dict[str, float]:
    """Tokens a second of both sides while they work, and the share of the update's wall time each stood still."""
    return {
        "seconds": wall,
        "train_tokens_per_s": line["trained_tokens"] / max(training, 1e-9),
        "generate_tokens_per_s": line["generated_tokens"] / max(generating, 1e-9),
        "trainer_idle": max(0.0, 1 - training / wall),
        "generator_idle": max(0.0, 1 - generating / wall),
    }


def resume(trainer: Trainer, records: Records) -> dict[str, Any]:
    """Go on from the newest whole checkpoint; returns where the groups stood there."""
    state: dict[str, Any] = {"step": 0, "next_number": 0, "again": [], "ledger_bytes": 0}
    if last := checkpoint.latest(records.folder.checkpoints):
        state = checkpoint.load(last, trainer.model, trainer.optimizer)
        trainer.done = state["step"]
    records.rewind(trainer.done)
    return state


def finish(trainer: Trainer, folder: RunDir) -> None:
    """Write the trained model; its being there is what makes the run finished."""
    save_model(trainer.model, trainer.tokenizer, folder.model, dtype=torch.float32)
    clear(folder)


def clear(folder: RunDir) -> None:
    """Remove the checkpoints of a finished run."""
    shutil.rmtree(folder.checkpoints, ignore_errors=True)
