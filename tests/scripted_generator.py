"""A generator that answers with a function, for error paths that a real model cannot produce."""

from collections.abc import Callable, Sequence

from magcli.errors import MagError
from magcli.generate.types import Completion, Message, Sampling
from magcli.model.chat.thoughts import THINK

Handler = Callable[[Sequence[Message], Sampling, int], Completion]
"""One sample: messages, sampling and seed to a completion. ``complete`` raises what it raises."""


class ScriptedGenerator:
    """Answers each seed by calling a handler; ``calls`` records the requests, ``closed`` whether it was closed."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self.calls: list[tuple[Sequence[Message], Sampling, int]] = []
        self.closed = False
        self.num_finished = 0
        self.thoughts = THINK

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, *, seeds: Sequence[int]
    ) -> list[Completion]:
        """One completion per seed, in the order of the seeds."""
        if self.closed:
            raise MagError("the generator has been closed")
        self.calls += [(messages, sampling, seed) for seed in seeds]
        completions = [self._handler(messages, sampling, seed) for seed in seeds]
        self.num_finished += len(completions)
        return completions

    async def close(self) -> None:
        """Refuse further requests."""
        self.closed = True
