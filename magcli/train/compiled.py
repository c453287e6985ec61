"""Compilation of a model's layers by ``torch.compile``: norms, rotary embeddings and gates become few fused kernels.

Layers are compiled one by one, not the model as a whole: all of them run the same code, so one compilation serves all,
and it is short. Attention stays as it is, because the shapes of a pack are in its arguments. The number of tokens is
symbolic, so another micro-batch compiles nothing anew.

PyTorch's own switch turns it off: ``TORCH_COMPILE_DISABLE=1``.
"""

import time
from collections.abc import Iterable
from functools import partial

import torch
from torch import nn
from transformers import AttentionInterface

from magcli.train import attention

SECONDS_BEFORE = 60.0
"""How long a run trains before its layers are compiled: about as long as a compilation takes, so that a run that ends
soon does not wait for what it cannot make up for, and a long one loses little."""


class LateCompiler:
    """Compiles the layers of a run once it has trained for ``SECONDS_BEFORE``."""

    def __init__(self, layers: Iterable[nn.Module], *, seconds: float = SECONDS_BEFORE) -> None:
        self._layers = list(layers)
        self._seconds = seconds
        self._started: float | None = None

    def compile_if_due(self) -> None:
        """Call this before a forward pass."""
        # The time counts from the first pass: loading the model is not training.
        if self._started is None:
            self._started = time.monotonic()
        if self._layers and time.monotonic() - self._started >= self._seconds:
            compile_layers(self._layers)
            self._layers = []


def compile_layers(layers: Iterable[nn.Module], *, backend: str = "inductor") -> None:
    """Compile the forward pass of layers in place, when they are next called.

    What cannot be compiled, for example without a C compiler, runs as it is, and PyTorch says so. Where a layer's
    activations are recomputed, what is recomputed is compiled.
    """
    torch._dynamo.config.suppress_errors = True
    uncompiled = torch.compiler.disable(attention.attend)  # type: ignore[no-untyped-call]
    for name in (attention.NAME, attention.VARLEN_NAME):
        AttentionInterface.register(name, uncompiled)
    for layer in layers:
        forward = layer.forward
        if isinstance(forward, partial):  # ``checkpoint`` of the layer's own forward: see ``magcli.train.shard``
            inner, *others = forward.args
            compiled = torch.compile(inner, dynamic=True, backend=backend)
            layer.forward = partial(forward.func, compiled, *others, **forward.keywords)
        else:
            layer.forward = torch.compile(forward, dynamic=True, backend=backend)
