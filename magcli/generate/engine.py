"""Continuous batching for transformers' causal models: a fixed number of slots, one token a step for each.

The engine is synchronous and all its state is explicit: ``submit`` queues the samples of one prompt, ``step`` makes
one token for every running sequence and returns what ended, ``load`` replaces the weights between two steps,
``abort`` frees slots. A slot is refilled in the step after its sequence ended; a group's prompt is computed once.
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
from magcli.generate.fit import room
from magcli.generate.slot_model import ROW_MULTIPLE, Prefix, SlotModel
from magcli.generate.slots import SlotState
from magcli.generate.types import Rollout, Sampling, Weights
from magcli.model.compute import one_thread
from magcli.model.load import context_length

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from magcli.generate.decoder import Decoder

PREFILL_TOKENS = 4096
"""Prompt tokens computed in one step, so that many new prompts do not stop the running sequences for long."""


@dataclass(eq=False, slots=True)
class Group:
    """Samples of one prompt. ``prefix`` is kept while some of them still wait for a slot."""

    request: int
    prompt: tuple[int, ...]
    sampling: Sampling
    seeds: tuple[int, ...]
    limit: int
    started: int = 0
    prefix: Prefix | None = None


@dataclass(eq=False, slots=True)
class Running:
    """A sequence in a slot. ``born`` is the step that made its first token; ``versions`` as in ``Rollout``."""

    group: Group
    index: int
    born: int
    versions: list[tuple[int, int]]

    def length(self, step: int) -> int:
        """Tokens of prompt and sequence before ``step``."""
        return len(self.group.prompt) + step - self.born


class Engine:
    """Slots over one model, which it takes over: ``load`` overwrites the weights.

    Args:
        model: a decoder, or a causal model whose attention goes through transformers' attention interface.
        slots: sequences that run at once.
        ends: token ids that end a sequence.
        deterministic: make a sequence's bits (tokens and log-probs) depend on its prompt, sampling, seed, the number
            of slots and the weights only, not on what runs beside it; needs float32 weights and runs on one thread.
        version: version of the weights that the model has now.

    Raises:
        UsageError: no slots, or ``deterministic`` with weights that are not float32.
        EnvironmentFault: the model has a kind of attention that the engine does not know.
    """

    def __init__(
        self,
        model: "PreTrainedModel | Decoder",
        *,
        slots: int,
        ends: Collection[int],
        deterministic: bool = False,
        version: int = 0,
    ) -> None:
        if slots < 1:
            raise UsageError(f"an engine needs at least 1 slot, not {slots}")
        if deterministic and model.dtype != torch.float32:
            raise UsageError(f"deterministic generation needs float32 weights, not {model.dtype}; set dtype to fp32")
        self._slots = -(-slots // ROW_MULTIPLE) * ROW_MULTIPLE if deterministic else slots
        self._fixed_rows = deterministic
        self._model = SlotModel(model, self._slots, deterministic=deterministic)
        self._state = SlotState(self._slots, model.device)
        self._context = context_length(model)
        self._ends = frozenset(ends)
        self._is_end = torch.zeros(model.config.vocab_size, dtype=torch.bool, device=model.device)
        self._is_end[list(self._ends)] = True
        self._requests = count()
        self._queue: deque[Group] = deque()
        self._running: list[Running | None] = []
        self._step = 0
        self._version = version

    @property
    def version(self) -> int:
        """The version of the weights that make the next token."""
        return self._version

    @property
    def busy(self) -> bool:
        """Whether a step has anything to do."""
        return bool(self._queue) or self.num_running > 0

    @property
    def num_running(self) -> int:
        """Slots in use."""
        return sum(running is not None for running in self._running)

    def submit(self, prompt: Sequence[int], sampling: Sampling, seeds: Sequence[int]) -> int:
        """Queue one sample a seed; returns the request's number, by which ``step`` reports and ``abort`` finds it.

        Where the context has no room for ``max_tokens`` a sequence ends at the context, with finish ``length``.

        Raises:
            DataError: the prompt is empty.
            PromptTooLong: the prompt leaves no room in the model's context.
            UsageError: the sampling settings make no sense.
        """
        limit = room(prompt, sampling, self._context)
        group = Group(next(self._requests), tuple(prompt), sampling, tuple(seeds), limit)
        if group.seeds:
            self._queue.append(group)
        return group.request

    @torch.inference_mode()
    def step(self) -> list[tuple[int, Rollout]]:
        """Make one token for every running sequence, new ones included; returns those that ended, with requests."""
        starting = self._assign()
        self._compact()
        if not self._running:
            return []
        truncated = any(running and _truncates(running.group.sampling) for running in self._running)
        with one_thread() if self._fixed_rows else nullcontext():
            tokens = self._state.sample(self._logits(starting), truncated=truncated)
        self._step += 1
        return self._collect(tokens)

    def abort(self, request: int) -> None:
        """Drop what a request still has in the queue and in slots."""
        self._queue = deque(group for group in self._queue if group.request != request)
        for slot, running in enumerate(self._running):
            if running and running.group.request == request:
                self._running[slot] = None

    def load(self, weights: Weights, version: int) -> None:
        """Replace the weights; running sequences keep their cache, waiting samples get their prompt computed anew.

        Raises:
            MagError: a parameter is missing or has another shape; nothing has been changed then.
        """
        self._model.load(weights)
        self._version = version
        for group in self._queue:
            group.prefix = None
        for running in filter(None, self._running):
            made = self._step - running.born
            running.versions = [span for span in running.versions if span[0] < made] + [(made, version)]

    def _assign(self) -> list[tuple[Group, list[int]]]:
        """Give free slots, lowest first, to the samples that wait longest; returns groups with their new slots."""
        free = [slot for slot in range(self._slots) if slot >= len(self._running) or self._running[slot] is None]
        starting: list[tuple[Group, list[int]]] = []
        budget = PREFILL_TOKENS
        while self._queue and free and budget > 0:
            group = self._queue[0]
            slots, free = _split(free, len(group.seeds) - group.started)
            budget -= 0 if group.prefix else len(group.prompt)
            starting.append((group, slots))
            self._place(group, slots)
            if group.started == len(group.seeds):
                self._queue.popleft()
        return starting

    def _place(self, group: Group, slots: list[int]) -> None:
        self._running += [None] * (slots[-1] + 1 - len(self._running))
        seeds = group.seeds[group.started : group.started + len(slots)]
        for index, slot in enumerate(slots, start=group.started):
            self._running[slot] = Running(group, index, self._step, [(0, self._version)])
        self._state.start(slots, group.sampling, len(group.prompt), group.limit, seeds)
        group.started += len(slots)

    def _compact(self) -> None:
        """Fill the holes that are left with the last sequences, so that the first slots are those in use."""
        holes = [slot for slot, running in enumerate(self._running) if running is None]
        for hole in holes:
            while self._running and self._running[-1] is None:
                self._running.pop()
            if hole >= len(self._running):
                return
            last, source = self._running.pop(), len(self._running)
            self._running[hole] = last
            self._state.move(source, hole)
            self._model.cache.move(source, hole)

    def _logits(self, starting: list[tuple[Group, list[int]]]) -> Tensor:
        """The logits ``[running, vocab]`` that the next tokens are drawn from; new slots get their prompt's cache."""
        running = [sequence for sequence in self._running if sequence]
        rows = 1 + max((slot for slot, sequence in enumerate(running) if sequence.born < self._step), default=-1)
        rows = self._slots if rows and self._fixed_rows else rows
        new = [group for group, _ in starting if group.prefix is None]
        span = max(sequence.length(self._step) for sequence in running)
        positions = self._state.position[:rows].clamp(max=span - 1)  # of slots not in use they may lie beyond the cache
        decoded, prefixes = self._model.forward(
            self._state.newest[:rows], positions, span, [group.prompt for group in new]
        )
        for group, prefix in zip(new, prefixes, strict=True):
            group.prefix = prefix
        return self._join(decoded, starting)

    def _join(self, decoded: Tensor | None, starting: list[tuple[Group, list[int]]]) -> Tensor:
        if decoded is not None and not starting:
            return decoded[: len(self._running)]
        logits = torch.empty(len(self._running), len(self._is_end), device=self._is_end.device)
        if decoded is not None:
            rows = min(len(decoded), len(logits))
            logits[:rows] = decoded[:rows]
        for group, slots in starting:
            assert group.prefix is not None
            self._model.cache.write(slots, group.prefix.keys, group.prefix.values)
            logits[slots] = group.prefix.logits
            if group.started == len(group.seeds):
                group.prefix = None
        return logits

    def _collect(self, tokens: Tensor) -> list[tuple[int, Rollout]]:
        """Empty the slots whose newest token is an end token or the last that the request allows."""
        rows = len(tokens)
        done = self._is_end[tokens] | (self._state.made[:rows] >= self._state.limit[:rows])
        ended = []
        for slot in done.nonzero()[:, 0].tolist():
            running, self._running[slot] = self._running[slot], None
            assert running is not None
            ended.append((running.group.request, self._rollout(slot, running)))
        return ended

    def _rollout(self, slot: int, running: Running) -> Rollout:
        made, group = self._step - running.born, running.group
        tokens = self._state.tokens[slot, :made].tolist()
        return Rollout(
            index=running.index,
            prompt=group.prompt,
            tokens=tuple(tokens),
            logprobs=tuple(self._state.logprobs[slot, :made].tolist()),
            versions=tuple(running.versions),
            finish="stop" if tokens[-1] in self._ends else "length",
            seed=group.seeds[running.index],
        )


def _split(items: list[int], size: int) -> tuple[list[int], list[int]]:
    return items[:size], items[size:]


def _truncates(sampling: Sampling) -> bool:
    return sampling.temperature == 0 or sampling.top_p < 1 or sampling.top_k > 0
