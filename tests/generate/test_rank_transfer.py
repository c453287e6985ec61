"""Rank 0 sends weights to engines over gloo: several at once, and engines that are lost before or during it."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from magcli.generate.weights.digest import WeightsFault, check_arrival, digest, digests, merged
from magcli.generate.weights.gloo import LOOPBACK, GlooGroup
from magcli.generate.weights.rank_sender import Engines
from magcli.generate.weights.rank_transfer import RankLink, WeightPlan, plan_for

NAMES = {"layer.weight": "model.layer.weight", "norm.weight": "model.norm.weight"}
SHAPES = {"model.layer.weight": (40, 30), "model.norm.weight": (7,)}
PLAN = WeightPlan(NAMES, SHAPES, torch.bfloat16)


class Engine:
    """The ranks of an engine, in threads of this process, which take part as vLLM's workers do."""

    def __init__(self, ranks=1):
        self.ranks, self.steps = ranks, []
        self.arrived = {}
        self.link = RankLink(self.run_step, LOOPBACK, ranks=ranks, by_nccl=False)

    async def run_step(self, step, info):
        self.steps.append(step)
        if step == "init":
            self.groups = await asyncio.to_thread(self._all, lambda rank: self._join(info, rank))
        elif step == "update":
            self.arrived = merged(await asyncio.to_thread(self._all, lambda rank: self._receive(info, rank)))

    def _join(self, info, rank):
        return GlooGroup.join(info["host"], info["port"], info["rank_offset"] + rank, info["world_size"])

    def _receive(self, info, rank):
        return {name: digest(tensor) for name, tensor in self.groups[rank].receive(info)}

    def _all(self, work):
        with ThreadPoolExecutor(self.ranks) as executor:
            return list(executor.map(work, range(self.ranks)))


def weights_of(update):
    torch.manual_seed(update)
    return {name: torch.randn(SHAPES[source]).to(torch.bfloat16) for name, source in NAMES.items()}


def sent_by(engines, meetings, update):
    """What rank 0 sends: each tensor is a bucket."""
    transfer = engines.connect(meetings)
    for name, tensor in weights_of(update).items():
        transfer.send({name: tensor})
    return transfer


async def update_all(engines, receivers, update):
    """One update of all engines, as rank 0 and the driver do it."""
    meetings = [receiver.link.meeting for receiver in receivers]
    sending = asyncio.create_task(asyncio.to_thread(sent_by, engines, meetings, update))
    await asyncio.gather(*(receiver.link.receive(PLAN) for receiver in receivers))
    return await sending


def test_engines_of_one_and_of_several_ranks_get_each_update():
    engines, receivers = Engines(torch.device("cpu")), [Engine(1), Engine(3)]
    for update in range(2):
        transfer = asyncio.run(update_all(engines, receivers, update))
        assert transfer.failures == {}
        assert transfer.digests == digests(weights_of(update))
        for receiver in receivers:
            check_arrival(transfer.digests, receiver.arrived, update)
    assert receivers[0].steps == ["init", "start", "update", "finish", "start", "update", "finish"]


def test_an_engine_that_is_gone_before_it_joins_does_not_disturb_the_others():
    engines, living, gone = Engines(torch.device("cpu")), Engine(), Engine()
    gone.link.abort()

    async def scenario():
        meetings = [gone.link.meeting, living.link.meeting]
        sending = asyncio.create_task(asyncio.to_thread(sent_by, engines, meetings, 1))
        await living.link.receive(PLAN)
        return await sending

    transfer = asyncio.run(scenario())
    assert transfer.failures == {gone.link.meeting: "the engine is gone"}
    check_arrival(transfer.digests, living.arrived, 1)


def test_an_engine_that_is_lost_between_two_tensors_does_not_disturb_the_others():
    engines, living, dying = Engines(torch.device("cpu")), Engine(), Engine()

    async def scenario():
        await update_all(engines, [living, dying], 0)
        first_is_sent, dying_is_gone = threading.Event(), threading.Event()

        def send():
            transfer = engines.connect([dying.link.meeting, living.link.meeting])
            first, second = weights_of(1).items()
            transfer.send(dict([first]))
            first_is_sent.set()
            dying_is_gone.wait(30)
            transfer.send(dict([second]))
            return transfer

        def die():
            dying.groups[0].broadcast([torch.empty(SHAPES["model.layer.weight"], dtype=torch.bfloat16)])
            first_is_sent.wait(30)
            dying.groups.clear()
            dying_is_gone.set()

        sending = asyncio.create_task(asyncio.to_thread(send))
        await asyncio.gather(living.link.receive(PLAN), asyncio.to_thread(die))
        return await sending

    transfer = asyncio.run(scenario())
    assert list(transfer.failures) == [dying.link.meeting]
    check_arrival(transfer.digests, living.arrived, 1)


