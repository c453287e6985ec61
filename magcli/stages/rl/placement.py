"""Where the processes of `magcli rl` run: in this one, or on a cluster that is opened once for all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from magcli.cluster.runtime import address_for, open_cluster
from magcli.stages.rl.config import Config

if TYPE_CHECKING:
    from magcli.cluster.runtime import Cluster
    from magcli.console import Console
    from magcli.run.rundir import RunDir
    from magcli.train.controller import RankController


@contextmanager
def opened_cluster(config: Config) -> Iterator[Cluster | None]:
    """The cluster for the duration of the block; None for a run that is one process."""
    if not config.generators and config.trainers == 1:
        yield None
        return
    with open_cluster(address_for(config.cluster)) as cluster:
        yield cluster


def open_controller(config: Config, cluster: Cluster | None, console: Console) -> RankController:
    """The controller of several trainer ranks, which start when their state is opened."""
    import torch

    from magcli.train.controller import RankController
    from magcli.train.rank_group import ClusterRanks

    assert cluster is not None
    threads = 1
    if cluster.is_local and not config.device.startswith("cuda"):
        threads = max(1, torch.get_num_threads() // (config.trainers + config.generators))
    ranks = ClusterRanks(cluster, config.trainers, config.device, threads=threads, say=partial(_say, console))
    return RankController(ranks)


def again_when_lost(train: Callable[[], None], folder: RunDir, console: Console) -> None:
    """Train to the end; start again from the last checkpoint when a rank was lost, as long as the run gets on.

    Raises:
        RanksLost: ranks were lost twice without an update in between.
    """
    from magcli.cluster.ranks import RanksLost

    updates_before = -1
    while True:
        try:
            train()
            return
        except RanksLost as lost:
            updates = len(folder.metrics())
            if updates <= updates_before:
                raise
            updates_before = updates
            text = f"rl: {lost}; starting the ranks again from the last checkpoint"
            console.warn(text, event="ranks-lost", step=updates)


def _say(console: Console, text: str) -> None:
    console.say(f"rl: {text}")
