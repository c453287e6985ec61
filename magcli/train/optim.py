"""AdamW as language models use it, the learning-rate schedule, and an optimizer step that refuses bad gradients.

Parameters are float32 master weights; ``autocast`` lets the matrix products of the forward pass run in bf16.
"""

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm
from torch.optim import AdamW, Optimizer


def adamw(model: nn.Module, *, lr: float, weight_decay: float, betas: tuple[float, float] = (0.9, 0.95)) -> AdamW:
    """AdamW over a model's trainable parameters; biases and norm weights, all that is 1-dimensional, do not decay."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in trained if p.ndim > 1], "weight_decay": weight_decay},
        {"params": [p for p in trained if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return AdamW([group for group in groups if group["params"]], lr=lr, betas=betas, fused=True)


def cosine(step: int, *, total: int, warmup: int, floor: float = 0.0) -> float:
    """The share of the peak learning rate at optimizer step ``step``, 0 to ``total`` - 1.

    Rises linearly to 1 over the first ``warmup`` steps, its first step not zero, then falls along a half cosine to
    ``floor``, reached at ``total`` and kept.
    """
    if step < warmup:
        return (step + 1) / warmup
    progress = min((step - warmup) / max(total - warmup, 1), 1.0)
    return floor + (1 - floor) * (1 + math.cos(math.pi * progress)) / 2


def set_lr(optimizer: Optimizer, lr: float) -> None:
    """Set the learning rate of every parameter group."""
    for group in optimizer.param_groups:
        group["lr"] = lr


def clip_and_step(
    optimizer: Optimizer, parameters: Iterable[nn.Parameter], *, max_norm: float, loss: float = 0.0
) -> float | None:
    """Scale the gradient to a norm of at most ``max_norm``, step, and clear it; returns the norm before scaling.

    None, and no step, when the norm or the step's ``loss`` is not finite: weights and optimizer state stay as they
    were. A loss that is not a number can have a finite gradient, since clamping passes none to what it clamps. Where
    ranks share the parameters, the norm is that over all ranks; ``loss`` must be so too, for then all decide alike.
    """
    trained = list(parameters)
    total = _whole(get_total_norm([parameter.grad for parameter in trained if parameter.grad is not None]))
    clip_grads_with_norm_(trained, max_norm, total)
    norm = total.item()
    finite = math.isfinite(norm + loss)
    if finite:
        optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return norm if finite else None


def autocast(device: torch.device, enabled: bool) -> torch.autocast:
    """The context in which matrix products run in bf16, or in float32 when it is not enabled."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=enabled)


def _whole(value: Tensor) -> Tensor:
    """A value that every rank has a part of, put together."""
    return value.full_tensor() if isinstance(value, DTensor) else value
