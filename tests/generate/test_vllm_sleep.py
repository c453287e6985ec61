"""vLLM's sleep beside a trainer: the calls and their order, with an engine that records them, for want of a GPU."""

import asyncio
import inspect
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from test_vllm import LONG, collect, difference

from magcli.errors import EnvironmentFault
from magcli.generate.open import open_policy
from magcli.generate.spec import Spec
from magcli.generate.types import Sampling
from magcli.generate.vllm import sleep as vllm_sleep
from magcli.generate.vllm.policy import VllmPolicy
from magcli.generate.vllm.start import VllmProcess, gpu_settings
from magcli.model.load import load_model
from magcli.model.model import Model


class RecordingEngine:
    """vLLM's engine as far as sleep needs it; it refuses what a sleeping engine could not do."""

    errored = False
    output_handler = None

    def __init__(self):
        self.calls = []
        self.asleep = set()
        self.model_config = SimpleNamespace(max_model_len=64)
        self.stopped = asyncio.Event()

    async def get_supported_tasks(self):
        return ()

    async def get_weight_version(self):
        return "0"

    async def pause_generation(self, *, mode, clear_cache):
        self.calls.append(("pause", mode))

    async def resume_generation(self):
        assert not self.asleep
        self.calls.append(("resume",))

    async def sleep(self, level=1, mode="abort"):
        self.calls.append(("sleep", level, mode))
        self.asleep = {"weights", "kv_cache"}

    async def wake_up(self, tags=None):
        self.calls.append(("wake", *tags))
        self.asleep -= set(tags)

    async def update_weight_version(self, version):
        self.calls.append(("version", version))

    async def abort(self, names):
        self.calls.append(("abort", *names))
        if names:
            self.stopped.set()

    async def generate(self, prompt, params, name, lora_request=None):
        self.calls.append(("generate", name))
        if name == "0" and not self.stopped.is_set():
            await self.stopped.wait()
            yield SimpleNamespace(outputs=[SimpleNamespace(finish_reason="abort")])
            return
        tokens = SimpleNamespace(start_indices=[0], logprobs=[-1.0])
        spans = [SimpleNamespace(start=0, version="1")]
        output = {"token_ids": [5], "logprobs": tokens, "finish_reason": "length", "weight_versions": spans}
        yield SimpleNamespace(outputs=[SimpleNamespace(**output)])

    def shutdown(self, seconds):
        self.calls.append(("shutdown",))


class RecordingSender:
    """Sends nothing, and needs the engine's weights for it."""

    backend, lora_request = "none", None

    @contextmanager
    def ready(self, weights, outline):
        async def send(engine, pause):
            await pause()
            assert "weights" not in engine.asleep
            engine.calls.append(("send",))
            return {}

        yield send


def policy_of(folder: Path, tmp_path: Path, **options) -> tuple[VllmPolicy, RecordingEngine]:
    engine = RecordingEngine()
    process = SimpleNamespace(pid=1, exitcode=None, join=lambda seconds: None)
    spec = Spec(Model.open(folder), engine="vllm", dtype="fp32", slots=4, deadline=5, **options)
    return VllmPolicy(spec, VllmProcess(engine, process, tmp_path), RecordingSender()), engine


@pytest.fixture
def freed(monkeypatch):
    """How often memory that PyTorch had kept was given back."""
    times = []
    monkeypatch.setattr(vllm_sleep, "free_cached_memory", lambda: times.append(1))
    return times


def test_it_sleeps_from_the_start_of_an_update_to_the_delivery_of_its_weights(tiny_model_dir, tmp_path, freed):
    async def scenario():
        policy, engine = policy_of(tiny_model_dir, tmp_path, sleeps=True)
        assert policy.sleeps
        await policy.sleep()
        await policy.sleep()  # an update may be repeated: it sleeps already
        await policy.load({}, 1)
        assert policy.version == 1
        await policy.close()
        return engine.calls

    assert asyncio.run(scenario()) == [
        ("sleep", 1, "keep"),
        ("pause", "keep"),
        ("wake", "weights"),
        ("send",),
        ("version", "1"),
        ("abort",),
        ("wake", "kv_cache"),
        ("resume",),
        ("shutdown",),
    ]
    assert len(freed) == 2, "before each step of waking up"


def test_a_sequence_that_comes_while_it_sleeps_begins_with_the_new_weights(tiny_model_dir, tmp_path, freed):
    async def scenario():
        policy, engine = policy_of(tiny_model_dir, tmp_path, sleeps=True)
        await policy.sleep()
        engine.stopped.set()
        stream = policy.sample([5, 6], Sampling(1), seeds=[1])
        turn = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0.05)
        waiting = [call[0] for call in engine.calls]
        await policy.load({}, 1)
        rollout = await turn
        await stream.aclose()
        await policy.close()
        return waiting, rollout, [call[0] for call in engine.calls]

    waiting, rollout, calls = asyncio.run(scenario())
    assert waiting == ["sleep"]
    assert calls.index("generate") > calls.index("resume")
    assert rollout.versions == ((0, 1),)


