"""Several trainer ranks, for `sft` and `rl`: their options, their cluster, and what happens when one is lost."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from magcli.cluster.errors import RanksLost
from magcli.cluster.open import address_for, open_cluster
from magcli.cluster.types import AUTO, LOCAL, Demand, Room
from magcli.errors import usage
from magcli.generate.weights.matching import sweep
from magcli.plan.machine import Machine, gpus
from magcli.stages.shared.rank_options import RankOptions
from magcli.train.controller import OneProcess, RankController
from magcli.train.distributed import rank_resources

if TYPE_CHECKING:
    from magcli.cluster.runtime import Cluster
    from magcli.console import Console
    from magcli.run.rundir import RunDir
    from magcli.stages.shared.forecast import Planned
    from magcli.train.rank_group import ClusterRanks


MAX_LOSSES = 5
"""How often ranks may be lost before an update is finished in between."""

REPLACEMENT_SECONDS = 120.0
"""How long a run waits for room for all ranks after a loss before it goes on with fewer."""

MESSAGE_SECONDS = 30.0
POLL_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class RankSpec:
    """The trainer ranks that a run asks for.

    Attributes:
        stage: begins messages.
        device: of each rank.
        number: of ranks; 1 is in the process of the command.
        copy_size: ranks that share one copy of the weights; 0 are all.
        least: fewest ranks to go on with after a loss; 0 is the fewest that can hold a copy.
        address: of the cluster.
        card: the memory that a dry run is about, where it is not that of this machine's GPUs.
    """

    stage: str
    device: str
    number: int
    copy_size: int
    least: int
    address: str
    card: str

    @classmethod
    def of(cls, stage: str, config: RankOptions) -> RankSpec:
        """The ranks of a stage's options."""
        address = address_for(config.cluster)
        sizes = config.trainers, config.fsdp_size, config.min_trainers
        return cls(stage, config.device, *sizes, address, config.card)

    @property
    def on_gpu(self) -> bool:
        """Whether each rank has a GPU."""
        return self.device.startswith("cuda")

    @property
    def counts_cards(self) -> bool:
        """Whether a dry run is about the GPUs of this machine: there are some, and --card names no other."""
        return self.on_gpu and not self.card and gpus() > 0

    def machine(self, *, planned: bool = False) -> Machine:
        """The machine that the plan of the run is for; ``planned`` as in ``Machine.ask``."""
        return Machine.ask(self.device, self.card, planned=planned)

    def require_cards(self) -> None:
        """Refuse more ranks than this machine has GPUs."""
        if self.on_gpu:
            cards = gpus()
            text = f"{self.stage}: --trainers {self.number} takes a GPU for each rank"
            usage(self.number <= cards, f"{text}; PyTorch finds {cards} on this machine")

    def largest(self, places: int, fits: Callable[[int], bool]) -> int:
        """The most ranks that there is room for and that the model fits, in whole copies of the weights; 0 for none."""
        step = self.copy_size or 1
        least = self.least or max(step, 2)
        most = places - places % step
        # Fewer ranks have larger shards, which may not fit.
        for ranks in range(most, least - 1, -step):
            if fits(ranks):
                return ranks
        return 0


@contextmanager
def opened(
    spec: RankSpec,
    console: Console,
    *,
    beside: Sequence[Demand] = (),
    after_loss: bool = False,
    planned: Callable[..., Planned] | None = None,
) -> Iterator[tuple[Cluster | None, RankController]]:
    """The cluster of a run and the controller of its ranks, for the duration of the block.

    A single rank is in this process; with nothing ``beside`` it, its run has no cluster. What is beside the ranks is
    started later, and they leave room for it.

    ``after_loss``: ranks were lost, perhaps with their node. The run then waits for another node instead of being
    refused, and goes on with fewer ranks if none comes and the run ``planned`` for that many ``ranks`` fits them.

    Raises:
        UsageError: there are more ranks than GPUs of this machine.
        EnvironmentFault: the cluster cannot be used, or has no room.
    """
    if not beside and spec.number == 1:
        yield None, RankController(OneProcess(spec.device))
        return
    with open_cluster(spec.address, awaits_nodes=after_loss) as cluster:
        if spec.number == 1:
            if not cluster.is_local:
                cluster.check_room(beside)
            yield cluster, RankController(OneProcess(spec.device))
            return
        # Several ranks are all under Ray, none in this process.
        number, room = spec.number, Room(beside)
        if cluster.is_local:
            spec.require_cards()
        elif after_loss:
            assert planned is not None
            number = _ranks_after_loss(spec, cluster, console, beside, planned)
            room = Room(beside, REPLACEMENT_SECONDS)  # Ray may not know yet that a node is gone
        ranks = _cluster_ranks(spec, number, cluster, console, room)
        try:
            yield cluster, RankController(ranks)
        finally:
            ranks.stop()


