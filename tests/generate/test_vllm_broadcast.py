"""Weights broadcast from the trainer to a generator's vLLM: the steps of NCCL between GPUs, with gloo."""

import asyncio
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from types import SimpleNamespace

import pytest
import torch
from test_vllm import LONG, collect, difference

from magcli.cluster.open import open_cluster
from magcli.errors import MagError
from magcli.generate.remote.fleet import Fleet
from magcli.generate.remote.generator import GeneratorDied
from magcli.generate.spec import Spec
from magcli.generate.types import Rollout, Sampling
from magcli.generate.vllm.transfer import Broadcast, Client, Source
from magcli.generate.weights.digest import PendingDigests, digests
from magcli.generate.weights.matching import names_in
from magcli.model.load import load_model
from magcli.model.model import Model

pytestmark = pytest.mark.timeout(300)


class Bench:
    """A generator with broadcast transfer, its event loop, and two models' weights."""

    def __init__(self, folder: str) -> None:
        self.plain = load_model(folder, dtype=torch.float32)
        self.other = load_model(folder, dtype=torch.float32, from_scratch=True, seed=7)
        self.runner = asyncio.Runner()
        self.stack = ExitStack()
        self.said: list[str] = []
        self.shown: list[str] = []
        spec = Spec(Model.open(folder), engine="vllm", dtype="fp32", slots=8, threads=1, transfer="broadcast")
        self.cluster = self.stack.enter_context(open_cluster())
        self.fleet = self.runner.run(Fleet.open(self.cluster, spec, 1, say=self.said.append, show=self.shown.append))

    def sampled(self, seeds: range) -> list[Rollout]:
        return self.runner.run(collect(self.fleet, LONG, Sampling(8), seeds))

    def load(self, model: torch.nn.Module, version: int) -> None:
        self.runner.run(self.fleet.load(model.state_dict(), version))


@pytest.fixture(scope="module", params=[pytest.param("generator", marks=pytest.mark.slow)])
def bench(wide_model_dir) -> Iterator[Bench]:
    made = Bench(str(wide_model_dir))
    yield made
    made.runner.run(made.fleet.close())
    made.runner.close()
    made.stack.close()


@pytest.fixture(scope="module")
def plain(wide_model_dir) -> torch.nn.Module:
    return load_model(str(wide_model_dir), dtype=torch.float32)


def test_a_generator_says_what_its_starting_vllm_does(bench):
    assert any(": starting vLLM: " in shown for shown in bench.shown)
    assert any(": vLLM started in " in said for said in bench.said)


def test_broadcast_weights_generate_the_next_tokens(bench):
    for version, model in ((1, bench.other), (2, bench.plain)):
        bench.load(model, version)
        for rollout in bench.sampled(range(3)):
            assert rollout.versions == ((0, version),)
            assert difference(model, rollout) < 1e-4


def test_running_sequences_continue_with_broadcast_weights(bench):
    async def scenario() -> list[Rollout]:
        running = asyncio.ensure_future(collect(bench.fleet, LONG, Sampling(200), range(4)))
        await asyncio.sleep(0.3)
        await bench.fleet.load(bench.other.state_dict(), 3)
        return await running

    versions = [rollout.versions for rollout in bench.runner.run(scenario())]
    assert any(len(spans) == 2 and spans[0] == (0, 2) and spans[1][1] == 3 for spans in versions)


def test_sequences_go_on_while_weights_arrive(bench, monkeypatch):
    """They stand still only while arrived weights are loaded, however long these were on their way."""
    all_at_once = Source.__iter__

    def slowly(source: Source) -> Iterator[tuple[str, torch.Tensor]]:
        for number, pair in enumerate(all_at_once(source)):
            time.sleep(8.0 if number == 1 else 0.0)
            yield pair

    async def scenario() -> tuple[float, list[Rollout]]:
        before = bench.fleet.load_seconds
        loading = asyncio.ensure_future(bench.fleet.load(bench.other.state_dict(), 4))
        sampled: list[Rollout] = []
        while not loading.done():
            sampled += await collect(bench.fleet, LONG, Sampling(8), range(2))
        await loading
        return bench.fleet.load_seconds - before, sampled

    monkeypatch.setattr(Source, "__iter__", slowly)
    stood_still, sampled = bench.runner.run(scenario())
    assert stood_still < 8
    assert sum(rollout.versions[-1][1] < 4 for rollout in sampled) >= 2
    assert bench.sampled(range(1))[0].versions == ((0, 4),)


def test_weights_that_do_not_fit_change_nothing(bench):
    lacking = {name: tensor for name, tensor in bench.plain.state_dict().items() if "layers.1." not in name}
    bench.load(bench.plain, 4)
    with pytest.raises(MagError, match=r"new weights lack model\.layers\.1"):
        bench.runner.run(bench.fleet.load(lacking, 5))
    bench.load(bench.plain, 6)
    assert max(difference(bench.plain, rollout) for rollout in bench.sampled(range(2))) < 1e-4


