"""Keys and values of sequences that have ended, for prompts that begin with them: the next turns of episodes."""

from typing import TypeVar

from torch import Tensor

T = TypeVar("T")

Past = tuple[Tensor, Tensor]
"""Keys and values of some tokens, ``[layers, kv_heads, length, head_dim]`` each."""


def keep_newest(kept: dict[tuple[int, ...], T], tokens: tuple[int, ...], value: T, most: int) -> None:
    """Keep what belongs to some tokens as the newest of at most so many; the oldest is dropped."""
    # Put in anew: a dict keeps the order of insertion.
    kept.pop(tokens, None)
    kept[tokens] = value
    if len(kept) > most:
        del kept[next(iter(kept))]


class EndedSequences:
    """Keeps what is computed of the newest sequences, at most ``limit`` of them."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept: dict[tuple[int, ...], Past] = {}

    def keep(self, tokens: tuple[int, ...], past: Past) -> None:
        """Keep the keys and values of a sequence's first tokens, all but those that no forward pass has read."""
        keep_newest(self._kept, tokens, past, self._limit)

    def longest(self, prompt: tuple[int, ...]) -> Past | None:
        """Of the longest sequence that a prompt begins with and goes beyond."""
        begins = [tokens for tokens in self._kept if len(tokens) < len(prompt) and prompt[: len(tokens)] == tokens]
        return self._kept[max(begins, key=len)] if begins else None

    def clear(self) -> None:
        """Forget all, as new weights would compute other keys and values."""
        self._kept.clear()
