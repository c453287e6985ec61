"""vLLM as a ``Policy``: its ``AsyncLLM`` in this process, its engine in a process of its own.

Each sample is one request with its own seed, so that it ends by itself; vLLM's prefix cache computes a group's prompt
once. ``load`` pauses the engine between two steps and keeps what runs, with its cache; vLLM labels each token with the
version of the weights that made it. Each load brings a new salt for cached prompts, and a request that has no token yet
when weights change is sent anew, so none starts on keys and values of older weights.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import ExitStack, aclosing
from dataclasses import dataclass
from itertools import count
from typing import Any
from uuid import uuid4

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from magcli.errors import MagError
from magcli.generate.fit import room
from magcli.generate.types import Completion, Message, Rollout, Sampling, Weights
from magcli.generate.vllm_link import Link, first_line
from magcli.generate.vllm_request import check_temperature, finish_of, request_settings, rollout_of, tokens_of
from magcli.generate.vllm_send import Sender, take_step
from magcli.generate.vllm_start import Engine
from magcli.generate.wire import TransferStep
from magcli.model.chat import completion_text, prompt_tokens
from magcli.model.load import context_length, end_tokens

Parts = Sequence[Any]
"""What vLLM tells of one request: its first token, then the rest, as ``CompletionOutput``."""

Waiting = asyncio.Queue[tuple[int, Parts] | MagError]


@dataclass(eq=False, slots=True)
class Live:
    """A request under way. ``begun``: it has a token; ``again``: it was taken back, to start from newer weights."""

    name: str
    begun: bool = False
    again: bool = False


class VllmPolicy:
    """An engine of vLLM behind the ``Policy`` protocol. It belongs to the event loop in which it is first used.

    Args:
        engine: a running engine, which it takes over.
        tokenizer: for text in and out; the engine itself sees token ids only.
        outline: the model without its weights: parameters, context and end tokens.
        sender: how new weights reach the engine.
        slots: sequences at once.
        deadline: seconds that the engine may leave a question without an answer.
    """

    def __init__(
        self,
        engine: Engine,
        tokenizer: PreTrainedTokenizerBase,
        outline: PreTrainedModel,
        sender: Sender,
        *,
        slots: int,
        deadline: float = 600.0,
    ) -> None:
        self._link = Link(engine, deadline=deadline, tell=self._tell)
        self._tokenizer, self._outline, self._sender = tokenizer, outline, sender
        self._ends = end_tokens(outline, tokenizer)
        self._context = context_length(outline)
        self._slots = slots
        self._version, self._salt = 0, uuid4().hex
        self._names = count()
        self._live: dict[str, Live] = {}
        self._waiting: set[Waiting] = set()
        self._loading = asyncio.Lock()
        self._worked, self._since = 0.0, 0.0

    @property
    def version(self) -> int:
        """The version of the weights that make the next token."""
        return self._version

    @property
    def num_running(self) -> int:
        """Sequences that the engine works on now; others wait for a slot."""
        return min(self._slots, len(self._live))

    @property
    def seconds(self) -> float:
        """Time in which the engine had something to do so far."""
        return self._worked + (time.monotonic() - self._since if self._live else 0.0)

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, *, seeds: Sequence[int]
    ) -> list[Completion]:
        """Sample one completion a seed for the same messages, in the order of the seeds; errors as ``sample``."""
        prompt = prompt_tokens(self._tokenizer, messages)
        async with aclosing(self._ended(prompt, sampling, seeds, logprobs=False)) as ends:
            ended = [end async for end in ends]
        return [self._completion(prompt, parts) for _, parts in sorted(ended, key=lambda end: end[0])]

    def _completion(self, prompt: Sequence[int], parts: Parts) -> Completion:
        tokens = tokens_of(parts)
        text = completion_text(self._tokenizer, prompt, tokens, self._ends)
        return Completion(text, len(tokens), finish_of(parts))

    async def sample(
        self, prompt: Sequence[int], sampling: Sampling, *, seeds: Sequence[int]
    ) -> AsyncGenerator[Rollout, None]:
        """Sample one sequence a seed, yielded as each one ends; closing the iterator ends the others.

        Raises:
            DataError: the prompt is empty.
            PromptTooLong: the prompt does not fit the context.
            UsageError: the sampling settings make no sense, or not to vLLM.
            EnvironmentFault: the engine process died or gives no answer.
            MagError: the policy has been closed.
        """
        async with aclosing(self._ended(prompt, sampling, seeds, logprobs=True)) as ended:
            async for index, parts in ended:
                yield rollout_of(index, tuple(prompt), seeds[index], parts)

    async def _ended(
        self, prompt: Sequence[int], sampling: Sampling, seeds: Sequence[int], *, logprobs: bool
    ) -> AsyncGenerator[tuple[int, Parts], None]:
        """The number and the outputs of each sequence that ends."""
        self._link.check()
        limit = room(prompt, sampling, self._context)
        check_temperature(sampling.temperature)
        await self._link.open()
        waiting = Waiting()
        self._waiting.add(waiting)
        tasks = []
        for index, seed in enumerate(seeds):
            settings = request_settings(sampling, limit, seed, self._ends, logprobs=logprobs)
            tasks.append(asyncio.create_task(self._one(index, prompt, settings, waiting)))
        try:
            for _ in seeds:
                yield _end(await waiting.get())
        finally:
            self._waiting.discard(waiting)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def load(self, weights: Weights, version: int) -> None:
        """Replace the weights between two steps; running sequences go on with their KV cache.

        A ``WeightFile`` is passed on by its path, other weights are written to shared memory first. Cancelled in the
        middle, it still ends in order.

        Raises:
            MagError: a parameter is missing or has another shape (nothing has been changed then), or the policy has
                been closed.
            EnvironmentFault: the engine process died, gives no answer or cannot take the weights: it has stopped.
        """
        await self._link.open()
        await asyncio.shield(asyncio.ensure_future(self._replace(weights, version)))

    async def transfer(self, step: TransferStep, info: Any, version: int) -> None:
        """One step of a transfer that whoever trains drives, instead of ``load``: from ``start`` to ``finish`` the
        engine is paused. ``info`` is vLLM's own for its backend.

        Raises:
            EnvironmentFault: the engine process died, gives no answer or cannot take the weights: it has stopped.
        """
        await self._link.open()
        answer, llm = self._link.answer, self._link.llm
        if step == "start":
            await answer("a pause", llm.pause_generation(mode="keep", clear_cache=False))
        await answer(f"new weights ({step})", take_step(llm, step, info))
        if step == "finish":
            await self._go_on(version)

    async def close(self) -> None:
        """End the engine process; whoever still waits for a sequence gets an error."""
        await self._link.close()

    def _tell(self, error: MagError) -> None:
        for waiting in self._waiting:
            waiting.put_nowait(error)

    async def _one(self, index: int, prompt: Sequence[int], settings: Any, waiting: Waiting) -> None:
        """Sample one sequence and pass it, or what went wrong, to who waits for it."""
        try:
            while (parts := await self._request(prompt, settings)) is None:
                pass
            waiting.put_nowait((index, parts))
        except Exception as error:  # whatever vLLM raises ends this sequence, and its engine's death all of them
            if self._link.llm.errored:
                self._link.fail(self._link.death())
            waiting.put_nowait(self._link.failure or self._link.fault(f"refused a sequence: {first_line(error)}"))

    async def _request(self, prompt: Sequence[int], settings: Any) -> Parts | None:
        """The outputs of one request, first token and rest; None where it is to be sent again."""
        from vllm.inputs.engine import tokens_input

        live, parts = Live(str(next(self._names))), list[Any]()
        self._begin(live)
        try:
            salted = tokens_input(list(prompt), cache_salt=self._salt)
            async for output in self._link.llm.generate(salted, settings, live.name):
                live.begun = True
                parts.append(output.outputs[0])
        finally:
            self._finish(live)
        return None if live.again and parts[-1].finish_reason == "abort" else parts

    def _begin(self, live: Live) -> None:
        if not self._live:
            self._since = time.monotonic()
        self._live[live.name] = live

    def _finish(self, live: Live) -> None:
        del self._live[live.name]
        if not self._live:
            self._worked += time.monotonic() - self._since

    async def _replace(self, weights: Weights, version: int) -> None:
        answer, llm = self._link.answer, self._link.llm
        async with self._loading:
            with ExitStack() as held:
                send = await asyncio.to_thread(held.enter_context, self._sender.ready(weights, self._outline))
                await answer("a pause", llm.pause_generation(mode="keep", clear_cache=False))
                await answer("loading new weights", send(llm))
            await self._go_on(version)

    async def _go_on(self, version: int) -> None:
        """From now on the engine's new weights, which are of this version, make the tokens."""
        answer, llm = self._link.answer, self._link.llm
        await answer("noting their version", llm.update_weight_version(str(version)))
        self._version, self._salt = version, uuid4().hex
        await answer("taking back what has not begun", llm.abort(self._taken_back()))
        await answer("going on", llm.resume_generation())

    def _taken_back(self) -> list[str]:
        """Requests without a token, to be sent anew: part of their prompt may be computed, or cached, already."""
        waiting = [live for live in self._live.values() if not live.begun]
        for live in waiting:
            live.again = True
        return [live.name for live in waiting]


def _end(item: tuple[int, Parts] | MagError) -> tuple[int, Parts]:
    if isinstance(item, MagError):
        raise item
    return item
