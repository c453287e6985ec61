"""Micro-batches within a token budget, and their padding-free layout.

The sequences of a micro-batch are concatenated into one row ``[1, T]`` and accompanied by their starts and lengths, so
attention stays within each sequence and padding is never computed (recipe, section 3: greedy collation). Completions of
one prompt share it: it is stored once, before the first of them, and computed once.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain

import torch
from torch import Tensor


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
        ids, positions = self.input_ids.to(device), self.position_ids.to(device)
        return replace(self, input_ids=ids, position_ids=positions)

    @property
    def full_lengths(self) -> tuple[int, ...]:
        """Length of each sequence including its prefix."""
        return tuple(size + length for (_, size), length in zip(self.prefixes, self.lengths, strict=True))

    def spread(self, values: Sequence[float] | Tensor) -> Tensor:
        """Expand values per sequence ``[num_sequences]`` to float32 ``[T]``; 0 for prefixes."""
        per_sequence = torch.as_tensor(values, dtype=torch.float32)
        spread = torch.zeros(self.num_tokens)
        ranges = [torch.arange(start, start + length) for start, length in zip(self.starts, self.lengths, strict=True)]
        spread[torch.cat(ranges)] = per_sequence.repeat_interleave(torch.tensor(self.lengths))
        return spread.to(self.input_ids.device)

    def before(self) -> Tensor:
        """Index of the token that precedes each token in its sequence: int64 ``[T]``; -1 for first tokens."""
        place = torch.arange(-1, self.num_tokens - 1)
        for start, length, (shared, size) in zip(self.starts, self.lengths, self.prefixes, strict=True):
            if length:
                place[start] = shared + size - 1 if size else -1
        return place.where(self.position_ids[0].cpu() > 0, -1).to(self.input_ids.device)


def pack(sequences: Sequence[Sequence[int]]) -> Packed:
    """Concatenate sequences of token ids in their order. Empty sequences have no tokens but keep their index."""
    lengths = tuple(len(sequence) for sequence in sequences)
    starts = tuple(accumulate(lengths, initial=0))[:-1]
    return _packed(sequences, [range(length) for length in lengths], starts, lengths, ((0, 0),) * len(lengths))


def pack_completions(pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> Packed:
    """Concatenate completions in their order; each prompt once, before its first completion.

    ``pairs`` are (prompt, completion); completion ``i`` becomes sequence ``i`` with the prompt as its prefix.
    """
    parts: list[Sequence[int]] = []
    positions: list[range] = []
    starts: list[int] = []
    known: dict[tuple[int, ...], int] = {}
    end = 0
    for prompt, completion in pairs:
        if tuple(prompt) not in known:
            known[tuple(prompt)] = end
            parts.append(prompt)
            positions.append(range(len(prompt)))
            end += len(prompt)
        starts.append(end)
        parts.append(completion)
        positions.append(range(len(prompt), len(prompt) + len(completion)))
        end += len(completion)
    prefixes = tuple((known[tuple(prompt)], len(prompt)) for prompt, _ in pairs)
    return _packed(parts, positions, tuple(starts), tuple(len(completion) for _, completion in pairs), prefixes)


def _packed(
    parts: Iterable[Sequence[int]],
    positions: Iterable[range],
    starts: tuple[int, ...],
    lengths: tuple[int, ...],
    prefixes: tuple[tuple[int, int], ...],
) -> Packed:
    ids = torch.tensor(list(chain.from_iterable(parts)), dtype=torch.long)
    places = torch.tensor(list(chain.from_iterable(positions)), dtype=torch.long)
    return Packed(ids[None], places[None], starts, lengths, prefixes)


def greedy_collate(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Split sequences into micro-batches of at most ``budget`` tokens, as lists of their indices.

    Longest first, each into the first micro-batch with enough space, else into a new one (recipe, section 3); equal
    lengths keep their order, so the result is deterministic. A sequence longer than the budget gets its own
    micro-batch.
    """
    batches: list[list[int]] = []
    space: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        length = lengths[index]
        place = next((b for b, free in enumerate(space) if length <= free), None)
        if place is None:
            batches.append([index])
            space.append(budget - length)
        else:
            batches[place].append(index)
            space[place] -= length
    return batches


def padding_share(lengths: Sequence[int], batches: Sequence[Sequence[int]]) -> float:
    """The fraction of padding if each of these micro-batches were padded to its longest sequence."""
    padded = sum(len(batch) * max(lengths[i] for i in batch) for batch in batches if batch)
    tokens = sum(lengths[i] for batch in batches for i in batch)
    return 1.0 - tokens / padded if padded else 0.0
