"""Custom advantages and policy losses, given as ``module:function`` or ``file.py:function`` like a reward.

    def leave_one_out(rewards, groups):
        ...
        return advantages  # one number for each completion of the mini-batch

    def reinforce(tokens, clip_low, clip_high):
        return -tokens.advantage * tokens.new  # the loss of each token, [N]

They replace ``advantages`` and ``clipped_policy_loss`` in ``magcli.rl.algorithm`` and have the same arguments.
Loss normalisation, importance correction, KL penalty and entropy bonus apply to any loss.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from magcli.errors import UsageError
from magcli.rl.algorithm import Tokens
from magcli.verify.custom import load


def advantages(spec: str, rewards: Sequence[float], groups: Sequence[int]) -> list[float]:
    """The advantages of a mini-batch's completions by a custom function.

    Raises:
        UsageError: there is no such function, it fails, or its result is not one finite number for each completion.
    """
    function = load(spec, "advantage")
    try:
        found = [float(value) for value in function(list(rewards), list(groups))]
    except Exception as error:
        raise _failed("advantage", spec, error) from error
    if len(found) != len(rewards):
        raise UsageError(f"advantage {spec!r} returned {len(found)} values for {len(rewards)} completions")
    if bad := [value for value in found if not math.isfinite(value)]:
        raise UsageError(f"advantage {spec!r} returned {bad[0]}, which is not finite")
    return found


def policy_loss(spec: str, tokens: Tokens, clip_low: float, clip_high: float) -> Tensor:
    """The loss ``[N]`` of a micro-batch's tokens by a custom function. An optimizer step whose loss is not finite is
    skipped, as with the built-in loss.

    Raises:
        UsageError: there is no such function, it fails, or its result is not a differentiable tensor ``[N]``.
    """
    function = load(spec, "loss")
    try:
        found = function(tokens, clip_low, clip_high)
    except Exception as error:
        raise _failed("loss", spec, error) from error
    if not isinstance(found, Tensor):
        raise UsageError(f"loss {spec!r} returned {type(found).__name__}, expected a tensor")
    if found.shape != tokens.new.shape:
        shape, expected = list(found.shape), list(tokens.new.shape)
        raise UsageError(f"loss {spec!r} returned shape {shape}, expected one value for each token {expected}")
    if tokens.new.requires_grad and not found.requires_grad:
        raise UsageError(f"loss {spec!r} does not depend on tokens.new, so it has no gradient")
    return found


def check(advantage: str, loss: str) -> None:
    """Call the custom functions on two groups of two completions before anything is generated; "" is built-in.

    Raises:
        UsageError: one fails.
    """
    if advantage:
        advantages(advantage, [1.0, 0.0, 0.1, 0.9], [0, 0, 1, 1])
    if loss:
        logprobs = torch.tensor([-0.5, -1.0, -1.5, -2.0])
        new, sign = (logprobs + 0.1).requires_grad_(), torch.tensor([1.0, -1.0, 1.0, -1.0])
        policy_loss(loss, Tokens(new, logprobs, sign, torch.arange(4)), 0.2, 0.28)


def _failed(option: str, spec: str, error: Exception) -> UsageError:
    return UsageError(f"{option} {spec!r} failed: " + " ".join(f"{type(error).__name__}: {error}".split()))
