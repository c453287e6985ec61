"""A Ray cluster on loopback, as several machines would be: nodes are added, killed and replaced."""

import os
import secrets
import shutil
import signal
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

FAST_HEALTH_CHECKS = {
    "health_check_initial_delay_ms": 1000,
    "health_check_period_ms": 1000,
    "health_check_timeout_ms": 2000,
    "health_check_failure_threshold": 3,
}
"""The death of a node is noticed after 3 to 4 seconds; Ray's default is 14."""

SETTINGS = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "token",
    "RAY_prestart_worker_first_driver": "0",
    "RAY_worker_niceness": "0",
}

STORE_BYTES = 80 * 2**20

ROLES = {"RankActor": "rank", "Mailbox": "generator", "ServiceActor": "engine", "_work_on_shard": "shard"}
"""What the processes of magcli on a node do, by what Ray calls them."""


@dataclass
class Machines:
    """A head without CPUs, where drivers are, and nodes with one CPU each.

    ``address`` and ``environment`` are for commands that join.
    """

    cluster: Any
    environment: Mapping[str, str]
    nodes: list[Any]

    @property
    def address(self) -> str:
        """Where the head listens."""
        return str(self.cluster.address)

    def add(self, cpus: int = 1) -> Any:
        """Start a node; Ray knows of it when this returns."""
        return self.cluster.add_node(num_cpus=cpus, object_store_memory=STORE_BYTES)

    def kill(self, node: Any) -> None:
        """Kill a node; Ray knows of it when this returns. Until then it would still count on the node."""
        self.cluster.remove_node(node, allow_graceful=False)
        self.cluster.wait_for_nodes(timeout=400)

    def kill_raylet(self, node: Any) -> None:
        """Kill the process that holds a node together; the others of the node then end by themselves."""
        os.kill(raylet_of(node), signal.SIGKILL)
        node.all_processes["raylet"][0].process.wait()  # the others would take a zombie for alive

    def replace(self, node: Any) -> None:
        """Start a node in the place of one whose raylet was killed."""
        self.cluster.remove_node(node, allow_graceful=False)
        self.nodes[self.nodes.index(node)] = self.add()

    def workers(self) -> dict[int, str]:
        """The processes of magcli on all nodes, the head included, and what they do."""
        workers: dict[int, str] = {}
        for node in [self.cluster.head_node, *self.nodes]:
            workers |= workers_on(node)
        return workers


def raylet_of(node: Any) -> int:
    """The process that starts a node's actors and tasks."""
    return int(node.all_processes["raylet"][0].process.pid)


def workers_on(node: Any) -> dict[int, str]:
    """The processes of magcli on a node, and what they do."""
    raylet = raylet_of(node)
    workers = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with suppress(OSError, IndexError):
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            command_line = (entry / "cmdline").read_bytes().decode(errors="replace")
            if parent == raylet:
                workers |= {int(entry.name): role for name, role in ROLES.items() if name in command_line}
    return workers


@contextmanager
def opened_machines(number: int) -> Iterator[Machines]:
    """A head and so many nodes for the duration of the block."""
    from ray._common.utils import get_default_ray_temp_dir
    from ray.cluster_utils import Cluster

    # Cluster writes its address there, even with a folder of its own, and fails where no Ray has run before.
    os.makedirs(get_default_ray_temp_dir(), exist_ok=True)
    folder = tempfile.mkdtemp(prefix="mc", dir="/tmp")
    environment = {**SETTINGS, "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    with pytest.MonkeyPatch.context() as patched:
        for name, value in environment.items():
            patched.setenv(name, value)
        raylet: Any = import_module("ray._raylet")
        raylet.Config.initialize("")
        raylet.AuthenticationTokenLoader.instance().reset_cache()
        common = {"include_dashboard": False, "object_store_memory": STORE_BYTES}
        head = {**common, "num_cpus": 0, "_system_config": FAST_HEALTH_CHECKS, "temp_dir": folder}
        cluster = Cluster(initialize_head=True, head_node_args=head)
        machines = Machines(cluster, {**os.environ, **environment}, [])
        machines.nodes += [machines.add() for _ in range(number)]
        yield machines
        cluster.shutdown()
    shutil.rmtree(folder, ignore_errors=True)
