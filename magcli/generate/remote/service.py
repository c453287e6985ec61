"""An engine in a process of the cluster that several processes sample from, and their end of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from magcli.generate.types import Completion, Generator, Message, Sampling, VisionModel
from magcli.model.chat.thoughts import ThoughtForm, form_named

if TYPE_CHECKING:
    from magcli.cluster.service import ServiceClient


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """To an engine: sample one completion a seed. ``images`` belong to the last message."""

    messages: tuple[Message, ...]
    images: tuple[bytes, ...]
    sampling: Sampling
    seeds: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Opened:
    """From an engine that is open.

    ``chosen`` is what options left to ``auto`` resolved to, the form of thoughts included; ``messages`` are for people,
    each with its event.
    """

    chosen: Mapping[str, str]
    messages: Sequence[tuple[str, Mapping[str, Any]]]
    reads_images: bool


class EngineServer:
    """Answers requests with an engine of its own process. Its status is the number of finished completions."""

    def __init__(
        self, generator: Generator, chosen: Mapping[str, str], messages: Sequence[tuple[str, Mapping[str, Any]]]
    ) -> None:
        self._generator = generator
        self.opened = Opened(dict(chosen), list(messages), isinstance(generator, VisionModel))

    @property
    def status(self) -> int:
        """Completions finished so far."""
        return self._generator.num_finished

    async def answer(self, request: CompletionRequest) -> list[Completion]:
        """The completions of a request, in the order of its seeds."""
        if not request.images:
            return await self._generator.complete(request.messages, request.sampling, seeds=request.seeds)
        assert isinstance(self._generator, VisionModel), "a request with images went to a model without vision"
        return await self._generator.complete_with_images(
            request.messages, request.images, request.sampling, seeds=request.seeds
        )


class ServiceGenerator:
    """The engines of a cluster as one ``Generator``; a request goes to the engine that this one has asked for least."""

    def __init__(self, client: ServiceClient, thoughts: ThoughtForm) -> None:
        self._client = client
        self.thoughts = thoughts
        self.num_finished = 0
        """Completions received so far."""

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, *, seeds: Sequence[int]
    ) -> list[Completion]:
        """Sample one completion per seed for the same messages, in the order of the seeds."""
        return await self._ask(CompletionRequest(tuple(messages), (), sampling, tuple(seeds)))

    async def _ask(self, request: CompletionRequest) -> list[Completion]:
        completions: list[Completion] = await self._client.call(request, weight=len(request.seeds))
        self.num_finished += len(completions)
        return completions

    async def close(self) -> None:
        """Leave the engines, which go on."""
        await self._client.close()


class VisionServiceGenerator(ServiceGenerator):
    """The same for engines that read images."""

    async def complete_with_images(
        self, messages: Sequence[Message], images: Sequence[bytes], sampling: Sampling, *, seeds: Sequence[int]
    ) -> list[Completion]:
        """Sample one completion per seed; ``images`` are image files that belong to the last message."""
        return await self._ask(CompletionRequest(tuple(messages), tuple(images), sampling, tuple(seeds)))


def service_generator(client: ServiceClient, opened: Opened) -> ServiceGenerator:
    """The engines that a client asks, which said this when they were open."""
    kind = VisionServiceGenerator if opened.reads_images else ServiceGenerator
    return kind(client, form_named(opened.chosen["thoughts"]))
