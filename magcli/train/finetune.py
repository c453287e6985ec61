"""The SFT loop: step through the plan, evaluate on what was held out, write it down; killed, it goes on exactly."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.optim import Optimizer

from magcli.data import durable
from magcli.errors import Stopped
from magcli.model.load import save_model
from magcli.run.rundir import RunDir
from magcli.train import checkpoint, optim, supervised
from magcli.train.supervised import Example

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

MAX_BAD_STEPS = 5
"""Steps in a row whose gradient is not finite before the run stops."""


@dataclass
class Trainer:
    """The weights being trained and where they stand.

    ``steps`` are the indices of the examples of every step, ``done`` how many steps were made; ``warmup`` is in steps,
    ``floor`` a share of ``lr``, the peak of the cosine schedule.
    """

    model: "PreTrainedModel"
    optimizer: Optimizer
    tokenizer: "PreTrainedTokenizerBase"
    examples: Sequence[Example]
    steps: Sequence[Sequence[int]]
    held_out: Sequence[Example]
    lr: float
    warmup: int
    floor: float
    micro_tokens: int
    max_norm: float
    bf16: bool
    done: int = 0
    best_loss: float = float("inf")
    best_step: int = 0
    bad_steps: int = 0

    def learn(self) -> dict[str, Any]:
        """The next optimizer step; its line of metrics.

        Raises:
            Stopped: several steps in a row had no finite gradient.
        """
        begun, chosen = time.monotonic(), [self.examples[index] for index in self.steps[self.done]]
        lr = self.lr * optim.cosine(self.done, total=len(self.steps), warmup=self.warmup, floor=self.floor)
        optim.set_lr(self.optimizer, lr)
        loss, norm = supervised.step(
            self.model,
            self.optimizer,
            chosen,
            micro_tokens=self.micro_tokens,
            max_norm=self.max_norm,
            bf16=self.bf16,
        )
        self.done += 1
        self.bad_steps = 0 if norm is not None else self.bad_steps + 1
        if self.bad_steps == MAX_BAD_STEPS:
            raise Stopped(f"sft: no finite gradient in {MAX_BAD_STEPS} steps up to {self.done}; try a lower --lr")
        return {
            "step": self.done,
            "loss": loss,
            "lr": lr,
            "grad_norm": norm,
            "tokens": sum(len(example.tokens) for example in chosen),
            "target_tokens": sum(sum(example.mask) for example in chosen),
            "skipped": float(norm is None),
            "seconds": time.monotonic() - begun,
        }


@dataclass(frozen=True)
class Records:
    """Where a run writes, and every how many steps."""

    folder: RunDir
    evaluate_every: int
    checkpoint_every: int
    keep_checkpoints: int

    def keep_start(self, trainer: Trainer) -> None:
        """Weights drawn anew are kept as they began, so that what training gained can be measured."""
        start = self.folder.path / "start"
        if not start.exists():
            save_model(trainer.model, trainer.tokenizer, start, dtype=torch.float32)

    def resume(self, trainer: Trainer) -> None:
        """Go on from the newest whole checkpoint; what came after it is made again, equal."""
        if last := checkpoint.latest(self.folder.checkpoints):
            told = checkpoint.load(last, trainer.model, trainer.optimizer)
            trainer.done, trainer.best_step = told["step"], told["best_step"]
            trainer.best_loss = float(told["best_loss"])
        self.folder.rewind(trainer.done)

    def save(self, trainer: Trainer) -> None:
        """Write a checkpoint and remove old ones."""
        checkpoint.save(
            checkpoint.step_folder(self.folder.checkpoints, trainer.done),
            model=trainer.model,
            optimizer=trainer.optimizer,
            state={"step": trainer.done, "best_loss": str(trainer.best_loss), "best_step": trainer.best_step},
            tokenizer=trainer.tokenizer,
        )
        checkpoint.prune(self.folder.checkpoints, keep=self.keep_checkpoints)

    def evaluate(self, trainer: Trainer) -> float:
        """Loss on the held-out traces; the best model so far is kept."""
        trainer.model.eval()
        loss = supervised.held_out_loss(
            trainer.model, trainer.held_out, micro_tokens=trainer.micro_tokens, bf16=trainer.bf16
        )
        trainer.model.train()
        if loss < trainer.best_loss:
            trainer.best_loss, trainer.best_step = loss, trainer.done
            save_model(trainer.model, trainer.tokenizer, self.folder.path / "best", dtype=torch.float32)
        return loss


def train(trainer: Trainer, records: Records, report: Callable[[dict[str, Any]], None]) -> None:
    """Make all steps that are not done yet, then write the model; ``report`` gets each line of metrics."""
    total = len(trainer.steps)
    while trainer.done < total:
        line = trainer.learn()
        if trainer.held_out and (trainer.done % records.evaluate_every == 0 or trainer.done == total):
            line["held_out_loss"] = records.evaluate(trainer)
        records.folder.log(line)
        if trainer.done % records.checkpoint_every == 0:
            records.save(trainer)
        report(line)
    _finish(trainer, records.folder)


def _finish(trainer: Trainer, folder: RunDir) -> None:
    """The result: the best model by held-out loss, or the last one where nothing is held out."""
    best = folder.path / "best"
    if best.exists():
        durable.rename(best, folder.model)
    else:
        save_model(trainer.model, trainer.tokenizer, folder.model, dtype=torch.float32)
