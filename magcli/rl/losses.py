"""The losses that ``--loss`` knows by name.

Each function is one loss: its docstring has the equation and the source, and it returns what replaces the recipe's. For
completion i of a mini-batch, with reward R[i] and G completions in its group, and its token t:

    r[i,t] = policy / old probability        |o[i]|: tokens of completion i        sg: without gradient
    A[i]: advantage, the same at each token of a completion (``magcli.rl.algorithm.advantages``)

All of them are minimised, and a sum over i and t is over the completions of the mini-batch. Clipping, advantage and
normalisation are defaults of ``--clip-low``, ``--clip-high``, ``--advantage-norm`` and ``--loss-norm``; a user may give
others. No loss has a KL penalty of its own (``--kl`` adds it).
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from magcli.choices import AdvantageNorm, LossNorm
from magcli.errors import UsageError
from magcli.rl.algorithm import (
    Tokens,
    clipped_policy_loss,
    importance_ratio,
    is_clipped,
)
from magcli.rl.types import is_own_function

PolicyLoss = Callable[[Tokens, float, float], Tensor]
"""(tokens, clip_low, clip_high) -> the loss of each token ``[N]``."""


@dataclass(frozen=True, slots=True)
class Loss:
    """A loss that has a name: the loss of each token, and the defaults of the options that belong to it.

    ``is_clipped`` says which tokens its lower and its upper bound affect.
    """

    policy_loss: PolicyLoss
    advantage_norm: AdvantageNorm
    loss_norm: LossNorm
    clip_low: float
    clip_high: float
    is_clipped: Callable[[Tokens, float, float], tuple[Tensor, Tensor]] = is_clipped


def magistral() -> Loss:
    """Magistral (arXiv 2506.10910, section 2.1), the default.

    Mean over groups of  1 / sum |o[i]| * sum of -min(r A, clip(r, 0.8, 1.28) A)  over the tokens of the group
    A[i] = a[i] / std(a),  a[i] = R[i] - mean(R of the group);  std over the completions of the mini-batch
    """
    return Loss(clipped_policy_loss, "minibatch", "group", 0.2, 0.28)


def grpo() -> Loss:
    """GRPO (DeepSeekMath, arXiv 2402.03300, eq. 3 and section 4.1.2).

    Mean over i of  1 / |o[i]| * sum over t of -min(r A, clip(r, 0.8, 1.2) A)
    A[i] = (R[i] - mean(R)) / std(R), both of the group
    """
    return Loss(clipped_policy_loss, "group", "sample", 0.2, 0.2)


def dr_grpo() -> Loss:
    """Dr. GRPO (arXiv 2503.20783, section 3.2): no division by a completion's length, none by the group's deviation.

    Mean over i of  1 / max_tokens * sum over t of -min(r A, clip(r, 0.8, 1.2) A)
    A[i] = R[i] - mean(R of the group)
    """
    return Loss(clipped_policy_loss, "none", "constant", 0.2, 0.2)


def dapo() -> Loss:
    """DAPO (arXiv 2503.14476, eq. 8 to 12): clip-higher, and each token of the mini-batch has the same weight.

    1 / sum |o[i]| * sum over i and t of -min(r A, clip(r, 0.8, 1.28) A)
    A[i] = (R[i] - mean(R)) / std(R), both of the group

    Dynamic sampling is the removal of groups by ``--diverse-by``, overlong reward shaping ``--penalty-width``.
    """
    return Loss(clipped_policy_loss, "group", "token", 0.2, 0.28)


def gspo() -> Loss:
    """GSPO (arXiv 2507.18071, eq. 5 to 7; bounds of section 5.1): one ratio for each completion.

    Mean over i of  -min(s[i] A, clip(s[i], 1 - 3e-4, 1 + 4e-4) A)
    s[i] = exp(1 / |o[i]| * sum over t of log r[i,t])
    A[i] = (R[i] - mean(R)) / std(R), both of the group
    """
    return Loss(gspo_policy_loss, "group", "sample", 3e-4, 4e-4, is_gspo_clipped)


def gspo_policy_loss(tokens: Tokens, clip_low: float, clip_high: float) -> Tensor:
    """-min(s A, clip(s) A) of each token's completion ``[N]``, with s the geometric mean of its tokens' ratios."""
    return clipped_policy_loss(_with_mean_ratio(tokens), clip_low, clip_high)


def is_gspo_clipped(tokens: Tokens, clip_low: float, clip_high: float) -> tuple[Tensor, Tensor]:
    """Which tokens belong to a completion without gradient because of each bound, bool ``[N]`` each."""
    return is_clipped(_with_mean_ratio(tokens), clip_low, clip_high)


def _with_mean_ratio(tokens: Tokens) -> Tokens:
    """The tokens with the geometric mean of their completion's ratios as each one's ratio."""
    log_ratio = tokens.new - tokens.old  # [N]
    # Sums of as many completions as there are tokens, at most: to count them a GPU would have to be waited for.
    zeros = torch.zeros_like(log_ratio)
    sums = zeros.index_add(0, tokens.sequence, log_ratio)
    lengths = zeros.index_add(0, tokens.sequence, torch.ones_like(log_ratio))
    # A mean of logarithms is the logarithm of the geometric mean.
    means = (sums / lengths.clamp(min=1)).index_select(0, tokens.sequence)
    return tokens._replace(new=means, old=torch.zeros_like(means))


def cispo() -> Loss:
    """CISPO (MiniMax-M1, arXiv 2506.13585, eq. 4 and 5): the ratio is capped and is a weight only.

    1 / sum |o[i]| * sum over i and t of -sg(min(r, 5)) A log policy probability
    A[i] = (R[i] - mean(R)) / std(R), both of the group

    The paper has no lower bound (here: 0) and no figure for the cap; 5 is that of ScaleRL (arXiv 2510.13786).
    """
    return Loss(cispo_policy_loss, "group", "token", 1.0, 4.0, is_cispo_capped)


def cispo_policy_loss(tokens: Tokens, clip_low: float, clip_high: float) -> Tensor:
    """-sg(clip(r, 1 - clip_low, 1 + clip_high)) A log policy probability of each token ``[N]``."""
    ratio = importance_ratio(tokens.new.detach(), tokens.old).clamp(1 - clip_low, 1 + clip_high)
    return -ratio * tokens.advantage * tokens.new


def is_cispo_capped(tokens: Tokens, clip_low: float, clip_high: float) -> tuple[Tensor, Tensor]:
    """Which tokens have a weight that the lower and the upper bound changes, bool ``[N]`` each.

    Unlike a clipped ratio, the weight is bounded whatever the sign of the advantage.
    """
    ratio = importance_ratio(tokens.new.detach(), tokens.old)
    return ratio < 1 - clip_low, ratio > 1 + clip_high


def rloo() -> Loss:
    """RLOO (arXiv 2402.14740): REINFORCE with the mean reward of the other completions of the group as baseline.

    1 / sum |o[i]| * sum over i and t of -min(r A, clip(r, 0.8, 1.2) A)
    A[i] = R[i] - 1 / (G - 1) * sum of R of the group's other completions

    The paper has no ratio: its samples are those of the policy, for which this gradient is the paper's, times the
    number of completions over that of tokens. PPO's clipped ratio (arXiv 1707.06347, eq. 7) is for older samples.
    """
    return Loss(clipped_policy_loss, "leave-one-out", "token", 0.2, 0.2)


def reinforce_plus_plus() -> Loss:
    """REINFORCE++ (arXiv 2501.03262): no group's mean; advantages are standardised over all tokens.

    1 / sum |o[i]| * sum over i and t of -min(r A, clip(r, 0.8, 1.2) A)
    A[i] = (R[i] - mean(R)) / std(R), both over the tokens of the mini-batch
    """
    return Loss(clipped_policy_loss, "global", "token", 0.2, 0.2)


LOSSES = {
    "magistral": magistral(),
    "grpo": grpo(),
    "dr-grpo": dr_grpo(),
    "dapo": dapo(),
    "gspo": gspo(),
    "cispo": cispo(),
    "rloo": rloo(),
    "reinforce++": reinforce_plus_plus(),
}
"""The losses by name."""


def loss_of(loss: str) -> Loss:
    """The loss of a name. To a user's own function belong the defaults of the recipe's.

    Raises:
        UsageError: there is no such name.
    """
    if is_own_function(loss):
        return LOSSES["magistral"]
    if loss not in LOSSES:
        raise UsageError(f"rl: --loss {loss!r} is no name of a loss ({', '.join(LOSSES)}), nor module:function")
    return LOSSES[loss]
