"""The embedded engine's attention: a KV cache by slot, and the attention function that models call.

One forward pass has a single packed row of tokens ``[1, decoding + prompts]``: the newest token of every running
sequence, then the full prompts of new ones. ``use_slot_attention`` registers ``slot_attention`` with transformers; it
splits the two parts, so the models' other layers see no padding.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
import transformers
from torch import Tensor
from torch.nn.functional import pad

from magcli.generate.torch.ended import Past
from magcli.model.attention import Scores, causal_attention, scores_of, softmax_with_sinks

if TYPE_CHECKING:
    from transformers import PreTrainedModel

ATTENTION = "magcli_slots"


@dataclass(frozen=True, slots=True)
class CacheShape:
    """What a model's attention stores for each token: ``layers`` times ``heads`` keys and values of these widths.

    ``layers`` counts calls of the attention function in a forward pass.
    """

    layers: int
    heads: int
    key_width: int
    value_width: int


class SlotCache:
    """Keys ``[layers, slots, heads, key_width, capacity]`` and values ``[..., capacity, value_width]`` of every slot.

    Keys are stored transposed: the product with one query per slot is then several times faster on CPUs in bfloat16.
    """

    def __init__(
        self, shape: CacheShape, slots: int, *, dtype: torch.dtype = torch.float32, device: torch.device | None = None
    ) -> None:
        self._shape, self._dtype, self._device = shape, dtype, device
        self.replace(slots, capacity=0)

    @property
    def capacity(self) -> int:
        """Number of positions per slot."""
        return self.keys.shape[4]

    @property
    def slots(self) -> int:
        """Number of slots."""
        return self.keys.shape[1]

    @property
    def token_bytes(self) -> int:
        """Bytes of one position of one slot."""
        shape = self._shape
        return shape.layers * shape.heads * (shape.key_width + shape.value_width) * self._dtype.itemsize

    def replace(self, slots: int, capacity: int) -> None:
        """Make an empty cache of another size in place of this one, which is freed before."""
        # The old tensors go first: a bounded memory has no room for both.
        self.keys = self.values = torch.empty(0)
        shape = self._shape
        rows = shape.layers, slots, shape.heads
        self.keys = torch.zeros(*rows, shape.key_width, capacity, dtype=self._dtype, device=self._device)
        self.values = torch.zeros(*rows, capacity, shape.value_width, dtype=self._dtype, device=self._device)

    def grow(self, capacity: int) -> None:
        """Grow every slot to at least ``capacity`` positions, in steps of a quarter.

        Not by doubling: products over a nearly full cache are up to twice as fast as over one with gaps.
        """
        if capacity > self.capacity:
            # 5/4 of the capacity, rounded up to a multiple of 32 positions.
            quarter_more = -(-self.capacity * 5 // 128) * 32
            more = max(capacity, quarter_more) - self.capacity
            self.keys = pad(self.keys, (0, more))
            self.values = pad(self.values, (0, 0, 0, more))

    def write(self, slots: Sequence[int], keys: Tensor, values: Tensor) -> None:
        """Copy one prompt's keys and values, ``[layers, kv_heads, length, head_dim]``, to the start of each slot."""
        self.grow(keys.shape[2])
        # The same for each of the slots: samples of one prompt.
        self.keys[:, slots, :, :, : keys.shape[2]] = keys.transpose(2, 3)[:, None]
        self.values[:, slots, :, : values.shape[2]] = values[:, None]

    def read(self, slot: int, length: int) -> tuple[Tensor, Tensor]:
        """A copy of the first ``length`` positions of a slot, in the layout of ``write``."""
        keys = self.keys[:, slot, :, :, :length].transpose(2, 3)
        values = self.values[:, slot, :, :length]
        return keys.clone(), values.clone()

    def move(self, source: int, target: int) -> None:
        """Copy one slot to another."""
        self.keys[:, target] = self.keys[:, source]
        self.values[:, target] = self.values[:, source]


