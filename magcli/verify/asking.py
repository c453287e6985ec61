"""Worker processes that an environment is asked in."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from magcli.verify.environment import Ask, Message, Reply, terms_of
from magcli.verify.pool import Pool
from magcli.verify.reward import Reward


class Asked(Protocol):
    """What passes questions on to an environment: workers of this machine, or verifiers of a cluster."""

    async def ask(self, what: Ask, row: Mapping[str, Any], messages: Sequence[Message]) -> Reply | Reward:
        """Its reply or its reward; a failure of it is a reward with the reason."""


class EnvironmentWorkers:
    """The environment in ``workers`` processes, each with a call at a time. Close it by ``shutdown``.

    Raises:
        UsageError: there is no such class, or it lacks its method.
    """

    def __init__(self, spec: str, workers: int, sandbox: str) -> None:
        seconds = terms_of(spec).seconds
        self._pool = Pool(workers, deadline=seconds, function=spec, sandbox=sandbox)

    async def ask(self, what: Ask, row: Mapping[str, Any], messages: Sequence[Message]) -> Reply | Reward:
        """As ``Asked.ask``.

        Raises:
            EnvironmentFault: no worker starts.
        """
        return await asyncio.wrap_future(self._pool.ask(what, row, messages))

    def shutdown(self) -> None:
        """End the workers and whatever they started."""
        self._pool.shutdown()
