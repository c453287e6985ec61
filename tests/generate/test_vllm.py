"""vLLM's engine: its cache, its weight files, and how it fails. One engine serves all tests.

``tests/stages/test_stage_rl_vllm.py`` runs vLLM by default; what needs an engine here is slow.
"""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from magcli.errors import EnvironmentFault, UsageError
from magcli.generate.open import open_policy
from magcli.generate.spec import Spec
from magcli.generate.types import Rollout, Sampling
from magcli.generate.vllm import policy as vllm_policy
from magcli.generate.vllm.policy import VllmPolicy
from magcli.generate.vllm.start import SOCKETS, VllmProcess, cache_bytes, socket_folder, start
from magcli.generate.vllm.transfer import sender_for
from magcli.generate.weights import matching
from magcli.generate.weights.matching import shared
from magcli.model.load import load_model
from magcli.model.model import Model

LONG = [5 + n % 90 for n in range(200)]
"""A prompt of several full blocks of the cache."""


class Bench:
    """An engine in fp32 and its event loop."""

    def __init__(self, folder: Path) -> None:
        self.spec = Spec(Model.open(folder), engine="vllm", dtype="fp32", slots=8, deadline=300)
        self.plain = load_model(str(folder), dtype=torch.float32)
        self.other = load_model(str(folder), dtype=torch.float32, from_scratch=True, seed=7)
        self.sender = sender_for("cpu", torch.float32)
        self.engine = start(self.spec, backend=self.sender.backend)
        self.runner = asyncio.Runner()

    def policy(self, deadline: float = 60.0) -> VllmPolicy:
        return VllmPolicy(replace(self.spec, deadline=deadline), self.engine, self.sender)


@pytest.fixture(scope="module", params=[pytest.param("engine", marks=pytest.mark.slow)])
def bench(wide_model_dir: Path) -> Iterator[Bench]:
    made = Bench(wide_model_dir)
    sockets = made.engine.sockets
    assert any(sockets.iterdir())
    yield made
    made.runner.run(made.policy().close())
    assert not sockets.exists()
    made.runner.close()
    del made.engine  # vLLM's own clean-up fails when the interpreter is already going


async def collect(policy: VllmPolicy, prompt: list[int], sampling: Sampling, seeds: range) -> list[Rollout]:
    return [rollout async for rollout in policy.sample(prompt, sampling, seeds=seeds)]


@torch.inference_mode()
def difference(model: torch.nn.Module, rollout: Rollout) -> float:
    """The largest difference between a rollout's log-probs and those of a plain forward pass."""
    logits = model(torch.tensor([rollout.prompt + rollout.tokens])).logits[0, len(rollout.prompt) - 1 : -1]
    expected = torch.log_softmax(logits, -1).gather(1, torch.tensor(rollout.tokens)[:, None])[:, 0]
    return float((torch.tensor(rollout.logprobs) - expected).abs().max())


def test_a_prompt_cached_under_older_weights_is_not_used(bench):
    """With the old salt it is used, so the cache works and the salt separates versions."""

    async def scenario() -> tuple[list[Rollout], list[Rollout], list[Rollout]]:
        policy = bench.policy()
        first, salt = await collect(policy, LONG, Sampling(8), range(3)), policy._salt
        await policy.load(bench.other.state_dict(), 1)
        fresh = await collect(policy, LONG, Sampling(8), range(3))
        policy._salt = salt
        stale = await collect(policy, LONG, Sampling(8), range(3))
        await policy.load(bench.plain.state_dict(), 0)
        return first, fresh, stale

    first, fresh, stale = bench.runner.run(scenario())
    assert max(difference(bench.plain, rollout) for rollout in first) < 1e-4
    assert max(difference(bench.other, rollout) for rollout in fresh) < 1e-4
    assert min(difference(bench.other, rollout) for rollout in stale) > 1e-3


def test_a_weight_file_is_passed_by_its_path(bench, monkeypatch, tmp_path):
    """Nothing is written: shared memory is a folder that does not exist."""

    async def scenario() -> list[Rollout]:
        policy = bench.policy()
        with shared(bench.other.state_dict()) as file:
            monkeypatch.setattr(matching, "SHARED_MEMORY", tmp_path / "nowhere")
            monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path / "nowhere"))
            await policy.load(file, 5)
            with pytest.raises(FileNotFoundError):
                await policy.load(bench.plain.state_dict(), 6)
            monkeypatch.undo()
        found = await collect(policy, LONG, Sampling(8), range(2))
        await policy.load(bench.plain.state_dict(), 0)
        return found

    for rollout in bench.runner.run(scenario()):
        assert rollout.versions == ((0, 5),)
        assert difference(bench.other, rollout) < 1e-4


def test_the_engine_continues_after_a_cancelled_load(bench):
    async def scenario() -> list[Rollout]:
        policy = bench.policy()
        running = asyncio.ensure_future(collect(policy, LONG, Sampling(60), range(4)))
        await asyncio.sleep(0.1)
        loading = asyncio.ensure_future(policy.load(bench.plain.state_dict(), 3))
        await asyncio.sleep(0.03)
        loading.cancel()
        await asyncio.gather(loading, return_exceptions=True)
        return await running + await collect(policy, LONG, Sampling(4), range(2))

    found = bench.runner.run(scenario())
    assert len(found) == 6
    assert max(difference(bench.plain, rollout) for rollout in found) < 1e-4