@dataclass(slots=True)
class SlotBatch:
    """The layout of one forward pass, for the attention function.

    ``positions`` ``[decoding]`` is the position of each decoding token; ``mask`` is additive,
    ``[decoding, 1, 1, span]``. With a ``block``, which divides ``span``, attention is computed block by block, so that
    a row's bits do not depend on the span. ``lengths`` are those of the prompts that follow, without what is computed
    of them: ``pasts`` has its keys and values, ``[layers, heads, length, width]``, for each prompt if any has some.
    ``keys`` and ``values`` collect those of the prompts, by layer: ``[heads, sum(lengths), width]``. ``layer`` counts
    the calls so far.
    """

    cache: SlotCache
    positions: Tensor
    mask: Tensor
    block: int | None
    lengths: Sequence[int]
    pasts: Sequence[Past | None] = ()
    keys: list[Tensor] = field(default_factory=list)
    values: list[Tensor] = field(default_factory=list)
    layer: int = 0
    _windowed: dict[int, Tensor] = field(default_factory=dict)

    def mask_of(self, window: int | None) -> Tensor:
        """The mask of layers with this sliding window; of all layers with the same one it is made once."""
        span = self.mask.shape[-1]
        if window is None or window >= span:
            return self.mask
        if window not in self._windowed:
            columns = torch.arange(span, device=self.mask.device)
            # The token at position p sees the ``window`` positions up to p.
            last_hidden = self.positions[:, None, None, None] - window
            self._windowed[window] = self.mask.masked_fill(columns <= last_hidden, -torch.inf)
        return self._windowed[window]


def slot_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    slot_batch: SlotBatch,
    scaling: float | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """A transformers attention function: ``[1, heads, tokens, head_dim]`` to ``[1, tokens, heads, ...]``."""
    kind = scores_of(module, query, scaling, others)
    rows = slot_batch.positions.shape[0]
    # [heads, tokens, head_dim]: the newest token of each slot, then the prompts
    query, key, value = query[0], key[0], value[0]
    parts = []
    if rows:
        new_query, new_key, new_value = (tensor[:, :rows].transpose(0, 1) for tensor in (query, key, value))
        parts.append(_decode(new_query, new_key, new_value, slot_batch, kind))
    if slot_batch.lengths:
        parts.append(_prefill(query[:, rows:], key[:, rows:], value[:, rows:], slot_batch, kind))
    slot_batch.layer += 1
    out = parts[0] if len(parts) == 1 else torch.cat(parts)
    return out[None], None


def _decode(query: Tensor, key: Tensor, value: Tensor, batch: SlotBatch, kind: Scores) -> Tensor:
    """Attention of one new token per slot over its cache: ``[rows, heads, head_dim]`` in and out."""
    rows, kv_heads, head_dim = key.shape
    keys = batch.cache.keys[batch.layer, :rows]
    values = batch.cache.values[batch.layer, :rows]
    # The new token's own key and value are part of what it attends to.
    slots = torch.arange(rows, device=key.device)
    # Two index tensors with slices between them: the indexed dimension comes first, as in ``key``.
    keys[slots, :, :, batch.positions] = key
    values[slots, :, batch.positions] = value

    # Query heads that share keys and values are the rows of one product: ``[rows, kv_heads, group, head_dim]``.
    grouped = query.reshape(rows, kv_heads, -1, head_dim) * kind.scale
    mask = batch.mask_of(kind.window)
    span = mask.shape[-1]
    if batch.block is None:
        out = _attend(grouped, keys[..., :span], values[:, :, :span], mask, kind)
    else:
        blocks = []
        for start in range(0, span, batch.block):
            part = slice(start, start + batch.block)
            blocks.append(_block(grouped, keys[..., part], values[:, :, part], mask[..., part], kind))
        out = _combine(blocks, kind)
    return out.to(query.dtype).reshape(rows, query.shape[1], -1)


def _attend(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor, kind: Scores) -> Tensor:
    scores = kind.capped(torch.matmul(query, keys).float()) + mask
    weights = softmax_with_sinks(scores, kind.sinks)
    return torch.matmul(weights.to(values.dtype), values)


def _block(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor, kind: Scores) -> tuple[Tensor, Tensor, Tensor]:
    """Unnormalised attention within one block: weighted values, sum of weights and maximum, in float32.

    Of a block that is masked for a row, the maximum is the lowest number.
    """
    scores = kind.capped(torch.matmul(query, keys).float()) + mask
    # Where all is masked the maximum is -inf, and -inf minus -inf is no number.
    peak = scores.amax(dim=-1, keepdim=True).clamp(min=torch.finfo(torch.float32).min)
    weights = (scores - peak).exp_()
    total = torch.matmul(weights.to(values.dtype), values).float()
    return total, weights.sum(dim=-1, keepdim=True), peak


