"""The trainer: updates of the policy on a batch of groups, on one or many ranks.

The process with the controller plans a batch: advantages and token weights over whole mini-batches, then equally many
micro-batches for each rank. So the number of ranks changes a gradient by rounding only.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from magcli.errors import Stopped
from magcli.generate.types import Digests, Rollout, Weights
from magcli.generate.weights.digest import digests
from magcli.generate.weights.matching import WeightFile, untied
from magcli.generate.weights.packed import pack
from magcli.generate.weights.rank_transfer import Meeting, RankReceiver, Sent, WeightPlan
from magcli.plan.machine import host
from magcli.rl.metrics import mismatch_summary
from magcli.rl.objective import (
    MiniBatch,
    TrainingSample,
    accumulate,
    current_logprobs,
    mismatch,
    plan,
    with_proximal,
)
from magcli.rl.send_weights import SendWeights
from magcli.rl.shared_weights import ShareWeights
from magcli.rl.types import ClipStats, Group, MicroBatchMetrics, Numerics, Objective, StageSettings, UpdateMetrics
from magcli.train.commands import RankState
from magcli.train.controller import RankController
from magcli.train.distributed import Ranks
from magcli.train.moving import sent_back, wait_for
from magcli.train.optim import clip_and_step, set_lr
from magcli.train.shard import ShardedModel, micro_batches_by_rank

Value = TypeVar("Value")

MAX_BAD_UPDATES = 5
"""Consecutive updates without a finite gradient after which the run stops."""

PADDING = TrainingSample(
    prompt=(0,),
    rollout=Rollout(index=0, prompt=(0,), tokens=(), logprobs=(), versions=((0, 0),), finish="stop", seed=0),
    advantage=0.0,
    weight=0.0,
)
"""A sample without generated tokens: the micro-batch of ranks that would otherwise have one less than others."""


@dataclass
class Trainer:
    """The policy and its training state; ``done`` counts completed updates and is the version of the weights.

    ``unused_ends`` has the texts, by id, of tokens that look like an end but do not stop completions.
    ``sends_adapters``: the engines get LoRA adapters themselves, not the weights that they are merged into.
    ``sends_to`` are engines that the ranks, in other processes, send their weights to themselves, by ``send``.
    """

    controller: RankController
    updates: int
    lr: float
    warmup: int
    shuffle_rewards: bool
    seed: int
    numerics: Numerics
    done: int = 0
    bad_updates: int = 0
    unused_ends: Mapping[int, str] = field(default_factory=dict)
    sends_adapters: bool = False
    is_replay: bool = False
    """Whether other weights than these sampled the groups, so that their log-probs are not those of an engine."""
    sends_to: RankReceiver | None = None
    weights_folder: Path | None = None
    """Where ranks in other processes put weights for this one; None: in the shared memory of this machine."""
    last_lr: float = 0.0
    """The learning rate of the last update."""
    _changing: Lock = field(default_factory=Lock, init=False, repr=False)
    """Held while the weights and their version change, or are sent."""

    def weights(self, dtype: torch.dtype | None) -> tuple[Weights, Digests]:
        """The parameters for the engines, each under one name, and their digests as they are sent, in this type.

        In a type of the engines they are packed into buffers of their own; without one they are the trainer's.
        Adapters are sent in float32.
        """
        if self.sends_adapters:
            adapters = self.controller.adapters()
            return adapters, digests(adapters)
        if self.controller.is_elsewhere:
            path, sent = self.controller.run([ShareWeights(dtype, self.weights_folder)] * self.controller.size)
            return WeightFile(path), sent
        # Each parameter once; engines know which names are tied.
        tensors = untied(self.controller.weights(dtype))
        buffers = self.controller.facts.buffers
        parameters = {name: tensor for name, tensor in tensors.items() if name not in buffers}
        if dtype is None:
            return parameters, digests(parameters)
        # Copies in the engines' type; the trainer's own weights go on changing.
        packed = pack(parameters, dtype)
        return packed, packed.digests()

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The shape of each parameter, by its name."""
        return self.controller.facts.shapes

    def send(self, plan: WeightPlan, meetings: Sequence[Meeting], started: Callable[[int], None]) -> Sent:
        """Have the ranks send their weights to engines, as ``RankSource`` says; an update is waited for."""
        with self._changing:
            # Within the lock: the version cannot change until the weights are sent.
            started(self.done)
            command = SendWeights(plan, meetings, self.done)
            sent: Sent = self.controller.run([command] * self.controller.size)
            return sent

    def probe_mismatch(self, groups: Sequence[Group], settings: StageSettings) -> Mapping[str, float]:
        """The mismatch with an engine (``mismatch_summary``) on groups that it scored at the current version."""
        # Log-probs do not depend on advantages, and a user's function is not to see groups without rewards.
        objective = replace(settings.objective, advantage="")
        no_rewards = [[0.0] * len(group.rollouts) for group in groups]
        return compare(self.controller, groups, objective, self.numerics, rewards=no_rewards, version=self.done)

    def mismatch(self, groups: Sequence[Group], settings: StageSettings) -> Mapping[str, float]:
        """The mismatch with the engine (``mismatch_summary``) on the first mini-batch of an update."""
        first = groups[: settings.groups_per_step]
        rewards = self._rewards(first)
        return compare(self.controller, first, settings.objective, self.numerics, rewards=rewards, version=self.done)

    def learn(self, groups: Sequence[Group], settings: StageSettings) -> UpdateMetrics:
        """One update.

        Raises:
            Stopped: several updates in a row had no finite gradient.
        """
        # Linear, from 1 / warmup of the learning rate in the first update.
        warmup = min(1.0, (self.done + 1) / self.warmup) if self.warmup else 1.0
        self.last_lr = self.lr * warmup
        with self._changing:
            metrics = update(
                self.controller,
                groups,
                settings.objective,
                self.numerics,
                groups_per_step=settings.groups_per_step,
                rewards=self._rewards(groups),
                lr=self.last_lr,
                version=None if self.is_replay else self.done,
            )
            self.done += 1
        # Only optimizer steps with a finite gradient have a norm.
        self.bad_updates = 0 if metrics.norms else self.bad_updates + 1
        if self.bad_updates == MAX_BAD_UPDATES:
            raise Stopped(f"rl: no finite gradient in {MAX_BAD_UPDATES} updates up to {self.done}; try a lower --lr")
        return metrics

    def _rewards(self, groups: Sequence[Group]) -> list[list[float]]:
        rewards = [[reward.total for reward in group.rewards] for group in groups]
        if not self.shuffle_rewards:
            return rewards
        # A repeated update has the same order again.
        return shuffled(rewards, [self.seed, self.done])