def test_more_concurrent_prompts_than_one_step_can_prefill(bench):
    """vLLM 0.32 would compute one of them in chunks, and crash on a CPU."""

    async def scenario() -> list[list[Rollout]]:
        policy = bench.policy()
        prompts = [[5 + first, *LONG, *LONG] for first in range(8)]
        return await asyncio.gather(*(collect(policy, prompt, Sampling(6), range(2)) for prompt in prompts))

    found = [rollout for group in bench.runner.run(scenario()) for rollout in group]
    assert len(found) == 16
    assert max(difference(bench.plain, rollout) for rollout in found) < 1e-4


def test_temperatures_that_vllm_would_change_are_rejected(bench):
    for temperature in (0.001, 2.5):
        with pytest.raises(UsageError, match=r"vLLM accepts 0, and 0\.01 to 2"):
            bench.runner.run(collect(bench.policy(), LONG, Sampling(4, temperature=temperature), range(1)))


def test_busy_time_counts_only_while_there_is_work(bench):
    async def scenario() -> tuple[float, float, float]:
        policy, started = bench.policy(), time.monotonic()
        await collect(policy, LONG, Sampling(30), range(8))
        worked, wall = policy.seconds, time.monotonic() - started
        await asyncio.sleep(0.3)
        return worked, wall, policy.seconds

    worked, wall, later = bench.runner.run(scenario())
    assert 0 < worked <= wall
    assert later == worked


def test_a_sequence_is_not_cut_because_the_cache_is_small(bench):
    policy = bench.policy()
    policy._context = 210  # as if no more had fitted into the memory of a GPU
    assert bench.runner.run(collect(policy, LONG, Sampling(10), [1]))
    with pytest.raises(EnvironmentFault, match="a prompt has 200 and may get 11 more"):
        bench.runner.run(collect(policy, LONG, Sampling(11), [1]))


def test_the_cache_is_limited_by_memory_but_fits_one_context(wide_model_dir):
    config, token = Model.open(wide_model_dir).config, 2 * 2 * 2 * 32 * 4
    spare = 64 * token
    assert cache_bytes(config, torch.float32, 1000, 10, 10**12) == 1000 * token + spare
    assert cache_bytes(config, torch.float32, 1000, 10, 2000 * token) == 500 * token + spare
    assert cache_bytes(config, torch.float32, 1000, 10, 0) == 10 * token + spare


@pytest.mark.slow
def test_a_model_unsupported_by_vllm_is_a_one_line_error(wide_model_dir, tmp_path):
    folder = tmp_path / "odd"
    shutil.copytree(wide_model_dir, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"architectures": ["NobodysForCausalLM"]}))
    with pytest.raises(EnvironmentFault, match=r"vLLM cannot run .*odd on cpu: .*") as caught:
        open_policy(Spec(Model.open(folder), engine="vllm", slots=2))
    assert "\n" not in str(caught.value)


def test_an_engine_that_hangs_is_named_after_the_deadline(bench, monkeypatch):
    monkeypatch.setattr(vllm_policy, "HEARTBEAT_SECONDS", 0.5)

    async def scenario() -> float:
        policy = bench.policy(deadline=2.0)
        running = asyncio.ensure_future(collect(policy, LONG, Sampling(300), range(8)))
        await asyncio.sleep(0.2)
        os.kill(bench.engine.process.pid, signal.SIGSTOP)
        started = time.monotonic()
        try:
            with pytest.raises(EnvironmentFault, match=r"vLLM engine process .* a sign of life: silence for 2 s"):
                await running
            return time.monotonic() - started
        finally:
            os.kill(bench.engine.process.pid, signal.SIGCONT)

    assert bench.runner.run(scenario()) < 8


def test_a_dead_engine_is_detected_within_seconds_and_named(bench):
    async def scenario() -> tuple[float, str]:
        policy = bench.policy()
        running = asyncio.ensure_future(collect(policy, LONG, Sampling(300), range(8)))
        await asyncio.sleep(0.3)
        os.kill(bench.engine.process.pid, signal.SIGKILL)
        started = time.monotonic()
        with pytest.raises(EnvironmentFault) as caught:
            await running
        waited = time.monotonic() - started
        for late in (collect(policy, LONG, Sampling(4), range(1)), policy.load(bench.plain.state_dict(), 9)):
            with pytest.raises(EnvironmentFault, match="died"):
                await late
        return waited, str(caught.value)

    waited, said = bench.runner.run(scenario())
    assert waited < 5
    assert said.startswith(f"the vLLM engine process (pid {bench.engine.process.pid}) died (SIGKILL)")
    assert VllmProcess(*bench.engine).process.exitcode == -signal.SIGKILL


def test_sockets_of_killed_processes_are_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_RPC_BASE_PATH", str(tmp_path))
    ended = subprocess.Popen(["true"])
    ended.wait()
    left, ours = tmp_path / f"{SOCKETS}{ended.pid}-x", tmp_path / f"{SOCKETS}{os.getpid()}-x"
    for folder in (left, ours):
        folder.mkdir()
        (folder / "socket").touch()
    assert socket_folder().parent == tmp_path
    assert (left.exists(), ours.exists()) == (False, True)
