"""Engines on a cluster, as stages open them, and how each opens in its process, whose messages the driver says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from magcli.console import Console, Waiting
from magcli.generate.remote.service import EngineServer
from magcli.run.job import Drops, Job, Whole
from magcli.stages.shared import engines

if TYPE_CHECKING:
    from magcli.run.types import Notes
    from magcli.stages.shared.options import EngineOptions
    from magcli.stages.shared.shared_engines import ClusterEngines, OpenEngine


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
    return Job(stage, console, Drops(keep=False), whole=Whole({}, dict(chosen))), console.messages


def open_server(stage: str, config: EngineOptions, chosen: Mapping[str, str]) -> EngineServer:
    """Open an engine in its process; ``chosen`` is what options left to ``auto`` resolved to, if it is known."""
    job, messages = job_in_engine(stage, chosen)
    generator = engines.open_engine(config, job)
    return EngineServer(generator, job.chosen, messages)


def open_cluster_engines(
    config: Any, job: Job, unfinished: Sequence[Notes], open_server: OpenEngine = open_server
) -> ClusterEngines:
    """The engines of --cluster; arguments and errors as ``ClusterEngines``."""
    from magcli.stages.shared.shared_engines import ClusterEngines

    return ClusterEngines(config, job, unfinished, open_server)
