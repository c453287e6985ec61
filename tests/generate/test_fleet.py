"""Generator processes: the same sequences as in this process, in-flight weight updates, killed processes."""

import asyncio
import os
import signal
import time
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

from magcli.cluster.open import open_cluster
from magcli.cluster.runtime import Cluster
from magcli.cluster.types import LOCAL, Resources
from magcli.errors import EnvironmentFault, PromptTooLong
from magcli.generate.open import open_policy
from magcli.generate.remote.fleet import Fleet
from magcli.generate.remote.generator import GeneratorDied, RemoteSampler
from magcli.generate.remote.wire import Failed
from magcli.generate.spec import Spec
from magcli.generate.types import Sampling
from magcli.generate.weights.matching import sweep
from magcli.model.load import load_model
from magcli.model.model import Model

PROMPT = [3, 40, 41, 42, 1, 4]


@pytest.fixture(scope="module")
def spec(tiny_model_dir):
    return Spec(Model.open(tiny_model_dir), dtype="fp32", slots=16, deterministic=True, threads=1)


@pytest.fixture(scope="module")
def other(tiny_model_dir):
    return load_model(str(tiny_model_dir), dtype=torch.float32, from_scratch=True, seed=7).state_dict()


@pytest.fixture(scope="module", autouse=True)
def cluster():
    with open_cluster() as opened:
        yield opened


@asynccontextmanager
async def fleet_of(spec, size, said=None):
    fleet = await Fleet.open(Cluster(LOCAL), spec, size, say=(said if said is not None else []).append)
    try:
        yield fleet
    finally:
        await fleet.close()


async def collect(policy, seeds, sampling=None, *, begun=None):
    """The rollouts by their index; the first one sets the event ``begun``."""
    found = []
    async with aclosing(policy.sample(PROMPT, sampling or Sampling(40), seeds=seeds)) as stream:
        async for rollout in stream:
            found.append(rollout)
            if begun:
                begun.set()
    return sorted(found, key=lambda rollout: rollout.index)


def in_this_process(tiny_model_dir, seeds, weights=None):
    async def scenario():
        policy = open_policy(Spec(Model.open(tiny_model_dir), slots=16, deterministic=True))
        if weights:
            await policy.load(weights, 1)
        found = await collect(policy, seeds)
        await policy.close()
        return found

    return asyncio.run(scenario())


def test_generators_give_the_results_of_this_process_before_and_after_new_weights(spec, other, tiny_model_dir):
    async def scenario():
        async with fleet_of(spec, 2) as fleet:
            first = await asyncio.gather(collect(fleet, range(6)), collect(fleet, range(6, 9)))
            assert fleet.version == 0
            await fleet.load(other, 1)
            assert fleet.version == 1
            return [*first[0], *first[1]], await collect(fleet, range(5))

    before, after = asyncio.run(scenario())
    expected = in_this_process(tiny_model_dir, range(9))
    assert [rollout.tokens for rollout in before] == [rollout.tokens for rollout in expected]
    assert [rollout.logprobs for rollout in before] == [rollout.logprobs for rollout in expected]
    assert [rollout.index for rollout in before] == [0, 1, 2, 3, 4, 5, 0, 1, 2]
    changed = in_this_process(tiny_model_dir, range(5), other)
    assert [(r.tokens, r.logprobs, r.versions) for r in after] == [(r.tokens, r.logprobs, r.versions) for r in changed]


@pytest.mark.slow
def test_the_embedded_engine_is_sent_the_weights_of_a_trainer_on_a_gpu_over_gloo(spec, other, tiny_model_dir):
    async def scenario():
        async with fleet_of(replace(spec, transfer="broadcast", source="cuda:0"), 1) as fleet:
            await fleet.load(other, 1)
            return await collect(fleet, range(5))

    changed = in_this_process(tiny_model_dir, range(5), other)
    assert [rollout.tokens for rollout in asyncio.run(scenario())] == [rollout.tokens for rollout in changed]


