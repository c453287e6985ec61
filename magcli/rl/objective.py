"""From groups of rollouts to the loss of a micro-batch.

``plan`` computes advantages and token weights over whole mini-batches and splits each into micro-batches;
``micro_batch_loss`` runs the model on one and puts the terms of ``magcli.rl.algorithm`` together.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from transformers import PreTrainedModel

from magcli.errors import MagError
from magcli.generate.types import Rollout
from magcli.rl import algorithm
from magcli.rl.algorithm import Tokens
from magcli.rl.types import ClipStats, Group, Objective, UpdateMetrics
from magcli.train.logprobs import LogProbs, token_logprobs
from magcli.train.lora import adapters_off
from magcli.train.optim import autocast
from magcli.train.packing import Packed, greedy_collate, pack_completions, padding_share
from magcli.train.shard import ShardedModel


@dataclass(frozen=True, slots=True)
class TrainingSample:
    """One rollout to train on: its advantage, the weight of each of its tokens, and its sampling temperature.

    ``proximal`` ``[generated tokens]``: the trainer's log-probs before the batch's first optimizer step; None in the
    first mini-batch, whose forward pass computes them.
    """

    prompt: tuple[int, ...]
    rollout: Rollout
    advantage: float
    weight: float
    temperature: float = 1.0
    proximal: Tensor | None = None

    @property
    def length(self) -> int:
        """Tokens of prompt and completion."""
        return len(self.prompt) + len(self.rollout.tokens)


MiniBatch = list[list[TrainingSample]]
"""The samples of one optimizer step, one list for each micro-batch."""


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """The samples of one forward and backward pass, packed end to end.

    ``generated`` (bool) and ``temperature`` are ``[T]``, over all tokens; ``sampler`` (the engine's log-probs),
    ``advantage``, ``weight``, ``sequence`` and, if there is one, ``proximal`` are ``[N]``, over the generated tokens.
    """

    packed: Packed
    generated: Tensor
    temperature: Tensor
    sampler: Tensor
    advantage: Tensor
    weight: Tensor
    sequence: Tensor
    proximal: Tensor | None


def plan(
    groups: Sequence[Group],
    rewards: Sequence[Sequence[float]],
    objective: Objective,
    groups_per_step: int,
    metrics: UpdateMetrics,
) -> list[MiniBatch]:
    """The mini-batches of a batch, each split by greedy collation under the budget of ``micro_tokens``."""
    batches = []
    for start in range(0, len(groups), groups_per_step):
        end = start + groups_per_step
        samples = _samples(groups[start:end], rewards[start:end], objective, metrics)
        lengths = [sample.length for sample in samples]
        chosen = greedy_collate(lengths, objective.micro_tokens)
        metrics.padding.append(padding_share(lengths, chosen))
        batches.append([[samples[index] for index in indices] for indices in chosen])
    return batches


def _samples(
    groups: Sequence[Group], rewards: Sequence[Sequence[float]], objective: Objective, metrics: UpdateMetrics
) -> list[TrainingSample]:
    """The samples of one mini-batch."""
    rollouts = [(group, rollout) for group in groups for rollout in group.rollouts]
    numbers = [group.number for group, _ in rollouts]
    advantages = _advantages([reward for group in rewards for reward in group], numbers, objective)
    for number, advantage in zip(numbers, advantages, strict=True):
        metrics.advantages.setdefault(number, []).append(advantage)
    lengths = [len(rollout.tokens) for _, rollout in rollouts]
    weights = algorithm.token_weights(lengths, numbers, norm=objective.loss_norm).tolist()
    return [
        TrainingSample(group.prompt, rollout, advantage, weight, group.temperature)
        for (group, rollout), advantage, weight in zip(rollouts, advantages, weights, strict=True)
    ]


def _advantages(rewards: Sequence[float], groups: Sequence[int], objective: Objective) -> list[float]:
    if objective.advantage:
        return algorithm.custom_advantages(objective.advantage, rewards, groups)
    return algorithm.advantages(rewards, groups, norm=objective.advantage_norm)


def pack_samples(samples: Sequence[TrainingSample], device: torch.device) -> MicroBatch:
    """Pack samples on a device; samples with the same prompt share its tokens, which are computed once.

    A sample without generated tokens only takes part in the forward pass.
    """
    packed = pack_completions([(sample.prompt, sample.rollout.tokens) for sample in samples]).to(device)
    generated = packed.spread([1.0] * len(samples)) > 0
    logprobs = [value for sample in samples for value in sample.rollout.logprobs]
    lengths = torch.tensor([len(sample.rollout.tokens) for sample in samples], device=device)
    proximal = [sample.proximal for sample in samples if sample.proximal is not None]
    return MicroBatch(
        packed,
        generated,
        packed.spread([sample.temperature for sample in samples]).where(generated, 1.0),
        torch.tensor(logprobs, dtype=torch.float32, device=device),
        packed.spread([sample.advantage for sample in samples])[generated],
        packed.spread([sample.weight for sample in samples])[generated],
        torch.arange(len(samples), device=device).repeat_interleave(lengths),
        torch.cat(proximal) if proximal else None,
    )


def score(model: PreTrainedModel, batch: MicroBatch, *, bf16: bool, entropy_grad: bool = False) -> LogProbs:
    """Log-probs and entropies ``[N]`` of the generated tokens, each at its own temperature."""
    with autocast(batch.generated.device, bf16):
        scored = token_logprobs(
            model, batch.packed, temperature=batch.temperature, where=batch.generated, entropy_grad=entropy_grad
        )
    return LogProbs(scored.values[batch.generated], scored.entropy[batch.generated])


def current_logprobs(sharded: ShardedModel, samples: Sequence[TrainingSample], objective: Objective) -> Tensor:
    """The log-probs ``[N]`` of a micro-batch's generated tokens under the current weights, without gradient."""
    with torch.no_grad():
        values: Tensor = sharded(
            lambda model: score(model, pack_samples(samples, model.device), bf16=objective.bf16).values
        )
    return values


def with_proximal(
    sharded: ShardedModel, samples: Sequence[TrainingSample], objective: Objective
) -> list[TrainingSample]:
    """A micro-batch with its log-probs under the current weights as those of the proximal policy."""
    values = current_logprobs(sharded, samples, objective)
    parts = torch.split(values, [len(sample.rollout.tokens) for sample in samples])
    return [replace(sample, proximal=part) for sample, part in zip(samples, parts, strict=True)]


def mismatch(logprobs: Tensor, samples: Sequence[TrainingSample], version: int) -> Tensor:
    """Trainer's minus engine's log-probs of the tokens that this version of the weights generated, without gradient."""
    sampler = torch.tensor([value for sample in samples for value in sample.rollout.logprobs], device=logprobs.device)
    return (logprobs.detach() - sampler)[single_version_mask(version, samples)]


def single_version_mask(version: int, samples: Sequence[TrainingSample]) -> Tensor:
    """Which generated tokens belong to sequences that were generated entirely by this version: bool ``[N]``.

    A sequence begun by older weights keeps their KV cache, so its later tokens do not come from a single version.
    """
    spans = [(sample.rollout.versions == ((0, version),), len(sample.rollout.tokens)) for sample in samples]
    return torch.tensor([single for single, length in spans for _ in range(length)], dtype=torch.bool)


def accumulate(
    sharded: ShardedModel,
    batch: MiniBatch,
    objective: Objective,
    metrics: UpdateMetrics,
    reference: PreTrainedModel | None = None,
) -> float:
    """Accumulate the gradient of one mini-batch, or of a rank's part of it; returns its loss."""
    total = 0.0
    for samples in batch:
        loss = sharded(lambda model: micro_batch_loss(model, samples, objective, metrics, reference))  # noqa: B023
        loss.backward()
        total += loss.item()
    return total


def micro_batch_loss(
    model: PreTrainedModel,
    samples: Sequence[TrainingSample],
    objective: Objective,
    metrics: UpdateMetrics,
    reference: PreTrainedModel | None = None,
) -> Tensor:
    """The contribution of some samples to the loss of their mini-batch."""
    batch = pack_samples(samples, model.device)
    new, entropy = score(model, batch, bf16=objective.bf16, entropy_grad=objective.entropy_bonus != 0)
    metrics.entropies.append(entropy.detach())
    if metrics.version is not None:
        metrics.mismatches.append(mismatch(new, samples, metrics.version))
    old, importance = _old_policy(new, batch, objective, metrics)
    return algorithm.weighted_loss(
        batch.weight,
        _policy_loss(Tokens(new, old, batch.advantage, batch.sequence), objective, metrics),
        importance=importance,
        kl=_reference_kl(new, batch, objective, metrics, reference) if objective.kl else None,
        kl_coef=objective.kl,
        entropy=entropy if objective.entropy_bonus else None,
        entropy_coef=objective.entropy_bonus,
    )


def _old_policy(
    new: Tensor, batch: MicroBatch, objective: Objective, metrics: UpdateMetrics
) -> tuple[Tensor, Tensor | None]:
    """The old log-probs of the importance ratio, and with ``tis_cap`` the truncated importance weights."""
    if not objective.tis_cap:
        return batch.sampler, None
    proximal = new.detach() if batch.proximal is None else batch.proximal
    importance = algorithm.truncated_importance(proximal, batch.sampler, cap=objective.tis_cap)
    metrics.importance.append(importance)
    return proximal, importance


def _policy_loss(tokens: Tokens, objective: Objective, metrics: UpdateMetrics) -> Tensor:
    bounds = objective.clip_low, objective.clip_high
    metrics.clips.append(ClipStats((tokens.new - tokens.old).detach(), *algorithm.is_clipped(tokens, *bounds)))
    if objective.loss and len(tokens.new):
        return algorithm.custom_policy_loss(objective.loss, tokens, *bounds)
    return algorithm.clipped_policy_loss(tokens, *bounds)


def _reference_kl(
    new: Tensor, batch: MicroBatch, objective: Objective, metrics: UpdateMetrics, reference: PreTrainedModel | None
) -> Tensor:
    """The policy's KL divergence from the reference model, both at the sampling temperature."""
    if reference is None:
        raise MagError("a KL penalty needs the reference model")
    with torch.no_grad(), adapters_off(reference):
        known = score(reference, batch, bf16=objective.bf16).values
    divergence = algorithm.kl_estimate(new, known)
    metrics.divergences.append(divergence.detach())
    return divergence
