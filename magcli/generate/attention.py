"""The embedded engine's attention: a KV cache by slot, and the attention function that models call.

One forward pass has a single packed row of tokens ``[1, decoding + prompts]``: the newest token of every running
sequence, then the full prompts of new ones. ``use_slot_attention`` registers ``slot_attention`` with transformers; it
splits the two parts, so the models' other layers see no padding.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

from magcli.errors import EnvironmentFault

if TYPE_CHECKING:
    from transformers import PreTrainedModel

ATTENTION = "magcli_slots"


class SlotCache:
    """Keys ``[layers, slots, kv_heads, head_dim, capacity]`` and values ``[..., capacity, head_dim]`` of every slot.

    Keys are stored transposed: the product with one query per slot is then several times faster on CPUs in bfloat16.
    """

    def __init__(self, config: Any, slots: int, *, dtype: torch.dtype, device: torch.device) -> None:
        heads = config.num_attention_heads
        kv_heads = getattr(config, "num_key_value_heads", None) or heads
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
        shape = (config.num_hidden_layers, slots, kv_heads)
        self.keys = torch.zeros(*shape, head_dim, 0, dtype=dtype, device=device)
        self.values = torch.zeros(*shape, 0, head_dim, dtype=dtype, device=device)

    @property
    def capacity(self) -> int:
        """Number of positions per slot."""
        return self.keys.shape[4]

    def grow(self, capacity: int) -> None:
        """Grow every slot to at least ``capacity`` positions, in steps of a quarter.

        Not by doubling: products over a nearly full cache are up to twice as fast as over one with gaps.
        """
        if capacity > self.capacity:
            more = max(capacity, -(-self.capacity * 5 // 128) * 32) - self.capacity
            self.keys = pad(self.keys, (0, more))
            self.values = pad(self.values, (0, 0, 0, more))

    def write(self, slots: Sequence[int], keys: Tensor, values: Tensor) -> None:
        """Copy one prompt's keys and values, ``[layers, kv_heads, length, head_dim]``, to the start of each slot."""
        self.grow(keys.shape[2])
        self.keys[:, slots, :, :, : keys.shape[2]] = keys.transpose(2, 3)[:, None]
        self.values[:, slots, :, : values.shape[2]] = values[:, None]

    def move(self, source: int, target: int) -> None:
        """Copy one slot to another."""
        self.keys[:, target] = self.keys[:, source]
        self.values[:, target] = self.values[:, source]


@dataclass(slots=True)
class SlotBatch:
    """The layout of one forward pass, for the attention function.

    ``positions`` ``[decoding]`` is the position of each decoding token; ``mask`` is additive,
    ``[decoding, 1, 1, span]``. With a ``block``, which divides ``span``, attention is computed block by block, so that
    a row's bits do not depend on the span. ``lengths`` are those of the prompts that follow. ``keys`` and ``values``
    collect those of the prompts, by layer: ``[kv_heads, sum(lengths), head_dim]``.
    """

    cache: SlotCache
    positions: Tensor
    mask: Tensor
    block: int | None
    lengths: Sequence[int]
    keys: list[Tensor] = field(default_factory=list)
    values: list[Tensor] = field(default_factory=list)


def slot_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float,
    slot_batch: SlotBatch,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """A transformers attention function: ``[1, heads, tokens, head_dim]`` to ``[1, tokens, heads, ...]``.

    Raises:
        EnvironmentFault: the model needs a kind of attention that is not supported.
    """
    if sliding_window is not None or softcap is not None or s_aux is not None:
        raise EnvironmentFault(
            f"{type(module).__name__}: the embedded engine has no support for sliding windows, soft caps or attention "
            "sinks; serve this model with an OpenAI-compatible server and pass its URL"
        )
    rows = slot_batch.positions.shape[0]
    query, key, value = query[0], key[0], value[0]
    parts = []
    if rows:
        new = query[:, :rows].transpose(0, 1), key[:, :rows].transpose(0, 1), value[:, :rows].transpose(0, 1)
        parts.append(_decode(*new, slot_batch, module.layer_idx, scaling))
    if slot_batch.lengths:
        parts.append(_prefill(query[:, rows:], key[:, rows:], value[:, rows:], slot_batch, scaling))
    return (parts[0] if len(parts) == 1 else torch.cat(parts))[None], None


