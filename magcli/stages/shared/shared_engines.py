"""Engines on a cluster that the shards of a stage share: one for each --tensor-parallel GPUs, or on CPUs one a node."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from magcli.console import Console
from magcli.errors import EnvironmentFault
from magcli.run.job import Drops, Job, Whole
from magcli.stages.shared import engines
from magcli.stages.shared.options import EngineOptions, LocalEngineOptions

if TYPE_CHECKING:
    from magcli.cluster.mailbox import Surroundings
    from magcli.cluster.runtime import Cluster, Resources
    from magcli.cluster.service import Server, Service
    from magcli.generate.service import EngineServer, Opened

START_SECONDS = 600.0
"""How long an engine may take to start, in a stage without --deadline."""

OpenEngine = Callable[[str, Any, Mapping[str, str]], "Server"]
"""Opens an engine in its process, by the stage, its options with the engine's own device, and what options left to
``auto`` resolved to, if it is known. Its ``opened`` is of type ``Opened``, its status a number that grows."""

MAX_DEATHS = 5
"""How often an engine may die without a completion finished meanwhile."""


def samples_locally(config: Any) -> bool:
    """Whether a stage samples from weights, not from a server."""
    return isinstance(config, EngineOptions) and bool(config.model) and not config.model.startswith("http")


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
        self._cluster, self._config, self._job = cluster, config, job
        self._open_server = open_server
        self._chosen = dict(chosen)
        self._devices = devices(cluster, config.device, config.tensor_parallel)
        self._addresses = [f"engine-{run_id}-{number}" for number in range(len(self._devices))]
        self._services: dict[int, Service] = {}
        self._opened: Opened | None = None
        self._finished: Counter[int] = Counter()
        self._ended_finished = 0

    @property
    def num_finished(self) -> int:
        """Completions finished so far, those of lost engines included."""
        return self._ended_finished + sum(each.status or 0 for each in self._services.values())

    @property
    def addresses_and_opened(self) -> tuple[Sequence[str], Opened]:
        """What a shard needs to ask the engines."""
        assert self._opened is not None, "no engine has been started"
        return self._addresses, self._opened

    async def start(self) -> Opened:
        """Start all engines; the first decides what options left to ``auto`` resolve to. Returns what it says.

        Raises:
            EnvironmentFault: the cluster has no room for them.
            MagError: what opening an engine raised.
        """
        resources = self._resources()
        self._cluster.check_placeable("engines", len(self._devices), resources)
        await self._start(0)
        opened: Opened = self._services[0].opened
        self._opened = opened
        self._chosen |= opened.chosen
        for text, event in opened.messages:
            self._job.console.say(text, **event)
        async with asyncio.TaskGroup() as group:
            for number in range(1, len(self._devices)):
                group.create_task(self._start(number))
        return opened

    async def watch(self) -> None:
        """Replace engines that die, until one cannot be replaced.

        Raises:
            EnvironmentFault: it dies again and again.
            MagError: what opening its successor raised.
        """
        watching = [asyncio.create_task(self._keep(number)) for number in range(len(self._devices))]
        try:
            await asyncio.gather(*watching)
        finally:
            for task in watching:
                task.cancel()
            await asyncio.gather(*watching, return_exceptions=True)

    def forget(self, client: str) -> None:
        """Tell the engines that a shard's process was lost."""
        for service in self._services.values():
            service.forget(client)

    async def close(self) -> None:
        """End all engines."""
        for service in self._services.values():
            service.kill()

    async def _keep(self, number: int) -> None:
        deaths = 0
        while True:
            service = self._services[number]
            lost = await service.watch()
            service.kill()
            deaths = 0 if service.status else deaths
            deaths += 1
            if deaths > MAX_DEATHS:
                raise EnvironmentFault(f"{self._job.stage}: {lost}, after {MAX_DEATHS} others in a row")
            self._ended_finished += service.status or 0
            service.status = 0
            text = f"{self._job.stage}: {lost}; another is started, and is asked again what was not answered"
            self._job.console.warn(text, event="engine-lost")
            await self._start_again(number)

    async def _start_again(self, number: int) -> None:
        from magcli.cluster.errors import MemberLost

        for _ in range(MAX_DEATHS):
            try:
                return await self._start(number)
            except MemberLost as error:
                self._job.console.warn(f"{self._job.stage}: {error}; trying again", event="engine-lost")
        return await self._start(number)

    async def _start(self, number: int) -> None:
        from magcli.cluster.service import Service

        config = replace(self._config, device=self._devices[number])
        self._services[number] = await Service.start(
            self._cluster,
            self._addresses[number],
            "engine",
            partial(self._open_server, self._job.stage, config, dict(self._chosen)),
            self._resources(),
            surroundings=surroundings(),
            waiting=self._say_waiting,
            start_seconds=getattr(config, "deadline", START_SECONDS),
        )

    def _resources(self) -> Resources:
        """Ray's GPUs, one a rank; on CPUs nothing, so that an engine never waits for the shards that wait for it."""
        from magcli.cluster.runtime import Resources

        on_gpu = self._config.device.startswith("cuda") and not self._cluster.is_local
        return Resources(gpus=self._config.tensor_parallel if on_gpu else 0)

    def _say_waiting(self, text: str) -> None:
        self._job.console.say(f"{self._job.stage}: {text}", event="waiting")


def surroundings() -> Surroundings:
    """What the tasks and engines take over: the working directory, and variables of libraries and servers."""
    from magcli.cluster.mailbox import Surroundings

    prefixes = ("HF_", "VLLM_", "TRANSFORMERS_", "OPENAI_API_KEY", "OMP_NUM_THREADS", "TORCHDYNAMO_", "TOKENIZERS_")
    variables = {name: value for name, value in os.environ.items() if name.startswith(prefixes)}
    return Surroundings(os.path.realpath(os.getcwd()), variables)


def devices(cluster: Cluster, device: str, ranks: int = 1) -> list[str]:
    """The first device of each engine: of a local Ray the GPUs of this machine, else Ray's GPUs, or a node's CPUs each.

    An engine's ``ranks`` are on GPUs of one node; those of a node that are too few for one stay idle.
    """
    nodes = cluster.nodes()
    if not device.startswith("cuda"):
        return [device] * len(nodes)
    if not cluster.is_local:
        return ["cuda"] * max(1, sum(int(node.gpus) // ranks for node in nodes))
    if device != "cuda":
        return [device]
    import torch

    engines_here = max(1, torch.cuda.device_count() // ranks)
    return [f"cuda:{number * ranks}" for number in range(engines_here)]


class _KeptMessages(Console):
    """Keeps what opening an engine says for the driver."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[tuple[str, dict[str, Any]]] = []

    def say(self, text: str, **event: Any) -> None:
        """Keep a message."""
        self.messages.append((text, event))


def open_server(stage: str, config: EngineOptions, chosen: Mapping[str, str]) -> EngineServer:
    """Open an engine in its process; ``chosen`` is what options left to ``auto`` resolved to, if it is known."""
    from magcli.generate.service import EngineServer

    job, messages = job_in_engine(stage, chosen)
    generator = engines.open_engine(config, job)
    return EngineServer(generator, job.chosen, messages)


def job_in_engine(stage: str, chosen: Mapping[str, str]) -> tuple[Job, list[tuple[str, dict[str, Any]]]]:
    """A job for opening an engine in its process, and the list of what it says, which is kept for the driver."""
    console = _KeptMessages()
    return Job(stage, console, Drops(keep=False), whole=Whole({}, dict(chosen))), console.messages
