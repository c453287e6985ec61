"""Supervised fine-tuning: the schedule of examples, one optimizer step on one or many ranks, and the training loop.

The seed alone fixes the schedule of a whole run, so a resumed run continues exactly where it stopped. The loss is
divided by the target tokens of all ranks, so the number of ranks changes a gradient by rounding only.
"""

import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from magcli.data import durable
from magcli.errors import MagError, Stopped
from magcli.plan.machine import host
from magcli.run.rundir import RunDir
from magcli.run.shutdown import SaveFirst
from magcli.train import checkpoint, optim
from magcli.train.commands import RankState
from magcli.train.controller import RankController
from magcli.train.logprobs import scored_tokens, token_logprobs
from magcli.train.moving import moved, read_sum
from magcli.train.packing import pack
from magcli.train.shard import ShardedModel, micro_batches_by_rank

if TYPE_CHECKING:
    from transformers import PreTrainedModel

MAX_BAD_STEPS = 5
"""Consecutive steps without a finite gradient after which the run stops."""

STEP_TOKENS = 16384
"""The tokens of an optimizer step, if nothing else is asked for."""
STEPS_PER_EPOCH = 8
"""The fewest steps of an epoch, if nothing else is asked for: a small table would otherwise be one step."""

EvaluateModel = Callable[[Path], Mapping[str, Any]]
"""Evaluates the model in a folder; the metric ``accuracy`` selects the best model."""


@dataclass(frozen=True, slots=True)
class Example:
    """A tokenized conversation, its loss mask and its weight in the loss."""

    tokens: tuple[int, ...]
    mask: tuple[bool, ...]
    weight: float = 1.0


MicroBatch = Sequence[Example]

PADDING = Example((0,), (False,))
"""An example without targets: the micro-batch of ranks that would otherwise be idle."""


