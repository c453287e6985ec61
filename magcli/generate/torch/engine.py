"""The embedded engine: continuous batching for causal language models on this process's CPU or GPU.

``Engine`` has a fixed number of slots and is synchronous: ``submit`` queues the samples of one prompt, ``step``
generates one token for every running sequence and returns those that ended, ``load`` replaces the weights between two
steps, ``abort`` frees slots. A slot is refilled in the step after its sequence ended; a prompt is computed once for all
of its samples, and the next turn of an episode computes only what is new. ``magcli.generate.torch.policy`` makes it an
asynchronous ``Policy``.
"""

from collections import deque
from collections.abc import Collection, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from magcli.errors import UsageError
from magcli.generate.torch.adapted import adapted_linears
from magcli.generate.torch.ended import EndedSequences, keep_newest
from magcli.generate.torch.sampler import SlotState
from magcli.generate.torch.slot_model import ROW_MULTIPLE, Prefix, Prompt, SlotModel
from magcli.generate.types import (
    Digests,
    Rollout,
    Sampling,
    Scores,
    Sequences,
    Weights,
    tokens_left,
)
from magcli.model.compute import one_thread
from magcli.model.context import context_length

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from magcli.generate.torch.decoder import Decoder

PREFILL_TOKENS = 4096
"""Prompt tokens computed in one step, so that many new prompts do not stall the running sequences for long."""

CAPACITY_MULTIPLE = 256
"""Positions in whose multiples a bounded cache is made, so that a slightly longer prompt does not replace it."""

RECENT_PREFIXES = 4
"""Computed prompts that are kept for later requests: a pool of engines sends the samples of a group one by one."""


@dataclass(eq=False, slots=True)
class Request:
    """Samples of one prompt. ``prefix`` is kept while some of them still wait for a slot."""

    number: int
    prompt: tuple[int, ...]
    sampling: Sampling
    seeds: tuple[int, ...]
    limit: int
    started: int = 0
    prefix: Prefix | None = None


@dataclass(eq=False, slots=True)
class Running:
    """A sequence in a slot; ``first_step`` generated its first token, ``versions`` is as in ``Rollout``."""

    request: Request
    index: int
    first_step: int
    versions: list[tuple[int, int]]

    def length(self, step: int) -> int:
        """Tokens of prompt and sequence before ``step``."""
        return len(self.request.prompt) + step - self.first_step


