"""What an update of the policy computes: a batch of groups, split into mini-batches of one optimizer step each, and
the loss of a part of a mini-batch.

Advantages and token weights are computed over a whole mini-batch before it is split, so the split into micro-batches
changes nothing (recipe, sections 1 and 3).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from magcli.errors import MagError
from magcli.rl.group import AdvantageNorm, advantages
from magcli.rl.rollouts import Group
from magcli.rl.samples import MicroBatch, Sample, lay_out, made_by, score
from magcli.train.loss import (
    ClipStats,
    TokenNorm,
    clip_summary,
    grpo_loss,
    kl_penalty,
    mismatch_summary,
    token_weights,
    truncated_importance,
)
from magcli.train.packing import greedy_collate, padding_share
from magcli.train.shard import ShardedModel


@dataclass(frozen=True, slots=True)
class Objective:
    """The choices of the objective (recipe, section 1) and how it is computed.

    The last three are not the recipe's. ``is_cap`` above 0 puts the ratio against the trainer's own log-probs at the
    start of the batch and weights each token by their ratio to the sampler's, at most this. ``kl`` is the coefficient
    of the penalty against a reference model, ``entropy_bonus`` that of the mean entropy of the tokens' distributions.
    """

    clip_low: float
    clip_high: float
    advantage_norm: AdvantageNorm
    loss_norm: TokenNorm
    max_norm: float
    micro_tokens: int
    bf16: bool
    is_cap: float = 0.0
    kl: float = 0.0
    entropy_bonus: float = 0.0


MiniBatch = list[list[Sample]]
"""The samples of one optimizer step, by micro-batches."""


@dataclass(slots=True)
class Tally:
    """What an update's micro-batches measured; tensors hold a micro-batch's generated tokens ``[N]``.

    ``weights`` is the version of the weights, None once an optimizer step has changed them: only before that the
    trainer and the engine can be compared.
    """

    weights: int | None = None
    clips: list[ClipStats] = field(default_factory=list)
    entropies: list[Tensor] = field(default_factory=list)
    mismatches: list[Tensor] = field(default_factory=list)
    importance: list[Tensor] = field(default_factory=list)
    divergences: list[Tensor] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)
    skipped: int = 0
    padding: list[float] = field(default_factory=list)
    micro_batches: int = 0
    seconds: float = 0.0
    advantages: dict[int, list[float]] = field(default_factory=dict)

    def metrics(self) -> dict[str, Any]:
        """The update's line of metrics, as far as training knows it; means are over steps or tokens."""
        return {
            "loss": sum(self.losses) / len(self.losses) if self.losses else None,
            "grad_norm": sum(self.norms) / len(self.norms) if self.norms else None,
            "skipped_steps": self.skipped,
            "entropy": _mean(self.entropies),
            "padding_share_if_padded": sum(self.padding) / max(len(self.padding), 1),
            "micro_batches": self.micro_batches,
            **clip_summary(self.clips),
            **mismatch_summary(self.mismatches),
            **({"importance_mean": _mean(self.importance)} if self.importance else {}),
            **({"kl_reference": _mean(self.divergences)} if self.divergences else {}),
        }


def plan(
    groups: Sequence[Group],
    rewards: Sequence[Sequence[float]],
    objective: Objective,
    groups_per_step: int,
    tally: Tally,
) -> list[MiniBatch]:
    """The mini-batches of a batch, each split by greedy collation under the budget of ``micro_tokens``."""
    batches = []
    for start in range(0, len(groups), groups_per_step):
        end = start + groups_per_step
        samples = _samples(groups[start:end], rewards[start:end], objective, tally)
        lengths = [sample.length for sample in samples]
        chosen = greedy_collate(lengths, objective.micro_tokens)
        tally.padding.append(padding_share(lengths, chosen))
        batches.append([[samples[index] for index in indices] for indices in chosen])
    return batches


