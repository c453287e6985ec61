"""Verifiers of `magcli rl` on the nodes of a cluster."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from magcli.cluster.service import ServiceClient
from magcli.cluster.service_group import ServiceGroup
from magcli.cluster.types import ProcessKind
from magcli.stages.shared import graders
from magcli.stages.shared.shared_engines import surroundings
from magcli.verify.asking import EnvironmentWorkers
from magcli.verify.reward import problem_kind
from magcli.verify.service import ClusterVerifiers, EnvironmentOpener, open_verifier

if TYPE_CHECKING:
    from magcli.cluster.runtime import Cluster
    from magcli.cluster.types import Demand
    from magcli.console import Console
    from magcli.stages.rl.config import Config

START_SECONDS = 120.0
"""How long a verifier may take to open."""


@asynccontextmanager
async def open_cluster_verifiers(
    config: Config, problems: Sequence[Mapping[str, Any]], demand: Demand, cluster: Cluster, console: Console
) -> AsyncIterator[ClusterVerifiers]:
    """The verifiers of ``demand`` for the duration of the block; errors as ``open_verifiers`` of `verifiers.py`."""
    run_id = uuid.uuid4().hex[:12]
    addresses = [f"verifier-{run_id}-{number}" for number in range(demand.number)]
    kind = ProcessKind("verifier", demand.resources, surroundings(), START_SECONDS)
    open_grader = partial(graders.open_grader, config, config.reward)
    opener = partial(open_verifier, open_grader, _environment_opener(config), _one_program(problems))
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


def _environment_opener(config: Config) -> EnvironmentOpener | None:
    """Opens the run's environment in the process of a verifier; None without one."""
    if not config.environment:
        return None
    return partial(EnvironmentWorkers, config.environment, config.workers, graders.isolation(config.sandbox)[0])


def _one_program(problems: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """The first problem that asks for a program, if there is any: a machine can judge all of them or none."""
    for problem in problems:
        if problem_kind(problem) == "code":
            return [problem]
    return []
