"""Trainer ranks send generators their weights themselves; generators and ranks that are killed meanwhile."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch

from magcli.cluster.errors import RanksLost
from magcli.cluster.open import open_cluster
from magcli.generate.remote.fleet import Fleet
from magcli.generate.spec import Spec
from magcli.generate.types import Sampling
from magcli.generate.weights.digest import check_arrivals, digests
from magcli.model.load import load_model
from magcli.model.model import Model
from magcli.rl.send_weights import SendWeights
from magcli.train.buckets import gathered_buckets
from magcli.train.commands import RankState
from magcli.train.controller import RankController
from magcli.train.rank_group import ClusterRanks, RankSetup
from magcli.train.shard import shard

PROMPT = [3, 40, 41, 42, 1, 4]
BUCKET = 20_000
"""Bytes: the weights of the tiny model, 200 kB, go in about ten buckets."""


@dataclass(frozen=True)
class Halve:
    """Change the weights."""

    def run(self, state: RankState) -> None:
        with torch.no_grad():
            for parameter in state.model.parameters():
                parameter.mul_(0.5)


@dataclass(frozen=True)
class Processes:
    """The processes of all ranks."""

    def run(self, state: RankState) -> list[int]:
        return state.ranks.gather(os.getpid())


@dataclass(frozen=True)
class DieInSend:
    """Take part in a send until the second bucket."""

    command: SendWeights

    def run(self, state: RankState) -> None:
        from unittest.mock import patch

        def dying(*arguments, **options):
            for number, bucket in enumerate(gathered_buckets(*arguments, **options)):
                if number == 1:
                    os.kill(os.getpid(), signal.SIGKILL)
                yield bucket

        with patch("magcli.rl.send_weights.gathered_buckets", dying):
            self.command.run(state)


@dataclass
class Ranks:
    """The trainer ranks as a source of weights; ``when_started`` is called as they begin to send."""

    controller: RankController
    version: int = 0
    when_started: Callable[[], None] = lambda: None
    dies_in_send: bool = False

    @property
    def shapes(self):
        return self.controller.facts.shapes

    def send(self, plan, meetings, started):
        started(self.version)
        self.when_started()
        command = SendWeights(plan, meetings, self.version, BUCKET)
        return self.controller.run([command, DieInSend(command) if self.dies_in_send else command])

    def change(self):
        """Weights of the next version."""
        self.controller.run([Halve()] * 2)
        self.version += 1


@pytest.fixture(scope="module")
def bench(tiny_model_dir) -> Iterator[SimpleNamespace]:
    """Two ranks and a generator of a local Ray, and an event loop."""
    from ray import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers do not find a module of tests
    folder, said = str(tiny_model_dir), []

    def open_state(ranks, bf16):
        return RankState(ranks, shard(load_model(folder, dtype=torch.float32), ranks), None, None)

    spec = Spec(Model.open(folder), dtype="fp32", slots=16, threads=1, transfer="broadcast")
    with open_cluster() as cluster, asyncio.Runner() as runner:
        ranks = ClusterRanks(cluster, 2, RankSetup("cpu", 1, timeout=60.0), say=print)
        controller = RankController(ranks)
        controller.open(open_state)
        fleet = runner.run(Fleet.open(cluster, spec, 1, say=said.append))
        yield SimpleNamespace(ranks=Ranks(controller), fleet=fleet, run=runner.run, said=said)
        runner.run(fleet.close())
        ranks.stop()


async def collect(fleet, seeds, sampling, *, begun=None):
    """The rollouts; the first one sets the event ``begun``."""
    rollouts = []
    async with aclosing(fleet.sample(PROMPT, sampling, seeds=seeds)) as stream:
        async for rollout in stream:
            rollouts.append(rollout)
            if begun:
                begun.set()
    return rollouts


def newest(bench):
    """The digests of the trainer's weights, each tied one once."""
    state = bench.ranks.controller.weights()
    return digests({name: state[name] for name in bench.ranks.shapes})


def load(bench):
    """New weights for the generator; checks that they arrive."""
    bench.ranks.change()
    sent, arrivals = bench.run(bench.fleet.load_from_ranks(bench.ranks))
    check_arrivals(sent, arrivals, bench.ranks.version)
    assert sent == newest(bench)


def test_weights_of_the_ranks_generate_the_next_tokens(bench):
    for _ in range(2):
        load(bench)
        rollouts = bench.run(collect(bench.fleet, range(3), Sampling(8)))
        assert {rollout.versions for rollout in rollouts} == {((0, bench.ranks.version),)}
    assert bench.fleet._newest is None, "this process has no weights"


def test_running_sequences_go_on_with_weights_of_the_ranks(bench):
    before = bench.fleet.version
    bench.ranks.change()

    async def scenario():
        begun = asyncio.Event()
        running = asyncio.create_task(collect(bench.fleet, range(100), Sampling(400, 2.0), begun=begun))
        await begun.wait()
        await bench.fleet.load_from_ranks(bench.ranks)
        return await running

    versions = [rollout.versions for rollout in bench.run(scenario())]
    spans = [found for found in versions if len(found) == 2]
    assert any(first == (0, before) and second[1] == bench.ranks.version for first, second in spans)


def kill_generator(bench):
    os.kill(bench.fleet._members[0].member.process, signal.SIGKILL)


def test_a_replaced_generator_gets_the_weights_that_the_ranks_have_now(bench):
    """They may be those of the next version, which the others get as soon as the event loop sends them."""
    load(bench)
    replaced = bench.fleet.replaced
    bench.ranks.change()
    kill_generator(bench)
    rollouts = bench.run(collect(bench.fleet, range(3), Sampling(8)))
    assert bench.fleet.replaced == replaced + 1
    assert {rollout.versions for rollout in rollouts} == {((0, bench.ranks.version),)}
    assert bench.fleet._members[0].arrived == newest(bench)


def test_a_generator_that_is_killed_in_a_send_is_replaced_and_sent_to_again(bench):
    replaced = bench.fleet.replaced
    kills = iter([lambda: kill_generator(bench)])
    bench.ranks.when_started = lambda: next(kills, lambda: None)()
    load(bench)
    bench.ranks.when_started = lambda: None
    assert bench.fleet.replaced == replaced + 1
    assert bench.said[-1].endswith("starting another")
    rollouts = bench.run(collect(bench.fleet, range(3), Sampling(8)))
    assert {rollout.versions for rollout in rollouts} == {((0, bench.ranks.version),)}


def test_a_rank_that_dies_in_a_send_is_named(bench):
    """It is the last test: the ranks end with it."""
    process = bench.ranks.controller.run([Processes()] * 2)[1]
    bench.ranks.dies_in_send = True
    with pytest.raises(RanksLost, match=rf"rank 1 \(process {process} on .*\) died"):
        bench.run(bench.fleet.load_from_ranks(bench.ranks))
    assert bench.fleet.version == bench.ranks.version
