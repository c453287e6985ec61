"""Engines on a cluster for a stage that runs in one process: they sample, the stage does everything else."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from magcli.errors import MagError
from magcli.stages.shared.shared_engines import OpenEngine, SharedEngines, open_server

if TYPE_CHECKING:
    from magcli.cluster.service import ServiceClient
    from magcli.generate.service import ServiceGenerator
    from magcli.run.job import Job
    from magcli.run.types import Notes


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
        from magcli.cluster.runtime import address_for, open_cluster

        chosen: dict[str, str] = {}
        for notes in unfinished:
            chosen |= notes.notes
        self._run_id = uuid.uuid4().hex[:12]
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="cluster-engines", daemon=True)
        self._watching: Future[None] | None = None
        self._client: ServiceClient | None = None
        self._stack = ExitStack()
        try:
            cluster = self._stack.enter_context(open_cluster(address_for(config.cluster)))
            self._thread.start()
            self._stack.callback(self._end_thread)
            self._engines = SharedEngines(cluster, config, job, self._run_id, chosen, open_server)
            self._stack.callback(lambda: self._wait_for(self._engines.close()))
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
        from magcli.cluster.service import ServiceClient

        addresses, _ = self._engines.addresses_and_opened
        self._client = ServiceClient(addresses, f"{self._run_id}-stage")
        self._watching = asyncio.run_coroutine_threadsafe(self._engines.watch(), self._loop)
        self._watching.add_done_callback(self._tell_client)
        return self._client

    def generator(self) -> ServiceGenerator:
        """All engines as one generator, which asks them as ``client`` does."""
        from magcli.generate.service import service_generator

        _, opened = self._engines.addresses_and_opened
        return service_generator(self.client(), opened)

    def close(self) -> None:
        """End the engines, and a Ray that was started for them."""
        if self._watching is not None:
            self._watching.cancel()
        self._stack.close()

    def _tell_client(self, watching: Future[None]) -> None:
        """Pass on why an engine could not be replaced."""
        if watching.cancelled() or self._client is None:
            return
        error = watching.exception()
        if isinstance(error, MagError):
            self._client.fail(error)

    def _wait_for(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def _end_thread(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
