"""What all ranks of the trainer do at the same time, each on its share of the model and of the batch."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.optim import Optimizer
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from magcli.rl.samples import Sample
from magcli.rl.update import MiniBatch, Objective, Tally, micro_batch_loss, with_proximal
from magcli.train import checkpoint
from magcli.train.distributed import Ranks
from magcli.train.loss import ClipStats, mismatch_summary
from magcli.train.optim import clip_and_step, set_lr
from magcli.train.shard import Whole, full_weights

MEASURED = ("clips", "entropies", "mismatches", "importance", "divergences")
"""What micro-batches add to a tally, wherever they are computed."""

BeforeStep = Callable[[Mapping[str, float]], None]


@dataclass(frozen=True, slots=True)
class Share:
    """What one rank holds of the trainer: its shards, and the whole of a reference model if there is one."""

    ranks: Ranks
    whole: Whole
    optimizer: Optimizer
    tokenizer: PreTrainedTokenizerBase
    reference: PreTrainedModel | None = None

    @property
    def model(self) -> PreTrainedModel:
        """The model, whose weights are whole inside ``whole`` only."""
        return self.whole.model


class Order(Protocol):
    """What rank 0 has all ranks do at the same time."""

    def carry_out(self, share: Share) -> Any:
        """This rank's part; what it returns matters on rank 0 only."""
        ...


@dataclass(frozen=True, slots=True)
class Open:
    """The first order: it takes a share to carry it out, so that each rank opens its own."""

    def carry_out(self, share: Share) -> None:
        """Nothing more."""


@dataclass(frozen=True, slots=True)
class Learn:
    """One update: this rank's micro-batches of each mini-batch. Rank 0 returns what all ranks measured.

    ``asks``: rank 0 has a say before the first optimizer step, by ``before_step``.
    """

    batches: Sequence[MiniBatch]
    objective: Objective
    lr: float
    version: int | None
    asks: bool
    before_step: BeforeStep | None = None

    def carry_out(self, share: Share) -> Tally:
        """Raises what ``before_step`` raises, on rank 0; no weight has changed then on any rank."""
        tally = Tally(weights=self.version)
        set_lr(share.optimizer, self.lr)
        first, *later = self.batches
        if self.objective.is_cap:
            later = [[_proximal(share, samples, self.objective) for samples in batch] for batch in later]
        for batch in (first, *later):
            loss = share.ranks.total(_accumulate(share, batch, self.objective, tally))
            if self.asks and batch is first and not _allowed(share.ranks, tally, self.before_step):
                return tally
            _step(share, loss, self.objective, tally)
        return _gathered(share.ranks, tally)


@dataclass(frozen=True, slots=True)
class Publish:
    """Gather all weights on rank 0, for the generators."""

    def carry_out(self, share: Share) -> dict[str, Tensor]:
        """The state of the model on rank 0."""
        return full_weights(share.model, share.ranks)


@dataclass(frozen=True, slots=True)
class Save:
    """Write a checkpoint; ``state`` is rank 0's alone."""

    folder: Path
    state: Mapping[str, Any]

    def carry_out(self, share: Share) -> None:
        """Each rank writes its shards."""
        checkpoint.save_shared(
            self.folder,
            share.ranks,
            model=share.model,
            optimizer=share.optimizer,
            state=self.state,
            tokenizer=share.tokenizer,
        )


@dataclass(frozen=True, slots=True)
class Load:
    """Go on from a checkpoint that rank 0 has found whole."""

    folder: Path

    def carry_out(self, share: Share) -> dict[str, Any]:
        """The state that was saved."""
        return checkpoint.load_checked(self.folder, share.model, share.optimizer)


def _accumulate(share: Share, batch: MiniBatch, objective: Objective, tally: Tally) -> float:
    """Add up the gradient of this rank's part of a mini-batch; returns that part's loss."""
    total = 0.0
    for samples in batch:
        loss = share.whole(lambda model: micro_batch_loss(model, samples, objective, tally, share.reference))  # noqa: B023
        loss.backward()
        total += loss.item()
    return total


def _proximal(share: Share, samples: Sequence[Sample], objective: Objective) -> list[Sample]:
    with torch.no_grad():
        known: list[Sample] = share.whole(lambda model: with_proximal(model, samples, objective))
    return known


def _step(share: Share, loss: float, objective: Objective, tally: Tally) -> None:
    """Make the optimizer step, on all ranks or on none: loss and norm are those of all ranks."""
    norm = clip_and_step(share.optimizer, share.model.parameters(), max_norm=objective.max_norm, loss=loss)
    if norm is None:
        tally.skipped += 1
        return
    tally.losses.append(loss)
    tally.norms.append(norm)
    tally.weights = None


def _allowed(ranks: Ranks, tally: Tally, before_step: BeforeStep | None) -> bool:
    """Whether rank 0 lets the first step be made, told to all; there it raises what ``before_step`` raised."""
    parts = [part for parts in ranks.gather(_on_cpu(tally.mismatches)) for part in parts]
    refusal: Exception | None = None
    if before_step is not None:
        try:
            before_step(mismatch_summary(parts))
        except Exception as error:
            refusal = error
    allowed: bool = ranks.share(refusal is None)
    if refusal is not None:
        raise refusal
    return allowed


def _gathered(ranks: Ranks, tally: Tally) -> Tally:
    """The tally, with what all ranks measured on rank 0 and nothing of it on the others."""
    told = ranks.gather([_on_cpu(getattr(tally, name)) for name in MEASURED])
    for name, *parts in zip(MEASURED, *told, strict=True):
        setattr(tally, name, [part for own in parts for part in own])
    return tally


def _on_cpu(parts: Sequence[Any]) -> list[Any]:
    return [ClipStats(*_on_cpu(part)) if isinstance(part, ClipStats) else part.cpu() for part in parts]
