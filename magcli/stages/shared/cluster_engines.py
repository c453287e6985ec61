"""Engines on a cluster: one for each --tensor-parallel GPUs, or on CPUs one a node; how each opens in its process.

The shards of a stage share them (``SharedEngines``); those of a stage that does everything else in one process are
watched in a thread of its own (``ClusterEngines``).

A local Ray without GPUs has several, each with a part of the threads: one engine leaves cores idle while its Python
chooses tokens and admits requests.
"""

from __future__ import annotations

import asyncio
import os
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from magcli.cluster.open import address_for, open_cluster, servers
from magcli.cluster.types import ProcessKind, Resources, Surroundings
from magcli.config import is_url
from magcli.console import Console, Waiting
from magcli.errors import EnvironmentFault, MagError
from magcli.generate.remote.service import EngineServer, service_generator
from magcli.model.weights.tensors import weight_files
from magcli.plan import machine
from magcli.plan.machine import gpus
from magcli.run.job import Drops, Job, Whole
from magcli.stages.shared import engines, templates
from magcli.stages.shared.options import EngineOptions, LocalEngineOptions

if TYPE_CHECKING:
    from magcli.cluster.runtime import Cluster
    from magcli.cluster.service import OpenServer, Server, ServiceClient
    from magcli.generate.remote.service import Opened, ServiceGenerator
    from magcli.run.types import Notes

MOST_ON_CPUS = 4
"""The most engines on the CPUs of a local Ray; each has a copy of the weights."""

MEMORY_SHARE = 0.5
"""How much of this machine's free memory several engines on CPUs may take."""

LOADED_COPIES = 4
"""Bytes of an engine per byte of its weights' files while it loads: float32 of bf16 files, and its own beside them."""

START_SECONDS = 600.0
"""How long an engine may take to start, in a stage without --deadline."""


OpenEngine = Callable[[str, Any, Mapping[str, str]], "Server"]
"""Opens an engine in its process, by the stage, its options with the engine's own device, and what options left to
``auto`` resolved to, if it is known. Its ``opened`` is of type ``Opened``, its status a number that grows."""


def samples_locally(config: Any) -> bool:
    """Whether a stage samples from weights, not from a server."""
    return isinstance(config, EngineOptions) and bool(config.model) and not is_url(config.model)