def test_it_stays_awake_unless_it_was_opened_to_sleep(tiny_model_dir, tmp_path, freed):
    async def scenario():
        policy, engine = policy_of(tiny_model_dir, tmp_path)
        assert not policy.sleeps
        await policy.sleep()
        await policy.load({}, 1)
        await policy.close()
        return [call[0] for call in engine.calls]

    assert asyncio.run(scenario()) == ["pause", "send", "version", "abort", "resume", "shutdown"]
    assert freed == []


def test_a_sequence_without_a_token_starts_again_when_it_wakes(tiny_model_dir, tmp_path, freed):
    """Others are kept: vLLM computes their cache again."""

    async def scenario():
        policy, engine = policy_of(tiny_model_dir, tmp_path, sleeps=True)
        stream = policy.sample([3, 4], Sampling(1), seeds=[7])
        running = asyncio.ensure_future(anext(stream))
        while ("generate", "0") not in engine.calls:
            await asyncio.sleep(0)
        await policy.sleep()
        await policy.load({}, 1)
        rollout = await running
        await stream.aclose()
        await policy.close()
        return rollout, engine.calls

    rollout, calls = asyncio.run(scenario())
    assert (rollout.tokens, rollout.versions) == ((5,), ((0, 1),))
    assert calls.index(("version", "1")) < calls.index(("abort", "0")) < calls.index(("generate", "1"))
    assert calls.index(("abort", "0")) < calls.index(("wake", "kv_cache")), "with it vLLM continues"


@pytest.mark.slow
def test_vllm_computes_the_cache_of_running_sequences_again(wide_model_dir, freed):
    """vLLM itself on a CPU, where only the memory stays: what follows a sleep is what the new weights alone give."""
    old = load_model(str(wide_model_dir), dtype=torch.float32)
    new = load_model(str(wide_model_dir), dtype=torch.float32, from_scratch=True, seed=7)

    async def scenario():
        spec = Spec(Model.open(wide_model_dir), engine="vllm", dtype="fp32", slots=8, deadline=300, sleeps=True)
        policy = open_policy(spec)
        running = asyncio.ensure_future(collect(policy, LONG, Sampling(300), range(4)))
        while sum(request.has_token for request in policy._requests.values()) < 4:
            await asyncio.sleep(0.01)
        await policy.sleep()
        late = asyncio.ensure_future(collect(policy, LONG, Sampling(4), range(1)))
        await asyncio.sleep(0.1)
        assert not late.done()
        await policy.load(new.state_dict(), 1)
        found = await running, await late
        await policy.close()
        return found

    running, (late,) = asyncio.run(scenario())
    assert late.versions == ((0, 1),)
    assert difference(new, late) < 1e-4
    for rollout in running:
        assert [version for _, version in rollout.versions] == [0, 1]
        change = rollout.versions[1][0]
        before = replace(rollout, tokens=rollout.tokens[:change], logprobs=rollout.logprobs[:change])
        prompt = (*rollout.prompt, *rollout.tokens[:change])
        after = replace(rollout, prompt=prompt, tokens=rollout.tokens[change:], logprobs=rollout.logprobs[change:])
        assert difference(old, before) < 1e-4
        assert difference(new, after) < 1e-4


def test_an_engine_that_does_not_fall_asleep_has_stopped(tiny_model_dir, tmp_path):
    async def scenario():
        policy, engine = policy_of(tiny_model_dir, tmp_path, sleeps=True)

        async def fails(level, mode):
            raise RuntimeError("cumem allocator")

        engine.sleep = fails
        with pytest.raises(EnvironmentFault, match=r"falling asleep: .*cumem allocator"):
            await policy.sleep()
        await policy.close()

    asyncio.run(scenario())


def test_vllm_has_these_calls_and_tags(tiny_model_dir):
    """Signatures of vLLM 0.32, and that it keeps running sequences and computes their cache again."""
    engine = pytest.importorskip("vllm.v1.engine.async_llm").AsyncLLM
    from vllm import AsyncEngineArgs
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.engine.core import EngineCore
    from vllm.v1.executor.abstract import SLEEP_TAGS

    for name in ("sleep", "wake_up", "pause_generation"):
        ours, theirs = (inspect.signature(getattr(kind, name)).parameters for kind in (RecordingEngine, engine))
        assert set(ours) <= set(theirs), name
    assert all(hasattr(engine, name) for name in ("resume_generation", "update_weight_version", "abort"))
    assert frozenset(("weights", "kv_cache")) == SLEEP_TAGS
    assert inspect.signature(EngineCore._reset_caches).parameters["reset_running_requests"].default is True
    assert "PREEMPTED" in inspect.getsource(Scheduler._preempt_request)
    settings = gpu_settings(Spec(Model.open(tiny_model_dir), device="cuda", sleeps=True))
    assert settings["enable_sleep_mode"] is True
    AsyncEngineArgs(model="m", **settings)