def update(
    controller: RankController,
    groups: Sequence[Group],
    objective: Objective,
    numerics: Numerics,
    *,
    groups_per_step: int,
    rewards: Sequence[Sequence[float]],
    lr: float,
    version: int | None = None,
) -> UpdateMetrics:
    """Train on a batch of groups with these rewards, one optimizer step for each mini-batch.

    ``version`` is that of the weights before the update; the mismatch between engine and trainer is measured on the
    sequences that it generated, in the forward pass of the first mini-batch.

    Raises:
        EnvironmentFault: a rank has died, hangs or failed; the message names it.
    """
    started = time.monotonic()
    micro_tokens = numerics.micro_tokens
    planned = plan(groups, rewards, objective, groups_per_step=groups_per_step, micro_tokens=micro_tokens)
    shares = _by_rank(controller, planned.mini_batches, micro_tokens)
    # All ranks get the same objective; only the samples differ.
    tasks = [Learn(share, objective, numerics, lr, version) for share in shares]
    learned: UpdateMetrics = controller.run(tasks)
    micro_batches = [samples for share in shares for batch in share for samples in batch]
    # Ranks without a sample of their own compute one of padding.
    num_micro_batches = sum(samples[0] is not PADDING for samples in micro_batches)
    return replace(
        learned,
        num_micro_batches=num_micro_batches,
        padding=planned.padding,
        advantages=planned.advantages,
        seconds=time.monotonic() - started,
    )


def compare(
    controller: RankController,
    groups: Sequence[Group],
    objective: Objective,
    numerics: Numerics,
    *,
    rewards: Sequence[Sequence[float]],
    version: int,
) -> Mapping[str, float]:
    """The mismatch of engine and trainer on the sequences that ``version`` of the weights generated, without training.

    Raises:
        EnvironmentFault: a rank has died, hangs or failed; the message names it.
    """
    micro_tokens = numerics.micro_tokens
    planned = plan(groups, rewards, objective, groups_per_step=len(groups), micro_tokens=micro_tokens)
    shares = _by_rank(controller, planned.mini_batches, micro_tokens)
    # All groups are one mini-batch.
    log_ratios = controller.run([Compare(share[0], numerics, version) for share in shares])
    return mismatch_summary(log_ratios)


def _by_rank(controller: RankController, batches: list[MiniBatch], micro_tokens: int) -> list[list[MiniBatch]]:
    """The mini-batches of each rank."""
    if controller.size == 1:
        return [batches]
    return split_over_ranks(batches, controller.size, micro_tokens, controller.facts.hidden_size)


def shuffled(rewards: Sequence[Sequence[float]], seed: Sequence[int]) -> list[list[float]]:
    """Rewards shuffled randomly within each group, as a control experiment."""
    random = np.random.default_rng(list(seed))
    return [random.permutation(np.asarray(group)).tolist() for group in rewards]


