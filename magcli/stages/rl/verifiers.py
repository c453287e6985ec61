"""The verifiers of `magcli rl`: the grader of this process, or graders on the nodes of a cluster."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from magcli.cluster.runtime import Demand, Resources
from magcli.cluster.service import ServiceClient
from magcli.cluster.service_group import ServerKind, ServiceGroup
from magcli.stages.rl.config import Config
from magcli.stages.shared import graders
from magcli.stages.shared.shared_engines import surroundings
from magcli.verify.reward import problem_kind
from magcli.verify.service import ClusterVerifiers, open_verifier

if TYPE_CHECKING:
    from magcli.cluster.runtime import Cluster
    from magcli.console import Console
    from magcli.verify.grader import CompletionGrader, Grader

START_SECONDS = 120.0
"""How long a verifier may take to open."""


def verifiers_demand(config: Config) -> Demand | None:
    """The resources of a cluster that the verifiers of a run need, a CPU per worker; None if this process grades."""
    if not config.verifiers:
        return None
    return Demand("verifiers", config.verifiers, Resources(cpus=config.workers))


@asynccontextmanager
async def open_verifiers(
    config: Config,
    grader: Grader,
    problems: Sequence[Mapping[str, Any]],
    cluster: Cluster | None,
    console: Console,
) -> AsyncIterator[CompletionGrader]:
    """What grades rollouts for the duration of the block: ``grader``, or verifiers on the cluster that replace it.

    Raises:
        EnvironmentFault: the cluster has no room, or one of its machines cannot grade these problems.
    """
    demand = verifiers_demand(config)
    if demand is None or cluster is None:
        yield grader
        return

    run_id = uuid.uuid4().hex[:12]
    addresses = [f"verifier-{run_id}-{number}" for number in range(demand.number)]
    kind = ServerKind("verifier", demand.resources, surroundings(), START_SECONDS)
    open_grader = partial(graders.open_grader, config, config.reward)
    opener = partial(open_verifier, open_grader, _one_program(problems))
    group = ServiceGroup(cluster, kind, addresses, lambda _: opener, stage="rl", console=console)
    client = ServiceClient(addresses, f"{run_id}-rl")
    verifiers = ClusterVerifiers(client)
    watching: asyncio.Task[None] | None = None
    try:
        group.check_room()
        await group.start(range(demand.number))
        watching = asyncio.create_task(group.watch())
        watching.add_done_callback(verifiers.fail)
        yield verifiers
    finally:
        if watching is not None:
            watching.cancel()
        await client.close()
        group.close()


def _one_program(problems: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """The first problem that asks for a program, if there is any: a machine can judge all of them or none."""
    for problem in problems:
        if problem_kind(problem) == "code":
            return [problem]
    return []
