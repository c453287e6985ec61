"""Padding-free causal attention over packed sequences: each token attends only within its own sequence.

Registered with transformers under one name; sequence boundaries are a keyword argument of the model's forward. All
other layers see ``[1, T]`` tokens. Attention gathers sequences of similar length into small padded batches, so there is
no ``[T, T]`` mask, and little work besides that of the sequences themselves.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from magcli.errors import EnvironmentFault, MagError
from magcli.train.packing import Packed

if TYPE_CHECKING:
    from transformers import PreTrainedModel

NAME = "magcli_packed"

SHORTEST = 0.75
"""Minimum ratio of a bucket's shortest sequence to its longest: lower means fewer batches, higher less padding."""

LAYERS = {"full_attention", "sliding_attention"}
"""Layer types that mix tokens by attention only; recurrent ones would leak from one sequence into the next."""

UNSUPPORTED = ("softcap", "s_aux", "position_bias")
"""Attention arguments of some models beyond a causal softmax."""


@dataclass(frozen=True, slots=True)
class Buckets:
    """How packed tokens are gathered for attention, computed once per forward pass.

    ``shapes`` lists (number of sequences, padded length) of each bucket. ``slots`` ``[P]`` is the index of the token in
    each slot of the concatenated padded batches (padding repeats some token of the pack, and each sequence includes the
    prefix that it shares), ``places`` ``[T]`` the slot to read each token's output from.
    """

    shapes: tuple[tuple[int, int], ...]
    slots: Tensor
    places: Tensor


def buckets(packed: Packed) -> Buckets:
    """Group sequences of similar length: longest first, a new bucket where the ratio falls below ``SHORTEST``."""
    lengths = packed.full_lengths
    groups = _similar(lengths)
    shapes = tuple((len(group), lengths[group[0]]) for group in groups)
    slots, kept = (torch.cat(parts) for parts in zip(*(_slots(packed, group) for group in groups), strict=True))
    places = torch.empty(packed.num_tokens, dtype=torch.long)
    places[slots[kept]] = kept.nonzero().squeeze(1)
    device = packed.input_ids.device
    return Buckets(shapes, slots.to(device), places.to(device))


def use_packed_attention(model: "PreTrainedModel") -> None:
    """Switch a transformers model to packed attention permanently: afterwards only ``forward_packed`` works.

    Raises EnvironmentFault for a model whose layers cannot keep packed sequences separate.
    """
    AttentionInterface.register(NAME, _attend)
    kinds = set(getattr(model.config.get_text_config(), "layer_types", None) or LAYERS)
    if kinds <= LAYERS:
        model.set_attn_implementation(NAME)
    if model.config._attn_implementation != NAME:
        raise EnvironmentFault(
            f"{type(model).__name__} does not support packed attention; use a model like Llama or Qwen"
        )


def forward_packed(model: "PreTrainedModel", packed: Packed) -> Tensor:
    """Hidden states ``[T, hidden]`` after the final norm, the input of the LM head."""
    decoder = model.get_decoder()
    output = decoder(
        input_ids=packed.input_ids, position_ids=packed.position_ids, use_cache=False, packing=buckets(packed)
    )
    hidden: Tensor = output.last_hidden_state
    return hidden[0]


def _similar(lengths: Sequence[int]) -> list[list[int]]:
    groups: list[list[int]] = []
    for index in sorted((i for i, length in enumerate(lengths) if length), key=lambda i: -lengths[i]):
        if groups and lengths[index] >= SHORTEST * lengths[groups[-1][0]]:
            groups[-1].append(index)
        else:
            groups.append([index])
    return groups


def _slots(packed: Packed, group: Sequence[int]) -> tuple[Tensor, Tensor]:
    """For each slot of a padded batch, row by row: its token, and whether that token's output is read from there.

    Padding is not read, and a shared prefix only from its first sequence.
    """
    lengths, prefixes = packed.full_lengths, packed.prefixes
    first = {start: i for i, (start, size) in reversed(list(enumerate(prefixes))) if size}
    starts, last, shared, size, reads = torch.tensor(
        [
            (packed.starts[i], lengths[i] - 1, *prefixes[i], 0 if first.get(prefixes[i][0], i) == i else prefixes[i][1])
            for i in group
        ]
    ).T[..., None]
    column = torch.arange(lengths[group[0]])[None]
    place = column.minimum(last)
    token = torch.where(place < size, shared + place, starts + place - size)
    return token.flatten(), ((column <= last) & (column >= reads)).flatten()


def _attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float,
    packing: Buckets | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """The attention function that transformers calls.

    q is ``[1, H, T, D]``, k and v are ``[1, H_kv, T, D]``, the result is ``[1, T, H, D]``.
    """
    if packing is None:
        raise MagError("packed attention was called without sequence boundaries: use forward_packed")
    longest = packing.shapes[0][1]
    if sliding_window is not None and longest > sliding_window:
        raise EnvironmentFault(f"a sequence of {longest} tokens exceeds the model's attention window {sliding_window}")
    unsupported = [name for name in UNSUPPORTED if others.get(name) is not None]
    if unsupported:
        raise EnvironmentFault(
            f"{type(module).__name__} needs {unsupported[0]}, which packed attention does not support"
        )
    sizes = [count * length for count, length in packing.shapes]
    dtype = _kernel_dtype(value)
    columns = (
        tensor[0].transpose(0, 1).to(dtype).index_select(0, packing.slots).split_with_sizes(sizes)
        for tensor in (query, key, value)
    )
    with torch.autocast(value.device.type, enabled=False):
        outputs = [
            _causal(*qkv, shape=shape, scale=scaling, dropout=dropout)
            for *qkv, shape in zip(*columns, packing.shapes, strict=True)
        ]
    return torch.cat(outputs).index_select(0, packing.places).to(value.dtype)[None], None


def _causal(q: Tensor, k: Tensor, v: Tensor, *, shape: tuple[int, int], scale: float, dropout: float) -> Tensor:
    """Attention of one padded batch, ``[N * L, H, D]``; its padding comes last, where the causal mask hides it."""
    count, length = shape
    q, k, v = (tensor.view(count, length, *tensor.shape[1:]).transpose(1, 2) for tensor in (q, k, v))
    grouped = q.shape[1] != k.shape[1]
    output = scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale, dropout_p=dropout, enable_gqa=grouped)
    return output.transpose(1, 2).flatten(0, 1)


def _kernel_dtype(value: Tensor) -> torch.dtype:
    """Float32 on a CPU, whose bf16 kernel is slower on short sequences and less exact; else the values' type.

    Under autocast the values are bf16, while rotary embeddings leave queries and keys in float32.
    """
    return torch.float32 if value.device.type == "cpu" else value.dtype
