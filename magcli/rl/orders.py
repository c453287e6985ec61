"""One update of the policy by all ranks at the same time, each on its share of the model and of the batch."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from magcli.rl.samples import Sample
from magcli.rl.update import MiniBatch, Objective, Tally, micro_batch_loss, with_proximal
from magcli.train.distributed import Ranks
from magcli.train.loss import ClipStats, mismatch_summary
from magcli.train.optim import clip_and_step, set_lr
from magcli.train.orders import Share

MEASURED = ("clips", "entropies", "mismatches", "importance", "divergences")
"""What micro-batches add to a tally, wherever they are computed."""

BeforeStep = Callable[[Mapping[str, float]], None]


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
