"""`--dry-run` counts trainer ranks and generators against the GPUs of this machine or the nodes of a cluster."""

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from magcli.cluster.runtime import Cluster
from magcli.cluster.types import Node
from magcli.console import Console
from magcli.errors import EnvironmentFault, UsageError
from magcli.stages.rl import work as rl
from magcli.stages.rl.config import Config
from magcli.stages.rl.sampling_engine import _share_threads
from magcli.stages.rl.spec import RunSpec
from magcli.stages.rl.work import _check_room
from magcli.stages.sft import Config as SFTConfig
from magcli.stages.sft import work as sft
from magcli.stages.shared import trainer_ranks
from magcli.stages.shared.trainer_ranks import RankSpec, share_threads

RL = Config(model="m", run=Path("run"), device="cuda", engine="vllm", trainers=4, generators=2, tensor_parallel=2)
SFT = SFTConfig(model="m", run=Path("run"), device="cuda", trainers=9)


@pytest.fixture
def gpus(monkeypatch):
    """Pretend that this machine has so many GPUs."""
    return lambda number: monkeypatch.setattr(torch.cuda, "device_count", lambda: number)


@pytest.fixture
def two_nodes(monkeypatch):
    """Pretend that a cluster of 8 and 3 GPUs can be joined."""
    nodes = [Node("a", "a", cpus=16, gpus=8), Node("b", "b", cpus=16, gpus=3)]
    monkeypatch.setattr(Cluster, "nodes", lambda self: nodes)
    monkeypatch.setattr(trainer_ranks, "open_cluster", lambda address: nullcontext(Cluster(address)))


def forecast_room(config):
    """What a dry run checks before it forecasts the memory."""
    _check_room(RunSpec.of(config), Console())


def test_what_the_gpus_of_this_machine_can_hold_passes(gpus):
    gpus(8)
    forecast_room(RL)
    forecast_room(replace(RL, trainers=1, generators=0, tensor_parallel=1))
    gpus(7)
    with pytest.raises(UsageError, match="3 of 7 GPUs have no trainer rank"):
        forecast_room(RL)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"trainers": 5}, "3 of 8 GPUs have no trainer rank, too few for 2 generators of 2 GPUs each"),
        ({"trainers": 9}, "--trainers 9 takes a GPU for each rank; PyTorch finds 8 on this machine"),
        ({"trainers": 8}, "each of the 8 GPUs has a trainer rank"),
        ({"trainers": 1, "generators": 4}, "7 of 8 GPUs have no trainer rank, too few for 4 generators of 2 GPUs each"),
        ({"generators": 0, "tensor_parallel": 1}, "this process samples while 4 trainer ranks wait"),
    ],
)
def test_a_dry_run_refuses_what_the_run_would_refuse(changes, message, gpus):
    gpus(8)
    with pytest.raises(UsageError, match=message):
        rl.forecast(replace(RL, **changes), Console())


def test_a_dry_run_of_sft_counts_its_ranks(gpus):
    gpus(8)
    with pytest.raises(UsageError, match="sft: --trainers 9 takes a GPU for each rank; PyTorch finds 8"):
        sft.forecast(SFT, Console())
    trainer_ranks.check_room(RankSpec.of("sft", replace(SFT, trainers=8)), Console())


def test_a_named_card_is_of_another_machine(gpus):
    gpus(1)
    forecast_room(replace(RL, card="80G"))
    with pytest.raises(UsageError, match="PyTorch finds 1 on this machine"):
        forecast_room(RL)


def test_a_machine_without_gpus_says_that_it_counts_none(gpus, capsys):
    gpus(0)
    forecast_room(RL)
    assert "rl: dry run: processes are not checked: PyTorch finds no GPU on this machine" in capsys.readouterr().err
    forecast_room(replace(RL, device="cpu"))
    assert not capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"generators": 6}, "the cluster has room for 5 of 6 generators, each with 2 GPUs and 1 CPUs on one node"),
        ({"trainers": 8}, "room for 7 of 8 trainer ranks, .* beside 2 generators with 2 GPUs and 1 CPUs each"),
        ({"verifiers": 31}, "room for 30 of 31 verifiers, each with 1 CPUs on one node, beside 2 generators"),
        ({"trainers": 1, "tensor_parallel": 16}, "room for 0 of 2 generators, each with 16 GPUs"),
    ],
)
def test_the_nodes_of_a_cluster_are_counted_together(changes, message, two_nodes, gpus):
    gpus(0)
    on_cluster = replace(RL, cluster="head:6379")
    forecast_room(on_cluster)
    with pytest.raises(EnvironmentFault, match=message):
        rl.forecast(replace(on_cluster, **changes), Console())


def test_a_cluster_without_an_address_is_not_joined(gpus, capsys):
    gpus(0)
    forecast_room(replace(RL, cluster="auto"))
    assert "processes are not checked: only --cluster HOST:PORT is asked for its room" in capsys.readouterr().err


@pytest.mark.parametrize("threads", range(1, 20))
@pytest.mark.parametrize(("ranks", "generators"), [(1, 1), (1, 4), (2, 1), (4, 2), (8, 8)])
def test_ranks_and_generators_together_take_no_more_threads_than_there_are(threads, ranks, generators):
    each = share_threads(threads, ranks, generators)
    assert each == 1 or each * (ranks + generators) <= threads
    assert (each + 1) * (ranks + generators) > threads


def test_a_single_trainer_gets_the_threads_that_generators_leave():
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(11)
        assert _share_threads(4, 2) == 1
        assert torch.get_num_threads() == 11, "the ranks are other processes, and may be started again"
        assert _share_threads(1, 0) == 0
        assert _share_threads(1, 2) == 3
        assert torch.get_num_threads() == 5
    finally:
        torch.set_num_threads(before)
