"""vLLM as a ``Policy``: its ``AsyncLLM`` in this process, its engine in a process of its own.

Each sample is one request with its own seed, so it ends by itself; vLLM's prefix cache computes a group's prompt once.
``load`` pauses the engine between two steps and keeps running requests with their cache; vLLM labels each token with
the version of the weights that generated it. Each load changes the salt of cached prompts, and a request that has no
token yet when the weights change is resubmitted, so none starts on keys and values of older weights.

An engine process that dies is noticed within a second, one that is stuck after the deadline. Either is reported once,
to all requests.
"""

import asyncio
import shutil
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import ExitStack, aclosing, suppress
from dataclasses import dataclass
from itertools import count
from signal import Signals
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from magcli.errors import EnvironmentFault, MagError, UsageError, first_line
from magcli.generate import dispatch
from magcli.generate.spec import Spec
from magcli.generate.types import (
    Completion,
    Digests,
    Message,
    Rollout,
    Sampling,
    Scores,
    Sequences,
    TransferStep,
    Weights,
    tokens_left,
)
from magcli.generate.vllm.request import Outputs, finish_of, output_tokens, rollout_of, sampling_params, scoring_params
from magcli.generate.vllm.sleep import fall_asleep, wake_for_weights, wake_to_sample
from magcli.generate.vllm.start import VllmProcess, cause_in, log_of
from magcli.generate.vllm.transfer import Sender, arrived_digests, run_step
from magcli.model.chat.prompts import completion_text, prompt_tokens
from magcli.run.tasks import end_all

if TYPE_CHECKING:
    import torch

T = TypeVar("T")

WATCH_SECONDS = 0.25
"""How often to look whether the engine process is alive."""

HEARTBEAT_SECONDS = 10.0
"""How often to ask the engine for an answer, which it gives between two steps."""

SHUTDOWN_SECONDS = 2.0
"""What an engine gets to end by itself: it has nothing to save."""

MIN_TEMPERATURE, MAX_TEMPERATURE = 0.01, 2.0
"""Temperatures that vLLM accepts, besides 0; it would silently replace lower ones."""

Results = asyncio.Queue[tuple[int, Outputs] | MagError]