def split_over_ranks(batches: Sequence[MiniBatch], size: int, budget: int, hidden: int) -> list[list[MiniBatch]]:
    """The mini-batches of each rank, divided so that all ranks have equally many micro-batches."""
    shares: list[list[MiniBatch]] = [[] for _ in range(size)]
    for batch in batches:
        samples = [sample for micro_batch in batch for sample in micro_batch]
        # Split anew: the micro-batches of one rank would not divide evenly.
        lengths = [sample.length for sample in samples]
        indices_by_rank = micro_batches_by_rank(lengths, budget=budget, size=size, hidden=hidden)
        for share, indices_of_rank in zip(shares, indices_by_rank, strict=True):
            mini_batch: MiniBatch = []
            for indices in indices_of_rank:
                # A rank without samples computes with the others all the same, as all of them gather weights.
                mini_batch.append([samples[index] for index in indices] or [PADDING])
            share.append(mini_batch)
    return shares


@dataclass(frozen=True, slots=True)
class Compare:
    """One rank's part of measuring the mismatch with the engine. Rank 0 returns the log-ratios of all ranks."""

    batch: MiniBatch
    numerics: Numerics
    version: int

    def run(self, state: RankState) -> list[Tensor]:
        """Compute the log-ratios without changing any weight."""
        parts = []
        for samples in self.batch:
            logprobs = current_logprobs(state.sharded, samples, bf16=self.numerics.bf16)
            parts.append(mismatch(logprobs, samples, self.version))
        # Copies from a GPU run on, and are waited for once.
        sent = [sent_back(part) for part in parts]
        wait_for(state.ranks.device)
        return _of_all_ranks(state.ranks, sent)


@dataclass(frozen=True, slots=True)
class Learn:
    """One rank's part of an update: its micro-batches of each mini-batch. Rank 0 returns the metrics of all ranks."""

    batches: Sequence[MiniBatch]
    objective: Objective
    numerics: Numerics
    lr: float
    version: int | None

    def run(self, state: RankState) -> UpdateMetrics:
        """One optimizer step for each mini-batch; all ranks make it or none, as loss and norm are those of all."""
        set_lr(state.optimizer, self.lr)
        version = self.version
        micro_batches: list[MicroBatchMetrics] = []
        losses: list[float] = []
        norms: list[float] = []
        skipped = 0
        for batch in self._with_proximal(state.sharded):
            part = accumulate(
                state.sharded,
                batch,
                self.objective,
                bf16=self.numerics.bf16,
                reference=state.reference,
                teacher=state.teacher,
                version=version,
            )
            micro_batches += part.micro_batches
            loss = state.ranks.sum(part.loss)
            # Loss and norm are those of all ranks, so all of them step or none does.
            norm = clip_and_step(state.optimizer, state.model.parameters(), max_norm=self.numerics.max_norm, loss=loss)
            if norm is None:
                skipped += 1
                continue
            losses.append(loss)
            norms.append(norm)
            # The weights are now newer than the engine's, so the mismatch cannot be measured any more.
            version = None
        # Micro-batches of ever new sizes leave gaps in the heap.
        state.freed.bound(host().usable)
        sent = [_sent_back(metrics) for metrics in micro_batches]
        wait_for(state.ranks.device)
        return UpdateMetrics(_of_all_ranks(state.ranks, sent), losses, norms, skipped)

    def _with_proximal(self, sharded: ShardedModel) -> list[MiniBatch]:
        """The mini-batches, with ``--tis-cap`` all but the first with the log-probs of the weights before the update.

        The forward pass of the first one computes them.
        """
        # The first mini-batch is trained by the weights of before, so its own pass gives their log-probs.
        first, *later = self.batches
        if not self.objective.tis_cap:
            return [first, *later]
        scored = [first]
        for batch in later:
            scored.append([with_proximal(sharded, samples, bf16=self.numerics.bf16) for samples in batch])
        return scored


def _of_all_ranks(ranks: Ranks, values: list[Value]) -> list[Value]:
    """The values of all ranks, rank after rank, on rank 0; an empty list on the others."""
    return [value for values_of_rank in ranks.gather(values) for value in values_of_rank]


def _sent_back(metrics: MicroBatchMetrics) -> MicroBatchMetrics:
    return MicroBatchMetrics(
        clips=ClipStats(*(sent_back(tensor) for tensor in metrics.clips)),
        entropy=sent_back(metrics.entropy),
        mismatch=_sent_back_if_any(metrics.mismatch),
        importance=_sent_back_if_any(metrics.importance),
        divergence=_sent_back_if_any(metrics.divergence),
        reverse_kl=_sent_back_if_any(metrics.reverse_kl),
    )


def _sent_back_if_any(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else sent_back(tensor)