def _combine(blocks: list[tuple[Tensor, Tensor, Tensor]], kind: Scores) -> Tensor:
    """Combine blocks in order. A block that is masked for a row adds exact zeros, so the row's bits do not change.

    The weights of a block are relative to its maximum: they are rescaled to the highest so far (online softmax).
    """
    total, mass, peak = blocks[0]
    for block_total, block_mass, block_peak in blocks[1:]:
        highest = torch.maximum(peak, block_peak)
        scale = (peak - highest).exp()
        block_scale = (block_peak - highest).exp()
        total = total * scale + block_total * block_scale
        mass = mass * scale + block_mass * block_scale
        peak = highest
    if kind.sinks is not None:  # a sink adds to the mass, but has no value
        sinks = kind.sinks.float().view(1, *peak.shape[1:])
        mass = mass + (sinks - peak).exp()
    return total / mass


def _prefill(query: Tensor, key: Tensor, value: Tensor, batch: SlotBatch, kind: Scores) -> Tensor:
    """Causal attention within each prompt: ``[heads, tokens, head_dim]`` in, ``[tokens, heads, head_dim]`` out."""
    batch.keys.append(key)
    batch.values.append(value)
    # Prompts that continue something are computed one by one: their keys begin elsewhere.
    if batch.pasts:
        return _continued(query, key, value, batch, kind)
    if len(batch.lengths) == 1:
        return _alone(query, key, value, kind)
    index, is_token = _padded(batch.lengths, query.device)
    # [prompts, heads, longest, head_dim] each
    queries, keys, values = (tensor[:, index].transpose(0, 1) for tensor in (query, key, value))
    out = causal_attention(queries, keys, values, kind)
    return out.transpose(1, 2)[is_token]


def _alone(query: Tensor, key: Tensor, value: Tensor, kind: Scores) -> Tensor:
    """As ``_prefill``, of one prompt, of which ``query`` may have only the last tokens."""
    out = causal_attention(query[None], key[None], value[None], kind)
    return out[0].transpose(0, 1)


def _continued(query: Tensor, key: Tensor, value: Tensor, batch: SlotBatch, kind: Scores) -> Tensor:
    """As ``_prefill``, prompt by prompt, after what is computed of each."""
    parts = []
    lengths = list(batch.lengths)
    by_prompt = [torch.split(tensor, lengths, dim=1) for tensor in (query, key, value)]
    for queries, keys, values, past in zip(*by_prompt, batch.pasts, strict=True):
        if past is not None:
            # [heads, past + new, head_dim]
            past_keys, past_values = past
            keys = torch.cat((past_keys[batch.layer], keys), dim=1)
            values = torch.cat((past_values[batch.layer], values), dim=1)
        parts.append(_alone(queries, keys, values, kind))
    return torch.cat(parts)


def _padded(lengths: Sequence[int], device: torch.device) -> tuple[Tensor, Tensor]:
    """Token indices ``[prompts, longest]`` that right-pad packed prompts, and which of them are not padding."""
    counts = torch.tensor(lengths, device=device)
    starts = counts.cumsum(0) - counts
    column = torch.arange(max(lengths), device=device)
    is_token = column < counts[:, None]
    offset = torch.where(is_token, column, 0)  # padding repeats the prompt's first token
    return starts[:, None] + offset, is_token


def use_slot_attention(model: "PreTrainedModel") -> CacheShape:
    """Switch a transformers model to slot attention permanently; returns what its cache has to hold.

    Raises EnvironmentFault for a model whose attention slot attention cannot replace.
    """
    from magcli.model.probe import record_attention, refusal

    calls = record_attention(model)
    if len(set(calls)) > 1:
        raise refusal(model, "its layers have keys of different widths")
    transformers.AttentionInterface.register(ATTENTION, slot_attention)
    model.set_attn_implementation(ATTENTION)
    heads, key_width = calls[0].keys
    _, value_width = calls[0].values
    return CacheShape(len(calls), heads, key_width, value_width)
