"""What every engine speaks: text in and out for data stages, token ids and log-probs for RL."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

if TYPE_CHECKING:
    import torch

Finish = Literal["stop", "length"]
Message = Mapping[str, str]
"""One chat turn: ``role`` and ``content``."""

Weights = Mapping[str, "torch.Tensor"]
"""Parameters by the model's own names, as ``state_dict`` gives them."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are drawn. RL samples at ``top_p`` 1 and ``top_k`` 0 (off), else the ratios are biased."""

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0


@dataclass(frozen=True, slots=True)
class Completion:
    """A finished answer as text. ``num_tokens`` counts generated tokens, the end token included."""

    text: str
    num_tokens: int
    finish: Finish


@dataclass(frozen=True, slots=True)
class Rollout:
    """One finished sequence with all that training needs.

    ``logprobs[t]`` is the log-probability of ``tokens[t]`` under the distribution really sampled (after
    temperature). ``versions`` lists ``(start, version)``: from token ``start`` on, that version of the weights
    made the tokens. The end token, if one was sampled, is the last of ``tokens``.
    """

    index: int
    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    versions: tuple[tuple[int, int], ...]
    finish: Finish
    seed: int


class Generator(Protocol):
    """Text in, text out."""

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, *, seeds: Sequence[int]
    ) -> list[Completion]:
        """Sample one completion a seed for the same messages, in the order of the seeds."""
        ...

    async def close(self) -> None:
        """Stop running sequences and give back processes, memory and connections."""
        ...


@runtime_checkable
class Seer(Protocol):
    """What can be shown images too."""

    async def complete_seeing(
        self, messages: Sequence[Message], images: Sequence[bytes], sampling: Sampling, *, seeds: Sequence[int]
    ) -> list[Completion]:
        """Sample one completion a seed for messages whose last one has images, given as image files."""
        ...


class Sampler(Protocol):
    """What RL needs: token ids, log-probs, and weights that change while sequences run."""

    @property
    def version(self) -> int:
        """The version of the weights that make the next token."""
        ...

    @property
    def seconds(self) -> float:
        """Time that the engine has worked so far."""
        ...

    @property
    def num_running(self) -> int:
        """Sequences that are being generated now."""
        ...

    def sample(
        self, prompt: Sequence[int], sampling: Sampling, *, seeds: Sequence[int]
    ) -> AsyncGenerator[Rollout, None]:
        """Sample one sequence a seed, yielded as each one ends; the group's prompt is computed once.

        Abandoning the iterator (``aclose``) aborts the group's running sequences and frees their slots.
        """
        ...

    async def load(self, weights: Weights, version: int) -> None:
        """Replace the weights between two decode steps; running sequences go on with their KV cache."""
        ...

    async def close(self) -> None:
        """Stop running sequences and give back processes and memory."""
        ...


class Policy(Generator, Sampler, Protocol):
    """An engine in this process that does both."""
