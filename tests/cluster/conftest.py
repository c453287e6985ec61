"""A Ray cluster of three nodes on loopback, as several machines would be."""

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
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


@pytest.fixture(scope="session")
def machines() -> Iterator[Any]:
    """A head without CPUs, where drivers are, and two nodes with one CPU each.

    ``address`` and ``environment`` are for commands that join; ``add`` and ``kill`` change the nodes. Ray knows of the
    change when they return: until then it would still count on a node that is gone.
    """
    from importlib import import_module

    from ray.cluster_utils import Cluster

    folder = tempfile.mkdtemp(prefix="mc", dir="/tmp")
    environment = {**SETTINGS, "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    with pytest.MonkeyPatch.context() as patched:
        for name, value in environment.items():
            patched.setenv(name, value)
        raylet: Any = import_module("ray._raylet")
        raylet.Config.initialize("")
        raylet.AuthenticationTokenLoader.instance().reset_cache()
        common = {"include_dashboard": False, "object_store_memory": 80 * 2**20}
        head = {**common, "num_cpus": 0, "_system_config": FAST_HEALTH_CHECKS, "temp_dir": folder}
        cluster = Cluster(initialize_head=True, head_node_args=head)

        def add(cpus: int = 1) -> Any:
            return cluster.add_node(num_cpus=cpus, object_store_memory=80 * 2**20)

        def kill(node: Any) -> None:
            cluster.remove_node(node, allow_graceful=False)
            cluster.wait_for_nodes(timeout=60)

        nodes = [add(), add()]
        yield SimpleNamespace(
            address=cluster.address, environment={**os.environ, **environment}, nodes=nodes, add=add, kill=kill
        )
        cluster.shutdown()
    shutil.rmtree(Path(folder), ignore_errors=True)
