"""Weights of trainer ranks, gathered bucket by bucket and sent to an engine: what arrives, and what memory it takes."""

import asyncio
import ctypes
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from training_ranks import on_ranks, started

from magcli.generate.weights.digest import check_arrival, digest
from magcli.generate.weights.gloo import LOOPBACK, GlooGroup
from magcli.generate.weights.rank_transfer import RankLink, WeightPlan
from magcli.rl.send_weights import SendWeights
from magcli.train.buckets import gathered_buckets, open_gather_group, split_into_buckets
from magcli.train.commands import RankState
from magcli.train.shard import ShardedModel, full_weights

SIZES = st.lists(st.integers(1, 100), max_size=30)


@given(SIZES, st.integers(1, 120))
def test_buckets_have_all_tensors_in_order_and_are_full(numbers, limit):
    sizes = {f"t{index}": size for index, size in enumerate(numbers)}
    buckets = split_into_buckets(sizes, limit)
    assert [name for bucket in buckets for name in bucket] == list(sizes)
    totals = [sum(sizes[name] for name in bucket) for bucket in buckets]
    assert all(total <= limit or len(bucket) == 1 for total, bucket in zip(totals, buckets, strict=True))
    for total, (_, following) in zip(totals, pairwise(buckets), strict=False):
        assert total + sizes[following[0]] > limit


class Stack(nn.Module):
    """Parameters of these shapes, without values."""

    def __init__(self, shapes):
        super().__init__()
        self.parts = nn.ParameterList([nn.Parameter(torch.empty(shape, device="meta")) for shape in shapes])


def sharded(ranks, shapes):
    """A stack that never exists whole; its values differ by shard and position."""
    model = Stack(shapes)
    fully_shard(model, mesh=ranks.mesh)
    model.to_empty(device="cpu")
    torch.manual_seed(ranks.rank % ranks.sharing)
    for parameter in model.parameters():
        parameter.detach().to_local().uniform_()
    return model


UNEVEN = [(5, 3), (1, 4), (7,), (2, 2, 3), (6, 2)]
"""Among them tensors with fewer rows than three ranks."""


def gathered(ranks, dtype, limit, copies=1):
    """What a rank gets in each bucket, and the whole tensors as FSDP itself gathers them.

    ``copies``: how many groups of ranks have a copy of the weights (hybrid sharding).
    """
    if copies > 1:
        sizes = copies, ranks.size // copies
        ranks = replace(ranks, mesh=init_device_mesh("cpu", sizes, mesh_dim_names=("replicate", "shard")))
    model = sharded(ranks, UNEVEN)
    expected = {name: tensor.clone() for name, tensor in full_weights(model, ranks).items()}
    group = open_gather_group(ranks)
    buckets = []
    if group is None:
        return None, expected
    for bucket in gathered_buckets(dict(model.named_parameters()), ranks, group, dtype=dtype, limit=limit):
        buckets.append({name: tensor.clone() for name, tensor in bucket.items()})
    return buckets, expected


def test_gathered_tensors_are_those_of_the_model():
    for size, dtype, limit in ((2, torch.float32, 64), (3, torch.bfloat16, 50)):
        (buckets, expected), *others = on_ranks(gathered, dtype, limit, size=size)
        assert len(buckets) > 2
        whole = {name: tensor for bucket in buckets for name, tensor in bucket.items()}
        assert list(whole) == list(expected)
        for name, tensor in expected.items():
            assert torch.equal(whole[name], tensor.to(dtype)), (name, size)
        for bucket in buckets:
            assert len(bucket) == 1 or sum(tensor.nbytes for tensor in bucket.values()) <= limit
        assert all(bucket == {} for other, _ in others for bucket in other), "only rank 0 has whole tensors"


def test_with_several_copies_only_the_ranks_of_the_first_gather():
    (buckets, expected), second, *others = on_ranks(gathered, torch.float32, 64, 2, size=4)
    whole = {name: tensor for bucket in buckets for name, tensor in bucket.items()}
    for name, tensor in expected.items():
        assert torch.equal(whole[name], tensor), name
    assert [len(bucket) for bucket in second[0]] == [0] * len(buckets)
    assert [other for other, _ in others] == [None, None]


class Engine:
    """An engine that digests what it receives, and keeps nothing."""

    def __init__(self):
        self.arrived = {}

    async def run_step(self, step, info):
        if step == "init":
            where = info["host"], info["port"], info["rank_offset"], info["world_size"]
            self.group = await asyncio.to_thread(GlooGroup.join, *where)
        elif step == "update":
            self.arrived = await asyncio.to_thread(self._receive, info)

    def _receive(self, info):
        return {name: digest(tensor) for name, tensor in self.group.receive(info)}


MB = 2**20
LARGE = [(1536, 3072)] * 16
"""302 MB of weights in float32."""
BUCKET = 40 * MB


def plan_of(shapes):
    names = {f"parts.{index}": f"parts.{index}" for index in range(len(shapes))}
    return WeightPlan(names, {f"parts.{index}": shape for index, shape in enumerate(shapes)}, torch.float32)


def send_and_measure(ranks, meeting):
    """What a rank sends, the bytes of its shard, and how much its memory grows in a send and in a gather of all."""
    mmap_threshold, bytes_of_own_pages = -3, 1 << 16
    ctypes.CDLL(None).mallopt(mmap_threshold, bytes_of_own_pages)  # freed tensors leave the process
    small = RankState(ranks, ShardedModel(sharded(ranks, UNEVEN)), None, None)
    SendWeights(plan_of(UNEVEN), (), 1).run(small)  # loads what is loaded on first use
    model = sharded(ranks, LARGE)
    shard = sum(parameter.to_local().nbytes for parameter in model.parameters())
    state = RankState(ranks, ShardedModel(model), None, None, connections=small.connections)
    before = start_of_measure()
    sent = SendWeights(plan_of(LARGE), (meeting,), 2, BUCKET).run(state)
    growth = memory_of_process("VmHWM") - before
    before = start_of_measure()
    everything = full_weights(model, ranks)
    growth_of_whole = memory_of_process("VmHWM") - before
    assert len(everything) == (0 if ranks.rank else len(LARGE))
    return sent, shard, growth, growth_of_whole


def start_of_measure():
    Path("/proc/self/clear_refs").write_text("5")  # VmHWM starts from here
    return memory_of_process("VmRSS")


def memory_of_process(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


def test_ranks_send_a_model_without_having_it_whole():
    engine, plan = Engine(), plan_of(LARGE)
    link = RankLink(engine.run_step, LOOPBACK, ranks=1, by_nccl=False)
    with started(send_and_measure, link.meeting, size=2) as ranks:
        asyncio.run(link.receive(plan))
        (sent, shard, growth, growth_of_whole), (_, _, growth_of_other, _) = [rank.result() for rank in ranks]
    check_arrival(sent.digests, engine.arrived, 2)
    assert (sent.version, sent.failures, len(sent.digests)) == (2, {}, len(LARGE))
    allowed = 1.3 * shard + BUCKET
    assert shard == sum(4 * rows * columns for rows, columns in LARGE) / 2
    assert growth <= allowed
    assert growth_of_other <= allowed
    assert growth_of_whole > allowed, "the measure would not notice a whole model"
