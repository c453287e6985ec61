"""New weights from the ranks of a trainer straight to an engine: what the process that started both does for it.

Rank 0 of the trainer and the ranks of one engine form a group. This process, the driver, holds the store where they
meet, tells the engine what comes, and tells rank 0 when the engine is gone. It never has the weights.

Rank 0's end is in ``magcli.generate.weights.rank_sender``; the engine's is the one that receives a ``Broadcast``.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import nn

from magcli.cluster.meeting import listening_store
from magcli.generate.types import Digests, RunStep
from magcli.generate.weights.digest import WeightsFault
from magcli.generate.weights.gloo import TIMEOUT, TRAINER_RANK
from magcli.generate.weights.matching import names_in

GONE = "gone"
"""The key of the store by which rank 0 learns that an engine is gone."""

ADDRESS = "address"
"""The key by which rank 0 says where NCCL's own store is: host and port, separated by a blank."""


@dataclass(frozen=True, slots=True)
class Meeting:
    """Where rank 0 meets the ranks of one engine: the driver's store. ``world_size`` counts rank 0.

    ``by_nccl``: they then send and receive by NCCL, else over gloo.
    """

    host: str
    port: int
    world_size: int
    by_nccl: bool


@dataclass(frozen=True, slots=True)
class WeightPlan:
    """The tensors of an update, in the order in which they are sent, and their type.

    ``names``: the engine's name of each -> the trainer's; ``shapes`` by the trainer's name.
    """

    names: Mapping[str, str]
    shapes: Mapping[str, tuple[int, ...]]
    dtype: torch.dtype

    def described(self) -> dict[str, Any]:
        """What an engine is told of the tensors before they come."""
        return {
            "names": list(self.names),
            "dtype_names": [str(self.dtype).removeprefix("torch.")] * len(self.names),
            "shapes": [list(self.shapes[source]) for source in self.names.values()],
        }


@dataclass(frozen=True, slots=True)
class Sent:
    """What rank 0 has sent: the version of the weights and their digests, by the trainer's names.

    ``failures``: the engines that did not get them all, and why.
    """

    version: int
    digests: Digests
    failures: Mapping[Meeting, str]


class RankSource(Protocol):
    """The ranks of a trainer, which send their weights themselves."""

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The shape of each parameter, by its name."""

    def send(self, plan: WeightPlan, meetings: Sequence[Meeting], started: Callable[[int], None]) -> Sent:
        """Send the weights to all these engines at once.

        ``started`` is called with their version once the ranks are free for it, which may take as long as an update;
        the engines are told to receive only then.

        Raises:
            EnvironmentFault: a rank has died, hangs or failed.
        """


@runtime_checkable
class RankReceiver(Protocol):
    """Engines that trainer ranks send new weights to."""

    async def load_from_ranks(self, ranks: RankSource) -> tuple[Digests, list[Digests]]:
        """Replace the weights; returns the digests of what was sent, and of what has arrived in each engine."""


def plan_for(outline: nn.Module, shapes: Mapping[str, tuple[int, ...]], dtype: torch.dtype) -> WeightPlan:
    """The tensors of an update for engines whose model has the parameters of ``outline``.

    Raises:
        WeightsFault: the trainer lacks a parameter of the engines, or has one more, or one has another shape.
    """
    # Only names and shapes are compared: the driver never has the values.
    without_values = {name: torch.empty(shape, device="meta") for name, shape in shapes.items()}
    names = names_in(without_values, outline)
    unused = sorted(shapes.keys() - set(names.values()))
    if unused:
        raise WeightsFault(f"new weights have {unused[0]}, which the engine's model lacks")
    return WeightPlan(names, shapes, dtype)


class RankLink:
    """The driver's part in all transfers from trainer ranks to one engine.

    ``run_step`` runs a step in the engine, ``host`` is this machine's address, ``ranks`` the number of the engine's
    ranks. NCCL has not been tested on GPUs.
    """

    def __init__(self, run_step: RunStep, host: str, *, ranks: int, by_nccl: bool) -> None:
        self._run_step = run_step
        self._store = listening_store(host, timeout=TIMEOUT)
        self._is_connected = False
        self.meeting = Meeting(host, self._store.port, 1 + ranks, by_nccl)

    async def receive(self, plan: WeightPlan) -> None:
        """Have the engine take the weights that rank 0 sends at the same time; it connects before the first."""
        if not self._is_connected:
            await self._run_step("init", await self._init_info())
            self._is_connected = True
        await self._run_step("start", None)
        await self._run_step("update", plan.described())
        await self._run_step("finish", None)

    def abort(self) -> None:
        """Tell rank 0 that the engine is gone: NCCL would wait for it forever."""
        with suppress(RuntimeError):
            self._store.set(GONE, "")

    async def _init_info(self) -> dict[str, Any]:
        """What the engine must know to connect."""
        meeting = self.meeting
        group = {"rank_offset": TRAINER_RANK + 1, "world_size": meeting.world_size}
        if not meeting.by_nccl:
            return {"host": meeting.host, "port": meeting.port, **group}
        async with asyncio.timeout(TIMEOUT.total_seconds()):
            # Rank 0 opens NCCL's store, and says where, when it begins to connect.
            while not self._store.check([ADDRESS]):
                await asyncio.sleep(0.05)
        host, port = self._store.get(ADDRESS).decode().split()
        return {"master_address": host, "master_port": int(port), "packed": False, **group}
