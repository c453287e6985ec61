"""Verifiers: graders and an environment in processes of a cluster, each with the worker processes of its machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from magcli.errors import MagError
from magcli.verify.asking import EnvironmentWorkers
from magcli.verify.environment import Ask, Message, Reply
from magcli.verify.grader import Grader
from magcli.verify.reward import Reward, RewardRule

if TYPE_CHECKING:
    import asyncio

    from magcli.cluster.service import ServiceClient

GraderOpener = Callable[[], Grader]
"""Opens a grader in the process of a verifier; it is sent there by pickle."""

EnvironmentOpener = Callable[[], EnvironmentWorkers]
"""The same for an environment."""


@dataclass(frozen=True, slots=True)
class GradeRequest:
    """To a verifier: the arguments of ``Grader.reward``."""

    text: str
    num_tokens: int
    row: Mapping[str, Any]
    rule: RewardRule


@dataclass(frozen=True, slots=True)
class AskRequest:
    """To a verifier: the arguments of ``Asked.ask``."""

    what: Ask
    row: Mapping[str, Any]
    messages: Sequence[Message]


class VerifierServer:
    """Answers requests in its own process, by a grader, or by an environment. Its status is the number of answers."""

    opened = None

    def __init__(self, grader: Grader, environment: EnvironmentWorkers | None) -> None:
        self._grader = grader
        self._environment = environment
        self._answered = 0

    @property
    def status(self) -> int:
        """Completions graded and turns answered so far."""
        return self._answered

    async def answer(self, request: GradeRequest | AskRequest) -> Reward | Reply:
        """The reward of a completion, or what the environment says."""
        answer = await self._answer(request)
        self._answered += 1
        return answer

    async def _answer(self, request: GradeRequest | AskRequest) -> Reward | Reply:
        if isinstance(request, GradeRequest):
            return await self._grader.reward(request.text, request.num_tokens, request.row, request.rule)
        assert self._environment is not None, "only runs with an environment ask it"
        return await self._environment.ask(request.what, request.row, request.messages)


def open_verifier(
    open_grader: GraderOpener, open_environment: EnvironmentOpener | None, problems: Sequence[Mapping[str, Any]]
) -> VerifierServer:
    """Open a verifier in its process, and try on it that this machine can grade such problems.

    Raises:
        EnvironmentFault: problems ask for programs, which this machine cannot isolate.
    """
    grader = open_grader()
    try:
        # Before the first request, so that the run fails at its start.
        for problem in problems:
            grader.check(problem)
    except MagError:
        grader.shutdown()  # its workers would outlive the failure
        raise
    return VerifierServer(grader, open_environment() if open_environment else None)


class ClusterVerifiers:
    """The verifiers of a cluster; a request goes to the one that was asked for least, again if that one is lost."""

    def __init__(self, client: ServiceClient) -> None:
        self._client = client

    async def reward(self, text: str, num_tokens: int, row: Mapping[str, Any], rule: RewardRule) -> Reward:
        """Grade one completion. Raises as ``Grader.reward`` does.

        Raises:
            EnvironmentFault: a lost verifier could not be replaced.
        """
        reward: Reward = await self._client.call(GradeRequest(text, num_tokens, row, rule))
        return reward

    async def ask(self, what: Ask, row: Mapping[str, Any], messages: Sequence[Message]) -> Reply | Reward:
        """Ask the environment, as ``Asked.ask``. Raises as ``reward`` does."""
        answer: Reply | Reward = await self._client.call(AskRequest(what, row, messages))
        return answer

    def fail(self, watching: asyncio.Task[None]) -> None:
        """Pass on why a verifier could not be replaced: a callback of the task that watches them."""
        # The run ends, and no verifier is missed.
        if watching.cancelled():
            return
        error = watching.exception()
        if isinstance(error, MagError):
            self._client.fail(error)
