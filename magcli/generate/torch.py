"""The embedded engine as a ``Policy``: decoders and transformers' models on this process's CPU or GPU.

One task drives the engine while there is work and yields to the event loop between two steps, so ``load`` and
``aclose`` of a sample stream always happen between steps. An error in a step reaches everyone who waits, and
everyone who comes later.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING

from magcli.errors import MagError
from magcli.generate.engine import Engine
from magcli.generate.types import Completion, Message, Rollout, Sampling, Weights
from magcli.model.chat import completion_text, prompt_tokens
from magcli.model.load import end_tokens

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from magcli.generate.decoder import Decoder

Waiting = asyncio.Queue[Rollout | BaseException]


class TorchPolicy:
    """A model in slots behind the ``Policy`` protocol; see ``Engine`` for the arguments. It takes the model over."""

    def __init__(
        self,
        model: "PreTrainedModel | Decoder",
        tokenizer: "PreTrainedTokenizerBase",
        *,
        slots: int,
        deterministic: bool = False,
    ) -> None:
        self._tokenizer = tokenizer
        self._ends = end_tokens(model, tokenizer)
        self._engine = Engine(model, slots=slots, ends=self._ends, deterministic=deterministic)
        self._waiting: dict[int, Waiting] = {}
        self._driver: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None
        self.seconds = 0.0
        """Time spent in decode steps so far."""

    @property
    def version(self) -> int:
        """The version of the weights that make the next token."""
        return self._engine.version

    @property
    def num_running(self) -> int:
        """Sequences in slots now."""
        return self._engine.num_running

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, *, seeds: Sequence[int]
    ) -> list[Completion]:
        """Sample one completion a seed for the same messages, in the order of the seeds."""
        prompt = prompt_tokens(self._tokenizer, messages)
        rollouts = [rollout async for rollout in self.sample(prompt, sampling, seeds=seeds)]
        return [self._completion(rollout) for rollout in sorted(rollouts, key=lambda rollout: rollout.index)]

    def _completion(self, rollout: Rollout) -> Completion:
        text = completion_text(self._tokenizer, rollout.prompt, rollout.tokens, self._ends)
        return Completion(text, len(rollout.tokens), rollout.finish)

    async def sample(
        self, prompt: Sequence[int], sampling: Sampling, *, seeds: Sequence[int]
    ) -> AsyncGenerator[Rollout, None]:
        """Sample one sequence a seed, yielded as each one ends; closing the iterator frees the group's slots.

        Raises:
            DataError: the prompt is empty.
            PromptTooLong: the prompt does not fit the context.
            MagError: the policy has been closed, or a step failed (the error itself is the cause).
        """
        self._check_open()
        request = self._engine.submit(prompt, sampling, seeds)
        waiting = self._waiting[request] = Waiting()
        self._drive()
        try:
            for _ in seeds:
                yield _rollout(await waiting.get())
        finally:
            del self._waiting[request]
            self._engine.abort(request)

    async def load(self, weights: Weights, version: int) -> None:
        """Replace the weights between two decode steps; running sequences go on with their KV cache."""
        self._check_open()
        self._engine.load(weights, version)

    async def close(self) -> None:
        """Stop running sequences; whoever still waits for one gets an error."""
        driver, self._driver = self._driver, None
        self._fail(MagError("the engine has been closed"))
        if driver is not None and not driver.done():
            driver.cancel()
            await asyncio.gather(driver, return_exceptions=True)

    def _check_open(self) -> None:
        if self._failure is not None:
            raise MagError(f"the engine has stopped: {self._failure}") from self._failure

    def _drive(self) -> None:
        if self._driver is None or self._driver.done():
            self._driver = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        try:
            while self._engine.busy:
                begun = time.monotonic()
                for request, rollout in self._engine.step():
                    self._waiting[request].put_nowait(rollout)
                self.seconds += time.monotonic() - begun
                await asyncio.sleep(0)
        except Exception as error:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        self._failure = self._failure or error
        for waiting in self._waiting.values():
            waiting.put_nowait(error)


def _rollout(item: Rollout | BaseException) -> Rollout:
    if isinstance(item, BaseException):
        raise item
    return item