class Engine:
    """Slots over one model, which the engine owns: ``load`` overwrites the weights.

    Args:
        model: a decoder, or a causal model whose attention goes through transformers' attention interface.
        slots: sequences that run at once.
        ends: token ids that end a sequence.
        deterministic: the bits of a sequence (tokens and log-probs) depend only on its prompt, sampling, seed, the
            number of slots and the weights, not on other sequences; needs float32 weights and runs on one thread.
        cache_bytes: bound of the cache, which is then allocated once for sequences as long as requests allow; with too
            little for all slots, fewer sequences run at once. None: it has all slots and grows with the sequences.

    Raises:
        UsageError: no slots, or ``deterministic`` with weights that are not float32.
        EnvironmentFault: the engine does not support the model's attention.
    """

    def __init__(
        self,
        model: "PreTrainedModel | Decoder",
        *,
        slots: int,
        ends: Collection[int],
        deterministic: bool = False,
        cache_bytes: int | None = None,
    ) -> None:
        if slots < 1:
            raise UsageError(f"an engine needs at least 1 slot, not {slots}")
        if deterministic and model.dtype != torch.float32:
            raise UsageError(f"deterministic generation needs float32 weights, not {model.dtype}; set dtype to fp32")
        if deterministic:
            # Decode passes always have the same number of rows, a multiple (rounded up) of the least.
            slots = -(-slots // ROW_MULTIPLE) * ROW_MULTIPLE
        self._slots = slots
        self._fixed_rows = deterministic
        self._model = SlotModel(model, self._slots, deterministic=deterministic)
        self._state = SlotState(self._slots, model.device)
        self._context = context_length(model.config)
        self._ends = frozenset(ends)
        vocabulary = model.config.vocab_size
        # Looked up on the device, so that a step waits for it only once.
        self._is_end = torch.zeros(vocabulary, dtype=torch.bool, device=model.device)
        # A tokenizer may have more tokens than the model has embeddings.
        within_vocabulary = [end for end in self._ends if end < vocabulary]
        self._is_end[within_vocabulary] = True
        self._requests = count()
        self._queue: deque[Request] = deque()
        self._running: list[Running | None] = []
        self._recent: dict[tuple[int, ...], Prefix] = {}
        self._ended = EndedSequences(self._slots)
        self.limit = self._slots
        """The maximum number of sequences that run at once, at most the number of slots."""
        self._cache_bytes = None if deterministic else cache_bytes
        self._step = 0
        self.version = 0
        """The version of the weights that generate the next token."""

    @property
    def busy(self) -> bool:
        """Whether there are running or queued sequences."""
        return bool(self._queue) or self.num_running > 0

    @property
    def num_running(self) -> int:
        """Slots in use."""
        return sum(running is not None for running in self._running)

    def set_limit(self, sequences: int) -> None:
        """Set the maximum number of sequences that run at once; running ones are not interrupted."""
        self.limit = min(sequences, self._slots)

    def submit(self, prompt: Sequence[int], sampling: Sampling, seeds: Sequence[int]) -> int:
        """Queue one sample per seed; returns the request's number, for the results of ``step`` and for ``abort``.

        A sequence that reaches the end of the context before ``max_tokens`` ends there, with finish ``length``.
        Errors as in ``tokens_left``.
        """
        limit = tokens_left(prompt, sampling, self._context, len(self._is_end))
        request = Request(next(self._requests), tuple(prompt), sampling, tuple(seeds), limit)
        if request.seeds:
            self._queue.append(request)
        return request.number

    @torch.inference_mode()
    def step(self) -> list[tuple[int, Rollout]]:
        """Generate one token for every sequence, new ones included; returns (request, rollout) of those that ended."""
        starting = self._assign()
        # New samples have the lowest slots, below all holes that are left, so none of these moves.
        self._compact()
        if not self._running:
            return []
        # Truncation sorts the vocabulary, so it is left out where no sequence asks for it.
        truncated = any(running and _truncates(running.request.sampling) for running in self._running)
        with one_thread() if self._fixed_rows else nullcontext():
            logits = self._logits(starting)
            tokens = self._state.sample(logits, truncated=truncated)
        self._step += 1
        return self._collect(tokens)

    def abort(self, request: int) -> None:
        """Drop a request's queued and running samples."""
        # Its sequences leave holes, which the next step fills.
        self._queue = deque(queued for queued in self._queue if queued.number != request)
        for slot, running in enumerate(self._running):
            if running and running.request.number == request:
                self._running[slot] = None

    @torch.inference_mode()
    def score(self, sequences: Sequences) -> Scores:
        """The log-probs of tokens after their contexts, at temperature 1; running sequences are not affected."""
        with one_thread() if self._fixed_rows else nullcontext():
            return [self._model.score(context, tokens).tolist() for context, tokens in sequences]

    def load(self, weights: Weights, version: int) -> Digests:
        """Replace the weights; running sequences keep their KV cache, prompts of queued samples are recomputed.

        Returns the digests of the tensors as they were read.

        Raises:
            WeightsFault: a parameter is missing or has another shape; nothing has been changed.
        """
        arrived = self._model.load(weights)
        self.version = version
        self._recent.clear()
        self._ended.clear()
        for request in self._queue:
            request.prefix = None
        for running in filter(None, self._running):
            made = self._step - running.first_step
            # A version of which there is no token yet is replaced.
            earlier = [(start, older) for start, older in running.versions if start < made]
            running.versions = [*earlier, (made, version)]
        return arrived

    def _assign(self) -> list[tuple[Request, list[int]]]:
        """Give free slots, lowest first, to the samples that have waited longest; returns requests with new slots."""
        in_use = {slot for slot, running in enumerate(self._running) if running is not None}
        free = [slot for slot in range(self._slots) if slot not in in_use]
        below_limit = max(0, self.limit - len(in_use))
        free = free[:below_limit]
        starting: list[tuple[Request, list[int]]] = []
        budget = PREFILL_TOKENS
        while self._queue and free and budget > 0:
            # A request that does not fit yet is not overtaken, or long ones could wait for ever.
            request = self._queue[0]
            free = free[: self._make_room(request)]
            if not free:
                break
            waiting = len(request.seeds) - request.started
            slots, free = free[:waiting], free[waiting:]
            if request.prefix is None:
                # A pool of engines sends the samples of a prompt one by one: it may be computed already.
                request.prefix = self._recent.get(request.prompt)
            if request.prefix is None:  # it is computed in this step
                budget -= len(request.prompt)
            starting.append((request, slots))
            self._start(request, slots)
            if request.started == len(request.seeds):
                self._queue.popleft()
        return starting

    def _make_room(self, request: Request) -> int:
        """The number of slots that the cache has left for samples of a request.

        A bounded cache that is too short for them is replaced as soon as no sequence runs.
        """
        if self._cache_bytes is None:
            return self._slots
        cache = self._model.cache
        longest = len(request.prompt) + request.limit
        if longest > cache.capacity:
            if self.num_running:
                return 0
            capacity = -(-longest // CAPACITY_MULTIPLE) * CAPACITY_MULTIPLE
            slots_in_bound = self._cache_bytes // (capacity * cache.token_bytes)
            cache.replace(min(self._slots, max(1, slots_in_bound)), capacity)
        return cache.slots - self.num_running

    def _start(self, request: Request, slots: list[int]) -> None:
        """Put the next samples of a request into these slots, in ascending order."""
        first = request.started
        request.started += len(slots)
        num_new_slots = slots[-1] + 1 - len(self._running)
        self._running += [None] * num_new_slots  # none if negative
        for index, slot in enumerate(slots, start=first):
            versions = [(0, self.version)]
            self._running[slot] = Running(request, index, self._step, versions)
        seeds = request.seeds[first : request.started]
        prompt_length = len(request.prompt)
        self._state.start(slots, request.sampling, prompt_length, request.limit, seeds)

    def _compact(self) -> None:
        """Move the last sequences into free slots, so that the slots in use come first."""
        # A pass computes the first rows of the cache; a hole among them would be computed for nothing.
        holes = [slot for slot, running in enumerate(self._running) if running is None]
        for hole in holes:
            while self._running and self._running[-1] is None:
                self._running.pop()
            if hole >= len(self._running):  # this hole and those after it were at the end
                return
            self._running[hole] = self._running.pop()
            source = len(self._running)
            self._state.move(source, hole)
            self._model.cache.move(source, hole)

    def _logits(self, starting: list[tuple[Request, list[int]]]) -> Tensor:
        """The logits ``[running, vocab]`` of the next tokens; new slots get their prompt's cache."""
        running = [sequence for sequence in self._running if sequence]
        decoding = [slot for slot, sequence in enumerate(running) if sequence.first_step < self._step]
        # New slots in between are computed for nothing.
        rows = max(decoding, default=-1) + 1
        if rows and self._fixed_rows:
            rows = self._slots
        span = max(sequence.length(self._step) for sequence in running)
        newest = self._state.newest[:rows]
        # Those of unused slots may lie beyond the cache.
        positions = self._state.position[:rows].clamp(max=span - 1)

        uncomputed = [request for request, _ in starting if request.prefix is None]
        prompts = []
        for request in uncomputed:
            past = self._ended.longest(request.prompt)
            prompts.append(Prompt(request.prompt, past))
        decoded, prefixes = self._model.forward(newest, positions, span, prompts)
        for request, prefix in zip(uncomputed, prefixes, strict=True):
            request.prefix = prefix
        return self._join(decoded, starting)

    def _join(self, decoded: Tensor | None, starting: list[tuple[Request, list[int]]]) -> Tensor:
        """The logits of all running sequences: ``decoded`` ``[rows, vocab]``, and for new slots those of the prompt."""
        if decoded is not None and not starting:
            return decoded[: len(self._running)]
        vocabulary = len(self._is_end)
        # Slots that decode have the logits of their newest token, new ones those of their prompt's end.
        logits = torch.empty(len(self._running), vocabulary, device=self._is_end.device)
        if decoded is not None:
            rows = min(len(decoded), len(logits))
            logits[:rows] = decoded[:rows]
        for request, slots in starting:
            prefix = request.prefix
            assert prefix is not None
            self._model.cache.write(slots, prefix.keys, prefix.values)
            logits[slots] = prefix.logits
            if request.started == len(request.seeds):  # no sample waits for it
                keep_newest(self._recent, request.prompt, prefix, RECENT_PREFIXES)
                request.prefix = None
        return logits

    def _collect(self, tokens: Tensor) -> list[tuple[int, Rollout]]:
        """Free the slots whose newest token is an end token or the last that the request allows."""
        rows = len(tokens)
        at_limit = self._state.made[:rows] >= self._state.limit[:rows]
        is_done = self._is_end[tokens] | at_limit
        ended = []
        for slot in is_done.nonzero()[:, 0].tolist():
            running = self._running[slot]
            assert running is not None
            self._running[slot] = None
            rollout = self._rollout(slot, running)
            ended.append((running.request.number, rollout))
            if self._may_continue(rollout, running.request.sampling):
                # No forward pass has read the last token.
                read = rollout.prompt + rollout.tokens[:-1]
                past = self._model.cache.read(slot, len(read))
                self._ended.keep(read, past)
        return ended

    def _may_continue(self, rollout: Rollout, sampling: Sampling) -> bool:
        """Whether to keep what is computed of a sequence for the next turn.

        Not for bits that depend on the prompt alone, not in a cache whose memory is bounded, and not what earlier
        weights computed.
        """
        unbounded = not self._fixed_rows and self._cache_bytes is None
        newest_alone = rollout.versions == ((0, self.version),)
        return sampling.continues and rollout.finish == "stop" and unbounded and newest_alone

    def _rollout(self, slot: int, running: Running) -> Rollout:
        request = running.request
        made = self._step - running.first_step
        tokens = self._state.tokens[slot, :made].tolist()
        logprobs = self._state.logprobs[slot, :made].tolist()
        return Rollout(
            index=running.index,
            prompt=request.prompt,
            tokens=tuple(tokens),
            logprobs=tuple(logprobs),
            versions=tuple(running.versions),
            # An end token in the last column counts as an end.
            finish="stop" if tokens[-1] in self._ends else "length",
            seed=request.seeds[running.index],
        )


def _truncates(sampling: Sampling) -> bool:
    return sampling.temperature == 0 or sampling.top_p < 1 or sampling.top_k > 0


def cache_bound(model: "PreTrainedModel | Decoder", share: float) -> int | None:
    """The bytes that the weights leave for the cache in the engine's share of a GPU; None on a CPU."""
    if model.device.type != "cuda":
        return None
    free, total = torch.cuda.mem_get_info(model.device)
    weights = 0
    if not adapted_linears(model):  # with adapters the weights are the trainer's
        weights = sum(parameter.nbytes for parameter in model.parameters())
    head = 0
    if model.dtype != torch.float32:  # logits are computed with a copy of the head in float32
        head = 4 * model.config.vocab_size * model.config.hidden_size
    # In the share of the engine are its weights, its cache and the copy of the head.
    left_of_share = round(share * total) - weights - head
    return max(1, min(free, left_of_share))
