"""Tensor parallelism without an engine: what can be split, vLLM's arguments, and the transfer to all ranks."""

import asyncio
import dataclasses
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from magcli.cluster.runtime import Cluster
from magcli.cluster.types import Node
from magcli.errors import EnvironmentFault, UsageError
from magcli.generate.open import open_policy
from magcli.generate.parallel import check_split
from magcli.generate.remote.fleet import Fleet
from magcli.generate.spec import Spec
from magcli.generate.vllm.start import cache_bytes, cpu_settings, cpu_variables, gpu_settings, rank_settings
from magcli.generate.vllm.transfer import Broadcast, FileSender, GlooTrainer, IpcSender, Source, sender_for
from magcli.generate.weights.digest import WeightsFault, check_arrival, digests, merged
from magcli.generate.weights.gloo import LOOPBACK, GlooGroup
from magcli.model.model import Model

SIZES = {"num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64, "num_hidden_layers": 3}


@pytest.fixture
def spec(tiny_model_dir: Path) -> Spec:
    return Spec(Model.open(tiny_model_dir), engine="vllm", dtype="fp32", slots=4, tensor_parallel=2)


@pytest.mark.parametrize(("ranks", "cached_heads"), [(1, 2), (2, 1), (4, 1), (8, 1)])
def test_a_rank_caches_its_own_heads(ranks: int, cached_heads: int) -> None:
    token = 2 * 3 * cached_heads * 64 * 4
    assert cache_bytes(SimpleNamespace(**SIZES), torch.float32, 1000, 10, 10**12, ranks=ranks) == token * (1000 + 64)


def test_all_ranks_together_get_the_share_of_the_memory() -> None:
    token = 2 * 3 * 64 * 4
    size = cache_bytes(SimpleNamespace(**SIZES), torch.float32, 10**9, 10, 8000 * token, ranks=2)
    assert size == token * (8000 // 4 // 2 + 64)


def sized(heads: int, kv_heads: int, inner: int) -> Model:
    model = Model("sized")
    config = SimpleNamespace(
        num_attention_heads=heads, num_key_value_heads=kv_heads, intermediate_size=inner, hidden_size=64
    )
    model.__dict__["text_config"] = config
    return model


def test_what_cannot_be_split_is_named() -> None:
    for ranks in (1, 2, 4):
        check_split(sized(8, 2, 64), ranks)
    check_split(sized(7, 7, 7), 1)
    with pytest.raises(UsageError, match="--tensor-parallel 3 does not divide the 8 attention heads of sized"):
        check_split(sized(8, 2, 63), 3)
    with pytest.raises(UsageError, match="--tensor-parallel 4 does not divide the 66 inner features"):
        check_split(sized(8, 2, 66), 4)
    with pytest.raises(UsageError, match="4 is neither a divisor nor a multiple of the 6 key-value heads"):
        check_split(sized(12, 6, 64), 4)


def test_the_embedded_engine_is_not_split(spec: Spec) -> None:
    with pytest.raises(UsageError, match="tensor parallelism needs engine vllm, not torch"):
        open_policy(replace(spec, engine="torch"))


def test_vllm_has_the_arguments_of_ranks(spec: Spec) -> None:
    arguments = pytest.importorskip("vllm").AsyncEngineArgs
    settings = cpu_settings(spec) | rank_settings(spec)
    assert set(settings) <= {field.name for field in dataclasses.fields(arguments)}
    assert rank_settings(spec) == {"tensor_parallel_size": 2, "distributed_executor_backend": "mp"}
    assert rank_settings(replace(spec, tensor_parallel=1)) == {"distributed_executor_backend": "uni"}
    assert rank_settings(replace(spec, tensor_parallel=1, device="cuda")) == {}
    assert rank_settings(replace(spec, device="cuda")) == rank_settings(spec)


def test_ranks_on_gpus_get_a_card_each(spec: Spec) -> None:
    assert gpu_settings(replace(spec, device="cuda"))["device_ids"] == [0, 1]
    assert gpu_settings(replace(spec, device="cuda:3", tensor_parallel=4))["device_ids"] == [3, 4, 5, 6]
    assert gpu_settings(replace(spec, device="cuda:3", tensor_parallel=1))["device_ids"] == [3]


def test_devices_are_dealt_to_engines_in_turn(spec: Spec) -> None:
    devices = ["cuda:0", "cuda:2", "cuda:3", "cuda:5"]
    engines = [spec.placed(devices, number) for number in range(3)]
    assert [engine.gpu_numbers for engine in engines] == [[0, 2], [3, 5], [0, 2]]
    assert [engine.device for engine in engines] == ["cuda:0", "cuda:3", "cuda:0"]
    single = replace(spec, tensor_parallel=1)
    assert [single.placed(devices[:2], number).gpu_numbers for number in range(3)] == [[0], [2], [0]]
    assert spec.placed(["cpu"], 1) == spec


def test_a_generator_of_a_cluster_takes_a_gpu_a_rank(spec: Spec, monkeypatch) -> None:
    nodes = [Node("a", "a", cpus=8, gpus=1), Node("b", "b", cpus=8, gpus=3)]
    monkeypatch.setattr(Cluster, "nodes", lambda self: nodes)
    on_gpus, cluster = replace(spec, device="cuda"), Cluster("auto")
    with pytest.raises(EnvironmentFault, match="room for 1 of 2 generators, each with 2 GPUs and 1 CPUs on one node"):
        asyncio.run(Fleet.open(cluster, on_gpus, 2))
    with pytest.raises(EnvironmentFault, match="room for 2 of 3 generators, each with 8 CPUs on one node"):
        asyncio.run(Fleet.open(cluster, replace(spec, tensor_parallel=8), 3))


def test_ranks_on_cpus_divide_the_threads_and_are_not_bound(spec: Spec) -> None:
    assert cpu_variables(replace(spec, threads=8), {}) == {
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": "4",
    }
    bound = cpu_variables(replace(spec, threads=1), {"VLLM_CPU_OMP_THREADS_BIND": "0-3|4-7"})
    assert bound == {"VLLM_CPU_OMP_THREADS_BIND": "0-3|4-7", "OMP_NUM_THREADS": "1"}
    assert cpu_variables(replace(spec, tensor_parallel=1), {}) == {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}


def test_an_engine_on_several_gpus_reads_a_file() -> None:
    assert isinstance(sender_for("cuda", torch.bfloat16), IpcSender)
    assert isinstance(sender_for("cuda", torch.bfloat16, ranks=2), FileSender)


def test_weights_have_arrived_if_they_have_in_every_rank() -> None:
    sent = {"a": 1, "b": 2}
    check_arrival(sent, merged([sent, dict(sent), dict(sent)]), 5)
    with pytest.raises(WeightsFault, match=r"weights of update 5 in the engine: b did not arrive"):
        check_arrival(sent, merged([sent, {"a": 1}]), 5)
    with pytest.raises(WeightsFault, match=r"b did not arrive"):
        check_arrival(sent, merged([{"a": 1}, sent]), 5)
    for ranks in ([sent, {"a": 1, "b": 3}], [{"a": 1, "b": 3}, sent]):
        with pytest.raises(WeightsFault, match=r"b arrived altered"):
            check_arrival(sent, merged(ranks), 5)
    with pytest.raises(WeightsFault, match=r"c arrived, but was not sent"):
        check_arrival(sent, merged([sent | {"c": 4}] * 2), 5)


class Ranks:
    """The ranks of an engine in threads of this process: vLLM's side of a transfer, as its workers do it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.received: list[dict[str, int]] = []

    def _all(self, work) -> list:
        with ThreadPoolExecutor(self.number) as executor:
            return list(executor.map(work, range(self.number)))

    def init_weight_transfer_engine(self, info) -> None:
        def join(rank: int) -> GlooGroup:
            return GlooGroup.join(info["host"], info["port"], info["rank_offset"] + rank, info["world_size"])

        self._groups = self._all(join)

    def start_weight_update(self) -> None:
        """Nothing to prepare."""

    def update_weights(self, described) -> None:
        self.received = self._all(lambda rank: digests(dict(self._groups[rank].receive(described))))

    def finish_weight_update(self) -> None:
        """Nothing to process."""


@pytest.mark.parametrize("number", [1, 2, 4])
def test_a_broadcast_reaches_every_rank(number: int) -> None:
    ranks, source = Ranks(number), Source(torch.device("cpu"), torch.bfloat16)
    trainer = GlooTrainer(ranks, source, LOOPBACK, 1 + number)
    for update in range(2):
        weights = {name: torch.randn(3, 5) + update for name in ("a", "b")}
        source.set_weights(weights, {name: name for name in weights})
        trainer.send_weights()
        assert len(ranks.received) == number
        check_arrival(digests(weights, torch.bfloat16), merged(ranks.received), update)


def test_an_engine_that_cannot_join_is_an_error_at_once() -> None:
    class Refusing(Ranks):
        def init_weight_transfer_engine(self, info) -> None:
            raise ConnectionError("no way to the trainer")

    with pytest.raises(ConnectionError, match="no way to the trainer"):
        GlooTrainer(Refusing(2), Source(torch.device("cpu"), torch.float32), LOOPBACK, 3)


def test_nccl_gets_a_world_of_the_trainer_and_all_ranks(tiny_model_dir: Path, monkeypatch) -> None:
    factory = pytest.importorskip("vllm.distributed.weight_transfer.factory")
    opened = []

    def init(info, *, client, source):
        opened.append(info)
        return SimpleNamespace(model_update_group=SimpleNamespace(disabled=False))

    monkeypatch.setattr(factory.WeightTransferTrainerFactory, "trainer_init", init)
    outline = Model.open(tiny_model_dir).outline
    broadcast = Broadcast(lambda step, info: asyncio.sleep(0), outline, "cuda", torch.bfloat16, LOOPBACK, ranks=4)
    broadcast._connect_nccl(None)
    (info,) = opened
    assert (info.rank, info.world_size, info.master_address) == (0, 5, LOOPBACK)
