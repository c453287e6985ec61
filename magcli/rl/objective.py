"""From groups of rollouts to the loss of a micro-batch.

``plan`` computes advantages and token weights over whole mini-batches and splits each into micro-batches;
``micro_batch_loss`` runs the model on one and puts the terms of ``magcli.rl.algorithm`` together.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedModel

from magcli.errors import MagError
from magcli.generate.types import Rollout
from magcli.rl import algorithm, losses
from magcli.rl.algorithm import Tokens
from magcli.rl.types import ClipStats, Group, MicroBatchMetrics, Objective, is_own_function
from magcli.train.logprobs import LogProbs, Scored, scored_tokens, token_logprobs
from magcli.train.lora import adapters_off
from magcli.train.moving import moved, read_sum
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


class UpdatePlan(NamedTuple):
    """The mini-batches of an update, and what is known of it before it is trained.

    Attributes:
        mini_batches: in the order of their optimizer steps.
        padding: for each of them, the share of padding if its micro-batches were padded.
        advantages: of the completions of each group, by its number; none with a teacher.
    """

    mini_batches: list[MiniBatch]
    padding: list[float]
    advantages: dict[int, list[float]]


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """The samples of one forward and backward pass, packed end to end.

    ``temperature`` is ``[T]``, over all tokens. ``generated`` ``[N]`` are the indices of the generated tokens, and
    ``scored`` those of them that have a token before them. ``sampler`` (the engine's log-probs), ``advantage``,
    ``weight``, ``sequence`` and, if there is one, ``proximal`` are ``[N]``, over the generated tokens.
    """

    packed: Packed
    generated: Tensor
    scored: Scored
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
    *,
    groups_per_step: int,
    micro_tokens: int,
) -> UpdatePlan:
    """The mini-batches of a batch, each split by greedy collation under the budget of ``micro_tokens``."""
    mini_batches: list[MiniBatch] = []
    padding: list[float] = []
    advantages: dict[int, list[float]] = {}
    for start in range(0, len(groups), groups_per_step):
        end = start + groups_per_step
        groups_of_step = groups[start:end]
        # Advantages and weights are of the whole mini-batch, before it is split into micro-batches.
        samples = _samples(groups_of_step, rewards[start:end], objective)
        if not objective.teacher:
            advantages |= _advantages_by_group(groups_of_step, samples)
        lengths = [sample.length for sample in samples]
        indices_by_micro_batch = greedy_collate(lengths, micro_tokens)
        padding.append(padding_share(lengths, indices_by_micro_batch))
        mini_batch = [[samples[index] for index in indices] for indices in indices_by_micro_batch]
        mini_batches.append(mini_batch)
    return UpdatePlan(mini_batches, padding, advantages)


def _samples(groups: Sequence[Group], rewards: Sequence[Sequence[float]], objective: Objective) -> list[TrainingSample]:
    """The samples of one mini-batch, group after group."""
    # All lists have an item for each completion, in this order.
    group_and_rollout = [(group, rollout) for group in groups for rollout in group.rollouts]
    numbers = [group.number for group, _ in group_and_rollout]
    lengths = [rollout.num_generated for _, rollout in group_and_rollout]
    all_rewards = [reward for rewards_of_group in rewards for reward in rewards_of_group]
    advantages = _advantages(all_rewards, numbers, lengths, objective)
    weights = algorithm.token_weights(lengths, numbers, norm=objective.loss_norm, max_tokens=objective.max_tokens)
    samples = []
    for (group, rollout), advantage, weight in zip(group_and_rollout, advantages, weights.tolist(), strict=True):
        samples.append(TrainingSample(group.prompt, rollout, advantage, weight, group.temperature))
    return samples


def _advantages_by_group(groups: Sequence[Group], samples: Sequence[TrainingSample]) -> dict[int, list[float]]:
    """The advantages of each group's completions, by its number; ``samples`` are those of the groups in order."""
    # Samples come group after group, in the order of the rollouts.
    remaining = iter([sample.advantage for sample in samples])
    return {group.number: list(islice(remaining, len(group.rollouts))) for group in groups}


def _advantages(
    rewards: Sequence[float], groups: Sequence[int], lengths: Sequence[int], objective: Objective
) -> list[float]:
    if objective.teacher:
        return [0.0] * len(rewards)  # each token will have its own
    if objective.advantage:
        return algorithm.custom_advantages(objective.advantage, rewards, groups)
    return algorithm.advantages(rewards, groups, norm=objective.advantage_norm, lengths=lengths)


def pack_samples(samples: Sequence[TrainingSample], device: torch.device) -> MicroBatch:
    """Pack samples on a device; samples with the same prompt share its tokens, which are computed once.

    A sample without generated tokens only takes part in the forward pass. Indices are computed on the host: their
    number depends on values, for which a GPU would have to be waited for.
    """
    packed = pack_completions([(sample.prompt, sample.rollout.tokens) for sample in samples])
    is_generated = _generated(packed, samples)  # [T]
    generated = is_generated.nonzero().squeeze(1)  # [N]
    # Only generated tokens are scored; 1 because the others may have 0, by which nothing can be divided.
    temperature = packed.spread([sample.temperature for sample in samples]).where(is_generated, 1.0)  # [T]
    sampler = torch.tensor(_sampler_logprobs(samples), dtype=torch.float32)
    advantage = packed.spread([sample.advantage for sample in samples])
    weight = packed.spread([sample.weight for sample in samples])
    lengths = torch.tensor([sample.rollout.num_generated for sample in samples])
    sequence = torch.arange(len(samples)).repeat_interleave(lengths)
    proximal = [sample.proximal for sample in samples if sample.proximal is not None]
    return MicroBatch(
        packed=packed.to(device),
        generated=moved(generated, device),
        scored=scored_tokens(packed, is_generated).to(device),
        temperature=moved(temperature, device),
        sampler=moved(sampler, device),
        advantage=moved(advantage[generated], device),
        weight=moved(weight[generated], device),
        sequence=moved(sequence, device),
        proximal=torch.cat(proximal) if proximal else None,
    )


def _generated(packed: Packed, samples: Sequence[TrainingSample]) -> Tensor:
    """Which tokens of a pack the policy wrote: bool ``[T]``; neither prompts nor what an environment wrote."""
    # Prompts, which samples share, get 0 from ``spread``.
    is_generated = packed.spread([1.0] * len(samples)) > 0
    for start, sample in zip(packed.starts, samples, strict=True):
        for first, end in sample.rollout.given:
            is_generated[start + first : start + end] = False
    return is_generated


def _sampler_logprobs(samples: Sequence[TrainingSample]) -> list[float]:
    """The engine's log-probs of the generated tokens."""
    logprobs: list[float] = []
    for sample in samples:
        logprobs += sample.rollout.generated(sample.rollout.logprobs)
    return logprobs


def score(model: PreTrainedModel, batch: MicroBatch, *, bf16: bool, entropy_grad: bool = False) -> LogProbs:
    """Log-probs and entropies ``[N]`` of the generated tokens, each at its own temperature."""
    with autocast(batch.generated.device, bf16):
        logprobs = token_logprobs(
            model, batch.packed, temperature=batch.temperature, where=batch.scored, entropy_grad=entropy_grad
        )
    values = logprobs.values.index_select(0, batch.generated)
    return LogProbs(values, logprobs.entropy.index_select(0, batch.generated))


def current_logprobs(sharded: ShardedModel, samples: Sequence[TrainingSample], *, bf16: bool) -> Tensor:
    """The log-probs ``[N]`` of a micro-batch's generated tokens under the current weights, without gradient."""

    def compute(model: PreTrainedModel) -> Tensor:
        return score(model, pack_samples(samples, model.device), bf16=bf16).values

    with torch.no_grad():
        logprobs: Tensor = sharded(compute)
    return logprobs


def with_proximal(sharded: ShardedModel, samples: Sequence[TrainingSample], *, bf16: bool) -> list[TrainingSample]:
    """A micro-batch with its log-probs under the current weights as those of the proximal policy."""
    logprobs = current_logprobs(sharded, samples, bf16=bf16)
    lengths = [sample.rollout.num_generated for sample in samples]
    # A micro-batch has its completions end to end, in the order of its samples.
    by_sample = torch.split(logprobs, lengths)
    return [replace(sample, proximal=proximal) for sample, proximal in zip(samples, by_sample, strict=True)]


def mismatch(logprobs: Tensor, samples: Sequence[TrainingSample], version: int) -> Tensor:
    """Trainer's minus engine's log-probs of the tokens that this version of the weights generated, without gradient."""
    device = logprobs.device
    sampler = torch.tensor(_sampler_logprobs(samples))  # [N]
    of_version = single_version_mask(version, samples).nonzero().squeeze(1)  # indices, of the host (``pack_samples``)
    log_ratio = logprobs.detach() - moved(sampler, device)
    return log_ratio.index_select(0, moved(of_version, device))


def single_version_mask(version: int, samples: Sequence[TrainingSample]) -> Tensor:
    """Which generated tokens belong to sequences that were generated entirely by this version: bool ``[N]``.

    A sequence that older weights started keeps their KV cache, so its later tokens do not come from a single version.
    """
    of_this_version: list[bool] = []
    for sample in samples:
        single_version = sample.rollout.versions == ((0, version),)
        of_this_version += [single_version] * sample.rollout.num_generated
    return torch.tensor(of_this_version, dtype=torch.bool)


class MicroBatchLoss(NamedTuple):
    """The loss of a micro-batch, which alone has a gradient, and its metrics."""

    loss: Tensor
    metrics: MicroBatchMetrics


class MiniBatchLoss(NamedTuple):
    """The loss of a mini-batch, or of a rank's part of it, and the metrics of its micro-batches."""

    loss: float
    micro_batches: list[MicroBatchMetrics]


def accumulate(
    sharded: ShardedModel,
    batch: MiniBatch,
    objective: Objective,
    *,
    bf16: bool,
    reference: PreTrainedModel | None = None,
    teacher: PreTrainedModel | None = None,
    version: int | None = None,
) -> MiniBatchLoss:
    """Accumulate the gradient of one mini-batch, or of a rank's part of it.

    ``version`` is that of the weights, as in ``micro_batch_loss``.
    """
    losses_of_batch: list[Tensor] = []
    metrics: list[MicroBatchMetrics] = []
    for number, samples in enumerate(batch, 1):
        compute = partial(
            micro_batch_loss,
            samples=samples,
            objective=objective,
            bf16=bf16,
            reference=reference,
            teacher=teacher,
            version=version,
        )
        micro_batch: MicroBatchLoss = sharded(compute)
        # Token weights are those of the whole mini-batch, so the losses of micro-batches add up to its loss.
        sharded.backward(micro_batch.loss, is_last=number == len(batch))
        losses_of_batch.append(micro_batch.loss.detach())
        metrics.append(micro_batch.metrics)
    return MiniBatchLoss(read_sum(losses_of_batch), metrics)


def micro_batch_loss(
    model: PreTrainedModel,
    samples: Sequence[TrainingSample],
    objective: Objective,
    *,
    bf16: bool,
    reference: PreTrainedModel | None = None,
    teacher: PreTrainedModel | None = None,
    version: int | None = None,
) -> MicroBatchLoss:
    """The contribution of some samples to the loss of their mini-batch.

    ``version`` is that of the weights, if the mismatch with the engine is to be measured. It cannot be after an
    optimizer step, when the trainer's weights are newer than the engine's.
    """
    batch = pack_samples(samples, model.device)
    # The teacher is first, before the policy's activations take memory.
    taught = _teacher_logprobs(teacher, batch, bf16=bf16) if objective.teacher else None
    new, entropy = score(model, batch, bf16=bf16, entropy_grad=objective.entropy_bonus != 0)
    old, importance = _old_policy(new, batch, objective)
    # On-policy distillation: what the teacher finds less likely than the policy has a negative advantage.
    reverse_kl = None if taught is None else algorithm.reverse_kl(new, taught)
    advantage = batch.advantage if reverse_kl is None else -reverse_kl
    tokens = Tokens(new, old, advantage, batch.sequence)
    clips = _clip_stats(tokens, objective)
    divergence = _reference_kl(new, batch, reference, bf16=bf16) if objective.kl else None
    loss = algorithm.weighted_loss(
        batch.weight,
        _policy_loss(tokens, objective),
        importance=importance,
        kl=divergence,
        kl_coef=objective.kl,
        entropy=entropy if objective.entropy_bonus else None,
        entropy_coef=objective.entropy_bonus,
    )
    metrics = MicroBatchMetrics(
        clips=clips,
        entropy=entropy.detach(),
        mismatch=None if version is None else mismatch(new, samples, version),
        importance=importance,
        divergence=None if divergence is None else divergence.detach(),
        reverse_kl=reverse_kl,
    )
    return MicroBatchLoss(loss, metrics)


def _old_policy(new: Tensor, batch: MicroBatch, objective: Objective) -> tuple[Tensor, Tensor | None]:
    """The old log-probs of the importance ratio, and with ``tis_cap`` the truncated importance weights."""
    if not objective.tis_cap:
        return batch.sampler, None
    # In the first mini-batch the weights are still those of the proximal policy.
    proximal = new.detach() if batch.proximal is None else batch.proximal
    return proximal, algorithm.truncated_importance(proximal, batch.sampler, cap=objective.tis_cap)


def _policy_loss(tokens: Tokens, objective: Objective) -> Tensor:
    """The loss ``[N]`` of the tokens. A custom function is not called without tokens."""
    if is_own_function(objective.loss) and len(tokens.new):
        return algorithm.custom_policy_loss(objective.loss, tokens, objective.clip_low, objective.clip_high)
    return losses.loss_of(objective.loss).policy_loss(tokens, objective.clip_low, objective.clip_high)


def _clip_stats(tokens: Tokens, objective: Objective) -> ClipStats:
    log_ratio = (tokens.new - tokens.old).detach()
    is_clipped = losses.loss_of(objective.loss).is_clipped
    low, high = is_clipped(tokens, objective.clip_low, objective.clip_high)
    return ClipStats(log_ratio, low, high)


def _teacher_logprobs(teacher: PreTrainedModel | None, batch: MicroBatch, *, bf16: bool) -> Tensor:
    """The teacher's log-probs ``[N]`` of the generated tokens, at the sampling temperature."""
    if teacher is None:
        raise MagError("on-policy distillation needs the teacher")
    with torch.no_grad():
        return score(teacher, batch, bf16=bf16).values


def _reference_kl(new: Tensor, batch: MicroBatch, reference: PreTrainedModel | None, *, bf16: bool) -> Tensor:
    """The policy's KL divergence from the reference model, both at the sampling temperature."""
    if reference is None:
        raise MagError("a KL penalty needs the reference model")
    with torch.no_grad(), adapters_off(reference):
        reference_logprobs = score(reference, batch, bf16=bf16).values
    return algorithm.kl_estimate(new, reference_logprobs)
