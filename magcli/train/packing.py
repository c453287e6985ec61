"""Micro-batches within a token budget, their padding-free layout, and causal attention within each sequence.

The sequences of a micro-batch are concatenated into one row ``[1, T]`` and accompanied by their starts and lengths, so
padding is never computed (recipe, section 3: greedy collation). Completions of one prompt share it: it is stored once,
before the first of them, and computed once.

Attention is registered with transformers under one name; sequence boundaries are a keyword argument of the model's
forward. It gathers sequences of similar length into small padded batches, so there is no ``[T, T]`` mask, and little
work besides that of the sequences themselves. All other layers see ``[1, T]`` tokens.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface

from magcli.choices import Attention
from magcli.errors import DataError, EnvironmentFault, MagError
from magcli.model.attention import Scores, causal_attention, scores_of
from magcli.model.context import rotary_limit
from magcli.model.probe import (
    agree,
    different,
    explained,
    own_logits,
    probe_tokens,
    record_attention,
    refusal,
    spread_of,
)
from magcli.train import varlen
from magcli.train.head import Head, with_head
from magcli.train.moving import moved

if TYPE_CHECKING:
    from transformers import PreTrainedModel

NAME, VARLEN_NAME = "magcli_packed", "magcli_varlen"
"""The names under which transformers knows our attention functions."""

"""Attention by PyTorch's kernels for padded batches, or by FlashAttention's for rows of sequences in bf16 (``varlen``);
the ``fastest`` is the latter where a device has the kernel and it computes what the model computes."""

SHORTEST = 0.75
"""Minimum ratio of a bucket's shortest sequence to its longest: lower means fewer batches, higher less padding."""

LAYERS = {"full_attention", "sliding_attention"}
"""Layer types that mix tokens by attention only; recurrent ones would leak from one sequence into the next."""


@dataclass(frozen=True, slots=True)
class Packed:
    """Concatenated sequences.

    ``input_ids`` and ``position_ids`` are int64 ``[1, T]``; positions start at 0 in each sequence. Sequence ``i``
    consists of its prefix, a ``(start, length)`` that other sequences may share (length 0: no prefix), and the tokens
    ``starts[i] : starts[i] + lengths[i]``.
    """

    input_ids: Tensor
    position_ids: Tensor
    starts: tuple[int, ...]
    lengths: tuple[int, ...]
    prefixes: tuple[tuple[int, int], ...]

    @property
    def num_tokens(self) -> int:
        """T, the number of tokens of all sequences."""
        return self.input_ids.shape[1]

    def to(self, device: torch.device | str) -> "Packed":
        """The same sequences on another device."""
        ids, positions = moved(self.input_ids, device), moved(self.position_ids, device)
        return replace(self, input_ids=ids, position_ids=positions)

    @property
    def full_lengths(self) -> tuple[int, ...]:
        """Length of each sequence including its prefix."""
        return tuple(size + length for (_, size), length in zip(self.prefixes, self.lengths, strict=True))

    def spread(self, values: Sequence[float] | Tensor) -> Tensor:
        """Expand values per sequence ``[num_sequences]`` to float32 ``[T]`` on the host; 0 for prefixes."""
        per_sequence = torch.as_tensor(values, dtype=torch.float32)
        lengths = torch.tensor(self.lengths)
        own_tokens = []  # of each sequence, without its prefix
        for start, length in zip(self.starts, self.lengths, strict=True):
            own_tokens.append(torch.arange(start, start + length))
        spread = torch.zeros(self.num_tokens)
        spread[torch.cat(own_tokens)] = per_sequence.repeat_interleave(lengths)
        return spread

    def before(self) -> Tensor:
        """Index of the token that precedes each token in its sequence: int64 ``[T]`` on the host; -1 for first ones."""
        predecessor = torch.arange(-1, self.num_tokens - 1)
        for start, length, prefix in zip(self.starts, self.lengths, self.prefixes, strict=True):
            prefix_start, prefix_size = prefix
            if length and prefix_size:  # the first token after a prefix, which may lie elsewhere in the pack
                predecessor[start] = prefix_start + prefix_size - 1
        is_first = self.position_ids[0].cpu() == 0
        return predecessor.masked_fill(is_first, -1)