def default_step_tokens(tokens: int) -> int:
    """The tokens of an optimizer step for a table of ``tokens`` tokens."""
    return max(min(STEP_TOKENS, tokens // STEPS_PER_EPOCH), 1)


def plan_steps(lengths: Sequence[int], *, epochs: int, step_tokens: int, seed: int) -> list[list[int]]:
    """The examples of every optimizer step: each epoch is shuffled and cut into steps of about ``step_tokens`` tokens.

    A step ends with the example that reaches the budget; the last step of an epoch takes what is left.
    """
    steps: list[list[int]] = []
    for epoch in range(epochs):
        # A generator of its own for each epoch, so an order does not depend on those before.
        order = np.random.default_rng([seed, epoch]).permutation(len(lengths))
        current: list[int] = []
        tokens = 0
        for index in order.tolist():
            # The example that reaches the budget belongs to the step.
            current.append(index)
            tokens += lengths[index]
            if tokens >= step_tokens:
                steps.append(current)
                current, tokens = [], 0
        if current:
            steps.append(current)
    return steps


def split_examples(
    examples: Sequence[Example], *, micro_tokens: int, size: int = 1, hidden: int = 1
) -> list[list[MicroBatch]]:
    """The micro-batches of each of ``size`` ranks: at most ``micro_tokens`` tokens each, equally many on every rank."""
    lengths = [len(example.tokens) for example in examples]
    by_rank: list[list[MicroBatch]] = []
    for batches in micro_batches_by_rank(lengths, budget=micro_tokens, size=size, hidden=hidden):
        by_rank.append([[examples[index] for index in batch] or [PADDING] for batch in batches])
    return by_rank


def num_targets(examples: Iterable[Example]) -> float:
    """The number of target tokens, weighted by example."""
    return sum(sum(example.mask) * example.weight for example in examples)


def accumulate(
    sharded: ShardedModel, batches: Sequence[MicroBatch], *, total: float, bf16: bool, train: bool = True
) -> float:
    """This process's part of a step's loss; gradients accumulate over its micro-batches.

    All losses are divided by ``total``, the target tokens of the step, so every target token counts the same (times
    its example's weight), whichever micro-batch it is in.
    """
    losses: list[Tensor] = []
    for number, batch in enumerate(batches, 1):
        with torch.set_grad_enabled(train):
            part: Tensor = sharded(lambda model: _loss(model, batch, total, bf16=bf16))  # noqa: B023
        if train:
            sharded.backward(part, is_last=number == len(batches))
        losses.append(part.detach())
    return read_sum(losses)


def _loss(model: "PreTrainedModel", batch: MicroBatch, total: float, *, bf16: bool) -> Tensor:
    device = model.device
    packed = pack([example.tokens for example in batch])
    # Of all tokens of the pack, in their order.
    mask_of_pack = chain.from_iterable(example.mask for example in batch)
    mask = torch.tensor(list(mask_of_pack))
    weight = packed.spread([example.weight for example in batch])
    scored = scored_tokens(packed, mask)
    with optim.autocast(device, bf16):
        logprobs = token_logprobs(model, packed.to(device), where=scored.to(device))
        return sft_loss(logprobs.values, moved(mask, device), total=total, weight=moved(weight, device))


def sft_loss(logprobs: Tensor, mask: Tensor, *, total: float, weight: Tensor | None = None) -> Tensor:
    """Cross-entropy of the targets of one micro-batch: its share of the mean over an optimizer step.

    ``logprobs`` and ``mask`` (bool) are ``[T]``; ``weight`` ``[T]`` scales tokens. ``total`` is the number of target
    tokens (the sum of their weights) of the whole step, all micro-batches together.
    """
    if total <= 0:
        raise MagError(f"an optimizer step needs target tokens, not {total}")
    # 0 for all but the targets.
    scale = mask.float() if weight is None else mask * weight
    return -(logprobs * scale).sum() / total


@dataclass(frozen=True, slots=True)
class TrainStep:
    """Rank command: one optimizer step on this rank's micro-batches; ``total`` counts the targets of all ranks."""

    batches: Sequence[MicroBatch]
    total: float
    lr: float
    max_norm: float
    bf16: bool

    def run(self, state: RankState) -> tuple[float, float | None]:
        """Loss and gradient norm over all ranks; the norm is None if it was not finite and the step was skipped."""
        optim.set_lr(state.optimizer, self.lr)
        loss = state.ranks.sum(accumulate(state.sharded, self.batches, total=self.total, bf16=self.bf16))
        norm = optim.clip_and_step(state.optimizer, state.model.parameters(), max_norm=self.max_norm)
        state.freed.bound(host().usable)
        return loss, norm


@dataclass(frozen=True, slots=True)
class EvaluateLoss:
    """Rank command: the mean loss per target token, without training."""

    batches: Sequence[MicroBatch]
    total: float
    bf16: bool

    def run(self, state: RankState) -> float:
        """The loss over all ranks."""
        state.model.eval()
        loss = state.ranks.sum(accumulate(state.sharded, self.batches, total=self.total, bf16=self.bf16, train=False))
        state.model.train()
        return loss


@dataclass
class SFTTrainer:
    """The state of an SFT run.

    ``steps`` has the indices of the examples of every step, ``done`` of which are completed; ``warmup`` is in steps,
    ``floor`` a fraction of ``lr``, the peak of the cosine schedule. ``best`` is the accuracy of the best model so far
    or, without an evaluator, its negative held-out loss; ``best_loss`` is its held-out loss, if there is one.
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
    best_loss: float = float("inf")
    best_step: int = 0
    bad_steps: int = 0
    unevaluated: dict[str, Any] = field(default_factory=dict)
    """The metrics of the last step, if its evaluation was interrupted; else none."""

    def step(self) -> dict[str, Any]:
        """Run the next optimizer step; returns its metrics.

        Raises:
            Stopped: several consecutive steps had no finite gradient.
        """
        started = time.monotonic()
        chosen = [self.examples[index] for index in self.steps[self.done]]
        lr = self.lr * optim.cosine(self.done, total=len(self.steps), warmup=self.warmup, floor=self.floor)
        # Known before the split over ranks: every part of the loss has the same divisor.
        total = num_targets(chosen)
        commands = [TrainStep(batches, total, lr, self.max_norm, self.bf16) for batches in self._split(chosen)]
        loss, norm = self.controller.run(commands)
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
            # A number, so that it can be a curve.
            "skipped": float(norm is None),
            "seconds": time.monotonic() - started,
        }

    def held_out_loss(self) -> float:
        """Mean loss per target token of the held-out traces."""
        total = num_targets(self.held_out)
        commands = [EvaluateLoss(batches, total, self.bf16) for batches in self._split(self.held_out)]
        loss: float = self.controller.run(commands)
        return loss

    def _split(self, examples: Sequence[Example]) -> list[list[MicroBatch]]:
        size, hidden = self.controller.size, self.controller.facts.hidden_size
        return split_examples(examples, micro_tokens=self.micro_tokens, size=size, hidden=hidden)


@dataclass(frozen=True)
class SFTRun:
    """The run folder, intervals in steps, and the evaluator, if any."""

    folder: RunDir
    evaluate_every: int
    checkpoint_every: int
    keep_checkpoints: int
    evaluator: EvaluateModel | None = None

    @property
    def _best(self) -> Path:
        """The best model so far, if models are evaluated."""
        return self.folder.path / "best"

    @property
    def _best_adapter(self) -> Path:
        """Its adapters, if there are some."""
        return self.folder.path / "best-adapter"

    @property
    def _adapter(self) -> Path:
        """The adapters of the result."""
        return self.folder.path / "adapter"

    def save_initial_model(self, trainer: SFTTrainer) -> None:
        """Keep randomly initialized weights, so that the gain from training can be measured."""
        start = self.folder.path / "start"
        if not start.exists():
            trainer.controller.save_model(start)

    def resume(self, trainer: SFTTrainer) -> None:
        """Continue from the newest complete checkpoint; later steps are recomputed with equal results."""
        checkpoint.remove_unfinished(self.folder.checkpoints)
        last = checkpoint.latest(self.folder.checkpoints)
        if last is not None:
            state = trainer.controller.load(last)
            trainer.done = state["step"]
            trainer.best_step = state["best_step"]
            trainer.best = float(state["best"])  # text, since JSON has no infinity
            trainer.best_loss = float(state.get("best_loss", "inf"))
            trainer.unevaluated = state.get("unevaluated", {})
            self._restore_best(trainer)
        self.folder.rewind(trainer.done)

    def _restore_best(self, trainer: SFTTrainer) -> None:
        """Of a run that is prolonged, the result so far is the best model, if models were evaluated."""
        best, best_adapter, adapter = self._best, self._best_adapter, self._adapter
        if not trainer.best_step or best.exists() or not self.folder.shorter.exists():
            return
        if adapter.exists():
            shutil.rmtree(best_adapter, ignore_errors=True)
            durable.rename(adapter, best_adapter)
        durable.rename(self.folder.shorter, best)

    def save(self, trainer: SFTTrainer) -> None:
        """Write a checkpoint and, once it is complete, remove old ones.

        Several ranks write it while the next steps run.
        """
        trainer.controller.save(
            checkpoint.step_folder(self.folder.checkpoints, trainer.done),
            {
                "step": trainer.done,
                "best": str(trainer.best),
                "best_loss": str(trainer.best_loss),
                "best_step": trainer.best_step,
                "unevaluated": trainer.unevaluated,
            },
            partial(checkpoint.prune, self.folder.checkpoints, keep=self.keep_checkpoints),
        )

    def complete_save(self, trainer: SFTTrainer) -> None:
        """Write the checkpoint of the last step, unless there is one, to its end."""
        last = checkpoint.step_folder(self.folder.checkpoints, trainer.done)
        if checkpoint.latest(self.folder.checkpoints) != last:
            self.save(trainer)
        trainer.controller.finish_save()

    def evaluate(self, trainer: SFTTrainer) -> dict[str, Any]:
        """Held-out loss and the evaluator's metrics; the best model so far is kept, by accuracy if there is one.

        Of models of equal accuracy, the one with the lowest held-out loss is the best, and of those the last.
        """
        metrics: dict[str, Any] = {}
        if trainer.held_out:
            metrics["held_out_loss"] = trainer.held_out_loss()
        candidate = self.folder.path / "candidate"
        if self.evaluator:
            trainer.controller.save_model(candidate)
            metrics |= self.evaluator(candidate)
        # The greater the better in either case.
        quality = metrics["accuracy"] if self.evaluator else -metrics["held_out_loss"]
        loss = metrics.get("held_out_loss", float("inf"))
        is_equal_and_no_worse = quality == trainer.best and loss <= trainer.best_loss
        if quality > trainer.best or is_equal_and_no_worse:
            trainer.best = quality
            trainer.best_loss = loss
            trainer.best_step = trainer.done
            self._keep_best(trainer, candidate)
        shutil.rmtree(candidate, ignore_errors=True)
        return metrics

    def finish(self, trainer: SFTTrainer) -> None:
        """Write the result: the best model if models were evaluated, else the last; adapters go to ``adapter``.

        The last checkpoint stays, so that the run can be prolonged.
        """
        trainer.controller.finish_save()
        self.complete_save(trainer)
        best, best_adapter, adapter = self._best, self._best_adapter, self._adapter
        # Adapters first: ``best`` tells what the result is, also after a kill in between.
        if best_adapter.exists():
            shutil.rmtree(adapter, ignore_errors=True)
            durable.rename(best_adapter, adapter)
        elif trainer.controller.facts.has_adapters and not best.exists():
            trainer.controller.save_adapter(adapter)
        if best.exists():
            durable.rename(best, self.folder.model)
        else:
            trainer.controller.save_model(self.folder.model)
        checkpoint.prune(self.folder.checkpoints, keep=1)
        shutil.rmtree(self.folder.shorter, ignore_errors=True)

    def _keep_best(self, trainer: SFTTrainer, candidate: Path) -> None:
        if trainer.controller.facts.has_adapters:
            trainer.controller.save_adapter(self._best_adapter)
        if candidate.exists():
            shutil.rmtree(self._best, ignore_errors=True)
            durable.rename(candidate, self._best)
        else:
            trainer.controller.save_model(self._best)


def train(
    trainer: SFTTrainer,
    run: SFTRun,
    report: Callable[[dict[str, Any]], None],
    saved_first: Callable[[int], None] = lambda step: None,
) -> None:
    """Run all remaining steps, then write the model; ``report`` gets the metrics of each step.

    SIGTERM ends the run after the step, with a checkpoint, if that saves enough work; ``saved_first`` is told the step.
    """
    total = len(trainer.steps)
    with SaveFirst(polls=True) as ending:
        while trainer.done < total or trainer.unevaluated:
            metrics = trainer.unevaluated or _step(trainer, ending)
            # The last model is evaluated in any case.
            due = trainer.done % run.evaluate_every == 0 or trainer.done == total
            if due and (trainer.held_out or run.evaluator):
                metrics = _evaluated(trainer, run, metrics, ending, saved_first)
            run.folder.log(metrics)
            trainer.controller.check_save()
            if trainer.done % run.checkpoint_every == 0:
                run.save(trainer)
                ending.saved()
            report(metrics)
            if ending.requested:
                _save_and_end(trainer, run, ending, saved_first)
    run.finish(trainer)


def _step(trainer: SFTTrainer, ending: SaveFirst) -> dict[str, Any]:
    ending.started()
    metrics = trainer.step()
    ending.finished(metrics["seconds"])
    return metrics


def _evaluated(
    trainer: SFTTrainer,
    run: SFTRun,
    metrics: dict[str, Any],
    ending: SaveFirst,
    saved_first: Callable[[int], None],
) -> dict[str, Any]:
    """The metrics of a step with its evaluation. SIGTERM does not wait for it: the run that goes on evaluates first."""
    # What a checkpoint keeps if the evaluation does not end.
    trainer.unevaluated = metrics
    best_before = trainer.best, trainer.best_loss, trainer.best_step
    ending.polls = False
    try:
        if ending.requested:
            ending.end()
        evaluation = run.evaluate(trainer)
    except KeyboardInterrupt:
        if ending.requested:
            # The evaluation is repeated, so it has not changed what is best.
            trainer.best, trainer.best_loss, trainer.best_step = best_before
            _save_and_end(trainer, run, ending, saved_first)
        raise
    ending.polls = True
    trainer.unevaluated = {}
    return metrics | evaluation


def _save_and_end(trainer: SFTTrainer, run: SFTRun, ending: SaveFirst, saved_first: Callable[[int], None]) -> NoReturn:
    """Write the checkpoint of the last step, unless there is one, and end the command."""
    run.complete_save(trainer)
    saved_first(trainer.done)
    ending.end()
