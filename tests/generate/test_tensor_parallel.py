"""vLLM with two tensor-parallel ranks on CPUs: log-probs, and weights replaced while sequences run."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from test_vllm import LONG, collect, difference

from magcli.cluster.open import open_cluster
from magcli.cluster.runtime import Cluster
from magcli.generate.open import open_policy
from magcli.generate.remote.fleet import Fleet
from magcli.generate.spec import Spec
from magcli.generate.types import Digests, Rollout, Sampling
from magcli.generate.vllm.policy import VllmPolicy
from magcli.generate.weights.digest import check_arrivals, digests
from magcli.generate.weights.matching import names_in
from magcli.model.load import load_model
from magcli.model.model import Model

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

TOLERANCE = 1e-4
"""The largest difference of log-probs from transformers': sums of two ranks are rounded differently."""


@pytest.fixture(scope="module", autouse=True)
def uncompiled() -> Iterator[None]:
    """Without compilation, which takes longer than the tests on a busy machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHDYNAMO_DISABLE", "1")
        yield


@pytest.fixture(scope="module")
def plain(wide_model_dir: Path) -> torch.nn.Module:
    return load_model(str(wide_model_dir), dtype=torch.float32)


@pytest.fixture(scope="module")
def other(wide_model_dir: Path) -> torch.nn.Module:
    return load_model(str(wide_model_dir), dtype=torch.float32, from_scratch=True, seed=7)


def spec_of(folder: Path, **options: object) -> Spec:
    model = Model.open(folder)
    return Spec(model, engine="vllm", dtype="fp32", slots=4, threads=2, tensor_parallel=2, **options)


@asynccontextmanager
async def in_this_process(folder: Path) -> AsyncIterator[VllmPolicy]:
    policy = open_policy(spec_of(folder))
    try:
        yield policy
    finally:
        await policy.close()


@asynccontextmanager
async def in_a_generator(cluster: Cluster, folder: Path) -> AsyncIterator[Fleet]:
    fleet = await Fleet.open(cluster, spec_of(folder, transfer="broadcast"), 1)
    try:
        yield fleet
    finally:
        await fleet.close()


async def sampled_around_new_weights(
    engine: VllmPolicy | Fleet, weights: dict[str, torch.Tensor]
) -> tuple[list[Rollout], list[Digests], list[Rollout]]:
    """Sequences during which the weights change, the digests of these, and sequences after them."""
    running = []
    first_tokens_are_there = asyncio.Event()

    async def sample(tokens: int, seeds: range) -> None:
        running.extend(await collect(engine, LONG, Sampling(tokens), seeds))
        first_tokens_are_there.set()

    async with asyncio.TaskGroup() as group:
        group.create_task(sample(1, range(1)))  # ends while the others run
        group.create_task(sample(40, range(1, 4)))
        await first_tokens_are_there.wait()
        arrived = await engine.load(weights, 1)
    after = await collect(engine, LONG, Sampling(8), range(3))
    return running, arrived, after


def check(
    running: list[Rollout], arrived: list[Digests], after: list[Rollout], plain: torch.nn.Module, other: torch.nn.Module
) -> None:
    assert len(running) == 4
    changed = [rollout for rollout in running if len(rollout.versions) == 2]
    assert len(changed) == 3, [rollout.versions for rollout in running]
    for rollout in changed:
        (start, first), (switch, second) = rollout.versions
        assert (start, first, second) == (0, 0, 1)
        assert 0 < switch < len(rollout.tokens)
        assert difference(plain, until(rollout, switch)) < TOLERANCE
        assert difference(plain, rollout) > TOLERANCE
    for rollout in after:
        assert rollout.versions == ((0, 1),)
        assert difference(other, rollout) < TOLERANCE
    weights = other.state_dict()
    sent = digests({name: weights[name] for name in names_in(weights, other).values()})
    check_arrivals(sent, arrived, 1)


def until(rollout: Rollout, end: int) -> Rollout:
    """The first tokens of a rollout."""
    return replace(rollout, tokens=rollout.tokens[:end], logprobs=rollout.logprobs[:end])


def test_weights_in_a_file_replace_those_of_all_ranks_in_flight(wide_model_dir, plain, other):
    async def scenario() -> tuple[list[Rollout], list[Digests], list[Rollout]]:
        async with in_this_process(wide_model_dir) as policy:
            return await sampled_around_new_weights(policy, other.state_dict())

    check(*asyncio.run(scenario()), plain, other)


def test_weights_broadcast_to_a_generator_replace_those_of_all_ranks_in_flight(wide_model_dir, plain, other):
    async def scenario(cluster: Cluster) -> tuple[list[Rollout], list[Digests], list[Rollout]]:
        async with in_a_generator(cluster, wide_model_dir) as fleet:
            return await sampled_around_new_weights(fleet, other.state_dict())

    with open_cluster() as cluster:
        check(*asyncio.run(scenario(cluster)), plain, other)
