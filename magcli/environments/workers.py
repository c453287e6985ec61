"""An environment in worker processes, which can be killed: whatever it does, its episode ends with a reason."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from magcli.verify.environment import Ask, Message, Reply, terms_of
from magcli.verify.pool import Pool
from magcli.verify.reward import Reward, ungraded


class Environment:
    """Asks an environment in processes of its own. Use it from asyncio, and close it.

    Args:
        spec: the class, as the option names it.
        workers: number of calls at once.
        sandbox: isolation of the programs that it runs: ``full``, ``restricted``, ``auto`` or ``none``.

    Raises:
        UsageError: there is no such class, or it lacks its method.
    """

    def __init__(self, spec: str, workers: int = 1, sandbox: str = "full") -> None:
        self.spec = spec
        self.terms = terms_of(spec)
        self._pool = Pool(workers, deadline=self.terms.seconds, function=spec, sandbox=sandbox)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()

    async def reply(self, row: Mapping[str, Any], messages: Sequence[Message]) -> Reply | Reward:
        """What comes after the model's last turn; a reward with the reason if the environment failed.

        Raises:
            EnvironmentFault: no worker starts.
        """
        return await self._ask("reply", row, messages)

    async def reward(self, row: Mapping[str, Any], messages: Sequence[Message]) -> Reward:
        """The environment's own reward of an episode that has ended. Raises as ``reply`` does."""
        reward = await self._ask("reward", row, messages)
        assert isinstance(reward, Reward), "a worker answers what it was asked"
        return reward

    async def _ask(self, what: Ask, row: Mapping[str, Any], messages: Sequence[Message]) -> Reply | Reward:
        outcome = await asyncio.wrap_future(self._pool.ask(what, row, messages))
        if isinstance(outcome, Reward) and outcome.reason == "timeout":
            advice = "a class attribute seconds gives it more time"
            return ungraded("reward-error", f"{what} of {self.spec} took {outcome.detail} and was ended; {advice}")
        return outcome

    def shutdown(self) -> None:
        """End the workers and whatever they started."""
        self._pool.shutdown()
