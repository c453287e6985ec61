"""The verifiers of `magcli rl`: grader and environment of this process, or those on the nodes of a cluster."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from magcli.cluster.open import servers
from magcli.cluster.types import Demand, ProcessKind, Resources, Surroundings
from magcli.environments.environment import Environment
from magcli.stages.shared import graders
from magcli.stages.shared.options import GraderOptions
from magcli.verify.asking import EnvironmentWorkers
from magcli.verify.reward import problem_kind
from magcli.verify.service import ClusterVerifiers, open_verifier

if TYPE_CHECKING:
    from magcli.cluster.runtime import Cluster
    from magcli.cluster.service import OpenServer
    from magcli.console import Console
    from magcli.stages.rl.config import Config
    from magcli.verify.grader import CompletionGrader, Grader

START_SECONDS = 120.0
"""How long a verifier may take to open."""


class Verifiers(NamedTuple):
    """What grades the completions of a run, and what answers its turns, if it has an environment."""

    grader: CompletionGrader
    environment: Environment | None


@dataclass(frozen=True, slots=True)
class Judging:
    """What judges the completions of a run: this process, or ``verifiers`` processes on the nodes of a cluster.

    ``reward`` is a user's own, and ``environment`` what answers the turns; an empty text is none.
    """

    grading: GraderOptions
    reward: str
    environment: str
    verifiers: int

    @classmethod
    def of(cls, config: Config) -> Judging:
        """That of a run's options."""
        grading = GraderOptions(config.workers, config.verify_deadline, config.sandbox)
        return cls(grading, config.reward, config.environment, config.verifiers)

    @property
    def demand(self) -> Demand | None:
        """The resources of a cluster that the verifiers need, a CPU per worker; None if this process grades."""
        if not self.verifiers:
            return None
        return Demand("verifiers", self.verifiers, Resources(cpus=self.grading.workers))

    def open_grader(self) -> Grader:
        """The grader, in this process or in one of a verifier."""
        return graders.open_grader(self.grading, self.reward, self.environment)

    def opener(self, problems: Sequence[Mapping[str, Any]]) -> OpenServer:
        """Opens the run's grader, and its environment if it has one, in the process of a verifier."""
        environment = None
        if self.environment:
            isolation, _ = graders.isolation(self.grading.sandbox)
            environment = partial(EnvironmentWorkers, self.environment, self.grading.workers, isolation)
        return partial(open_verifier, self.open_grader, environment, _one_program(problems))


@asynccontextmanager
async def open_verifiers(
    judging: Judging, own: Verifiers, problems: Sequence[Mapping[str, Any]], cluster: Cluster | None, console: Console
) -> AsyncIterator[Verifiers]:
    """What judges rollouts for the duration of the block: this process's ``own``, or those of the cluster.

    Raises:
        EnvironmentFault: the cluster has no room, or one of its machines cannot grade these problems.
    """
    demand = judging.demand
    if demand is None or cluster is None:
        yield own
        return
    async with _on_cluster(cluster, demand, judging.opener(problems), console) as verifiers:
        # The spec is this process's; its turns are answered on the cluster.
        environment = own.environment
        yield Verifiers(verifiers, Environment(environment.spec, verifiers) if environment else None)


@asynccontextmanager
async def _on_cluster(
    cluster: Cluster, demand: Demand, opener: OpenServer, console: Console
) -> AsyncIterator[ClusterVerifiers]:
    """Starts the verifiers of ``demand``, and watches and replaces them; errors as ``open_verifiers``."""
    # Addresses are unique on a cluster that several runs share.
    run_id = uuid.uuid4().hex[:12]
    addresses = [f"verifier-{run_id}-{number}" for number in range(demand.number)]
    kind = ProcessKind("verifier", demand.resources, Surroundings.of_this_process(), START_SECONDS)
    group = servers(cluster, kind, addresses, lambda _: opener, stage="rl", console=console)
    client = group.client(f"{run_id}-rl")
    verifiers = ClusterVerifiers(client)
    watching: asyncio.Task[None] | None = None
    try:
        group.check_room()
        await group.start(range(demand.number))
        watching = asyncio.create_task(group.watch())
        # Calls that wait end with the error if a verifier cannot be replaced.
        watching.add_done_callback(verifiers.fail)
        yield verifiers
    finally:
        # Else it would replace verifiers that are ended on purpose.
        if watching is not None:
            watching.cancel()
        await client.close()
        group.close()


def _one_program(problems: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """The first problem that asks for a program, if there is any: a machine can judge all of them or none."""
    return next(([problem] for problem in problems if problem_kind(problem) == "code"), [])
