"""What the modules of ``magcli.rl`` exchange: settings, groups, batches, and what an update measures.

Plain values only: this module imports no other one of ``magcli.rl``, and no torch, so that a simulation can use it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor

    from magcli.choices import AdvantageNorm, LossNorm
    from magcli.generate.types import Message, Rollout, Sampling
    from magcli.verify.reward import Reward, RewardRule


@dataclass(frozen=True, slots=True)
class Objective:
    """The settings of the objective (recipe, section 1).

    Those with defaults are not part of the recipe. If ``tis_cap`` is above 0, the importance ratio is relative to the
    trainer's log-probs at the start of the batch, and each token is weighted by the ratio of trainer to sampler
    probability, truncated at the cap. ``kl`` and ``entropy_bonus`` are the coefficients of the penalty against a
    reference model and of the entropy bonus. ``advantage`` names a custom function that replaces the built-in one;
    ``loss`` is a name in ``magcli.rl.losses`` or a custom function. ``max_tokens`` is the most that a completion can
    have, for the ``loss_norm`` that needs it. With ``teacher`` the advantage of each token comes from a teacher model
    instead of the rewards.
    """

    clip_low: float
    clip_high: float
    advantage_norm: AdvantageNorm
    loss_norm: LossNorm
    tis_cap: float = 0.0
    kl: float = 0.0
    entropy_bonus: float = 0.0
    advantage: str = ""
    loss: str = "magistral"
    max_tokens: int = 0
    teacher: bool = False


def is_own_function(loss: str) -> bool:
    """Whether ``--loss`` is a user's own function, ``module:function`` or ``file.py:function``, and not a name."""
    return ":" in loss


@dataclass(frozen=True, slots=True)
class Numerics:
    """How a run computes the gradient of its objective and bounds it, the same in all its stages.

    Attributes:
        micro_tokens: maximum number of tokens of a micro-batch; a longer sequence is one by itself.
        max_norm: norm to which the gradient of an optimizer step is clipped.
        bf16: compute in bf16 by autocast, with weights in float32.
    """

    micro_tokens: int
    max_norm: float
    bf16: bool


@dataclass(frozen=True, slots=True)
class StageSettings:
    """The settings of one stage of a run; batches are counted in groups.

    Attributes:
        groups_per_step: groups of one optimizer step.
        batch_groups: groups of one update.
        async_groups: groups that are generated concurrently.
    """

    objective: Objective
    groups_per_step: int
    batch_groups: int
    async_groups: int
    sampling: Sampling
    rule: RewardRule


@dataclass(frozen=True, slots=True)
class Group:
    """G graded rollouts of one problem, sampled at ``temperature``.

    ``number`` is its index in the run; ``dropped`` is the reason why it does not train, or None. ``texts`` are those of
    the completions, of episodes the last turns; ``messages`` the conversations of episodes, prompts included.
    """

    number: int
    problem: Mapping[str, Any]
    prompt: tuple[int, ...]
    rollouts: tuple[Rollout, ...]
    texts: tuple[str, ...]
    rewards: tuple[Reward, ...]
    dropped: str | None
    temperature: float = 1.0
    messages: tuple[tuple[Message, ...], ...] = ()

    @property
    def kind(self) -> str:
        """The kind of the problem: math, code, or what a custom reward knows."""
        return str(self.problem.get("kind") or "math")

    @property
    def num_tokens(self) -> int:
        """Generated tokens of the group."""
        return sum(rollout.num_generated for rollout in self.rollouts)


class Batch(NamedTuple):
    """The groups of one update, and those dropped since the update before."""

    trained: Sequence[Group]
    dropped: Sequence[Group]

    @classmethod
    def of(cls, groups: Sequence[Group]) -> Batch:
        """The groups of both kinds, in their order."""
        trained = [group for group in groups if group.dropped is None]
        dropped = [group for group in groups if group.dropped is not None]
        return cls(trained, dropped)


class ClipStats(NamedTuple):
    """How clipping affects the tokens of one micro-batch, each ``[N]`` and without gradient.

    ``log_ratio`` is new minus old log-probability; ``low`` and ``high``: the lower or upper bound sets the token's
    gradient to zero or, of a loss whose ratio is a weight only (CISPO), bounds that weight.
    """

    log_ratio: Tensor
    low: Tensor
    high: Tensor


class MicroBatchMetrics(NamedTuple):
    """What the forward pass of a micro-batch measures on its generated tokens, without gradient.

    Attributes:
        clips: how clipping affects the tokens.
        entropy: of the policy's distribution at each token, ``[N]``.
        mismatch: the trainer's minus the engine's log-probs, of the tokens that the present weights sampled; None
            where the weights are newer than those of the engine.
        importance: the truncated importance weights (``--tis-cap``) ``[N]``; None without them.
        divergence: the KL divergence from the reference model (``--kl``) ``[N]``; None without that penalty.
        reverse_kl: that from the teacher (``--teacher``) ``[N]``; None without one.
    """

    clips: ClipStats
    entropy: Tensor
    mismatch: Tensor | None
    importance: Tensor | None
    divergence: Tensor | None
    reverse_kl: Tensor | None


@dataclass(frozen=True, slots=True)
class UpdateMetrics:
    """What an update measures.

    Attributes:
        micro_batches: the metrics of each micro-batch, of all ranks.
        losses, norms: of each optimizer step; the norm is that of the gradient before it is clipped.
        skipped: number of optimizer steps that were skipped because their loss or gradient was not finite.
        padding: for each mini-batch, the share of padding if its micro-batches were padded.
        num_micro_batches: their number, without those that only keep the ranks in step.
        seconds: duration of the update.
        advantages: of the completions of each group, by its number; none with a teacher, which has one per token.
    """

    micro_batches: Sequence[MicroBatchMetrics] = ()
    losses: Sequence[float] = ()
    norms: Sequence[float] = ()
    skipped: int = 0
    padding: Sequence[float] = ()
    num_micro_batches: int = 0
    seconds: float = 0.0
    advantages: Mapping[int, Sequence[float]] = field(default_factory=dict)


class Times(NamedTuple):
    """The time since the update before.

    Attributes:
        seconds: all of it.
        generating: seconds in which the engines worked.
        generated_tokens: tokens of the completions that ended in it, which may train later.
        idle: shares of idle time by cause, see ``magcli.rl.utilization``.
    """

    seconds: float
    generating: float
    generated_tokens: int
    idle: Mapping[str, float]
