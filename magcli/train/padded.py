"""Attention of packed sequences by PyTorch's kernels, which take padded batches.

Sequences of similar length are gathered into small padded batches, so there is no ``[T, T]`` mask, and little work
besides that of the sequences themselves.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from magcli.model.attention import Scores, causal_attention
from magcli.train.moving import moved
from magcli.train.packing import Packed

SHORTEST = 0.75
"""Minimum ratio of a bucket's shortest sequence to its longest: lower means fewer batches, higher less padding."""


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

    def attend(self, queries: Tensor, keys: Tensor, values: Tensor, kind: Scores, dropout: float) -> Tensor:
        """The output ``[T, H, D]`` of a pack's queries ``[T, H, D]``, keys and values ``[T, H_kv, D]``."""
        dtype = _kernel_dtype(values)
        batches = (self._batches_of(tensor, dtype) for tensor in (queries, keys, values))
        outputs = [
            _batch_attention(q, k, v, shape=shape, kind=kind, dropout=dropout)
            for q, k, v, shape in zip(*batches, self.shapes, strict=True)
        ]
        return torch.cat(outputs).index_select(0, self.places)

    def _batches_of(self, tokens: Tensor, dtype: torch.dtype) -> tuple[Tensor, ...]:
        """The padded batch of each bucket, ``[N * L, H, D]``, of queries, keys or values ``[T, H, D]``."""
        sizes = [count * length for count, length in self.shapes]
        return tokens.to(dtype).index_select(0, self.slots).split_with_sizes(sizes)


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