def pack(sequences: Sequence[Sequence[int]]) -> Packed:
    """Concatenate sequences of token ids in their order. Empty sequences have no tokens but keep their index."""
    lengths = tuple(len(sequence) for sequence in sequences)
    starts = tuple(accumulate(lengths, initial=0))[:-1]
    positions = [range(length) for length in lengths]
    no_prefixes = ((0, 0),) * len(lengths)
    return _packed(sequences, positions, starts, lengths, no_prefixes)


def pack_completions(pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> Packed:
    """Concatenate completions in their order; each prompt once, before its first completion.

    ``pairs`` are (prompt, completion); completion ``i`` becomes sequence ``i`` with the prompt as its prefix.
    """
    parts: list[Sequence[int]] = []
    positions: list[range] = []
    starts: list[int] = []
    lengths: list[int] = []
    prefixes: list[tuple[int, int]] = []
    prompt_starts: dict[tuple[int, ...], int] = {}
    end = 0
    for prompt, completion in pairs:
        key = tuple(prompt)
        if key not in prompt_starts:
            prompt_starts[key] = end
            parts.append(prompt)
            positions.append(range(len(prompt)))
            end += len(prompt)
        prefixes.append((prompt_starts[key], len(prompt)))
        starts.append(end)
        lengths.append(len(completion))
        parts.append(completion)
        positions.append(range(len(prompt), len(prompt) + len(completion)))
        end += len(completion)
    return _packed(parts, positions, tuple(starts), tuple(lengths), tuple(prefixes))


def _packed(
    parts: Iterable[Sequence[int]],
    positions: Iterable[range],
    starts: tuple[int, ...],
    lengths: tuple[int, ...],
    prefixes: tuple[tuple[int, int], ...],
) -> Packed:
    ids = torch.tensor(list(chain.from_iterable(parts)), dtype=torch.long)
    position_ids = torch.tensor(list(chain.from_iterable(positions)), dtype=torch.long)
    return Packed(ids[None], position_ids[None], starts, lengths, prefixes)


def greedy_collate(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Split sequences into micro-batches of at most ``budget`` tokens, as lists of their indices.

    Longest first, each into the first micro-batch with enough space, else into a new one (recipe, section 3); equal
    lengths keep their order, so the result is deterministic. A sequence longer than the budget gets its own
    micro-batch.
    """
    batches: list[list[int]] = []
    space: list[int] = []  # tokens left in each micro-batch; negative if its only sequence exceeds the budget
    longest_first = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    for index in longest_first:
        length = lengths[index]
        first_fit = next((number for number, free in enumerate(space) if length <= free), None)
        if first_fit is None:
            batches.append([index])
            space.append(budget - length)
        else:
            batches[first_fit].append(index)
            space[first_fit] -= length
    return batches


def padding_share(lengths: Sequence[int], batches: Sequence[Sequence[int]]) -> float:
    """The fraction of padding if each of these micro-batches were padded to its longest sequence."""
    tokens = padded = 0
    for batch in batches:
        batch_lengths = [lengths[index] for index in batch]
        tokens += sum(batch_lengths)
        padded += len(batch) * max(batch_lengths, default=0)
    return 1.0 - tokens / padded if padded else 0.0


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
    shapes, tokens_of_groups, reads_of_groups = [], [], []
    for group in _similar(lengths):
        longest = lengths[group[0]]
        shapes.append((len(group), longest))
        tokens, reads = _slots(packed, group)
        tokens_of_groups.append(tokens)
        reads_of_groups.append(reads)
    slots = torch.cat(tokens_of_groups)
    is_read = torch.cat(reads_of_groups)

    # Each token is read from exactly one slot, so this inverts the gathering.
    places = torch.empty(packed.num_tokens, dtype=torch.long)
    places[slots[is_read]] = is_read.nonzero().squeeze(1)
    device = packed.input_ids.device
    return Buckets(tuple(shapes), moved(slots, device), moved(places, device))


def segments(packed: Packed) -> varlen.Segments:
    """The same for attention without padding."""
    return varlen.segments(packed.prefixes, packed.starts, packed.lengths, packed.input_ids.device)


Packing = Buckets | varlen.Segments
"""How attention finds the sequences of a pack, for each of the two kinds of attention."""


def packing_of(model: "PreTrainedModel", packed: Packed) -> Packing:
    """How the attention of a model finds the sequences of a pack; all of it follows from their lengths."""
    return segments(packed) if _uses_varlen(model) else buckets(packed)


def use_packed_attention(model: "PreTrainedModel", attention: Attention = "sdpa") -> None:
    """Switch a transformers model to packed attention permanently: afterwards only ``forward_packed`` works.

    Raises EnvironmentFault for a model whose layers cannot keep packed sequences separate, or whose hidden states would
    not be its own, and for a device that has no such attention.
    """
    if attention == "fastest":
        _use_fastest(model)
        return
    if attention == "varlen":
        varlen.require(model.device)
    kinds = set(getattr(model.config.get_text_config(), "layer_types", None) or LAYERS)
    mixing = kinds - LAYERS
    if mixing:
        raise _unsupported(refusal(model, f"layers of type {min(mixing)} would mix packed sequences"))
    try:
        record_attention(model)
        set_packed_attention(model, attention)
        _check(model)
    except EnvironmentFault as error:
        raise _unsupported(error) from error


def _use_fastest(model: "PreTrainedModel") -> None:
    """Attention without padding if it can be used, for example if the model has no soft caps, else with padding."""
    if varlen.is_available(model.device):
        try:
            use_packed_attention(model, "varlen")
        except EnvironmentFault:
            pass  # the other kind says what is wrong with the model, if anything is
        else:
            return
    use_packed_attention(model, "sdpa")


def set_packed_attention(model: "PreTrainedModel", attention: Attention = "sdpa") -> None:
    """The same without looking at the model, whose weights need not have values: for families known to work."""
    AttentionInterface.register(NAME, _attend)
    AttentionInterface.register(VARLEN_NAME, varlen.attend)
    model.set_attn_implementation(VARLEN_NAME if attention == "varlen" else NAME)


def _uses_varlen(model: "PreTrainedModel") -> bool:
    return bool(model.config._attn_implementation == VARLEN_NAME)


def _unsupported(error: EnvironmentFault) -> EnvironmentFault:
    return EnvironmentFault(f"{error}; train a model of another family (docs/models.md has a table)")


@torch.no_grad()
def _check(model: "PreTrainedModel") -> None:
    """Raise EnvironmentFault unless packed sequences have the logits of the model's own code."""
    with explained(model):
        theirs = own_logits(model).flatten(0, 1)
        packed = pack(probe_tokens(model).tolist())
        hidden = forward_packed(model, packed.to(model.device))
        ours = with_head(model, Head.logits, hidden)
    spread = spread_of(theirs)
    is_rounded = torch.is_autocast_enabled(model.device.type) or _uses_varlen(model)
    dtype = torch.bfloat16 if is_rounded else model.dtype
    if not agree(ours, theirs, spread, dtype):
        raise different(model, ours, theirs, spread, "training")


def forward_packed(model: "PreTrainedModel", packed: Packed, packing: Packing | None = None) -> Tensor:
    """Hidden states ``[T, hidden]`` after the final norm, the input of the LM head.

    ``packing`` is ``packing_of`` this model and pack; None: it is computed here.

    Raises DataError for a sequence beyond a length at which rotary frequencies change.
    """
    limit = rotary_limit(model.config.get_text_config())
    longest = max(packed.full_lengths, default=0)
    if limit is not None and longest > limit:
        raise DataError(f"a sequence of {longest} tokens: from {limit} on, this model's rotary embedding changes")
    decoder = model.get_decoder()
    output = decoder(
        input_ids=packed.input_ids,
        position_ids=packed.position_ids,
        use_cache=False,
        packing=packing_of(model, packed) if packing is None else packing,
    )
    hidden: Tensor = output.last_hidden_state
    return hidden[0]


def _similar(lengths: Sequence[int]) -> list[list[int]]:
    """The indices of sequences of similar length together, longest first; empty ones are left out."""
    groups: list[list[int]] = []
    longest_first = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    longest = 0  # of the newest group
    for index in longest_first:
        length = lengths[index]
        if not length:
            continue
        if groups and length >= SHORTEST * longest:
            groups[-1].append(index)
        else:
            groups.append([index])
            longest = length
    return groups


def _slots(packed: Packed, group: Sequence[int]) -> tuple[Tensor, Tensor]:
    """For each slot of a padded batch, row by row: its token, and whether that token's output is read from there.

    Padding is not read, and a shared prefix only from its first sequence.
    """
    readers = _prefix_readers(packed.prefixes)
    lengths = packed.full_lengths
    rows = []
    for index in group:
        start, last = packed.starts[index], lengths[index] - 1
        prefix_start, prefix_size = packed.prefixes[index]
        reads_prefix = readers.get(prefix_start) == index
        first_read = 0 if reads_prefix else prefix_size
        rows.append((start, last, prefix_start, prefix_size, first_read))
    starts, lasts, prefix_starts, prefix_sizes, first_reads = torch.tensor(rows).T[..., None]  # each [sequences, 1]

    column = torch.arange(lengths[group[0]])[None]
    position = column.minimum(lasts)  # padding repeats the last token
    in_prefix = position < prefix_sizes
    after_prefix = starts + position - prefix_sizes
    token = torch.where(in_prefix, prefix_starts + position, after_prefix)
    is_read = (column >= first_reads) & (column <= lasts)
    return token.flatten(), is_read.flatten()


def _prefix_readers(prefixes: Sequence[tuple[int, int]]) -> dict[int, int]:
    """The first sequence with each shared prefix, by where the prefix starts."""
    readers: dict[int, int] = {}
    for sequence, (start, size) in enumerate(prefixes):
        if size:
            readers.setdefault(start, sequence)
    return readers


def _attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    packing: Buckets | None = None,
    dropout: float = 0.0,
    **others: Any,
) -> tuple[Tensor, None]:
    """The attention function that transformers calls.

    q is ``[1, H, T, D]``, k and v are ``[1, H_kv, T, D]``, the result is ``[1, T, H, D]``.
    """
    if packing is None:
        raise MagError("packed attention was called without sequence boundaries: use forward_packed")
    kind = scores_of(module, query, scaling, others)
    dtype = _kernel_dtype(value)
    batches = (_batches_of(tensor, packing, dtype) for tensor in (query, key, value))
    with torch.autocast(value.device.type, enabled=False):
        outputs = [
            _batch_attention(q, k, v, shape=shape, kind=kind, dropout=dropout)
            for q, k, v, shape in zip(*batches, packing.shapes, strict=True)
        ]
    output = torch.cat(outputs).index_select(0, packing.places)
    return output.to(value.dtype)[None], None


def _batches_of(tensor: Tensor, packing: Buckets, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """The padded batch of each bucket, ``[N * L, H, D]``, of q, k or v ``[1, H, T, D]``."""
    sizes = [count * length for count, length in packing.shapes]
    by_token = tensor[0].transpose(0, 1).to(dtype)
    return by_token.index_select(0, packing.slots).split_with_sizes(sizes)


def _batch_attention(
    q: Tensor, k: Tensor, v: Tensor, *, shape: tuple[int, int], kind: Scores, dropout: float
) -> Tensor:
    """Attention of one padded batch, ``[N * L, H, D]``; its padding comes last, where the causal mask hides it."""
    count, length = shape
    q, k, v = (tensor.view(count, length, *tensor.shape[1:]).transpose(1, 2) for tensor in (q, k, v))  # [N, H, L, D]
    output = causal_attention(q, k, v, kind, dropout)
    return output.transpose(1, 2).flatten(0, 1)


def _kernel_dtype(value: Tensor) -> torch.dtype:
    """Float32 on a CPU, whose bf16 kernel is slower on short sequences and less exact; else the values' type.

    Under autocast the values are bf16, while rotary embeddings leave queries and keys in float32.
    """
    return torch.float32 if value.device.type == "cpu" else value.dtype
