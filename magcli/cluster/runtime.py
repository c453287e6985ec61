"""A Ray of one's own for a run on this machine, or a connection to one that runs already.

A local Ray listens on loopback only, behind a token that no other user can read, and ends with the process that started
it, however that ends (``magcli.cluster.reaper``). What Ray prints by itself is silenced: lost processes are reported by
who uses them.
"""

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray
from ray import _raylet
from ray._private import auto_init_hook, ray_constants, worker
from ray.util.placement_group import placement_group, remove_placement_group

from magcli.cluster.reaper import end_session
from magcli.cluster.types import AUTO, LOCAL, WAITING_SECONDS, Demand, Node, Resources
from magcli.console import Console
from magcli.errors import EnvironmentFault, UsageError, first_line

LOOPBACK = "127.0.0.1"
CONNECT_SECONDS = 5.0

NAMESPACE = "magcli"
OBJECT_STORE_BYTES = 80 * 2**20
"""Nothing large goes through Ray's object store; it accepts no less than 75 MiB."""

FOLDER_PREFIX = "magcli-ray-"

LOCAL_RAY_DIED = "the local Ray died; run the same command again to resume"

PRIVATE = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # sockets on loopback only
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "token",
    "RAY_prestart_worker_first_driver": "0",  # no idle worker of 46 MB per CPU
    "RAY_worker_niceness": "0",  # engines are as important as the trainer in the driver
    "RAY_DISABLE_MEMORY_MONITOR": "1",  # else it kills trainers that use memory as planned
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # an engine without GPUs of Ray sees those that its device names
}
"""Ray's settings for a local Ray."""


class Cluster:
    """A connection to Ray. Open it with ``magcli.cluster.open.open_cluster``."""

    def __init__(self, address: str, *, awaits_nodes: bool = False) -> None:
        self.address = address
        self._awaits_nodes = awaits_nodes

    @property
    def is_local(self) -> bool:
        """Whether it is a Ray of this process alone."""
        return self.address == LOCAL

    def nodes(self) -> list[Node]:
        """The nodes that are alive.

        Raises:
            EnvironmentFault: that of a local Ray is not, and nobody starts another.
        """
        alive = [
            Node(
                str(node["NodeID"]),
                str(node["NodeManagerHostname"]),
                float(node["Resources"].get("CPU", 0.0)),
                float(node["Resources"].get("GPU", 0.0)),
            )
            for node in ray.nodes()
            # Ray also lists the nodes that it has lost.
            if node["Alive"]
        ]
        if self.is_local and not alive:
            raise EnvironmentFault(LOCAL_RAY_DIED)
        return alive

    def own_address(self) -> str:
        """This machine's address for processes of the cluster."""
        return LOOPBACK if self.is_local else str(ray.util.get_node_ip_address())

    def free(self) -> Resources:
        """What no process has taken now; errors as ``nodes``."""
        self.nodes()
        available = ray.available_resources()
        return Resources(float(available.get("CPU", 0.0)), float(available.get("GPU", 0.0)))

    def check_room(self, demands: Sequence[Demand]) -> None:
        """Refuse processes that the nodes could never hold together, even empty; Ray would wait for ever.

        Those that need most of a node come first. A cluster that awaits nodes refuses nothing: whoever starts the
        processes says what they wait for.

        Raises:
            EnvironmentFault: there is no room; the message says for which processes, and how much there is.
        """
        if self._awaits_nodes:
            return
        nodes = self.nodes()
        for number, demand in enumerate(demands):
            # Each kind has to fit beside those before it.
            beside = demands[:number]
            places = _places(nodes, demand.resources, beside)
            if places < demand.number:
                text = f"the cluster has room for {places} of {demand.number} {demand.what}"
                text += f", each with {demand.resources} on one node"
                if beside:
                    text += f", beside {' and '.join(map(str, beside))}"
                sizes = ", ".join(f"{node.host}: {Resources(node.cpus, node.gpus)}" for node in nodes)
                raise EnvironmentFault(f"{text} ({sizes}); start more nodes, or ask for fewer")

    def places_for(self, resources: Resources, *, beside: Sequence[Demand] = ()) -> int:
        """How many processes the nodes could hold, with nothing else on them but those that are ``beside``."""
        return _places(self.nodes(), resources, beside)

    @contextlib.contextmanager
    def room_kept(self, demands: Sequence[Demand], say: Callable[[str], None]) -> Iterator[None]:
        """Keep room for processes that are started after the block from those that are started in it.

        Without it small processes could be spread over all nodes, so that no node has room for a large one.

        Args:
            demands: what is started later.
            say: told every 30 seconds that there is no room yet.
        """
        if not demands:
            yield
            return

        # One bundle a process, since Ray keeps a bundle whole on one node.
        bundles: list[dict[str, float]] = []
        for demand in demands:
            bundles += [_bundle(demand.resources) for _ in range(demand.number)]
        wanted = " and ".join(map(str, demands))
        group = placement_group(bundles)
        try:
            while not group.wait(timeout_seconds=WAITING_SECONDS):
                say(f"waiting for room for {wanted}; the cluster has {self.free()} free")
            yield
        finally:
            remove_placement_group(group)