def _ranks_after_loss(
    spec: RankSpec,
    cluster: Cluster,
    console: Console,
    beside: Sequence[Demand],
    planned: Callable[..., Planned],
) -> int:
    """How many ranks to go on with: all as soon as there is room, or after two minutes as many as there is room for."""
    resources = rank_resources(spec.device)
    start = time.monotonic()
    next_message = start + MESSAGE_SECONDS
    while True:
        # Counted anew each time, as nodes come and go.
        places = cluster.places_for(resources, beside=beside)
        if places >= spec.number:
            return spec.number
        now = time.monotonic()
        waited_enough = now > start + REPLACEMENT_SECONDS
        fewer = 0
        if waited_enough:
            fewer = spec.largest(places, lambda ranks: planned(ranks=ranks).forecast.fits)
        if fewer:
            console.warn(
                f"{spec.stage}: going on with {fewer} of {spec.number} trainer ranks; to use all of them when there "
                "are nodes again, stop the command and start it again",
                event="fewer-ranks",
                ranks=fewer,
            )
            return fewer
        if now > next_message:
            console.say(f"{spec.stage}: the cluster has room for {places} of {spec.number} trainer ranks; waiting")
            next_message = now + MESSAGE_SECONDS
        time.sleep(POLL_SECONDS)


def check_room(spec: RankSpec, console: Console, *, beside: Sequence[Demand] = ()) -> None:
    """For --dry-run: refuse ranks for which this machine has too few GPUs, or processes that a cluster cannot hold.

    ``beside`` are the run's other processes under Ray.

    Raises:
        UsageError: there are more ranks than GPUs of this machine.
        EnvironmentFault: the nodes of the cluster have no room, or it cannot be joined.
    """
    if not beside and spec.number == 1:
        return
    if spec.address == AUTO:  # Ray waits for minutes where none answers
        text = f"{spec.stage}: dry run: processes are not checked: only --cluster HOST:PORT is asked for its room"
        console.say(text, event="not-checked")
    elif spec.address != LOCAL:
        demands = list(beside)
        if spec.number > 1:  # a single rank is in the command's process
            demands.append(Demand("trainer ranks", spec.number, rank_resources(spec.device)))
        with open_cluster(spec.address) as cluster:
            cluster.check_room(demands)
    elif spec.counts_cards:
        spec.require_cards()
    elif spec.on_gpu and not spec.card:
        text = f"{spec.stage}: dry run: processes are not checked: PyTorch finds no GPU on this machine"
        console.say(text, event="not-checked")


def _cluster_ranks(
    spec: RankSpec,
    number: int,
    cluster: Cluster,
    console: Console,
    room: Room,
) -> ClusterRanks:
    """This number of trainer ranks, several, which start when their state is opened."""
    from magcli.train.rank_group import ClusterRanks, RankSetup

    def say(text: str) -> None:
        console.say(f"{spec.stage}: {text}")

    threads = 1
    if cluster.is_local and not spec.on_gpu:
        # The processes of a local Ray share this machine's cores.
        num_beside = sum(demand.number for demand in room.beside)
        threads = share_threads(torch.get_num_threads(), number, num_beside)
    setup = RankSetup(spec.device, threads, spec.copy_size)
    return ClusterRanks(cluster, number, setup, say=say, room=room)


def share_threads(threads: int, trainers: int, generators: int) -> int:
    """How many of a machine's threads each trainer rank and each generator gets, at least one.

    With more threads than cores, threads would wait for others that are not running.
    """
    return max(1, threads // (trainers + generators))


def again_when_lost(stage: str, train: Callable[[bool], None], folder: RunDir, console: Console) -> None:
    """Train to the end; start again from the last checkpoint when a rank was lost, as long as the run makes progress.

    ``train`` is told whether ranks were lost before. Weights that lost ranks, of this command or an earlier one, have
    left in shared memory are removed.

    Raises:
        RanksLost: ranks were lost more than ``MAX_LOSSES`` times without a line of metrics in between.
    """
    losses_in_a_row = 0
    lines_before = 0
    while True:
        sweep()
        try:
            # Returns only at the end of the run.
            train(losses_in_a_row > 0)
            return
        except RanksLost as lost:
            lines = len(folder.metrics())
            # A line of metrics since the last loss means that the run gets on.
            losses_in_a_row = 1 if lines > lines_before else losses_in_a_row + 1
            lines_before = lines
            if losses_in_a_row > MAX_LOSSES:
                sweep()
                raise
            text = f"{stage}: {lost}; starting the ranks again from the last checkpoint"
            console.warn(text, event="ranks-lost", step=lines)
