"""An environment as episodes see it: whatever it does, their turn is answered, or they end with a reason."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from magcli.verify.asking import Asked, EnvironmentWorkers
from magcli.verify.environment import Ask, Message, Reply, terms_of
from magcli.verify.reward import Reward, ungraded


class Environment:
    """Asks the environment that ``spec`` names, through ``asked``. Use it from asyncio.

    Raises:
        UsageError: there is no such class, or it lacks its method.
    """

    def __init__(self, spec: str, asked: Asked) -> None:
        self.spec = spec
        self.terms = terms_of(spec)
        self._asked = asked

    async def reply(self, row: Mapping[str, Any], messages: Sequence[Message]) -> Reply | Reward:
        """What comes after the model's last turn; a reward with the reason if the environment failed.

        Raises:
            EnvironmentFault: there is no process to ask.
        """
        return await self._ask("reply", row, messages)

    async def reward(self, row: Mapping[str, Any], messages: Sequence[Message]) -> Reward:
        """The environment's own reward of an episode that has ended. Raises as ``reply`` does."""
        reward = await self._ask("reward", row, messages)
        assert isinstance(reward, Reward), "a worker answers what it was asked"
        return reward

    async def _ask(self, what: Ask, row: Mapping[str, Any], messages: Sequence[Message]) -> Reply | Reward:
        outcome = await self._asked.ask(what, row, messages)
        # A worker reports only the time that it took.
        if isinstance(outcome, Reward) and outcome.reason == "timeout":
            advice = "a class attribute seconds gives it more time"
            return ungraded("reward-error", f"{what} of {self.spec} took {outcome.detail} and was ended; {advice}")
        return outcome


@contextmanager
def in_workers(spec: str, workers: int = 1, sandbox: str = "full") -> Iterator[Environment]:
    """An environment in worker processes of this machine, for the duration of the block.

    Args:
        spec: the class, as the option names it.
        workers: number of calls at once.
        sandbox: isolation of the programs that it runs: ``full``, ``restricted``, ``auto`` or ``none``.

    Raises:
        UsageError: there is no such class, or it lacks its method.
    """
    asked = EnvironmentWorkers(spec, workers, sandbox)
    try:
        yield Environment(spec, asked)
    finally:
        asked.shutdown()