class _KeptMessages(Console):
    """Keeps the messages of opening an engine for the driver."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[tuple[str, dict[str, Any]]] = []

    def say(self, text: str, **event: Any) -> None:
        """Keep a message."""
        self.messages.append((text, event))

    def waiting(self) -> Waiting:
        """Nothing: it would be over when the driver says it."""
        return Console(quiet=True).waiting()


def job_in_engine(stage: str, chosen: Mapping[str, str]) -> tuple[Job, list[tuple[str, dict[str, Any]]]]:
    """A job for opening an engine in its process, and the list of what it says, which is kept for the driver."""
    console = _KeptMessages()
    # As part of a whole run the job resolves ``auto`` as ``chosen`` says, not anew.
    return Job(stage, console, Drops(keep=False), whole=Whole({}, dict(chosen))), console.messages


def open_server(stage: str, config: EngineOptions, chosen: Mapping[str, str]) -> EngineServer:
    """Open an engine in its process; ``chosen`` is what options left to ``auto`` resolved to, if it is known."""
    job, messages = job_in_engine(stage, chosen)
    generator = engines.open_engine(config, job)
    return EngineServer(generator, job.chosen, messages)


class SharedEngines:
    """The engines of one run: starts, watches and replaces them."""

    def __init__(
        self,
        cluster: Cluster,
        config: LocalEngineOptions,
        job: Job,
        run_id: str,
        chosen: Mapping[str, str],
        open_server: OpenEngine,
    ) -> None:
        self._config = config
        self._job = job
        self._open_server = open_server
        self._chosen = dict(chosen)
        self._devices = devices_for(cluster, config)
        threads = 0  # as many as a single engine chooses
        if _is_on_these_cpus(cluster, config) and len(self._devices) > 1:
            threads = max(1, _threads() // len(self._devices))
        # Unique on a cluster that several runs share.
        addresses = [f"engine-{run_id}-{number}" for number in range(len(self._devices))]
        start_seconds = getattr(config, "deadline", START_SECONDS)
        surroundings = Surroundings.of_this_process(threads)
        kind = ProcessKind("engine", _resources(cluster, config), surroundings, start_seconds)
        self.group = servers(cluster, kind, addresses, self._opener_of, stage=job.stage, console=job.console)
        self._opened: Opened | None = None

    @property
    def addresses_and_opened(self) -> tuple[Sequence[str], Opened]:
        """What a shard needs to ask the engines."""
        assert self._opened is not None, "no engine has been started"
        return self.group.addresses, self._opened

    async def start(self) -> Opened:
        """Start the first engine, which resolves options left to ``auto``. Returns what it chose and reported.

        ``group.watch`` starts the others, so that short requests need not wait for them.

        Raises:
            EnvironmentFault: the cluster has no room for them.
            MagError: what opening an engine raised.
        """
        self.group.check_room()
        await self.group.start([0])
        opened: Opened = self.group.service(0).opened
        self._opened = opened
        # The other engines, and those that replace lost ones, open with these values.
        self._chosen |= opened.chosen
        for text, event in opened.messages:
            self._job.console.say(text, **event)
        return opened

    async def start_others(self) -> None:
        """Start all but the first engine at once, and wait for them; errors as ``start``.

        For long requests, which would all go to the first engine while it is the only one.
        """
        await self.group.start(range(1, len(self._devices)))

    def _opener_of(self, number: int) -> OpenServer:
        """Opens the engine on the device of that number."""
        config = replace(self._config, device=self._devices[number])
        return partial(self._open_server, self._job.stage, config, dict(self._chosen))


def _resources(cluster: Cluster, config: LocalEngineOptions) -> Resources:
    """Ray's GPUs, one a rank; on CPUs nothing, so that an engine never waits for the shards that wait for it."""
    on_gpu = config.device.startswith("cuda") and not cluster.is_local
    return Resources(gpus=config.tensor_parallel if on_gpu else 0)


def devices_for(cluster: Cluster, config: LocalEngineOptions) -> list[str]:
    """The first device of each engine of a stage."""
    here = devices(cluster, config.device, config.tensor_parallel)
    return here * engines_on_cpus(config) if _is_on_these_cpus(cluster, config) else here


def _is_on_these_cpus(cluster: Cluster, config: LocalEngineOptions) -> bool:
    return cluster.is_local and not config.device.startswith("cuda")


def engines_on_cpus(config: LocalEngineOptions) -> int:
    """How many engines share the CPUs of this machine.

    It is one with ``--deterministic``, whose results must not depend on the number of threads, for vLLM, which uses all
    cores, for `landscape`, whose engines load other weights for each point, and if there is memory for one only.
    """
    if config.deterministic or config.engine == "vllm" or not isinstance(config, EngineOptions):
        return 1
    return max(1, min(_threads(), MOST_ON_CPUS, _engines_in_memory(config)))


def _threads() -> int:
    """The threads that engines on this machine's CPUs have together."""
    # OpenMP also allows a list of numbers by level, which is not read here.
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    return int(wanted) if wanted.isdigit() else len(os.sched_getaffinity(0))


