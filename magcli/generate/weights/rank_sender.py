"""Rank 0's end of the transfers from trainer ranks to engines: one group for each engine, over gloo or by NCCL.

The driver's end is in ``magcli.generate.weights.rank_transfer``.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from operator import methodcaller
from typing import Any, Protocol

import torch
from torch import Tensor

from magcli.cluster.meeting import free_port, joined_store
from magcli.errors import first_line
from magcli.generate.types import Digests
from magcli.generate.weights.digest import PendingDigests
from magcli.generate.weights.gloo import TIMEOUT, TRAINER_RANK, GlooGroup, all_ready, own_address
from magcli.generate.weights.rank_transfer import ADDRESS, GONE, Meeting
from magcli.run.tasks import in_thread

POLL_SECONDS = 0.02
WATCH_SECONDS = 0.5
"""How often rank 0 asks whether an engine that it sends to by NCCL is gone."""

NCCL_SECONDS = 300.0
"""How long rank 0 waits until it is connected by NCCL: the first time it also imports vLLM."""


class EngineGone(ConnectionError):
    """The driver says that an engine is gone."""


class EngineGroup(Protocol):
    """Rank 0 and the ranks of one engine. Any error makes it unusable."""

    def start(self, tensor: Tensor) -> None:
        """Start to send a tensor, one of several, which stay as they are until ``wait`` returns."""

    def wait(self) -> None:
        """Wait until what was started has been sent, or cannot change any more."""

    def close(self) -> None:
        """Release it."""


class Engines:
    """The groups with all engines; they stay connected from one update of the weights to the next."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stores: dict[Meeting, Any] = {}
        self._groups: dict[Meeting, EngineGroup] = {}

    def connect(self, meetings: Sequence[Meeting]) -> "Transfer":
        """Connect to those of these engines that are new, and leave those that are gone."""
        for meeting in [meeting for meeting in self._groups if _is_gone(self._stores[meeting])]:
            self._leave(meeting)
        # One engine that cannot be reached must not keep the others from their weights.
        failures: dict[Meeting, str] = {}
        for meeting in meetings:
            try:
                self._meet(meeting)
            except Exception as error:  # whatever NCCL or gloo says, this engine gets no weights, and the others do
                self._leave(meeting)
                failures[meeting] = first_line(error)
        groups = {meeting: self._groups[meeting] for meeting in meetings if meeting not in failures}
        return Transfer(groups, failures, self._leave)

    def _meet(self, meeting: Meeting) -> None:
        if meeting in self._groups:
            return
        store = self._stores[meeting] = _store_of(meeting)
        if meeting.by_nccl:
            self._groups[meeting] = NcclEngine(store, meeting, self._device)
        else:
            self._groups[meeting] = GlooEngine(store, meeting)

    def _leave(self, meeting: Meeting) -> None:
        group = self._groups.pop(meeting, None)
        self._stores.pop(meeting, None)
        if group is not None:
            group.close()


class Transfer:
    """One update of the weights, to several engines at once. An engine that fails is left out of the rest."""

    def __init__(
        self, groups: dict[Meeting, EngineGroup], failures: dict[Meeting, str], leave: Callable[[Meeting], None]
    ) -> None:
        self._groups, self._leave = groups, leave
        self.failures = failures
        """The engines that did not get all weights, and why."""
        self._digests = PendingDigests()

    @property
    def digests(self) -> Digests:
        """The digests of the tensors, by their names, as they were sent."""
        return self._digests.fetch()

    def send(self, tensors: Mapping[str, Tensor]) -> None:
        """Send a few tensors, in the order in which the engines expect them; none is used after the return."""
        for name, tensor in tensors.items():
            # All engines are sent to at once; the digest is computed meanwhile.
            self._on_each(methodcaller("start", tensor))
            self._digests.add(name, tensor)
        self._on_each(methodcaller("wait"))

    def _on_each(self, act: Callable[[EngineGroup], None]) -> None:
        for meeting, group in list(self._groups.items()):
            try:
                act(group)
            except Exception as error:  # as in ``connect``
                del self._groups[meeting]
                self._leave(meeting)
                self.failures[meeting] = first_line(error)


