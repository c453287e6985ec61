"""Packed sequences, and micro-batches within a token budget.

The sequences of a micro-batch are concatenated into one row ``[1, T]`` and accompanied by their starts and lengths, so
padding is never computed (recipe, section 3: greedy collation). Completions of one prompt share it: it is stored once,
before the first of them, and computed once.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain

import torch
from torch import Tensor

from magcli.train.moving import moved


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
