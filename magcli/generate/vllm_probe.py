"""A self-test of vLLM: start a toy model, sample, load other weights, and compare log-probs with transformers."""

import asyncio
import tempfile
import time
from pathlib import Path

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, PreTrainedTokenizerFast

from magcli.errors import EnvironmentFault
from magcli.generate.types import Rollout, Sampling
from magcli.generate.vllm import VllmPolicy
from magcli.generate.vllm_start import start
from magcli.generate.vllm_transfer import sender_for
from magcli.generate.wire import Spec
from magcli.model.load import quiet_transformers
from magcli.model.model import Model

PROMPT = list(range(2, 42))
TOLERANCE = 1e-3


def probe(device: str, deadline: float) -> str:
    """Run the self-test; returns a one-line summary.

    Raises:
        EnvironmentFault: the engine does not start, or its log-probs differ from transformers'.
    """
    start_time = time.monotonic()
    models = [_toy(seed) for seed in (0, 1)]
    sender = sender_for(device, torch.float32)
    with tempfile.TemporaryDirectory() as folder:
        with quiet_transformers():
            models[0].save_pretrained(Path(folder) / "toy")
            _tokenizer().save_pretrained(Path(folder) / "toy")
        model = Model.open(Path(folder) / "toy")
        spec = Spec(model, engine="vllm", dtype="fp32", slots=4, device=device, deadline=deadline)
        engine = start(spec, backend=sender.backend)
        started = time.monotonic() - start_time
        policy = VllmPolicy(spec, engine, sender)
    loaded = asyncio.run(_sampled(policy, models))
    return f"starts in {started:.0f} s, loads new weights in {loaded:.2f} s, log-probs match transformers"


def _toy(seed: int) -> PreTrainedModel:
    torch.manual_seed(seed)
    sizes = {"hidden_size": 128, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    return LlamaForCausalLM(LlamaConfig(vocab_size=64, max_position_embeddings=128, head_dim=32, **sizes)).eval()


def _tokenizer() -> PreTrainedTokenizerFast:
    words = Tokenizer(WordLevel({"unknown": 0, "end": 1}, unk_token="unknown"))
    return PreTrainedTokenizerFast(tokenizer_object=words, eos_token="end", chat_template="{{ messages }}")


async def _sampled(policy: VllmPolicy, models: list[PreTrainedModel]) -> float:
    """Sample with both models' weights; returns the seconds it took to load the second."""
    try:
        for version, model in enumerate(models):
            start_time = time.monotonic()
            if version:
                await policy.load(model.state_dict(), version)
            loaded = time.monotonic() - start_time
            async for rollout in policy.sample(PROMPT, Sampling(16), seeds=range(4)):
                _check(model, rollout, version)
        return loaded
    finally:
        await policy.close()


@torch.inference_mode()
def _check(model: PreTrainedModel, rollout: Rollout, version: int) -> None:
    logits = model(torch.tensor([rollout.prompt + rollout.tokens])).logits[0, len(rollout.prompt) - 1 : -1]
    expected = torch.log_softmax(logits, -1).gather(1, torch.tensor(rollout.tokens)[:, None])[:, 0]
    difference = float((expected - torch.tensor(rollout.logprobs)).abs().max())
    if difference > TOLERANCE or rollout.versions != ((0, version),):
        raise EnvironmentFault(f"vLLM's log-probs differ by {difference:.2g} from transformers' at version {version}")