class GlooEngine:
    """An engine over gloo: on CPUs, or the embedded one anywhere. That a connection breaks is noticed at once."""

    def __init__(self, store: Any, meeting: Meeting) -> None:
        # Until all ranks of the engine are about to join: gloo would wait on for one that is gone.
        _wait_for(store, lambda: all_ready(store, meeting.world_size), TIMEOUT.total_seconds())
        self._group = GlooGroup(store, own_address(meeting.host), TRAINER_RANK, meeting.world_size)
        self._works: list[Any] = []

    def start(self, tensor: Tensor) -> None:
        """Start to send a tensor."""
        # gloo sends from host memory, where the engine receives, too.
        self._works.append(self._group.start_broadcast(tensor.cpu()))

    def wait(self) -> None:
        """Wait until all have been sent."""
        works, self._works = self._works, []  # they hold the tensors
        for work in works:
            work.wait()

    def close(self) -> None:
        """Nothing to release: the group ends with its last reference."""


class NcclEngine:
    """A vLLM on GPUs, sent to tensor by tensor, as vLLM's own transfer receives them. Not tested on GPUs.

    NCCL does not notice that an engine has died, so a thread asks the driver, and then aborts.
    """

    def __init__(self, store: Any, meeting: Meeting, device: torch.device) -> None:
        self._device, self._is_gone = device, False
        self._communicator = _connected(store, meeting, device)
        own_store = _store_of(meeting)  # a client takes one call at a time
        threading.Thread(target=self._watch, args=(own_store,), name="magcli-engine", daemon=True).start()

    def start(self, tensor: Tensor) -> None:
        """Put the broadcast of a tensor on the stream of its GPU."""
        self._check()
        self._communicator.broadcast(tensor, src=TRAINER_RANK, stream=torch.cuda.current_stream(self._device))

    def wait(self) -> None:
        """Wait for the stream."""
        torch.cuda.current_stream(self._device).synchronize()
        self._check()

    def close(self) -> None:
        """Abort what is left, and release the communicator."""
        self._is_gone = True
        self._communicator.destroy()

    def _check(self) -> None:
        if self._is_gone:
            raise EngineGone("the engine is gone")

    def _watch(self, store: Any) -> None:
        while not self._is_gone:
            if _is_gone(store):
                self.close()
                return
            time.sleep(WATCH_SECONDS)


def _connected(store: Any, meeting: Meeting, device: torch.device) -> Any:
    """vLLM's NCCL communicator of rank 0 with the engine, which has been used once by all when this returns.

    Connecting to an engine that has died meanwhile may never return, so it is done in a thread that nobody joins.
    """
    host = own_address(meeting.host)
    port = free_port(host)
    # The driver waits for this key, and tells the engine.
    store.set(ADDRESS, f"{host} {port}")
    from vllm.distributed.weight_transfer.nccl_common import stateless_init_process_group

    def connect() -> Any:
        torch.cuda.set_device(device)
        return stateless_init_process_group(host, port, TRAINER_RANK, meeting.world_size, device)

    connecting = in_thread(connect, "magcli-connect")
    _wait_for(store, connecting.done, NCCL_SECONDS)
    communicator = connecting.result()
    if communicator.disabled:
        raise ConnectionError("vLLM finds no NCCL (or VLLM_DISABLE_PYNCCL is set)")
    return communicator


def _wait_for(store: Any, condition: Callable[[], bool], seconds: float) -> None:
    """Wait for a condition, so many seconds at most.

    Raises:
        EngineGone: the engine is gone.
        TimeoutError: it does not answer.
    """
    end = time.monotonic() + seconds
    while not condition():
        # Asked in each round: one that has died would never become ready.
        if _is_gone(store):
            raise EngineGone("the engine is gone")
        if time.monotonic() > end:
            raise TimeoutError(f"the engine did not connect in {seconds:g} s")
        time.sleep(POLL_SECONDS)


def _store_of(meeting: Meeting) -> Any:
    return joined_store(meeting.host, meeting.port, timeout=TIMEOUT)


def _is_gone(store: Any) -> bool:
    """Whether the driver says so; without an answer the driver has left the store, and with it the engine."""
    with suppress(RuntimeError):
        gone: bool = store.check([GONE])
        return gone
    return True