def _bundle(resources: Resources) -> dict[str, float]:
    """Resources under Ray's names."""
    named = {"CPU": resources.cpus, "GPU": resources.gpus}
    return {name: amount for name, amount in named.items() if amount > 0}


def _places(nodes: Sequence[Node], resources: Resources, beside: Sequence[Demand]) -> int:
    """How many processes fit into what other processes leave of the nodes."""
    left = list(nodes)
    for demand in beside:
        left = _without(left, demand)
    return sum(_fitting(node, resources) for node in left)


def _without(nodes: Sequence[Node], demand: Demand) -> list[Node]:
    """The nodes with what is left of them beside these processes, each where there is room, the first nodes first."""
    left = []
    resources = demand.resources
    unplaced = demand.number
    for node in nodes:
        # As many as there is room for; the others go to the next nodes.
        here = min(unplaced, _fitting(node, resources))
        unplaced -= here
        cpus = node.cpus - here * resources.cpus
        gpus = node.gpus - here * resources.gpus
        left.append(replace(node, cpus=cpus, gpus=gpus))
    return left


def _fitting(node: Node, resources: Resources) -> int:
    """How many processes fit a node by itself."""
    limits = []
    if resources.cpus > 0:
        limits.append(node.cpus // resources.cpus)
    if resources.gpus > 0:
        limits.append(node.gpus // resources.gpus)
    # A process that takes nothing fits any number of times.
    return int(min(limits)) if limits else 1_000_000


@contextlib.contextmanager
def connected(address: str, *, cpus: int, awaits_nodes: bool) -> Iterator[Cluster]:
    """``magcli.cluster.open.open_cluster`` where Ray is installed."""
    with _local_ray(cpus) if address == LOCAL else _joined(address):
        _silence_printed_errors()
        auto_init_hook.enable_auto_connect = False  # a thread that outlives its cluster would start another one
        yield Cluster(address, awaits_nodes=awaits_nodes)


@contextlib.contextmanager
def _local_ray(cpus: int) -> Iterator[None]:
    _end_abandoned_sessions()
    folder = tempfile.mkdtemp(prefix=f"{FOLDER_PREFIX}{os.getpid()}-")
    reaper = _start_reaper(folder)
    settings = {**PRIVATE, "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    ray_folder = Path(folder) / "ray"  # Ray lets every user write into its own folder, but nobody gets there
    ray_folder.mkdir()
    try:
        # Ray's own processes inherit the variables; this one reads them once more.
        with _environment(settings):
            _read_settings_again()
            # Ray puts the working directory on its workers' module path: it must not be one with a user's files.
            with contextlib.chdir(ray_folder):
                _init(
                    address=LOCAL,
                    num_cpus=cpus,
                    num_gpus=0,
                    include_dashboard=False,
                    object_store_memory=OBJECT_STORE_BYTES,
                    _temp_dir=str(ray_folder),
                )
            is_ending = threading.Event()
            _end_with_control_service(is_ending)
            try:
                yield
            finally:
                is_ending.set()
                ray.shutdown()
    finally:
        assert reaper.stdin is not None
        # The end of its input tells the reaper that the session is over.
        reaper.stdin.close()
        reaper.wait()
        _read_settings_again()  # Ray would keep the private token for the next cluster of this process


def _end_with_control_service(is_ending: threading.Event) -> None:
    """Watch Ray's control service (GCS), and end this process in one line when it dies before Ray is ended.

    Without it no call of Ray returns, and after a minute Ray's own code in C++ would end this process. What is finished
    is on disk, and the reaper ends the other processes.
    """
    node: Any = worker._global_node
    services = node.all_processes.get("gcs_server", [])
    if not services or not hasattr(os, "waitid"):
        return
    service = services[0].process.pid

    def watch() -> None:
        with contextlib.suppress(ChildProcessError):  # Ray has waited for it
            # WNOWAIT leaves the ended process to Ray, which waits for it itself.
            os.waitid(os.P_PID, service, os.WEXITED | os.WNOWAIT)
        if not is_ending.is_set():
            fault = EnvironmentFault(LOCAL_RAY_DIED)
            Console(as_json="--json" in sys.argv).last_error(str(fault), code=fault.exit_code)
            # Not ``sys.exit``: this is a thread, and the main one may hang in a call of Ray.
            os._exit(fault.exit_code)

    threading.Thread(target=watch, name="magcli-ray-watch", daemon=True).start()


def _read_settings_again() -> None:
    """Have Ray, which reads its settings when it is imported, read those that were made since."""
    raylet: Any = _raylet  # its types lack these
    raylet.Config.initialize("")
    raylet.AuthenticationTokenLoader.instance().reset_cache()
    ray_constants.ENABLE_RAY_CLUSTER = ray_constants.env_bool(ray_constants.ENABLE_RAY_CLUSTERS_ENV_VAR, True)


@contextlib.contextmanager
def _joined(address: str) -> Iterator[None]:
    if address.startswith("ray://"):
        raise UsageError(f"--cluster {address}: run magcli on a node of the cluster, with its HOST:PORT or auto")
    if address != AUTO:
        _check_answers(address)
    _read_settings_again()
    _init(address=address)
    try:
        yield
    finally:
        ray.shutdown()


def _check_answers(address: str) -> None:
    """Refuse an address that nothing listens at; Ray would try for two minutes.

    Raises:
        UsageError: it is not HOST:PORT.
        EnvironmentFault: no connection.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise UsageError(f"--cluster {address} is not HOST:PORT, auto or local")
    try:
        socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS).close()
    except OSError as error:
        raise EnvironmentFault(f"Ray at {address} cannot be used: {first_line(error)}; is it running?") from error


def _init(**arguments: Any) -> None:
    """``ray.init`` with this process's handlers of signals left as they are.

    Raises:
        EnvironmentFault: with the first line of what Ray says.
    """
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        ray.init(namespace=NAMESPACE, log_to_driver=False, configure_logging=False, **arguments)
    except Exception as error:
        where = arguments["address"]
        hint = "" if where == LOCAL else "; is it running, and is its token in RAY_AUTH_TOKEN_PATH?"
        raise EnvironmentFault(f"Ray at {where} cannot be used: {first_line(error)}{hint}") from error
    finally:
        for number, handler in handlers.items():
            with contextlib.suppress(ValueError):  # only the main thread has handlers
                signal.signal(number, handler)


def _start_reaper(folder: str) -> "subprocess.Popen[bytes]":
    """The process that ends the session in the folder when this one is gone or closes its input."""
    # -P: a module of the working directory must not replace one of the standard library.
    command = [sys.executable, "-P", "-m", "magcli.cluster.reaper", folder]
    # A session of its own, so that signals to the driver's process group do not end it.
    return subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)


def _end_abandoned_sessions() -> None:
    """End the sessions of processes that were killed together with their reaper."""
    for folder in Path(tempfile.gettempdir()).glob(f"{FOLDER_PREFIX}*"):
        # ``magcli-ray-PID-...``: the process that made the folder.
        owner = folder.name.removeprefix(FOLDER_PREFIX).partition("-")[0]
        is_mine = folder.stat().st_uid == os.getuid()
        if is_mine and owner.isdigit() and not Path(f"/proc/{owner}").exists():
            end_session(str(folder))


@contextlib.contextmanager
def _environment(settings: Mapping[str, str]) -> Iterator[None]:
    """Variables for the processes that are started in the block, and for Ray in this one."""
    # None: the variable was not set, and is removed again.
    earlier = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in earlier.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _silence_printed_errors() -> None:
    """Drop the lines "(raylet) ..." that Ray prints on stderr, also with ``log_to_driver=False``."""
    if not hasattr(worker, "print_to_stdstream"):  # pragma: no cover
        return  # another version of Ray; a test sees what it prints
    worker.print_to_stdstream = lambda *_args, **_options: None