def test_engines_that_are_gone_are_left_at_the_next_update():
    engines, first, second = Engines(torch.device("cpu")), Engine(), Engine()
    asyncio.run(update_all(engines, [first], 0))
    first.link.abort()
    asyncio.run(update_all(engines, [second], 1))
    assert list(engines._groups) == [second.link.meeting]


class Communicator:
    """vLLM's NCCL communicator without NCCL: records what is sent, and whether it was aborted."""

    def __init__(self):
        self.sent, self.disabled = [], False
        self.aborted = threading.Event()

    def broadcast(self, tensor, src, stream):
        self.sent.append((tensor, src))

    def destroy(self):
        self.aborted.set()


def connect_by_nccl(link, communicator, monkeypatch):
    """Rank 0's end of a link, and what the engine is told, with the functions of GPUs replaced."""
    common = pytest.importorskip("vllm.distributed.weight_transfer.nccl_common")
    opened, told = [], []

    def open_group(*where):
        opened.append(where)
        return communicator

    async def run_step(step, info):
        told.append((step, info))

    link._run_step = run_step
    monkeypatch.setattr(common, "stateless_init_process_group", open_group)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    stream = SimpleNamespace(synchronize=lambda: None)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: stream)

    async def scenario():
        engines = Engines(torch.device("cuda", 0))
        connecting = asyncio.create_task(asyncio.to_thread(engines.connect, [link.meeting]))
        await link.receive(PLAN)
        return await connecting

    return asyncio.run(scenario()), opened, told


def test_nccl_connects_at_rank_0_and_sends_tensor_by_tensor(monkeypatch):
    """NCCL itself needs GPUs."""
    communicator = Communicator()
    link = RankLink(None, LOOPBACK, ranks=4, by_nccl=True)
    transfer, opened, told = connect_by_nccl(link, communicator, monkeypatch)
    ((host, port, rank, world_size, device),) = opened
    assert (host, rank, world_size, device) == (LOOPBACK, 0, 5, torch.device("cuda", 0))
    where = {"master_address": host, "master_port": port, "rank_offset": 1, "world_size": 5}
    assert told[0] == ("init", {**where, "packed": False})
    assert told[2] == ("update", PLAN.described())
    weights = weights_of(1)
    transfer.send(weights)
    for tensor, (sent, source) in zip(weights.values(), communicator.sent, strict=True):
        assert sent is tensor
        assert source == 0
    assert transfer.digests == digests(weights)
    assert not communicator.aborted.is_set()
    link.abort()


def test_nccl_is_aborted_when_the_driver_says_that_the_engine_is_gone(monkeypatch):
    """It would wait for the engine forever."""
    communicator = Communicator()
    link = RankLink(None, LOOPBACK, ranks=1, by_nccl=True)
    transfer, _, _ = connect_by_nccl(link, communicator, monkeypatch)
    link.abort()
    assert communicator.aborted.wait(30)
    transfer.send(weights_of(1))
    assert transfer.failures == {link.meeting: "the engine is gone"}
    assert transfer.digests == digests(weights_of(1)), "the others get their weights"


def test_a_plan_names_what_does_not_fit():
    outline = nn.Sequential(nn.Linear(3, 2, bias=False))
    shapes = {"0.weight": (2, 3)}
    assert plan_for(outline, shapes, torch.float32).described() == {
        "names": ["0.weight"],
        "dtype_names": ["float32"],
        "shapes": [[2, 3]],
    }
    with pytest.raises(WeightsFault, match=r"new weights lack 0\.weight, which the engine's model has"):
        plan_for(outline, {}, torch.float32)
    with pytest.raises(WeightsFault, match=r"0\.weight is \(3, 2\), the engine's is \(2, 3\)"):
        plan_for(outline, {"0.weight": (3, 2)}, torch.float32)
    with pytest.raises(WeightsFault, match=r"new weights have 0\.bias, which the engine's model lacks"):
        plan_for(outline, {**shapes, "0.bias": (2,)}, torch.float32)
