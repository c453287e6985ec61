"""Which GPUs the engines of `magcli rl` get, and how much of their memory, by the numbers of made-up machines."""

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from magcli.cluster.runtime import Cluster
from magcli.console import Console
from magcli.errors import EnvironmentFault, UsageError
from magcli.model.model import Model
from magcli.plan.machine import Card, Machine
from magcli.stages.generate import Config as GenerateConfig
from magcli.stages.rl.config import Config, processes
from magcli.stages.rl.plan import RunPlan
from magcli.stages.shared import trainer_ranks
from magcli.stages.shared.rank_options import check_attention
from magcli.stages.shared.trainer_ranks import RankSpec
from magcli.train import varlen

CARD = Card("a made-up card", 80 << 30, 80 << 30)
ON_GPU = Config(model="m", run=Path("run"), device="cuda", engine="vllm")


@pytest.fixture
def engines(tiny_model_dir):
    """The engines that are planned for options and a number of GPUs."""

    def planned(gpus: int = 0, **options):
        config = replace(ON_GPU, model=str(tiny_model_dir), **options)
        return RunPlan.of(config, Model.open(tiny_model_dir), Machine(config.device, gpus, CARD)).engines

    return planned


def test_one_card_is_shared_with_the_trainer(engines) -> None:
    assert engines(1).devices == ("cuda",)
    assert engines(1).share == pytest.approx(0.35)
    assert engines(1, gpu_memory=0.5).share == 0.5


def test_generators_get_a_card_each_that_has_no_trainer(engines) -> None:
    assert engines(8, generators=2, trainers=4).devices == ["cuda:4", "cuda:5"]
    assert engines(8, generators=2, trainers=4).idle == ["cuda:6", "cuda:7"]
    assert engines(3, generators=2, device="cuda:1").devices == ["cuda:0", "cuda:2"]
    assert engines(8, generators=2, trainers=4).share == 0.9


def test_two_generators_on_one_card_divide_its_share(engines) -> None:
    planned = engines(2, generators=2, generator_devices=("cuda:1",))
    assert (planned.devices, planned.share) == (("cuda:1",), 0.45)


@pytest.mark.parametrize(
    ("config", "cards", "message"),
    [
        (replace(ON_GPU, generators=8), 8, "7 of 8 GPUs have no trainer rank, too few for 8 generators"),
        (replace(ON_GPU, generators=1, trainers=4), 4, "each of the 4 GPUs has a trainer rank"),
        (replace(ON_GPU, generators=1, trainers=2), 1, "each of the 1 GPUs has a trainer rank"),
        (replace(ON_GPU, trainers=8), 8, "this process samples while 8 trainer ranks wait"),
    ],
)
def test_what_would_leave_cards_idle_is_refused(config: Config, cards: int, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        processes(config).sampling_devices(cards)


def test_more_ranks_than_cards_are_refused_before_they_start(monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(trainer_ranks, "open_cluster", lambda address, **_: nullcontext(Cluster("local")))
    with trainer_ranks.opened(RankSpec.of("rl", replace(ON_GPU, trainers=2)), Console()) as (_, controller):
        assert controller.size == 2
    refused = trainer_ranks.opened(RankSpec.of("rl", replace(ON_GPU, trainers=3)), Console())
    with pytest.raises(UsageError, match="rl: --trainers 3 takes a GPU for each rank; PyTorch finds 2"), refused:
        pass


@pytest.mark.parametrize(
    ("changes", "transfer", "ranks_send"),
    [
        ({}, "broadcast", True),
        ({"transfer": "file"}, "file", False),
        ({"device": "cpu"}, "file", False),
        ({"device": "cpu", "transfer": "broadcast"}, "broadcast", True),
        ({"trainers": 1}, "file", False),
        ({"generators": 0}, "file", False),
        ({"generator_devices": ("cuda:4", "cuda:5")}, "broadcast", True),
        ({"generator_devices": ("cuda:0", "cuda:5")}, "file", False),
        ({"generator_devices": ("cpu",)}, "file", False),
    ],
)
def test_several_ranks_on_gpus_send_their_weights_themselves(changes, transfer, ranks_send, engines) -> None:
    asked = {"trainers": 4, "generators": 2} | changes
    if not asked["generators"]:
        assert processes(replace(ON_GPU, **asked)).transfer("auto") == transfer
        return
    planned = engines(8, **asked)
    assert (planned.transfer, planned.ranks_send) == (transfer, ranks_send)
    on_nodes = engines(0, cluster="auto", **asked)
    assert on_nodes.elsewhere
    assert on_nodes.ranks_send == (asked["trainers"] > 1)


def test_devices_on_a_cpu_are_as_named(engines) -> None:
    assert engines(generators=3, device="cpu").devices == ("cpu",)


def test_vllm_on_a_gpu_gets_256_slots() -> None:
    config = GenerateConfig(model="m", device="cpu")
    assert config.num_slots == 64
    assert replace(config, device="cuda", engine="vllm").num_slots == 256
    assert replace(config, device="cuda", engine="torch").num_slots == 64
    assert replace(config, device="cuda", slots=8).num_slots == 8


@pytest.mark.parametrize(
    ("changes", "sent"),
    [
        ({"lora": 8}, True),
        ({}, False),
        ({"lora": 8, "engine": "torch"}, False),
        ({"lora": 8, "device": "cuda", "dtype": "bf16"}, True),
        ({"lora": 8, "device": "cuda", "dtype": "fp32"}, False),
        ({"lora": 8, "generators": 1, "generator_devices": ("cuda:1",), "dtype": "fp32"}, False),
        ({"lora": 1024}, False),
    ],
)
def test_vllm_gets_adapters_where_it_can_apply_them(changes, sent, engines) -> None:
    options = {"device": "cpu", "dtype": "fp32"} | changes
    assert engines(2, **options).adapter_rank == (changes["lora"] if sent else 0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"device": "cpu"}, "--attention varlen needs a GPU, not --device cpu"),
        ({"bf16": "no"}, "--attention varlen computes in bf16"),
    ],
)
def test_flash_attention_is_refused_where_it_has_no_kernel(changes, message) -> None:
    with pytest.raises(UsageError, match=message):
        check_attention("rl", replace(ON_GPU, attention="varlen", **changes))
    check_attention("rl", replace(ON_GPU, attention="varlen"))


def test_a_device_without_flash_attention_is_an_error(monkeypatch) -> None:
    with pytest.raises(EnvironmentFault, match="needs a GPU, not cpu"):
        varlen.require(torch.device("cpu"))
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda device: (7, 5))
    with pytest.raises(EnvironmentFault, match=r"compute capability 8\.0"):
        varlen.require(torch.device("cuda"))