class Link:
    """A running engine, in the event loop in which it is first used.

    Args:
        engine: what ``magcli.generate.vllm.start.start`` gives; ended by ``close``.
        deadline: seconds that the engine may leave a question without an answer.
        tell: called once, with the error, when nothing more can be had from the engine.
    """

    def __init__(self, engine: VllmProcess, *, deadline: float, tell: Callable[[MagError], None]) -> None:
        self.llm, self._process, self._sockets = engine
        self._deadline, self._tell = deadline, tell
        self._watcher: asyncio.Task[None] | None = None
        self._opening: asyncio.Task[object] | None = None
        self.failure: MagError | None = None

    async def open(self) -> None:
        """Begin to watch the engine; once it has answered, requests reach it without waiting for anything.

        Raises:
            MagError: the engine has been closed.
            EnvironmentFault: it died or gives no answer.
        """
        self.check()
        if self._opening is None:
            self._opening = asyncio.create_task(self.answer("what it can do", self.llm.get_supported_tasks()))
            self._watcher = asyncio.create_task(self._watch())
        await asyncio.shield(self._opening)

    def check(self) -> None:
        """Raise what ended the engine, if anything has."""
        if isinstance(self.failure, EnvironmentFault):
            raise EnvironmentFault(str(self.failure)) from self.failure
        if self.failure is not None:
            raise MagError(f"the engine has stopped: {self.failure}") from self.failure

    async def answer(self, awaited: str, question: Awaitable[T]) -> T:
        """What the engine answers, within the deadline; an engine that does not has stopped.

        Raises:
            MagError: the engine has been closed.
            EnvironmentFault: it died, gave no answer or an error.
        """
        task = asyncio.ensure_future(question)
        ends = time.monotonic() + self._deadline
        try:
            # Looked at often, so that the death of the process ends the wait before the deadline does.
            while not task.done() and self._lives():
                left = ends - time.monotonic()
                if left <= 0:
                    break
                await asyncio.wait([task], timeout=min(WATCH_SECONDS, left))
            if not task.done() or task.exception() is not None:
                reason = first_line(task.exception()) if task.done() else f"silence for {self._deadline:g} s"
                fault = self.fault(f"was asked for {awaited}: {reason}")
                self.fail(self.death() if self.llm.errored else fault)
                self.check()
            return task.result()
        finally:
            task.cancel()

    def _lives(self) -> bool:
        if self.failure is None and self.llm.errored:
            self.fail(self.death())
        return self.failure is None

    async def _watch(self) -> None:
        heard = time.monotonic()
        while self._lives():
            await asyncio.sleep(WATCH_SECONDS)
            if time.monotonic() - heard > HEARTBEAT_SECONDS:
                with suppress(MagError):
                    await self.answer("a sign of life", self.llm.get_weight_version())
                heard = time.monotonic()

    def fail(self, error: MagError) -> None:
        """Nothing more can be had from the engine; the first such error counts."""
        if self.failure is None:
            # The first error is the cause; later ones follow from it.
            self.failure = error
            self._tell(error)

    def fault(self, what: str) -> EnvironmentFault:
        """An error that names the process."""
        return EnvironmentFault(f"the vLLM engine process (pid {self._process.pid}) {what}")

    def death(self) -> EnvironmentFault:
        """The error that says how the process ended."""
        self._process.join(WATCH_SECONDS)
        code = self._process.exitcode
        how = "nobody knows how"
        if code is not None:  # a negative one is the number of a signal
            how = f"exit code {code}" if code >= 0 else Signals(-code).name
        cause = cause_in(log_of(self._sockets)) or "is there memory enough?"
        return self.fault(f"died ({how}): {cause}")

    async def close(self) -> None:
        """End the process, by force when it takes too long."""
        self.fail(MagError("the engine has been closed"))
        if self._watcher is not None:
            await end_all([self._watcher])
        if (outputs := self.llm.output_handler) is not None:
            outputs.cancel()  # it would log an end that several ranks report as their failure
        await asyncio.to_thread(self.llm.shutdown, SHUTDOWN_SECONDS)
        await asyncio.to_thread(self._process.join, SHUTDOWN_SECONDS)
        shutil.rmtree(self._sockets, ignore_errors=True)


@dataclass(eq=False, slots=True)
class RunningRequest:
    """A running request. ``has_token``: its first token is there; ``resubmit``: to be restarted with newer weights."""

    name: str
    has_token: bool = False
    resubmit: bool = False


