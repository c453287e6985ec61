"""Micro-batches under a token budget, and their padding-free layout.

Sequences of a micro-batch lie end to end in one row ``[1, T]``; their starts and lengths travel beside the tokens, so
that attention stays inside each sequence and no padding is ever computed (recipe, section 3: greedy collation).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, chain

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Packed:
    """Sequences end to end.

    ``input_ids`` and ``position_ids`` are int64 ``[1, T]``; positions start at 0 in each sequence. Sequence ``i``
    holds the tokens ``starts[i] : starts[i] + lengths[i]``.
    """

    input_ids: Tensor
    position_ids: Tensor
    starts: tuple[int, ...]
    lengths: tuple[int, ...]

    @property
    def num_tokens(self) -> int:
        """T, the tokens of all sequences."""
        return self.input_ids.shape[1]

    def to(self, device: torch.device | str) -> "Packed":
        """The same sequences on another device."""
        return Packed(self.input_ids.to(device), self.position_ids.to(device), self.starts, self.lengths)

    def spread(self, values: Sequence[float] | Tensor) -> Tensor:
        """Give each token the value of its sequence: ``[num_sequences]`` to float32 ``[T]``."""
        per_sequence = torch.as_tensor(values, dtype=torch.float32, device=self.input_ids.device)
        repeats = torch.tensor(self.lengths, device=self.input_ids.device)
        return per_sequence.repeat_interleave(repeats, output_size=self.num_tokens)


def pack(sequences: Sequence[Sequence[int]]) -> Packed:
    """Lay sequences of token ids end to end, in their order. Empty sequences hold no tokens but keep their place."""
    lengths = tuple(len(sequence) for sequence in sequences)
    starts = tuple(accumulate(lengths, initial=0))[:-1]
    ids = torch.tensor(list(chain.from_iterable(sequences)), dtype=torch.long)
    positions = torch.tensor(list(chain.from_iterable(map(range, lengths))), dtype=torch.long)
    return Packed(ids[None], positions[None], starts, lengths)


def greedy_collate(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Split sequences into micro-batches of at most ``budget`` tokens, as lists of their indices.

    Longest first, each into the first micro-batch with room, else into a new one (recipe, section 3); equal lengths
    keep their order, so the result is the same every time. A sequence longer than the budget has a micro-batch to
    itself.
    """
    batches: list[list[int]] = []
    room: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        length = lengths[index]
        place = next((b for b, free in enumerate(room) if length <= free), None)
        if place is None:
            batches.append([index])
            room.append(budget - length)
        else:
            batches[place].append(index)
            room[place] -= length
    return batches


def padding_share(lengths: Sequence[int], batches: Sequence[Sequence[int]]) -> float:
    """The share of padding, 0 to 1, that these micro-batches would have if each were padded to its longest."""
    padded = sum(len(batch) * max(lengths[i] for i in batch) for batch in batches if batch)
    tokens = sum(lengths[i] for batch in batches for i in batch)
    return 1.0 - tokens / padded if padded else 0.0
