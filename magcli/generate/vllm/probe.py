"""A self-test of vLLM: start a toy model, sample, load other weights, and compare log-probs with transformers."""

import asyncio
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, PreTrainedTokenizerFast

from magcli.choices import Format
from magcli.console import Console
from magcli.errors import EnvironmentFault
from magcli.generate.spec import Spec
from magcli.generate.types import Rollout, Sampling
from magcli.generate.vllm.policy import VllmPolicy
from magcli.generate.vllm.start import start
from magcli.generate.vllm.transfer import sender_for
from magcli.model.load import quiet_transformers
from magcli.model.model import Model

PROMPT = list(range(2, 42))

TOLERANCE = {"fp32": 1e-3, "bf16": 0.5}
"""Largest difference of a log-prob by dtype of the engine. On a CPU it is 3e-5 and 0.2, and 4 with other weights."""


def probe(device: str, deadline: float, console: Console) -> str:
    """Run the self-test in eager mode, and on a GPU also with compilation; returns a one-line summary of both.

    A GPU computes in bf16, as runs there do.

    Raises:
        EnvironmentFault: the engine does not start, or its log-probs differ from transformers', and in which mode.
    """
    on_gpu = device.startswith("cuda")
    dtype: Format = "bf16" if on_gpu else "fp32"
    findings = []
    has_failed = False
    with _toys() as (model, weights):
        for mode in ("eager", "compiled") if on_gpu else ("eager",):
            spec = Spec(model, "vllm", dtype, slots=4, device=device, deadline=deadline, eager=mode == "eager")
            text, passed = _finding(spec, weights, console)
            findings.append(f"{mode} {text}")
            has_failed = has_failed or not passed
    summary = "; ".join(findings)
    if has_failed:
        raise EnvironmentFault(summary)
    return f"{summary}; log-probs match transformers"


def _finding(spec: Spec, weights: list[PreTrainedModel], console: Console) -> tuple[str, bool]:
    """What happens in one mode, and whether it is right."""
    start_time = time.monotonic()
    sender = sender_for(spec.device, spec.torch_dtype)
    try:
        engine = start(spec, backend=sender.backend, console=console)
        start_seconds = time.monotonic() - start_time
        policy = VllmPolicy(spec, engine, sender)
        load_seconds = asyncio.run(_sampled(policy, weights, TOLERANCE[spec.dtype]))
    except EnvironmentFault as fault:
        return f"fails: {fault}", False
    return f"starts in {start_seconds:.0f} s, loads new weights in {load_seconds:.2f} s", True


@contextmanager
def _toys() -> Iterator[tuple[Model, list[PreTrainedModel]]]:
    """A toy model in a folder, and its weights and others of the same shape; rounded to bf16."""
    weights = [_toy(seed) for seed in (0, 1)]
    with tempfile.TemporaryDirectory() as folder:
        with quiet_transformers():
            weights[0].save_pretrained(folder)
            _tokenizer().save_pretrained(folder)
        yield Model.open(folder), weights


def _toy(seed: int) -> PreTrainedModel:
    """A small model of ordinary shape: heads of 64 that share keys and values, and four layers."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=512,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        max_position_embeddings=256,
        initializer_range=0.1,
    )
    model = LlamaForCausalLM(config).eval()
    for weight in model.parameters():
        # Rounded, so that both types of engine have the same weights.
        weight.data = weight.data.bfloat16().float()
    return model


def _tokenizer() -> PreTrainedTokenizerFast:
    words = Tokenizer(WordLevel({"unknown": 0, "end": 1}, unk_token="unknown"))
    return PreTrainedTokenizerFast(tokenizer_object=words, eos_token="end", chat_template="{{ messages }}")


async def _sampled(policy: VllmPolicy, models: list[PreTrainedModel], tolerance: float) -> float:
    """Sample with both models' weights; returns the seconds it took to load the second."""
    try:
        for version, model in enumerate(models):
            start_time = time.monotonic()
            if version:
                # The first model is the one that the engine has started with.
                await policy.load(model.state_dict(), version)
            loaded = time.monotonic() - start_time
            async for rollout in policy.sample(PROMPT, Sampling(16), seeds=range(4)):
                _check(model, rollout, version, tolerance)
        return loaded
    finally:
        await policy.close()


def _check(model: PreTrainedModel, rollout: Rollout, version: int, tolerance: float) -> None:
    difference = largest_difference(model, rollout)
    if difference > tolerance or rollout.versions != ((0, version),):
        raise EnvironmentFault(f"vLLM's log-probs differ by {difference:.2g} from transformers' at version {version}")


@torch.inference_mode()
def largest_difference(model: PreTrainedModel, rollout: Rollout) -> float:
    """The largest difference of a rollout's log-probs from those of a model."""
    tokens = torch.tensor(rollout.tokens)
    logits = model(torch.tensor([rollout.prompt + rollout.tokens])).logits[0]
    logits = logits[len(rollout.prompt) - 1 : -1]  # each position predicts the token after it
    expected = torch.log_softmax(logits, -1).gather(1, tokens[:, None])[:, 0]
    return float((expected - torch.tensor(rollout.logprobs)).abs().max())