def _engines_in_memory(config: EngineOptions) -> int:
    """How many engines this machine's free memory holds."""
    model = templates.open_model(config)
    try:
        stored = sum(file.stat().st_size for file in weight_files(model.folder))
    except (EnvironmentFault, OSError):
        return 1  # opening the engine says what is wrong
    # Rounded down; the caller takes at least one.
    return int(MEMORY_SHARE * machine.host().usable // (LOADED_COPIES * stored))


def devices(cluster: Cluster, device: str, ranks: int = 1) -> list[str]:
    """The first device of each engine: of a local Ray the GPUs of this machine, else Ray's GPUs, or a node's CPUs each.

    An engine's ``ranks`` are on GPUs of one node; those of a node that are too few for one stay idle.
    """
    nodes = cluster.nodes()
    if not device.startswith("cuda"):
        return [device] * len(nodes)
    if not cluster.is_local:
        # Ray shows each process its own GPUs only, from number 0 on.
        return ["cuda"] * max(1, sum(int(node.gpus) // ranks for node in nodes))
    if device != "cuda":
        return [device]

    # Each engine's ranks take the GPUs from its first device on.
    engines_here = max(1, gpus() // ranks)
    return [f"cuda:{number * ranks}" for number in range(engines_here)]


class ClusterEngines:
    """Starts the engines of a run, and watches and replaces them in a thread of its own until ``close``.

    Args:
        config: the engine and ``cluster``, the option.
        job: the stage's run, which is told what options left to ``auto`` resolve to.
        unfinished: as in ``Job.choose``; what it chose is kept.
        open_server: opens an engine in its process.

    Raises:
        EnvironmentFault: the cluster cannot be used, or has no room.
        MagError: what opening an engine raised.
    """

    def __init__(
        self, config: Any, job: Job, unfinished: Sequence[Notes], open_server: OpenEngine = open_server
    ) -> None:
        chosen: dict[str, str] = {}
        for notes in unfinished:
            chosen |= notes.notes
        self._run_id = uuid.uuid4().hex[:12]
        self._loop = asyncio.new_event_loop()
        # A daemon, so that a cancelled process does not wait for it.
        self._thread = threading.Thread(target=self._loop.run_forever, name="cluster-engines", daemon=True)
        self._watching: Future[None] | None = None
        self._client: ServiceClient | None = None
        self._stack = ExitStack()
        try:
            cluster = self._stack.enter_context(open_cluster(address_for(config.cluster)))
            self._thread.start()
            # The stack runs backwards: the engines end first, then the thread that ends them, then Ray.
            self._stack.callback(self._end_thread)
            self._engines = SharedEngines(cluster, config, job, self._run_id, chosen, open_server)
            self._stack.callback(lambda: self._wait_for(self._end_engines()))
            opened = self._wait_for(self._engines.start())
            self._wait_for(self._engines.start_others())
            job.record(opened.chosen, unfinished)
        except BaseException:
            self._stack.close()
            raise

    @property
    def number(self) -> int:
        """Number of engines."""
        addresses, _ = self._engines.addresses_and_opened
        return len(addresses)

    def client(self) -> ServiceClient:
        """Asks all engines, and replaces those that are lost. Calls end with the error if one cannot be replaced."""
        self._client = self._engines.group.client(f"{self._run_id}-stage")
        self._watching = asyncio.run_coroutine_threadsafe(self._engines.group.watch(), self._loop)
        self._watching.add_done_callback(self._tell_client)
        return self._client

    def generator(self) -> ServiceGenerator:
        """All engines as one generator, which asks them as ``client`` does."""
        _, opened = self._engines.addresses_and_opened
        return service_generator(self.client(), opened)

    def close(self) -> None:
        """End the engines, and a Ray that was started for them."""
        # Else it would replace engines that are ended on purpose.
        if self._watching is not None:
            self._watching.cancel()
        self._stack.close()

    def _tell_client(self, watching: Future[None]) -> None:
        """Pass on why an engine could not be replaced."""
        # ``exception`` of a cancelled future raises.
        if watching.cancelled() or self._client is None:
            return
        error = watching.exception()
        if isinstance(error, MagError):
            self._client.fail(error)

    async def _end_engines(self) -> None:
        self._engines.group.close()

    def _wait_for(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def _end_thread(self) -> None:
        # A loop may be stopped only from its own thread.
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
