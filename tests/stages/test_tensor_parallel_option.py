"""The option --tensor-parallel: what is refused, and the GPUs that the engines get."""

from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch

from magcli.cluster.runtime import Cluster
from magcli.cluster.types import Demand, Node, Resources
from magcli.errors import UsageError
from magcli.model.model import Model
from magcli.model.shape import shape_of
from magcli.plan import fit, memory
from magcli.plan.machine import Machine
from magcli.stages import clean_math, evaluate, filter_math, generate, landscape, make_tests, rl, translate
from magcli.stages.generate import Config as GenerateConfig
from magcli.stages.rl.config import Config as RLConfig
from magcli.stages.rl.config import check as check_rl
from magcli.stages.rl.config import processes
from magcli.stages.rl.plan import RunPlan
from magcli.stages.rl.sampling_engine import check_devices, generators_demand
from magcli.stages.shared import parallel
from magcli.stages.shared.cluster_engines import devices

ON_GPUS = RLConfig(model="m", run=Path("run"), device="cuda", engine="vllm", generators=2, tensor_parallel=2)


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Pretend that this machine has so many GPUs, and vLLM."""
    monkeypatch.setattr("magcli.stages.shared.options.require_vllm", lambda: None)
    return lambda number: monkeypatch.setattr(torch.cuda, "device_count", lambda: number)


@pytest.mark.parametrize("stage", [clean_math, evaluate, filter_math, generate, landscape, make_tests, rl, translate])
def test_every_stage_that_samples_has_the_option(stage) -> None:
    option = next(field for field in fields(stage.Config) if field.name == "tensor_parallel")
    assert option.default == 1
    assert not option.metadata["affects_rows"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"engine": "torch"}, "--tensor-parallel 2 needs --engine vllm: the embedded engine computes on one device"),
        ({"engine": "auto"}, "--tensor-parallel 2 needs --engine vllm"),
        ({"deterministic": True}, "--tensor-parallel 2 is not deterministic"),
        ({"model": "http://localhost:8000/v1", "engine": "auto"}, "--tensor-parallel 2 needs a model folder or hub id"),
        ({"tensor_parallel": 3}, "--tensor-parallel 3 does not divide the 4 attention heads"),
        ({"device": "cuda"}, "takes 2 GPUs, from cuda on; PyTorch finds 1 in all"),
        ({"device": "cuda", "cluster": "local"}, "takes 2 GPUs, from cuda on; PyTorch finds 1 in all"),
    ],
)
def test_what_cannot_be_split_is_refused_in_one_line(changes, message, gpus, tiny_model_dir) -> None:
    gpus(1)
    config = GenerateConfig(model=str(tiny_model_dir), engine="vllm", device="cpu", tensor_parallel=2)
    generate.check(config)
    with pytest.raises(UsageError, match=message) as refused:
        generate.check(replace(config, **changes))
    assert "\n" not in str(refused.value)


def test_the_ranks_are_on_the_device_and_those_after_it(gpus) -> None:
    gpus(4)
    parallel.check_cards("generate", 2, "cuda:2")
    parallel.check_cards("generate", 1, "cuda:7")  # a missing device is reported when it is opened
    with pytest.raises(UsageError, match="takes 2 GPUs, from cuda:3 on; PyTorch finds 4 in all"):
        parallel.check_cards("generate", 2, "cuda:3")


def test_the_gpus_of_a_cluster_are_counted_there(gpus, tiny_model_dir) -> None:
    gpus(0)
    config = GenerateConfig(model=str(tiny_model_dir), engine="vllm", device="cuda", tensor_parallel=2, cluster="auto")
    generate.check(config)
    with pytest.raises(UsageError, match="PyTorch finds 0 in all"):
        generate.check(replace(config, cluster=""))


def test_engines_of_a_cluster_get_gpus_of_one_node(monkeypatch, gpus) -> None:
    nodes = [Node("a", "a", cpus=4, gpus=8), Node("b", "b", cpus=4, gpus=3)]
    monkeypatch.setattr(Cluster, "nodes", lambda self: nodes)
    assert len(devices(Cluster("auto"), "cuda", 2)) == 4 + 1
    assert len(devices(Cluster("auto"), "cuda", 4)) == 2
    assert devices(Cluster("auto"), "cuda", 16) == ["cuda"], "which is refused because no node has room for it"
    gpus(5)
    assert devices(Cluster("local"), "cuda", 2) == ["cuda:0", "cuda:2"]
    assert devices(Cluster("local"), "cuda") == [f"cuda:{number}" for number in range(5)]
    assert devices(Cluster("local"), "cpu", 2) == ["cpu", "cpu"]


def test_each_generator_gets_as_many_cards_as_it_has_ranks() -> None:
    of_four = replace(ON_GPUS, trainers=4)
    assert processes(of_four).sampling_devices(8) == ["cuda:4", "cuda:5", "cuda:6", "cuda:7"]
    assert processes(of_four).gpu_share(["cuda:4", "cuda:5", "cuda:6", "cuda:7"]) == 0.9
    beside = replace(ON_GPUS, generators=0, device="cuda:1")
    assert processes(beside).sampling_devices(4) == ["cuda:1", "cuda:2"]
    assert processes(beside).gpu_share(["cuda:1", "cuda:2"]) == 0.35


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"generators": 2},
            "3 of 8 GPUs have no trainer rank, too few for 2 generators of 2 GPUs each; use --generators 1",
        ),
        (
            {"tensor_parallel": 4},
            "3 of 8 GPUs have no trainer rank, too few for one generator with --tensor-parallel 4; lower it",
        ),
    ],
)
def test_too_few_cards_for_the_ranks_are_refused(changes, message) -> None:
    with pytest.raises(UsageError, match=message):
        processes(replace(ON_GPUS, trainers=5, **changes)).sampling_devices(8)


def test_trainer_ranks_and_the_ranks_of_generators_add_up(gpus) -> None:
    gpus(8)
    config = replace(ON_GPUS, trainers=4)
    check_devices(processes(config), Cluster("local"))
    too_few = r"too few for 2 generators of 2 GPUs each; use --generators 1, .*, or lower --trainers"
    with pytest.raises(UsageError, match=too_few):
        check_devices(processes(replace(config, trainers=5)), Cluster("local"))
    with pytest.raises(UsageError, match="each of the 8 GPUs has a trainer rank, and generators need others"):
        check_devices(processes(replace(config, trainers=8)), Cluster("local"))
    check_devices(processes(replace(config, trainers=8)), Cluster("auto"))
    with pytest.raises(UsageError, match="this process samples while 4 trainer ranks wait"):
        check_devices(processes(replace(config, generators=0)), Cluster("auto"))


def test_the_demand_of_generators_on_a_cluster() -> None:
    assert generators_demand(processes(ON_GPUS)) == Demand("generators", 2, Resources(cpus=1, gpus=2))
    assert generators_demand(processes(replace(ON_GPUS, device="cpu"))) == Demand("generators", 2, Resources(cpus=2))
    assert generators_demand(processes(replace(ON_GPUS, generators=0))) is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"engine": "torch"}, "rl: --tensor-parallel 2 needs --engine vllm"),
        ({"generators": 0, "device": "cuda:3"}, "takes 2 GPUs, from cuda:3 on; PyTorch finds 4 in all"),
        ({"tensor_parallel": 8, "model": "m"}, "takes 8 GPUs, from cuda on; PyTorch finds 4 in all"),
        ({"generator_devices": ("cuda:1",)}, "takes 2 of --generator-devices for each generator, not cuda:1"),
        ({"generator_devices": ("cuda:1", "cuda:1")}, "takes 2 of --generator-devices for each generator"),
        ({"generator_devices": tuple(f"cuda:{n}" for n in range(6))}, "6 --generator-devices need at least as many"),
        ({"generator_devices": ("cuda:1", "cpu")}, "not CPUs beside GPUs"),
        ({"tensor_parallel": 3}, "--tensor-parallel 3 does not divide the 4 attention heads"),
    ],
)
def test_rl_refuses_what_cannot_be_split(changes, message, gpus, tiny_model_dir) -> None:
    gpus(4)
    config = replace(ON_GPUS, model=str(tiny_model_dir))
    check_rl(config)
    check_rl(replace(config, generator_devices=("cuda:1", "cuda:3")))
    with pytest.raises(UsageError, match=message):
        check_rl(replace(config, **changes))


def test_the_forecast_divides_weights_and_cache(tiny_model_dir) -> None:
    shape = replace(shape_of(Model.open(tiny_model_dir)), kv_heads=2, parameters=1000)
    one, two, eight = (fit.least_share(shape, longest=10, ranks=ranks) for ranks in (1, 2, 8))
    assert (one, two) == (2000 + 10 * memory.token_cache_bytes(shape, bf16=True), one // 2)
    assert eight == 2000 // 8 + 10 * memory.token_cache_bytes(shape, bf16=True) // 2, "a key-value head is not split"


def test_the_share_beside_a_trainer_is_smaller_with_more_ranks(tiny_model_dir) -> None:
    config = RLConfig(model=str(tiny_model_dir), run=Path("run"), card="300M", engine="vllm", device="cpu")
    model, machine = Model.open(tiny_model_dir), Machine.ask("cpu", "300M", planned=True)
    forecasts = [RunPlan.of(replace(config, tensor_parallel=ranks), model, machine).forecast for ranks in (1, 2)]
    shares = [forecast.plan.share for forecast in forecasts]
    assert shares[0] > shares[1] > 0.35 * forecasts[0].card.total