def test_weights_change_while_sequences_run(spec, other):
    async def scenario():
        async with fleet_of(Spec(spec.model, dtype="fp32", slots=64, threads=1), 2) as fleet:
            begun = asyncio.Event()
            groups = [
                asyncio.create_task(collect(fleet, range(100), Sampling(400, 2.0), begun=begun)) for _ in range(2)
            ]
            await begun.wait()
            await fleet.load(other, 1)
            return [rollout for group in await asyncio.gather(*groups) for rollout in group]

    versions = [rollout.versions for rollout in asyncio.run(scenario())]
    assert any(len(spans) == 2 and spans[0] == (0, 0) and spans[1][0] > 0 for spans in versions)


def test_a_request_that_cannot_be_answered_fails_alone(spec):
    async def scenario():
        async with fleet_of(spec, 1) as fleet:
            with pytest.raises(PromptTooLong, match="does not fit the model's context of 512"):
                await anext(fleet.sample([5] * 600, Sampling(4), seeds=[1]))
            return await collect(fleet, [1, 2])

    assert len(asyncio.run(scenario())) == 2


@pytest.mark.flaky(reruns=2)
def test_an_abandoned_group_frees_its_slots(spec):
    async def scenario():
        async with fleet_of(Spec(spec.model, dtype="fp32", slots=4, threads=1), 1) as fleet:
            stream = fleet.sample(PROMPT, Sampling(500, 5.0), seeds=range(300))
            await anext(stream)
            await stream.aclose()
            started = time.monotonic()
            found = await collect(fleet, [1])
            return found, time.monotonic() - started

    found, took = asyncio.run(scenario())
    assert len(found) == 1
    assert took < 5


def test_a_killed_generator_is_replaced_and_its_sequences_are_resampled(spec, other, tiny_model_dir):
    said = []

    async def scenario():
        async with fleet_of(spec, 2, said) as fleet:
            await fleet.load(other, 1)
            begun = asyncio.Event()
            groups = [asyncio.create_task(collect(fleet, range(n, n + 16), begun=begun)) for n in range(0, 64, 16)]
            await begun.wait()
            killed = fleet._members[0].member
            os.kill(killed.process, signal.SIGKILL)
            found = [rollout for group in await asyncio.gather(*groups) for rollout in group]
            await asyncio.gather(*fleet._replacements.values())
            assert fleet.replaced == 1
            assert killed.process not in [sampler.member.process for sampler in fleet._members]
            return killed.name, found

    name, found = asyncio.run(scenario())
    assert said == [f"{name} died: its process was killed, or ran out of memory; starting another"]
    assert len(found) == 64
    expected = in_this_process(tiny_model_dir, range(64), other)
    assert [(r.tokens, r.logprobs) for r in found] == [(r.tokens, r.logprobs) for r in expected]


@pytest.mark.faults
def test_the_replacement_of_a_dead_idle_generator_gets_new_weights(spec, other):
    async def scenario():
        async with fleet_of(spec, 1) as fleet:
            os.kill(fleet._members[0].member.process, signal.SIGKILL)
            await fleet.load(other, 3)
            return await collect(fleet, [1]), fleet.replaced

    (rollout,), replaced = asyncio.run(scenario())
    assert rollout.versions == ((0, 3),)
    assert replaced == 1


@pytest.mark.faults
def test_generators_that_die_faster_than_they_work_end_the_run(spec, monkeypatch):
    monkeypatch.setattr("magcli.generate.remote.fleet.MAX_DEATHS", 1)

    async def scenario():
        async with fleet_of(spec, 1) as fleet:

            async def murder():
                while True:
                    with suppress(ProcessLookupError):
                        os.kill(fleet._members[0].member.process, signal.SIGKILL)
                    await asyncio.sleep(0.02)

            killer = asyncio.create_task(murder())
            try:
                await collect(fleet, [1])
            finally:
                killer.cancel()

    with pytest.raises(
        EnvironmentFault,
        match="its process was killed, or ran out of memory",
    ):
        asyncio.run(scenario())