@pytest.mark.parametrize("delay", [0.03, pytest.param(0.0, marks=pytest.mark.slow)])
def test_a_generator_killed_in_a_broadcast_is_replaced_by_one_with_the_newest_weights(bench, delay):
    """The replacement gets the weights of the version, although the trainer's have changed meanwhile."""
    weights = {name: tensor.clone() for name, tensor in bench.other.state_dict().items()}

    async def scenario() -> None:
        loading = asyncio.ensure_future(bench.fleet.load(weights, 7))
        await asyncio.sleep(delay)
        os.kill(bench.fleet._members[0].member.process, signal.SIGKILL)
        await asyncio.sleep(1)
        for tensor in weights.values():
            tensor.zero_()
        await loading

    before = bench.fleet.replaced
    bench.runner.run(scenario())
    assert bench.fleet.replaced == before + 1
    assert any("its process was killed, or ran out of memory; starting another" in said for said in bench.said)
    for rollout in bench.sampled(range(2)):
        assert rollout.versions == ((0, 7),)
        assert difference(bench.other, rollout) < 1e-4


def test_a_failed_broadcast_counts_as_the_generators_death(bench, monkeypatch):
    """NCCL and gloo can raise anything; the generator is replaced, and the error names the reason."""
    member = bench.fleet._members[0]

    async def broken(weights: object) -> None:
        raise RuntimeError("unhandled system error")

    monkeypatch.setattr(member._broadcast, "send", broken)
    with pytest.raises(GeneratorDied, match="new weights did not reach it: RuntimeError: unhandled system error"):
        bench.runner.run(member.load(bench.plain.state_dict(), 8))
    bench.load(bench.plain, 9)
    assert bench.fleet._members[0] is not member
    assert max(difference(bench.plain, rollout) for rollout in bench.sampled(range(2))) < 1e-4


def test_a_send_that_would_wait_forever_is_aborted(plain):
    """NCCL does this for an engine that died while connecting."""
    for_ever, shut = threading.Event(), threading.Event()

    async def scenario() -> None:
        broadcast = Broadcast(lambda step, info: asyncio.sleep(0), plain, "cpu", torch.float32)
        broadcast._transport = SimpleNamespace(send_weights=for_ever.wait, shutdown=shut.set)
        sending = asyncio.ensure_future(broadcast.send(plain.state_dict()))
        await asyncio.sleep(0.1)
        broadcast.abort()
        with pytest.raises(ConnectionError, match="the weight transfer has been aborted"):
            await asyncio.wait_for(sending, 5)
        with pytest.raises(ConnectionError, match="the weight transfer has been stopped"):
            list(broadcast._source)

    asyncio.run(scenario())
    assert shut.wait(5)
    for_ever.set()


def test_vllms_own_transfers_digest_what_they_load(plain):
    """NCCL needs GPUs; it gives its tensors to ``load_weights`` of its model."""
    from magcli.generate.vllm.worker import digesting

    loaded, weights, arrived = [], plain.state_dict(), PendingDigests()
    transfer = SimpleNamespace(model=SimpleNamespace(load_weights=lambda pairs: loaded.extend(pairs)))
    source = Source(torch.device("cpu"), torch.bfloat16)
    names = names_in(weights, plain)
    source.set_weights(weights, names)
    model = transfer.model
    with digesting(transfer, arrived):
        transfer.model.load_weights(list(source))
    assert transfer.model is model
    assert len(loaded) == len(names)
    cast = digests(weights, torch.bfloat16)
    assert arrived.fetch() == {name: cast[source] for name, source in names.items()}


def test_vllms_trainer_engine_works_with_our_source_and_client(plain, monkeypatch):
    """Its NCCL group and streams need GPUs, so a group that records its calls replaces them."""
    from vllm.distributed.weight_transfer.nccl_engine import NCCLTrainerWeightTransferEngine

    weights, asked, sent = plain.state_dict(), [], []
    names = names_in(weights, plain)
    source = Source(torch.device("cpu"), torch.bfloat16)
    source.set_weights(weights, names)

    async def ask(step: str, info: object) -> None:
        asked.append((step, info))

    async def scenario() -> None:
        client = Client(ask, asyncio.get_running_loop())
        engine = NCCLTrainerWeightTransferEngine(client=client, source=source, packed=False)
        engine.model_update_group = SimpleNamespace(broadcast=lambda tensor, src, stream: sent.append((tensor, src)))
        await asyncio.to_thread(engine.send_weights)

    monkeypatch.setattr(torch.cuda, "current_stream", lambda: None)
    asyncio.run(scenario())
    assert [step for step, _ in asked] == ["start", "update", "finish"]
    update = asked[1][1]
    assert update["names"] == list(names)
    assert set(update["dtype_names"]) == {"bfloat16"}
    assert update["shapes"] == [list(tensor.shape) for tensor, _ in sent]
    for name, (tensor, src) in zip(names, sent, strict=True):
        assert src == 0
        assert torch.equal(tensor, weights[names[name]].bfloat16())
