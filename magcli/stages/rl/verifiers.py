"""The verifiers of `magcli rl`: the grader of this process, or graders on the nodes of a cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from magcli.cluster.types import Demand, Resources
from magcli.stages.rl.config import Config

if TYPE_CHECKING:
    from magcli.cluster.runtime import Cluster
    from magcli.console import Console
    from magcli.verify.grader import CompletionGrader, Grader


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

    from magcli.stages.rl.cluster_verifiers import open_cluster_verifiers

    async with open_cluster_verifiers(config, problems, demand, cluster, console) as verifiers:
        yield verifiers
