"""bf16 copies of the weights of linear layers, made once after each optimizer step.

Autocast rounds the float32 weights anew in the forward pass of every micro-batch. Here the copies stay, and the
gradient of a copy is that of its weight, as it is of autocast's: the results are the same bit for bit.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear


class HeldLinear(nn.Linear):
    """A linear layer that multiplies with bf16 copies under autocast, and with its own weights without."""

    copies: tuple[Tensor, Tensor | None]
    """Those of weight and bias."""

    def forward(self, inputs: Tensor) -> Tensor:
        """``[..., inputs]`` to ``[..., outputs]``."""
        if not torch.is_autocast_enabled(inputs.device.type):
            return linear(inputs, self.weight, self.bias)
        weight_copy, bias_copy = self.copies
        weight = _rounded(self.weight, weight_copy)
        bias = None if bias_copy is None else _rounded(self.bias, bias_copy)
        return linear(inputs, weight, bias)


def _rounded(parameter: Tensor, copy: Tensor) -> Tensor:
    """The copy, whose gradient goes to the parameter."""
    rounded: Tensor = _Rounded.apply(parameter, copy)  # type: ignore[no-untyped-call]
    return rounded


class _Rounded(torch.autograd.Function):
    """A copy of a parameter in another type in its place; the gradient goes to the parameter."""

    @staticmethod
    def forward(ctx: Any, parameter: Tensor, copy: Tensor) -> Tensor:
        # A view, since the result has to be another tensor than the argument.
        return copy.view_as(copy)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        # The copy's gradient is bf16; the weight's is float32, and is added up in it.
        return gradient.float(), None


class HeldWeights:
    """The copies of all linear layers of some modules, which become ``HeldLinear`` in place; names stay.

    Only float32 weights that are trained are held.
    """

    def __init__(self, modules: Iterable[nn.Module] = ()) -> None:
        self._parameters: list[Tensor] = []
        self._copies: list[Tensor] = []
        for module in modules:
            for child in module.modules():
                # Not of a subclass, which may compute something else.
                if type(child) is nn.Linear and _is_trained_in_float32(child.weight):
                    self._hold(child)
        self._versions: list[int] = []

    def _hold(self, module: nn.Linear) -> None:
        weight = self._copy_of(module.weight)
        bias = None if module.bias is None else self._copy_of(module.bias)
        # In place, so that names, hooks and the optimizer keep module and parameters.
        module.__class__ = HeldLinear
        module.copies = (weight, bias)  # type: ignore[assignment]

    def _copy_of(self, parameter: Tensor) -> Tensor:
        copy = parameter.detach().to(torch.bfloat16)
        self._parameters.append(parameter)
        self._copies.append(copy)
        return copy

    def will_change(self) -> None:
        """Say that an optimizer step comes next: PyTorch's fused one does not count as a change of a tensor."""
        self._versions = []

    @torch.no_grad()
    def refresh(self) -> None:
        """Make the copies those of the present weights, if these have changed since.

        PyTorch counts other changes of each tensor (``_version``), such as by a checkpoint.
        """
        versions = [parameter._version for parameter in self._parameters]
        # All at once in a few kernels, and only if any has changed.
        if versions != self._versions:
            torch._foreach_copy_(self._copies, self._parameters)
            self._versions = versions


def _is_trained_in_float32(parameter: Tensor) -> bool:
    return parameter.requires_grad and parameter.dtype == torch.float32
