"""The SFT loop: step through the plan, evaluate, keep the best, write it down; killed, it goes on exactly."""

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from magcli.data import durable
from magcli.errors import Stopped
from magcli.run.rundir import RunDir
from magcli.train import checkpoint, lora, optim, supervised
from magcli.train.controller import RankController
from magcli.train.shard import width
from magcli.train.supervised import Example

Exam = Callable[[Path], Mapping[str, float]]
"""Evaluates the model in a folder; ``accuracy`` among its figures says how good the model is."""

MAX_BAD_STEPS = 5
"""Steps in a row whose gradient is not finite before the run stops."""


@dataclass
class Trainer:
    """The weights being trained, by one rank or many, and where they stand.

    ``steps`` are the indices of the examples of every step, ``done`` how many steps were made; ``warmup`` is in steps,
    ``floor`` a share of ``lr``, the peak of the cosine schedule. ``best`` is the accuracy of the best model so far or,
    without an exam, its negative held-out loss.
    """

    controller: RankController
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
    best: float = float("-inf")
    best_step: int = 0
    bad_steps: int = 0

    def learn(self) -> dict[str, Any]:
        """The next optimizer step; its line of metrics.

        Raises:
            Stopped: several steps in a row had no finite gradient.
        """
        begun, chosen = time.monotonic(), [self.examples[index] for index in self.steps[self.done]]
        lr = self.lr * optim.cosine(self.done, total=len(self.steps), warmup=self.warmup, floor=self.floor)
        total = supervised.num_targets(chosen)
        loss, norm = self.controller.run(
            [supervised.Step(own, total, lr, self.max_norm, self.bf16) for own in self._dealt(chosen)]
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

    def held_out_loss(self) -> float:
        """Mean loss of the target tokens of the held-out traces."""
        total = supervised.num_targets(self.held_out)
        orders = [supervised.Measure(own, total, self.bf16) for own in self._dealt(self.held_out)]
        loss: float = self.controller.run(orders)
        return loss

    def _dealt(self, examples: Sequence[Example]) -> list[list[supervised.MicroBatch]]:
        size, hidden = self.controller.ranks.size, width(self.controller.state.model)
        return supervised.dealt(examples, micro_tokens=self.micro_tokens, size=size, hidden=hidden)


@dataclass(frozen=True)
class Records:
    """Where a run writes, every how many steps, and the exam that its models take, if any."""

    folder: RunDir
    evaluate_every: int
    checkpoint_every: int
    keep_checkpoints: int
    exam: Exam | None = None

    def keep_start(self, trainer: Trainer) -> None:
        """Weights drawn anew are kept as they began, so that what training gained can be measured."""
        start = self.folder.path / "start"
        if not start.exists():
            trainer.controller.save_model(start)

    def resume(self, trainer: Trainer) -> None:
        """Go on from the newest whole checkpoint; what came after it is made again, equal."""
        if last := checkpoint.latest(self.folder.checkpoints):
            told = trainer.controller.load(last)
            trainer.done, trainer.best_step = told["step"], told["best_step"]
            trainer.best = float(told["best"])
        self.folder.rewind(trainer.done)

    def save(self, trainer: Trainer) -> None:
        """Write a checkpoint and remove old ones."""
        trainer.controller.save(
            checkpoint.step_folder(self.folder.checkpoints, trainer.done),
            {"step": trainer.done, "best": str(trainer.best), "best_step": trainer.best_step},
        )
        checkpoint.prune(self.folder.checkpoints, keep=self.keep_checkpoints)

    def evaluate(self, trainer: Trainer) -> dict[str, float]:
        """Loss on the held-out traces, figures of the exam; the best model so far is kept, by the exam if there is one.

        A model that is exactly as good as an earlier one does not take its place.
        """
        told: dict[str, float] = {}
        if trainer.held_out:
            told["held_out_loss"] = trainer.held_out_loss()
        candidate = self.folder.path / "candidate"
        if self.exam:
            write_model(trainer, candidate)
            told |= self.exam(candidate)
        quality = told["accuracy"] if self.exam else -told["held_out_loss"]
        if quality > trainer.best:
            trainer.best, trainer.best_step = quality, trainer.done
            self._keep_best(trainer, candidate)
        shutil.rmtree(candidate, ignore_errors=True)
        return told

    def _keep_best(self, trainer: Trainer, candidate: Path) -> None:
        best = self.folder.path / "best"
        if adapters := trainer.controller.state.adapters:
            lora.save_adapter(adapters, self.folder.path / "best-adapter")
        if candidate.exists():
            shutil.rmtree(best, ignore_errors=True)
            durable.rename(candidate, best)
        else:
            write_model(trainer, best)


def write_model(trainer: Trainer, folder: Path) -> None:
    """The weights as they stand, in the model's own layout, those of LoRA merged into them."""
    state = trainer.controller.state
    with lora.merged(state.model) if state.adapters else nullcontext():
        trainer.controller.save_model(folder)


def train(trainer: Trainer, records: Records, report: Callable[[dict[str, Any]], None]) -> None:
    """Make all steps that are not done yet, then write the model; ``report`` gets each line of metrics."""
    total = len(trainer.steps)
    while trainer.done < total:
        line = trainer.learn()
        due = trainer.done % records.evaluate_every == 0 or trainer.done == total
        if due and (trainer.held_out or records.exam):
            line |= records.evaluate(trainer)
        records.folder.log(line)
        if trainer.done % records.checkpoint_every == 0:
            records.save(trainer)
        report(line)
    _finish(trainer, records.folder)


def _finish(trainer: Trainer, folder: RunDir) -> None:
    """The result: the best model where models were evaluated, or the last one; its adapters are in ``adapter``."""
    best, best_adapter, adapter = (folder.path / name for name in ("best", "best-adapter", "adapter"))
    if best_adapter.exists():
        shutil.rmtree(adapter, ignore_errors=True)
        durable.rename(best_adapter, adapter)
    elif (adapters := trainer.controller.state.adapters) and not best.exists():
        lora.save_adapter(adapters, adapter)
    if best.exists():
        durable.rename(best, folder.model)
    else:
        write_model(trainer, folder.model)
