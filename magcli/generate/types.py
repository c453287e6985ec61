"""The interface of all engines: text in and out for data stages, token ids and log-probs for RL."""

import hashlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, runtime_checkable

from magcli.errors import DataError, PromptTooLong, UsageError
from magcli.model.chat.prompts import check_vocabulary
from magcli.model.chat.thoughts import ThoughtForm

if TYPE_CHECKING:
    import torch

T = TypeVar("T")

Finish = Literal["stop", "length"]

TransferStep = Literal["init", "start", "update", "finish"]
"""The steps of a broadcast by vLLM's interface: ``init`` once, then the others for each update of the weights."""

RunStep = Callable[[TransferStep, Any], Awaitable[None]]
"""Runs one step of a transfer in an engine, wherever it is."""

Message = Mapping[str, str]
"""One chat turn: ``role`` and ``content``."""

Weights = Mapping[str, "torch.Tensor"]
"""Parameters by name, as in the model's ``state_dict``."""

Digests = Mapping[str, int]
"""A 64-bit digest of each tensor, by name; see ``magcli.generate.weights.digest``."""

Sequences = Sequence[tuple[Sequence[int], Sequence[int]]]
"""Token ids to score: each a context and the tokens after it."""

Scores = list[list[float]]
"""Log-probs of the tokens of ``Sequences``, at temperature 1."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling parameters. RL samples at ``top_p`` 1 and ``top_k`` 0 (off), else importance ratios are biased.

    ``continues``: a later prompt may begin with the prompt and the sampled tokens, as the next turn of an episode does.
    """

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    continues: bool = False


@dataclass(frozen=True, slots=True)
class Completion:
    """A finished completion as text. ``num_tokens`` counts generated tokens, including the end token."""

    text: str
    num_tokens: int
    finish: Finish


@dataclass(frozen=True, slots=True)
class Rollout:
    """One finished sequence with everything that training needs.

    ``logprobs[t]`` is the log-probability of ``tokens[t]`` under the distribution it was sampled from, after
    temperature. ``versions`` lists ``(start, version)``: from token ``start`` on, that version of the weights
    generated the tokens. The end token, if one was sampled, is the last of ``tokens``.

    ``given`` has the ranges ``(start, end)`` of tokens that an environment wrote between the policy's turns, whose
    log-probs are 0 and which are not trained; none in a single completion.
    """

    index: int
    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    versions: tuple[tuple[int, int], ...]
    finish: Finish
    seed: int
    given: tuple[tuple[int, int], ...] = ()

    @property
    def num_generated(self) -> int:
        """Number of tokens that the policy wrote."""
        return len(self.tokens) - sum(end - start for start, end in self.given)

    def generated(self, values: Sequence[T]) -> Sequence[T]:
        """Of values per token those of the tokens that the policy wrote."""
        if not self.given:
            return values
        # Pairs of edges are the policy's own ranges: before, between and after those of the environment.
        edges = [0, *chain.from_iterable(self.given), len(values)]
        return [value for start, end in zip(edges[::2], edges[1::2], strict=True) for value in values[start:end]]


class Generator(Protocol):
    """Text in, text out."""

    thoughts: ThoughtForm
    """The form in which its completions have their thoughts."""

    @property
    def num_finished(self) -> int:
        """Completions finished so far, those of running calls included."""

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, *, seeds: Sequence[int]
    ) -> list[Completion]:
        """Sample one completion per seed for the same messages, in the order of the seeds."""

    async def close(self) -> None:
        """Stop running sequences and release processes, memory and connections."""


@runtime_checkable
class VisionModel(Protocol):
    """A generator that accepts images."""

    async def complete_with_images(
        self, messages: Sequence[Message], images: Sequence[bytes], sampling: Sampling, *, seeds: Sequence[int]
    ) -> list[Completion]:
        """Sample one completion per seed; ``images`` are image files that belong to the last message."""


