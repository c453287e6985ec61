"""Where processes of a command run, and the connection to it. Ray is imported when a cluster is opened, and not before.

Ray is an optional package and takes most of a second to import.
"""

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

from magcli.cluster.types import LOCAL, ProcessKind
from magcli.errors import EnvironmentFault

if TYPE_CHECKING:
    from magcli.cluster.runtime import Cluster
    from magcli.cluster.service import OpenServer
    from magcli.cluster.service_group import ServiceGroup
    from magcli.console import Console


@contextlib.contextmanager
def open_cluster(address: str = LOCAL, *, cpus: int = 1, awaits_nodes: bool = False) -> "Iterator[Cluster]":
    """Ray for the duration of the block.

    Args:
        address: ``local`` starts one; ``auto`` or HOST:PORT connects to one that runs.
        cpus: of a local Ray, how many processes with one CPU it runs at once.
        awaits_nodes: wait for nodes that are missing, because one was lost, instead of refusing the work.

    Raises:
        EnvironmentFault: Ray is not installed, cannot be started, or does not answer at the address.
    """
    require_ray()
    from magcli.cluster.runtime import connected

    with connected(address, cpus=cpus, awaits_nodes=awaits_nodes) as cluster:
        yield cluster


def servers(
    cluster: "Cluster",
    kind: ProcessKind,
    addresses: Sequence[str],
    opener_of: "Callable[[int], OpenServer]",
    *,
    stage: str,
    console: "Console",
) -> "ServiceGroup":
    """Servers of one kind on an open cluster, which are not started yet; arguments as of ``ServiceGroup``."""
    from magcli.cluster.service_group import ServiceGroup

    return ServiceGroup(cluster, kind, addresses, opener_of, stage=stage, console=console)


def address_for(option: str) -> str:
    """The address of ``--cluster``, or else of RAY_ADDRESS; local without either."""
    return option or os.environ.get("RAY_ADDRESS", "") or LOCAL


def require_ray() -> None:
    """Raise EnvironmentFault with an install hint if Ray is not installed."""
    if find_spec("ray") is None:
        raise EnvironmentFault("this needs the package ray, which is not installed: pip install 'magcli[cluster]'")