class VllmPolicy:
    """An engine of vLLM behind the ``Policy`` protocol. It belongs to the event loop in which it is first used.

    The policy owns the ``engine`` that was started for ``spec``, and which sees token ids only. ``sender`` is how new
    weights reach it.
    """

    def __init__(self, spec: Spec, engine: VllmProcess, sender: Sender) -> None:
        self._link = Link(engine, deadline=spec.deadline, tell=self._fail)
        self._outline, self._sender = spec.model.outline, sender
        self._tokenizer, self._ends = spec.model.tokenizer, spec.model.ends
        self.thoughts = spec.model.thoughts
        # On a GPU vLLM may have cut its length to what fits the cache.
        self._context = min(spec.model.context, engine.llm.model_config.max_model_len)
        self._model_context = spec.model.context
        self.sent_dtype: torch.dtype | None = None if spec.lora_rank else spec.torch_dtype
        """The type of its weights; adapters stay as they are."""
        self._pauses_at: TransferStep = "start" if spec.device.startswith("cuda") else "finish"
        self._slots = spec.slots
        self._concurrency = spec.slots
        self.version = 0
        """The version of the weights that generate the next token."""
        self._salt = uuid4().hex
        self._names = count()
        self._requests: dict[str, RunningRequest] = {}
        self._results: set[Results] = set()
        # One load at a time, and no sleep in between.
        self._loading = asyncio.Lock()
        self.sleeps = spec.sleeps
        """Whether it gives its memory back while the trainer works."""
        self._asleep_since: float | None = None
        # Set while sequences may run.
        self._awake = asyncio.Event()
        self._awake.set()
        self._busy_seconds, self._busy_since = 0.0, 0.0
        self._paused_at: float | None = None
        self.load_seconds = 0.0
        """Seconds that the engine has been paused for new weights so far."""
        self.num_finished = 0
        """Sequences finished so far."""

    @property
    def num_running(self) -> int:
        """Sequences that the engine is generating; others wait for a slot."""
        return min(self._slots, len(self._requests))

    @property
    def num_slots(self) -> int:
        """Number of sequences that can run at once."""
        return min(self._slots, self._concurrency)

    @property
    def capacity(self) -> int:
        """Number of sequences to have in flight so that no slot stays empty.

        vLLM starts everything that it has a slot for, so there is a backlog only if all slots may be used.
        """
        return self.num_slots if self.num_slots < self._slots else dispatch.capacity(self._slots)

    async def sleep(self) -> None:
        """Give the GPU's memory back until the next ``load``, if the engine was opened so.

        Sequences stand still, and new ones wait.

        Raises:
            EnvironmentFault: the engine process died or does not answer.
        """
        async with self._loading:
            if self.sleeps and self._asleep_since is None:
                await self._link.open()
                self._awake.clear()
                await self._link.answer("falling asleep", fall_asleep(self._link.llm))
                self._asleep_since = time.monotonic()

    def set_concurrency(self, sequences: int) -> None:
        """Set the maximum number of sequences that run at once; running ones are not interrupted."""
        self._concurrency = sequences

    @property
    def seconds(self) -> float:
        """Seconds that the engine has been busy so far."""
        if not self._requests:
            return self._busy_seconds
        return self._busy_seconds + (time.monotonic() - self._busy_since)

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, *, seeds: Sequence[int]
    ) -> list[Completion]:
        """Sample one completion per seed for the same messages, in the order of the seeds; errors as ``sample``."""
        prompt = prompt_tokens(self._tokenizer, messages)
        async with aclosing(self._run(prompt, sampling, seeds, logprobs=False)) as results:
            ended = [result async for result in results]
        return [self._completion(prompt, outputs) for _, outputs in sorted(ended, key=lambda result: result[0])]

    def _completion(self, prompt: Sequence[int], outputs: Outputs) -> Completion:
        tokens = output_tokens(outputs)
        text = completion_text(self._tokenizer, prompt, tokens, self._ends, self.thoughts)
        return Completion(text, len(tokens), finish_of(outputs))

    async def sample(
        self, prompt: Sequence[int], sampling: Sampling, *, seeds: Sequence[int]
    ) -> AsyncGenerator[Rollout, None]:
        """Sample one sequence per seed, yielded as each one ends; closing the iterator aborts the others.

        Raises EnvironmentFault if the engine process died or does not answer, MagError if the policy has been closed;
        other errors as in ``tokens_left``.
        """
        async with aclosing(self._run(prompt, sampling, seeds, logprobs=True)) as results:
            async for index, outputs in results:
                yield rollout_of(index, tuple(prompt), seeds[index], outputs)

    async def _run(
        self, prompt: Sequence[int], sampling: Sampling, seeds: Sequence[int], *, logprobs: bool
    ) -> AsyncGenerator[tuple[int, Outputs], None]:
        """The index and the outputs of each sequence that ends."""
        self._link.check()
        # All that can be refused at once, before the engine is waited for.
        limit = tokens_left(prompt, sampling, self._context, self._outline.config.vocab_size)
        self._check_cache(prompt, sampling, limit)
        _ = self._sender.lora_request  # an error if there is no adapter yet
        if sampling.temperature and not MIN_TEMPERATURE <= sampling.temperature <= MAX_TEMPERATURE:
            accepted = f"vLLM accepts 0, and {MIN_TEMPERATURE:g} to {MAX_TEMPERATURE:g}"
            raise UsageError(f"temperature {sampling.temperature:g}: {accepted}")
        await self._link.open()
        await self._awake.wait()  # the next turn of an episode may come during an update
        self._link.check()
        results = Results()
        self._results.add(results)
        tasks = []
        for index, seed in enumerate(seeds):
            params = sampling_params(sampling, limit, seed, self._ends, logprobs=logprobs)
            tasks.append(asyncio.create_task(self._one(index, prompt, params, results)))
        try:
            for _ in seeds:
                result = await results.get()
                if isinstance(result, MagError):
                    raise result
                self.num_finished += 1
                yield result
        finally:
            self._results.discard(results)
            await end_all(tasks)

    def _check_cache(self, prompt: Sequence[int], sampling: Sampling, limit: int) -> None:
        """Refuse to cut a sequence because the cache is small, which no reader of its text could see.

        Raises:
            EnvironmentFault: fewer than the wanted tokens fit, while the model's context holds them.
        """
        wanted = tokens_left(prompt, sampling, self._model_context)
        if limit < wanted:
            raise EnvironmentFault(
                f"the cache of vLLM holds {self._context:,} tokens of a sequence, but a prompt has {len(prompt):,} and "
                f"may get {wanted:,} more: lower --max-tokens, raise --gpu-memory, or use a smaller model"
            )

    async def score(self, sequences: Sequences) -> list[Scores]:
        """The log-probs of tokens after their contexts, at temperature 1; errors as ``sample``."""
        self._link.check()
        await self._link.open()
        return [await asyncio.gather(*(self._score(context, tokens) for context, tokens in sequences))]

    async def _score(self, context: Sequence[int], tokens: Sequence[int]) -> list[float]:
        """The log-probs of tokens after a context: vLLM gives those of all tokens of a prompt."""
        try:
            outputs = await self._outputs_of([*context, *tokens], scoring_params())
        except Exception as error:  # as in ``_one``
            if self._link.llm.errored:
                self._link.fail(self._link.death())
            raise self._link.failure or self._link.fault(f"scored no sequence: {first_line(error)}") from error
        logprobs = outputs[-1].prompt_logprobs
        starts = logprobs.start_indices[len(context) :]
        return [logprobs.logprobs[start] for start in starts]

    async def load(self, weights: Weights, version: int) -> list[Digests]:
        """Replace the weights between two steps; running sequences keep their KV cache.

        A ``WeightFile`` is passed by its path, other weights are written to shared memory first; an engine with LoRA
        adapters takes those instead. A cancelled load still completes.

        Returns the digests of the tensors as vLLM's worker received them.

        Raises:
            WeightsFault: a parameter is missing or has another shape; nothing has been changed.
            MagError: the policy has been closed.
            EnvironmentFault: the engine process died, does not answer or cannot load the weights: it has stopped.
        """
        await self._link.open()
        # Cancelled half-way, the engine would have weights of two versions.
        return [await asyncio.shield(asyncio.ensure_future(self._replace(weights, version)))]

    async def transfer(self, step: TransferStep, info: Any, version: int) -> Digests:
        """One step of a transfer that the trainer controls, instead of ``load``; ``info`` is specific to the backend.

        By NCCL weights arrive in vLLM's own, so the engine is paused from ``start`` to ``finish``; over gloo they have
        memory of their own until ``finish``.

        Returns, after ``finish``, the digests of the tensors under the names under which they came.

        Raises:
            EnvironmentFault: the engine process died, does not answer or cannot load the weights: it has stopped.
        """
        await self._link.open()
        answer, llm = self._link.answer, self._link.llm
        if step == self._pauses_at:
            await self._pause()
        await answer(f"new weights ({step})", run_step(llm, step, info))
        if step != "finish":
            return {}
        arrived = await answer("the digests of new weights", arrived_digests(llm))
        await self._resume(version)
        return arrived

    async def close(self) -> None:
        """Stop the engine process; current callers get an error."""
        await self._link.close()

    def _fail(self, error: MagError) -> None:
        self._awake.set()  # what waited gets the error
        for results in self._results:
            results.put_nowait(error)

    async def _one(self, index: int, prompt: Sequence[int], params: Any, results: Results) -> None:
        """Sample one sequence; puts its outputs, or the error, into ``results``."""
        try:
            outputs = await self._outputs_of(prompt, params)
            # Each output has one sequence, as one was asked for.
            results.put_nowait((index, [output.outputs[0] for output in outputs]))
        except Exception as error:  # whatever vLLM raises ends this sequence, and its engine's death all of them
            if self._link.llm.errored:
                self._link.fail(self._link.death())
            results.put_nowait(self._link.failure or self._link.fault(f"refused a sequence: {first_line(error)}"))

    async def _outputs_of(self, prompt: Sequence[int], params: Any) -> list[Any]:
        """vLLM's ``RequestOutput``s of one request, resubmitted as often as new weights make it necessary."""
        outputs = None
        while outputs is None:
            outputs = await self._request(prompt, params)
        return outputs

    async def _request(self, prompt: Sequence[int], params: Any) -> list[Any] | None:
        """vLLM's ``RequestOutput``s of one request, first token and rest; None if it has to be resubmitted."""
        from vllm.inputs.engine import tokens_input

        request = RunningRequest(str(next(self._names)))
        outputs: list[Any] = []
        adapter = self._sender.lora_request
        if not self._requests:
            # The engine is busy from the first request to the end of the last.
            self._busy_since = time.monotonic()
        # Before the first await: new weights that come now must see it as one without a token.
        self._requests[request.name] = request
        try:
            salted = tokens_input(list(prompt), cache_salt=self._salt)
            async for output in self._link.llm.generate(salted, params, request.name, lora_request=adapter):
                request.has_token = True
                outputs.append(output)
        finally:
            del self._requests[request.name]
            if not self._requests:
                self._busy_seconds += time.monotonic() - self._busy_since
        # It may have ended by itself just before it was aborted.
        is_aborted = request.resubmit and outputs[-1].outputs[0].finish_reason == "abort"
        return None if is_aborted else outputs

    async def _replace(self, weights: Weights, version: int) -> Digests:
        answer, llm = self._link.answer, self._link.llm
        async with self._loading:
            # File or buffers stay until the engine has loaded them.
            with ExitStack() as buffers:
                send = await asyncio.to_thread(buffers.enter_context, self._sender.ready(weights, self._outline))
                arrived = await answer("loading new weights", send(llm, self._pause))
            await self._resume(version)
            return arrived

    async def _pause(self) -> None:
        """Stop between two steps, awake enough to take new weights; running requests keep their KV cache."""
        self._paused_at = time.monotonic()
        await self._link.answer("a pause", self._link.llm.pause_generation(mode="keep", clear_cache=False))
        if self._asleep_since is not None:
            await self._link.answer("waking up", wake_for_weights(self._link.llm))

    async def _resume(self, version: int) -> None:
        """Continue generating with the engine's new weights, which have this version."""
        answer, llm = self._link.answer, self._link.llm
        # Tokens from here on are labelled with it.
        await answer("setting their version", llm.update_weight_version(str(version)))
        self.version = version
        self._salt = uuid4().hex  # what is cached of prompts is of the old weights
        await answer("aborting requests without a token", llm.abort(self._to_resubmit()))
        if self._asleep_since is not None:
            await answer("waking up", wake_to_sample(llm))
            if self._requests:  # they counted as busy while it slept
                self._busy_seconds -= time.monotonic() - self._asleep_since
            self._asleep_since = None
            self._awake.set()
        await answer("resuming", llm.resume_generation())
        assert self._paused_at is not None
        self.load_seconds += time.monotonic() - self._paused_at

    def _to_resubmit(self) -> list[str]:
        """Requests without a token: part of their prompt may be computed, or cached, with the old weights."""
        waiting = [request for request in self._requests.values() if not request.has_token]
        for request in waiting:
            request.resubmit = True
        return [request.name for request in waiting]
