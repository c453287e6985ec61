"""The verifiers of `magcli rl`: grader and environment of this process, or those on the nodes of a cluster."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from magcli.cluster.open import servers
from magcli.cluster.types import Demand, ProcessKind, Resources, Surroundings
from magcli.environments.environment import Environment
from magcli.stages.shared import graders
from magcli.verify.asking import EnvironmentWorkers
from magcli.verify.reward import problem_kind
from magcli.verify.service import ClusterVerifiers, open_verifier

if TYPE_CHECKING:
    from magcli.cluster.runtime import Cluster
    from magcli.cluster.service import OpenServer
    from magcli.console import Console
    from magcli.stages.rl.config import Config
    from magcli.verify.grader import CompletionGrader

START_SECONDS = 120.0
"""How long a verifier may take to open."""


class Verifiers(NamedTuple):
    """What grades the completions of a run, and what answers its turns, if it has an environment."""

    grader: CompletionGrader
    environment: Environment | None


def verifiers_demand(config: Config) -> Demand | None:
    """The resources of a cluster that the verifiers of a run need, a CPU per worker; None if this process grades."""
    if not config.verifiers:
        return None
    return Demand("verifiers", config.verifiers, Resources(cpus=config.workers))


@asynccontextmanager
async def open_verifiers(
    config: Config, own: Verifiers, problems: Sequence[Mapping[str, Any]], cluster: Cluster | None, console: Console
) -> AsyncIterator[Verifiers]:
    """What judges rollouts for the duration of the block: this process's ``own``, or those of the cluster.

    Raises:
        EnvironmentFault: the cluster has no room, or one of its machines cannot grade these problems.
    """
    demand = verifiers_demand(config)
    if demand is None or cluster is None:
        yield own
        return
    async with _on_cluster(cluster, demand, _opener(config, problems), console) as verifiers:
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


def _opener(config: Config, problems: Sequence[Mapping[str, Any]]) -> OpenServer:
    """Opens the run's grader, and its environment if it has one, in the process of a verifier."""
    environment = None
    if config.environment:
        isolation, _ = graders.isolation(config.sandbox)
        environment = partial(EnvironmentWorkers, config.environment, config.workers, isolation)
    open_grader = partial(graders.open_grader, config, config.reward)
    return partial(open_verifier, open_grader, environment, _one_program(problems))


def _one_program(problems: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """The first problem that asks for a program, if there is any: a machine can judge all of them or none."""
    return next(([problem] for problem in problems if problem_kind(problem) == "code"), [])
