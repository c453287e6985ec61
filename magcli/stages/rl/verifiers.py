"""The verifiers of `magcli rl`: grader and environment of this process, or those on the nodes of a cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from magcli.cluster.types import Demand, Resources
from magcli.environments.environment import Environment
from magcli.stages.rl.config import Config

if TYPE_CHECKING:
    from magcli.cluster.runtime import Cluster
    from magcli.console import Console
    from magcli.verify.grader import CompletionGrader, Grader


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
    config: Config,
    grader: Grader,
    environment: Environment | None,
    problems: Sequence[Mapping[str, Any]],
    cluster: Cluster | None,
    console: Console,
) -> AsyncIterator[Verifiers]:
    """What judges rollouts for the duration of the block: ``grader`` and ``environment``, or those of the cluster.

    Raises:
        EnvironmentFault: the cluster has no room, or one of its machines cannot grade these problems.
    """
    demand = verifiers_demand(config)
    if demand is None or cluster is None:
        yield Verifiers(grader, environment)
        return

    from magcli.stages.rl.cluster_verifiers import open_cluster_verifiers

    async with open_cluster_verifiers(config, problems, demand, cluster, console) as verifiers:
        yield Verifiers(verifiers, Environment(environment.spec, verifiers) if environment else None)
