"""A real vLLM that opens the trainer's buffers by their handles: of memory of a CPU here, of a GPU by ``make gpu``."""

import asyncio

import pytest
import torch
from test_vllm import LONG, collect, difference

from magcli.generate.spec import Spec
from magcli.generate.types import Rollout, Sampling
from magcli.generate.vllm.policy import VllmPolicy
from magcli.generate.vllm.start import start
from magcli.generate.vllm.transfer import IpcSender
from magcli.generate.weights.packed import pack
from magcli.model.load import load_model
from magcli.model.model import Model


@pytest.mark.slow
def test_running_sequences_continue_with_the_weights_in_packed_buffers(wide_model_dir):
    spec = Spec(Model.open(wide_model_dir), engine="vllm", dtype="fp32", slots=8, deadline=300)
    other = load_model(str(wide_model_dir), dtype=torch.float32, from_scratch=True, seed=7)
    sender = IpcSender("cpu", torch.float32)
    policy = VllmPolicy(spec, start(spec, backend=sender.backend), sender)
    packed = pack(other.state_dict(), policy.sent_dtype, limit=200_000)

    async def scenario() -> tuple[list[Rollout], list[Rollout], dict[str, int]]:
        running = asyncio.ensure_future(collect(policy, LONG, Sampling(200), range(4)))
        while not any(request.has_token for request in policy._requests.values()):
            await asyncio.sleep(0.01)
        (arrived,) = await policy.load(packed, 1)
        fresh = await collect(policy, LONG, Sampling(8), range(2))
        await policy.load(packed, 2)
        found = await running, fresh, arrived
        await policy.close()
        return found

    running, fresh, arrived = asyncio.run(scenario())
    assert len(packed.buffers) > 1
    assert arrived == packed.digests()
    assert all(rollout.versions == ((0, 1),) and difference(other, rollout) < 1e-4 for rollout in fresh)
    assert any(rollout.versions[0] == (0, 0) and len(rollout.versions) > 1 for rollout in running)
