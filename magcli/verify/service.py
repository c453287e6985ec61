"""Graders in processes of a cluster, each with the worker processes of its machine, and the end that asks them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from magcli.errors import MagError
from magcli.verify.grader import Grader
from magcli.verify.reward import Reward, RewardRule

if TYPE_CHECKING:
    import asyncio

    from magcli.cluster.service import ServiceClient

GraderOpener = Callable[[], Grader]
"""Opens a grader in the process of a verifier; it is sent there by pickle."""


@dataclass(frozen=True, slots=True)
class GradeRequest:
    """To a verifier: the arguments of ``Grader.reward``."""

    text: str
    num_tokens: int
    row: Mapping[str, Any]
    rule: RewardRule


class VerifierServer:
    """Answers requests with a grader of its own process. Its status is the number of rewards."""

    opened = None

    def __init__(self, grader: Grader) -> None:
        self._grader = grader
        self._graded = 0

    @property
    def status(self) -> int:
        """Completions graded so far."""
        return self._graded

    async def answer(self, request: GradeRequest) -> Reward:
        """The reward of a completion."""
        reward = await self._grader.reward(request.text, request.num_tokens, request.row, request.rule)
        self._graded += 1
        return reward


def open_verifier(open_grader: GraderOpener, problems: Sequence[Mapping[str, Any]]) -> VerifierServer:
    """Open a verifier in its process, and try on it that this machine can grade such problems.

    Raises:
        EnvironmentFault: problems ask for programs, which this machine cannot isolate.
    """
    grader = open_grader()
    try:
        for problem in problems:
            grader.check(problem)
    except MagError:
        grader.shutdown()
        raise
    return VerifierServer(grader)


class ClusterVerifiers:
    """The verifiers of a cluster; a completion goes to the one that was asked for least."""

    def __init__(self, client: ServiceClient) -> None:
        self._client = client

    async def reward(self, text: str, num_tokens: int, row: Mapping[str, Any], rule: RewardRule) -> Reward:
        """Grade one completion, again on another verifier if that one is lost. Raises as ``Grader.reward`` does.

        Raises:
            EnvironmentFault: a lost verifier could not be replaced.
        """
        reward: Reward = await self._client.call(GradeRequest(text, num_tokens, row, rule))
        return reward

    def fail(self, watching: asyncio.Task[None]) -> None:
        """Pass on why a verifier could not be replaced: a callback of the task that watches them."""
        if watching.cancelled():
            return
        error = watching.exception()
        if isinstance(error, MagError):
            self._client.fail(error)