def _samples(
    groups: Sequence[Group], rewards: Sequence[Sequence[float]], objective: Objective, tally: Tally
) -> list[Sample]:
    names = [group.number for group in groups for _ in group.rollouts]
    flat = [reward for group in rewards for reward in group]
    found = advantages(flat, names, norm=objective.advantage_norm)
    for name, advantage in zip(names, found, strict=True):
        tally.advantages.setdefault(name, []).append(advantage)
    rollouts = [(group, rollout) for group in groups for rollout in group.rollouts]
    weights = token_weights([len(rollout.tokens) for _, rollout in rollouts], names, norm=objective.loss_norm)
    return [
        Sample(group.prompt, rollout, advantage, weight, group.temperature)
        for (group, rollout), advantage, weight in zip(rollouts, found, weights.tolist(), strict=True)
    ]


def with_proximal(sharded: ShardedModel, samples: Sequence[Sample], objective: Objective) -> list[Sample]:
    """A micro-batch with the log-probs of its tokens under the weights at this moment, for later steps to go by."""

    def scored(model: PreTrainedModel) -> Tensor:
        return score(model, lay_out(samples, model.device), bf16=objective.bf16).values

    with torch.no_grad():
        values = sharded(scored)
    parts = torch.split(values, [len(sample.rollout.tokens) for sample in samples])
    return [replace(sample, proximal=part) for sample, part in zip(samples, parts, strict=True)]


def accumulate(
    sharded: ShardedModel,
    batch: MiniBatch,
    objective: Objective,
    tally: Tally,
    reference: PreTrainedModel | None = None,
) -> float:
    """Add up the gradient of one mini-batch, or of a rank's part of it; returns its loss."""
    total = 0.0
    for samples in batch:
        loss = sharded(lambda model: micro_batch_loss(model, samples, objective, tally, reference))  # noqa: B023
        loss.backward()
        total += loss.item()
    return total


def micro_batch_loss(
    model: PreTrainedModel,
    samples: Sequence[Sample],
    objective: Objective,
    tally: Tally,
    reference: PreTrainedModel | None = None,
) -> Tensor:
    """The share of some samples in the loss of their mini-batch: weighted sums over tokens, one for each term."""
    batch = lay_out(samples, model.device)
    new, entropy = score(model, batch, bf16=objective.bf16, entropy_grad=objective.entropy_bonus != 0)
    tally.entropies.append(entropy.detach())
    if tally.weights is not None:
        tally.mismatches.append((new.detach() - batch.sampler)[made_by(tally.weights, samples)])
    loss = _policy_loss(new, batch, objective, tally)
    if objective.entropy_bonus:
        loss = loss - objective.entropy_bonus * (batch.weight * entropy).sum()
    if objective.kl:
        loss = loss + objective.kl * _divergence(new, batch, objective, tally, reference)
    return loss


def _policy_loss(new: Tensor, batch: MicroBatch, objective: Objective, tally: Tally) -> Tensor:
    """The clipped objective; its ratio is against the sampler, or against the proximal policy under ``is_cap``."""
    old, weight = batch.sampler, batch.weight
    if objective.is_cap:
        old = new.detach() if batch.proximal is None else batch.proximal
        importance = truncated_importance(old, batch.sampler, cap=objective.is_cap)
        tally.importance.append(importance)
        weight = weight * importance
    clip = {"clip_low": objective.clip_low, "clip_high": objective.clip_high}
    loss, clips = grpo_loss(new, old, batch.advantage, weight, **clip)
    tally.clips.append(clips)
    return loss


def _divergence(
    new: Tensor, batch: MicroBatch, objective: Objective, tally: Tally, reference: PreTrainedModel | None
) -> Tensor:
    """The policy's KL divergence from the reference model, both at the temperature of sampling."""
    if reference is None:
        raise MagError("a KL penalty needs the reference model")
    with torch.no_grad():
        known = score(reference, batch, bf16=objective.bf16).values
    divergence, tokens = kl_penalty(new, known, batch.weight)
    tally.divergences.append(tokens)
    return divergence


def _mean(parts: Sequence[Tensor]) -> float | None:
    return torch.cat(list(parts)).mean().item() if parts else None