def _decode(query: Tensor, key: Tensor, value: Tensor, batch: SlotBatch, layer: Any, scaling: float) -> Tensor:
    """Attention of one new token per slot over its cache: ``[rows, heads, head_dim]`` in and out."""
    rows, kv_heads, head_dim = key.shape
    keys, values = batch.cache.keys[layer, :rows], batch.cache.values[layer, :rows]
    index = torch.arange(rows, device=key.device)
    keys[index, :, :, batch.positions] = key
    values[index, :, batch.positions] = value
    grouped, span = query.reshape(rows, kv_heads, -1, head_dim) * scaling, batch.mask.shape[-1]
    if batch.block is None:
        out = _attend(grouped, keys[..., :span], values[:, :, :span], batch.mask)
    else:
        ranges = [slice(start, start + batch.block) for start in range(0, span, batch.block)]
        out = _combine([_block(grouped, keys[..., r], values[:, :, r], batch.mask[..., r]) for r in ranges])
    return out.to(query.dtype).reshape(query.shape)


def _attend(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    scores = torch.matmul(query, keys).float() + mask
    return torch.matmul(scores.softmax(dim=-1).to(values.dtype), values)


def _block(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Unnormalised attention within one block: weighted values, sum of weights and maximum, in float32."""
    scores = torch.matmul(query, keys).float() + mask
    peak = scores.amax(dim=-1, keepdim=True)
    weights = (scores - peak.clamp(min=torch.finfo(torch.float32).min)).exp_()
    return torch.matmul(weights.to(values.dtype), values).float(), weights.sum(dim=-1, keepdim=True), peak


def _combine(blocks: list[tuple[Tensor, Tensor, Tensor]]) -> Tensor:
    """Combine blocks in order. A block that is masked for a row adds exact zeros, so the row's bits do not change."""
    total, mass, peak = blocks[0]
    for block_total, block_mass, block_peak in blocks[1:]:
        highest = torch.maximum(peak, block_peak)
        old, new = (peak - highest).exp(), (block_peak - highest).exp()
        total, mass, peak = total * old + block_total * new, mass * old + block_mass * new, highest
    return total / mass


def _prefill(query: Tensor, key: Tensor, value: Tensor, batch: SlotBatch, scaling: float) -> Tensor:
    """Causal attention within each prompt: ``[heads, tokens, head_dim]`` in, ``[tokens, heads, head_dim]`` out."""
    batch.keys.append(key)
    batch.values.append(value)
    if len(batch.lengths) == 1:
        return _causal(query[None], key[None], value[None], scaling)[0].transpose(0, 1)
    index, valid = _padded(batch.lengths, query.device)
    query, key, value = (tensor[:, index].transpose(0, 1) for tensor in (query, key, value))
    return _causal(query, key, value, scaling).transpose(1, 2)[valid]


def _causal(query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
    return scaled_dot_product_attention(query, key, value, is_causal=True, scale=scaling, enable_gqa=True)


def _padded(lengths: Sequence[int], device: torch.device) -> tuple[Tensor, Tensor]:
    """Token indices ``[prompts, longest]`` that right-pad packed prompts, and which of them are not padding."""
    ends = torch.tensor(lengths, device=device).cumsum(0)
    counts = torch.tensor(lengths, device=device)
    column = torch.arange(max(lengths), device=device)
    valid = column < counts[:, None]
    index = (ends - counts)[:, None] + torch.where(valid, column, 0)
    return index, valid


def use_slot_attention(model: "PreTrainedModel") -> None:
    """Switch a transformers model to slot attention permanently."""
    from transformers import AttentionInterface

    AttentionInterface.register(ATTENTION, slot_attention)
    model.set_attn_implementation(ATTENTION)
