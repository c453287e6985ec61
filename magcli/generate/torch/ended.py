"""Keys and values of sequences that have ended, for prompts that begin with them: the next turns of episodes."""

from torch import Tensor

Past = tuple[Tensor, Tensor]
"""Keys and values of some tokens, ``[layers, kv_heads, length, head_dim]`` each."""


class EndedSequences:
    """Keeps what is computed of the newest sequences, at most ``limit`` of them."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept: dict[tuple[int, ...], Past] = {}

    def keep(self, tokens: tuple[int, ...], past: Past) -> None:
        """Keep the keys and values of a sequence's first tokens, all but those that no forward pass has read."""
        # Put in anew: a dict keeps the order of insertion, and the first is dropped.
        self._kept.pop(tokens, None)
        self._kept[tokens] = past
        if len(self._kept) > self._limit:
            del self._kept[next(iter(self._kept))]

    def longest(self, prompt: tuple[int, ...]) -> Past | None:
        """Of the longest sequence that a prompt begins with and goes beyond."""
        begins = [tokens for tokens in self._kept if len(tokens) < len(prompt) and prompt[: len(tokens)] == tokens]
        return self._kept[max(begins, key=len)] if begins else None

    def clear(self) -> None:
        """Forget all, as new weights would compute other keys and values."""
        self._kept.clear()