class Sampler(Protocol):
    """An engine's interface for RL: token ids, log-probs, and weights that change while sequences run."""

    @property
    def version(self) -> int:
        """The version of the weights that generate the next token."""

    @property
    def seconds(self) -> float:
        """Seconds that the engine has been busy so far."""

    @property
    def load_seconds(self) -> float:
        """Seconds that all sequences have stood still so far while new weights were loaded."""

    def sample(
        self, prompt: Sequence[int], sampling: Sampling, *, seeds: Sequence[int]
    ) -> AsyncGenerator[Rollout, None]:
        """Sample one sequence per seed, yielded as each one ends; the group's prompt is computed once.

        Sequences start in the order of their requests and seeds. Closing the iterator (``aclose``) aborts the group's
        running sequences and frees their slots.
        """

    async def load(self, weights: Weights, version: int) -> list[Digests]:
        """Replace the weights between two decode steps; running sequences keep their KV cache.

        Returns the digests of the tensors as each engine has received them.
        """

    async def score(self, sequences: Sequences) -> list[Scores]:
        """What each engine gives as the log-probs of given tokens under its current weights."""

    async def close(self) -> None:
        """Stop running sequences and release processes and memory."""


class RolloutEngine(Sampler, Protocol):
    """All engines of an RL run as one: the engine in this process, or a pool of generator processes."""

    @property
    def num_slots(self) -> int:
        """Number of sequences that can run at once now, without those of an engine that is being replaced."""

    @property
    def capacity(self) -> int:
        """Number of sequences to have in flight so that no slot stays empty: all slots, and the engines' backlogs."""

    @property
    def sent_dtype(self) -> "torch.dtype | None":
        """The type to which weights are cast before they are sent; None: they are sent as they are."""

    @property
    def sleeps(self) -> bool:
        """Whether ``sleep`` frees memory, so that nothing is generated until the next ``load``."""

    async def sleep(self) -> None:
        """Give memory back to the trainer until the next ``load``, if the engine ``sleeps``; else do nothing."""

    def set_concurrency(self, sequences: int) -> None:
        """Set the maximum number of sequences that run at once; running ones are not interrupted."""


class Policy(Generator, Sampler, Protocol):
    """An engine in this process that implements both."""


class LocalPolicy(Policy, Protocol):
    """An engine that takes part in a broadcast of weights."""

    async def transfer(self, step: TransferStep, info: Any, version: int) -> Digests:
        """One step of a transfer that the trainer controls, instead of ``load``; ``info`` is specific to the backend.

        Returns, after the last step, the digests of the tensors under the names under which they came.
        """


def tokens_left(prompt: Sequence[int], sampling: Sampling, context: int, vocabulary: int | None = None) -> int:
    """The maximum number of new tokens: ``max_tokens``, or fewer if the context ends before.

    ``vocabulary`` is the number of the model's token ids, None if they were checked.

    Raises DataError for an empty prompt or an id outside of the vocabulary, PromptTooLong for one that fills the
    context, and UsageError for a sampling parameter that is out of range.
    """
    # top_p 0 would keep no token at all.
    can_truncate = 0 < sampling.top_p <= 1 and sampling.top_k >= 0
    if sampling.max_tokens < 1 or sampling.temperature < 0 or not can_truncate:
        raise UsageError(f"invalid {sampling}: needs max_tokens >= 1, temperature >= 0, 0 < top_p <= 1 and top_k >= 0")
    if not prompt:
        raise DataError("the prompt has no tokens")
    if vocabulary is not None:
        check_vocabulary(prompt, vocabulary)
    if len(prompt) >= context:
        raise PromptTooLong(f"a prompt of {len(prompt)} tokens does not fit the model's context of {context}")
    return min(sampling.max_tokens, context - len(prompt))


def sample_seed(run_seed: int, row_id: str, sample: int) -> int:
    """The seed of one sample of one row: 63 bits of a SHA-256, the same on every machine and version.

    It depends on what is sampled, not on when or where, so any sample can be reproduced by itself.
    """
    digest = hashlib.sha256(f"{run_seed}\0{row_id}\0{sample}".encode(errors="surrogatepass")).digest()
    # 63 bits fit a signed integer of 64.
    return int.from_bytes(digest[:8], "big") >> 1