def test_a_missing_model_is_named(tmp_path):
    with pytest.raises(EnvironmentFault, match="nowhere"):
        asyncio.run(Fleet.open(Cluster(LOCAL), Spec(Model.open(tmp_path / "nowhere")), 1))


@pytest.mark.faults
@pytest.mark.flaky(reruns=2)
def test_a_stopped_generator_counts_as_dead(spec, monkeypatch):
    monkeypatch.setattr("magcli.cluster.mailbox.SILENT_SECONDS", 2.5)

    async def scenario():
        policy = await RemoteSampler.start(Cluster(LOCAL), spec, Resources(), say=print)
        os.kill(policy.member.process, signal.SIGSTOP)
        try:
            await collect(policy, [1])
        finally:
            await policy.close()

    with pytest.raises(GeneratorDied, match=r"no sign of life in 2\.5 s"):
        asyncio.run(scenario())


@pytest.mark.faults
@pytest.mark.flaky(reruns=2)
def test_a_busy_event_loop_does_not_declare_a_live_generator_dead(spec, monkeypatch):
    monkeypatch.setattr("magcli.cluster.mailbox.SILENT_SECONDS", 2.0)

    async def scenario():
        policy = await RemoteSampler.start(Cluster(LOCAL), spec, Resources(), say=print)
        try:
            time.sleep(4.0)
            return await collect(policy, [1])
        finally:
            await policy.close()

    assert len(asyncio.run(scenario())) == 1


def test_a_dead_generator_gets_no_samples_while_another_is_alive():
    fleet = Fleet(Cluster(LOCAL), Spec(Model.open("model")), print)
    idle, busy = Mock(alive=False, assigned=0), Mock(alive=True, assigned=7)
    fleet._members = [idle, busy]
    assert list(fleet._candidates()) == [busy]
    busy.alive = False
    assert list(fleet._candidates()) == [idle, busy], "it dies once more, and is replaced"


def test_other_users_files_in_shared_memory_are_not_touched(tmp_path, monkeypatch):
    def refuse(path, missing_ok=False):
        raise PermissionError(path)

    left = tmp_path / "magcli-999999999-x.safetensors"
    left.touch()
    monkeypatch.setattr("magcli.generate.weights.matching.SHARED_MEMORY", tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", refuse)
        sweep()
    assert left.exists()
    sweep()
    assert not left.exists()


def test_generators_do_not_outlive_their_parent(spec, tmp_path):
    import subprocess
    import sys

    script = (
        "import asyncio, sys\n"
        "from magcli.cluster.open import open_cluster\n"
        "from magcli.generate.remote.fleet import Fleet\n"
        "from magcli.generate.spec import Spec\n"
        "from magcli.model.model import Model\n"
        "async def main():\n"
        "    with open_cluster() as cluster:\n"
        f"        fleet = await Fleet.open(cluster, Spec(Model.open({spec.model.name!r}), threads=1), 1)\n"
        "        print(*[sampler.member.process for sampler in fleet._members], flush=True)\n"
        "        await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as parent:
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        parent.kill()
    deadline = time.monotonic() + 60
    while any(alive(pid) for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("has_worked", [False, True])
def test_an_engine_that_said_why_it_failed_is_started_again_only_if_it_has_worked(spec, has_worked):
    said = []

    async def scenario():
        async with fleet_of(spec, 1, said) as fleet:
            if has_worked:
                await collect(fleet, [1])
            member = fleet._members[0]
            member._take(Failed(None, EnvironmentFault("no kernel for this card")))
            return await collect(fleet, [2])

    if has_worked:
        assert len(asyncio.run(scenario())) == 1
        assert "no kernel for this card; starting another" in said[0]
    else:
        with pytest.raises(EnvironmentFault, match=r"no kernel for this card; it has not finished any sequence"):
            asyncio.run(scenario())
        assert said == []
