"""Several trainer ranks, in processes of a cluster."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from magcli.cluster.errors import RanksLost
from magcli.cluster.ranks import RankGroup, Seat
from magcli.cluster.runtime import Cluster
from magcli.cluster.types import ANY_ROOM, Demand, Resources, Room, Surroundings
from magcli.errors import EnvironmentFault, MagError
from magcli.model import exhausted
from magcli.train.commands import WAITING_SECONDS, OpenState, RankCommand, RankState, SaveEnded
from magcli.train.distributed import TIMEOUT, join_ranks, rank_resources


@dataclass(frozen=True, slots=True)
class RankSetup:
    """How each rank computes: its device, torch's threads, the ranks over which weights are sharded, and time limits.

    ``fsdp_size`` 0: over all; ``timeout``: seconds that a command, or waiting for other ranks, may take.
    """

    device: str
    threads: int
    fsdp_size: int = 0
    timeout: float = TIMEOUT


class ClusterRanks:
    """All ranks of a run, in processes that Ray has placed. They are started when their state is opened."""

    state: RankState | None = None
    """No rank is in this process."""

    def __init__(
        self,
        cluster: Cluster,
        size: int,
        setup: RankSetup,
        *,
        say: Callable[[str], None],
        room: Room = ANY_ROOM,
    ) -> None:
        self._cluster = cluster
        self.size = size
        """Number of ranks."""
        self._setup = setup
        self._say = say
        self._room = room
        self._group: RankGroup | None = None
        self._one_command = threading.Lock()

    def open(self, open_state: OpenState, *, bf16: bool) -> None:
        """Start the ranks and load the state of each; errors as ``RankGroup.start``."""
        is_local = self._cluster.is_local
        self._group = RankGroup.start(
            self._cluster,
            Demand("trainer ranks", self.size, Resources() if is_local else rank_resources(self._setup.device)),
            partial(_open_rank, open_state, bf16, self._setup),
            surroundings=Surroundings(variables=self._variables()),
            say=self._say,
            timeout=self._setup.timeout,
            room=replace(self._room, beside=()) if is_local else self._room,
        )

    def run(self, commands: Sequence[RankCommand]) -> Any:
        """Run one command on each rank, after that of another thread; returns rank 0's result.

        Errors as ``RankGroup.call``.
        """
        if self._group is None:
            raise MagError("the training state was used before it was loaded")
        # A replaced generator may ask for weights while an update runs in another thread.
        with self._one_command:
            return self._group.call([partial(_run, command) for command in commands])

    def stop(self) -> None:
        """End the ranks, after they have written a checkpoint to its end and removed what they keep for others.

        A checkpoint that cannot be written is reported; the one before it stays.
        """
        if self._group is None:
            return
        try:
            self._group.call([_release] * self.size)
            self._finish_save(self._group)
        except RanksLost:
            pass  # of a group that has failed nobody is left
        except EnvironmentFault as error:
            self._say(str(error))
        self._group.close()

    def _finish_save(self, group: RankGroup) -> None:
        if group.call([partial(_run, SaveEnded())] * self.size):
            return
        self._say("waiting until the last checkpoint is written")
        # Asked in turns of a few seconds, within the time limit of a command.
        while not group.call([partial(_run, SaveEnded(WAITING_SECONDS))] * self.size):
            pass

    def _variables(self) -> dict[str, str]:
        variables = {"OMP_NUM_THREADS": str(self._setup.threads)}
        if self._cluster.is_local:
            # Ranks of this machine alone need no other network.
            variables["GLOO_SOCKET_IFNAME"] = "lo"
        return variables


def _open_rank(open_state: OpenState, bf16: bool, setup: RankSetup, seat: Seat) -> RankState:
    """Join the other ranks and load this one's state."""
    # The variable is for libraries that read it when they are loaded.
    torch.set_num_threads(setup.threads)
    store = (seat.host, seat.port)
    ranks = join_ranks(
        seat.rank,
        seat.size,
        seat.local_rank,
        store,
        setup.device,
        fsdp_size=setup.fsdp_size,
        timeout=setup.timeout,
    )
    with exhausted.explained("loading the model", exhausted.LOADING):
        return open_state(ranks, bf16)


def _release(state: RankState) -> None:
    while state.kept:
        state.kept.popleft().close()


def _run(command: RankCommand, state: RankState) -> Any:
    with exhausted.explained("training", exhausted.TRAINING):
        return command.run(state)
