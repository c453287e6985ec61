"""AdamW as language models use it, the learning-rate schedule, and an optimizer step that refuses bad gradients.

Parameters are float32 master weights; ``autocast`` lets the matrix products of the forward pass run in bf16.
"""

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn
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
    were. A loss that is not a number can have a finite gradient, since clamping passes none to what it clamps.
    """
    norm = torch.nn.utils.clip_grad_norm_(_with_gradient(parameters), max_norm).item()
    finite = math.isfinite(norm + loss)
    if finite:
        optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return norm if finite else None


def autocast(device: torch.device, enabled: bool) -> torch.autocast:
    """The context in which matrix products run in bf16, or in float32 when it is not enabled."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=enabled)


def _with_gradient(parameters: Iterable[nn.Parameter]) -> list[Tensor]:
    return [parameter for parameter in parameters if parameter.grad is not None]
