"""The embedded engine as an asynchronous ``Policy``."""

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from magcli.errors import MagError
from magcli.generate import dispatch
from magcli.generate.spec import Spec
from magcli.generate.torch.engine import Engine, cache_bound
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
)
from magcli.generate.weights.gloo import GlooGroup
from magcli.model import exhausted
from magcli.model.chat.prompts import completion_text, prompt_tokens
from magcli.run.tasks import end_all

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from magcli.generate.torch.decoder import Decoder

Results = asyncio.Queue[Rollout | BaseException]


class TorchPolicy:
    """The engine of ``spec`` behind the ``Policy`` protocol, over its loaded ``model``; see ``Engine``.

    One task runs the engine while there is work and yields to the event loop between two steps, so ``load`` and
    ``aclose`` of a sample stream always happen between steps. An error in a step is raised to all current and later
    callers.
    """

    def __init__(self, spec: Spec, model: "PreTrainedModel | Decoder") -> None:
        self._tokenizer, self._ends = spec.model.tokenizer, spec.model.ends
        self.thoughts = spec.model.thoughts
        self._engine = Engine(
            model,
            slots=spec.slots,
            ends=self._ends,
            deterministic=spec.deterministic,
            cache_bytes=cache_bound(model, spec.gpu_memory),
        )
        self._results: dict[int, Results] = {}
        self._runner: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None
        self._group: GlooGroup | None = None
        self._received: Weights = {}
        self.num_finished = 0
        """Sequences finished so far."""
        self.seconds = 0.0
        """Time spent in decode steps so far."""
        self.load_seconds = 0.0
        """Time spent loading new weights so far."""

    @property
    def version(self) -> int:
        """The version of the weights that generate the next token."""
        return self._engine.version

    sent_dtype = None
    """Weights are not cast before the engine has them."""

    @property
    def num_running(self) -> int:
        """Slots in use."""
        return self._engine.num_running

    @property
    def num_slots(self) -> int:
        """Number of sequences that can run at once."""
        return self._engine.limit

    @property
    def capacity(self) -> int:
        """Number of sequences to have in flight so that no slot stays empty."""
        return dispatch.capacity(self._engine.limit)

    sleeps = False
    """The embedded engine keeps its memory."""

    async def sleep(self) -> None:
        """Do nothing."""

    def set_concurrency(self, sequences: int) -> None:
        """Set the maximum number of sequences that run at once; running ones are not interrupted."""
        self._engine.set_limit(sequences)

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, *, seeds: Sequence[int]
    ) -> list[Completion]:
        """Sample one completion per seed for the same messages, in the order of the seeds."""
        prompt = prompt_tokens(self._tokenizer, messages)
        rollouts = [rollout async for rollout in self.sample(prompt, sampling, seeds=seeds)]
        return [self._completion(rollout) for rollout in sorted(rollouts, key=lambda rollout: rollout.index)]

    def _completion(self, rollout: Rollout) -> Completion:
        text = completion_text(self._tokenizer, rollout.prompt, rollout.tokens, self._ends, self.thoughts)
        return Completion(text, len(rollout.tokens), rollout.finish)

    async def sample(
        self, prompt: Sequence[int], sampling: Sampling, *, seeds: Sequence[int]
    ) -> AsyncGenerator[Rollout, None]:
        """Sample one sequence per seed, yielded as each one ends; closing the iterator frees the request's slots.

        Raises MagError if the policy has been closed or a step failed; other errors as in ``tokens_left``.
        """
        self._check_open()
        request = self._engine.submit(prompt, sampling, seeds)
        results = self._results[request] = Results()
        if self._runner is None or self._runner.done():
            self._runner = asyncio.get_running_loop().create_task(self._run())
        try:
            for _ in seeds:
                result = await results.get()
                if isinstance(result, BaseException):
                    raise result
                yield result
        finally:
            del self._results[request]
            # Nothing happens if all of them have ended.
            self._engine.abort(request)

    async def load(self, weights: Weights, version: int) -> list[Digests]:
        """Replace the weights between two decode steps; running sequences keep their KV cache.

        Returns the digests of the tensors as they were read.
        """
        self._check_open()
        started = time.monotonic()
        arrived = self._engine.load(weights, version)
        self.load_seconds += time.monotonic() - started
        return [arrived]

    async def transfer(self, step: TransferStep, info: Any, version: int) -> Digests:
        """One step of a transfer over gloo that the trainer controls, instead of ``load``.

        Sequences continue while the tensors come, into memory of their own, until all are there.

        Returns, after ``finish``, the digests of the tensors under the names under which they came.
        """
        match step:
            case "init":
                join = partial(GlooGroup.join, info["host"], info["port"], info["rank_offset"], info["world_size"])
                self._group = await asyncio.to_thread(join)
            case "update":
                assert self._group is not None, "an update came before the connection"
                # In a thread, since gloo blocks until the trainer has sent all.
                self._received = dict(await asyncio.to_thread(list, self._group.receive(info)))
            case "finish":
                # Not kept: these are as large as the weights.
                received, self._received = self._received, {}
                (arrived,) = await self.load(received, version)
                return arrived
        return {}

    async def score(self, sequences: Sequences) -> list[Scores]:
        """The log-probs of tokens after their contexts, at temperature 1."""
        self._check_open()
        return [self._engine.score(sequences)]

    async def close(self) -> None:
        """Stop running sequences; current callers get an error."""
        runner, self._runner = self._runner, None
        self._fail(MagError("the engine has been closed"))
        if runner is not None and not runner.done():
            await end_all([runner])

    def _check_open(self) -> None:
        if self._failure is not None:
            raise MagError(f"the engine has stopped: {self._failure}") from self._failure

    async def _run(self) -> None:
        try:
            while self._engine.busy:
                started = time.monotonic()
                with exhausted.explained("sampling", exhausted.SAMPLING):
                    ended = self._engine.step()
                for request, rollout in ended:
                    self._results[request].put_nowait(rollout)
                    self.num_finished += 1
                self.seconds += time.monotonic() - started
                # Between two steps others get their turn: new requests, ends of streams, new weights.
                await asyncio.sleep(0)
        except Exception as error:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        # The first failure is the cause of the others.
        self._failure = self._failure or error
        for results in self._results.values():
            results.put_nowait(error)
