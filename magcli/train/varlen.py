"""Attention of packed sequences by FlashAttention's kernel for sequences of different lengths: no padding.

The kernel takes all tokens in one row and where each sequence starts. Every token of a pack is a query once: a shared
prompt is a sequence of its own, and a completion attends to its prompt and to itself. Only keys and values of a prompt
are repeated, for each of its completions. The causal mask is aligned at the end of both rows, so the last query sees
the last key.

PyTorch has the kernel for GPUs only, in bf16 and without soft caps and sinks.
"""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from magcli.errors import EnvironmentFault
from magcli.model.attention import Scores, UnsupportedAttention
from magcli.train.moving import moved
from magcli.train.packing import Packed

KERNEL_DTYPE = torch.bfloat16
"""The type of queries, keys and values in the kernel, which has no float32."""

LEAST_CAPABILITY = (8, 0)
"""The oldest compute capability that FlashAttention supports."""


@dataclass(frozen=True, slots=True)
class Segments:
    """Where the queries and keys of each segment of a pack are, computed once per forward pass.

    ``query_starts`` and ``key_starts``, int32 ``[N + 1]``, are the ends of the first 0, 1, ... N segments among queries
    and among keys. Queries are the tokens of the pack in its order; ``keys`` ``[K]`` is the index of the token of each
    key, None if the keys are the queries. ``longest_query`` and ``longest_key`` are lengths.
    """

    query_starts: Tensor
    key_starts: Tensor
    keys: Tensor | None
    longest_query: int
    longest_key: int

    def attend(self, queries: Tensor, keys: Tensor, values: Tensor, kind: Scores, dropout: float) -> Tensor:
        """The output ``[T, H, D]`` of a pack's queries ``[T, H, D]``, keys and values ``[T, H_kv, D]``.

        Raises UnsupportedAttention for what the kernel lacks.
        """
        if not kind.is_plain or dropout:
            raise UnsupportedAttention("--attention varlen has no soft caps, sinks or dropout; take --attention sdpa")
        if self.keys is not None:
            # Before the cast: the gradients of a prompt's repeated keys are added up in the type that they come in.
            keys = keys.index_select(0, self.keys)
            values = values.index_select(0, self.keys)
        output: Tensor = _kernel()(
            queries.to(KERNEL_DTYPE),
            keys.to(KERNEL_DTYPE),
            values.to(KERNEL_DTYPE),
            self.query_starts,
            self.key_starts,
            self.longest_query,
            self.longest_key,
            scale=kind.scale,
            window_size=(-1 if kind.window is None else kind.window - 1, 0),  # tokens before it and after it; -1: all
            enable_gqa=queries.shape[1] != keys.shape[1],
        )
        return output


def segments(packed: Packed) -> Segments:
    """The segments of a pack: each shared prefix once, each sequence's own tokens, in their order."""
    device = packed.input_ids.device
    spans = sorted(_spans(packed))
    query_lengths = [length for _, length, _ in spans]
    key_lengths = [length + prefix_length for _, length, (_, prefix_length) in spans]
    keys = None
    if key_lengths != query_lengths:  # prefixes are repeated among the keys
        parts = []
        for start, length, prefix in spans:
            parts += [_indices(*prefix), _indices(start, length)]
        keys = moved(torch.cat(parts), device)
    return Segments(
        _ends(query_lengths, device),
        _ends(key_lengths, device),
        keys,
        max(query_lengths, default=0),
        max(key_lengths, default=0),
    )


def _spans(packed: Packed) -> list[tuple[int, int, tuple[int, int]]]:
    """(start, length, prefix) of each segment of queries; ``prefix`` is the (start, length) that it also attends to."""
    nothing = (0, 0)
    shared = {(start, size) for start, size in packed.prefixes if size}
    spans = [(start, size, nothing) for start, size in shared]
    for start, length, prefix in zip(packed.starts, packed.lengths, packed.prefixes, strict=True):
        if length:
            spans.append((start, length, prefix if prefix in shared else nothing))
    return spans


def _indices(start: int, length: int) -> Tensor:
    return torch.arange(start, start + length)


def _ends(lengths: Sequence[int], device: torch.device) -> Tensor:
    return moved(torch.tensor(list(accumulate(lengths, initial=0)), dtype=torch.int32), device)


def is_available(device: torch.device) -> bool:
    """Whether the kernel exists for a device."""
    try:
        require(device)
    except EnvironmentFault:
        return False
    return True


def require(device: torch.device) -> None:
    """Check that the kernel exists for a device.

    Raises:
        EnvironmentFault: it does not.
    """
    if device.type != "cuda":
        raise EnvironmentFault(f"--attention varlen needs a GPU, not {device.type}: leave it out, or take sdpa")
    capability = torch.cuda.get_device_capability(device)
    if capability < LEAST_CAPABILITY:
        raise EnvironmentFault("--attention varlen needs a GPU of compute capability 8.0: take --attention sdpa")
    _ = _kernel()


@cache
def _kernel() -> Any:
    """PyTorch's kernel, with groups of query heads for each key head (``enable_gqa``, since PyTorch 2.13).

    Raises:
        EnvironmentFault: this PyTorch has no such kernel.
    """
    too_old = f"--attention varlen needs PyTorch 2.13, not {torch.__version__}"
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError as error:
        raise EnvironmentFault(too_old) from error
    if "enable_gqa" not in inspect.signature(varlen_attn).parameters:
        raise EnvironmentFault(too_old)
    return varlen_attn
