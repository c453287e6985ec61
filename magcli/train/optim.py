"""AdamW, the learning-rate schedule, and an optimizer step that skips non-finite gradients.

Parameters are float32 master weights; with ``autocast`` the matrix products of the forward pass run in bf16.
"""

import math
import random
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm
from torch.optim import AdamW, Optimizer

from magcli.train.offload import OffloadedAdamW


def seed_all(seed: int) -> None:
    """Seed the generators of Python, NumPy and PyTorch on all devices: dropout is the same in every run."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def adamw(
    model: nn.Module,
    *,
    lr: float,
    weight_decay: float,
    betas: tuple[float, float] = (0.9, 0.95),
    offload_moments: bool = False,
) -> AdamW:
    """AdamW over a model's trainable parameters, without weight decay for 1-dimensional ones (biases, norm weights).

    With ``offload_moments`` its moments are in host memory, where those of a model on the CPU are anyway.
    """
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    # Decay pulls weights towards 0, which is no natural value of a norm's scale.
    matrices = [parameter for parameter in trained if parameter.ndim > 1]
    vectors = [parameter for parameter in trained if parameter.ndim <= 1]
    groups: list[dict[str, Any]] = []
    if matrices:
        groups.append({"params": matrices, "weight_decay": weight_decay})
    if vectors:
        groups.append({"params": vectors, "weight_decay": 0.0})
    # On a CPU they would only be copied for nothing.
    is_on_device = any(parameter.device.type != "cpu" for parameter in trained)
    if offload_moments and is_on_device:
        return OffloadedAdamW(groups, lr=lr, betas=betas)
    return AdamW(groups, lr=lr, betas=betas, fused=True)


SFT_LR, RL_LR = 1e-5, 1e-6
"""Peak learning rates for a model of 24B weights: 1e-6 in RL is that of the recipe."""


def default_lr(weights: int, *, at_24b: float, lora: bool) -> float:
    """A peak learning rate for a model of ``weights`` parameters, from the one of a model of 24B.

    Proportional to 1/sqrt(weights), and ten times as large for LoRA, as in the Tinker cookbook's ``hyperparam_utils``.
    At most 200 times ``at_24b``.
    """
    # A model of a quarter of the weights gets twice the rate.
    lr = at_24b * math.sqrt(24e9 / weights)
    if lora:
        lr *= 10
    return min(lr, 200 * at_24b)


def cosine(step: int, *, total: int, warmup: int, floor: float = 0.0) -> float:
    """The learning rate at optimizer step ``step``, 0 to ``total`` - 1, as a fraction of its peak.

    Linear warmup over the first ``warmup`` steps (the first is not zero), then a half cosine down to ``floor`` at
    ``total``.
    """
    if step < warmup:
        return (step + 1) / warmup
    progress = min((step - warmup) / max(total - warmup, 1), 1.0)
    half_cosine = (1 + math.cos(math.pi * progress)) / 2  # from 1 to 0
    return floor + (1 - floor) * half_cosine


def set_lr(optimizer: Optimizer, lr: float) -> None:
    """Set the learning rate of every parameter group."""
    for group in optimizer.param_groups:
        group["lr"] = lr


def clip_and_step(
    optimizer: Optimizer, parameters: Iterable[nn.Parameter], *, max_norm: float, loss: float = 0.0
) -> float | None:
    """Clip the gradient to a norm of at most ``max_norm``, step, and clear it; returns the norm before clipping.

    Returns None and skips the step, leaving weights and optimizer state unchanged, if the norm or the step's ``loss``
    is not finite; a NaN loss can have a finite gradient, since clamped values pass no gradient. With a sharded model
    the norm is over all ranks; ``loss`` must be too, so that all ranks decide alike.
    """
    norm = clip(parameters, max_norm=max_norm).item()
    # The sum is finite only if both are.
    finite = math.isfinite(norm + loss)
    if finite:
        optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return norm if finite else None


def clip(parameters: Iterable[nn.Parameter], *, max_norm: float) -> Tensor:
    """Scale the gradient to a norm of at most ``max_norm``; returns the norm before, over all ranks."""
    trained = list(parameters)
    gradients = [parameter.grad for parameter in trained if parameter.grad is not None]
    norm = get_total_norm(gradients)
    if isinstance(norm, DTensor):  # each rank has only its part of the sum of squares
        norm = norm.full_tensor()
    clip_grads_with_norm_(trained, max_norm, norm)
    return norm


def autocast(device: torch.device, enabled: bool) -> torch.autocast:
    """A context in which matrix products run in bf16 if ``enabled``, else in float32."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=enabled)
