"""Scoring tokens in chunks beside plain PyTorch: log_softmax over the logits of all tokens at once.

Both sides give log-probability and entropy of every token in float32, then the gradient of the mean log-probability,
through a decoder of one layer, so that what is measured is the output head of SmolLM2's size (on a GPU, of a model of
8B parameters). Each run has a process of its own, which tells its seconds and its peak memory above what the model
takes: resident pages on a CPU, PyTorch's allocations on a GPU. Both sides must come to the same gradient.

The chunked side computes its logits twice, which is the price of not keeping them.
"""

import json
import math
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from benchmarks.pairs import Result, compare, report
from magcli.train.attention import forward_packed, use_packed_attention
from magcli.train.logprobs import token_logprobs
from magcli.train.packing import Packed, pack

NAME = "chunked-logprob-vs-plain"
SEQUENCES = 8


@dataclass(frozen=True, slots=True)
class Size:
    """What is scored: sequences of ``length`` tokens, the head's input and output."""

    length: int
    hidden: int
    vocabulary: int


SIZES = {"cpu": Size(256, 576, 49_152), "cuda": Size(2048, 4096, 128_256)}


def head() -> Result:
    """Forward and backward of all tokens' log-probabilities: seconds, and memory as a line of its own."""
    device = _device()
    size = SIZES[device]
    memory: dict[str, list[float]] = {side: [] for side in SIDES}
    norms: dict[str, float] = {}

    def run(side: str) -> float:
        done = subprocess.run([sys.executable, "-m", "benchmarks.logprobs", side], check=True, capture_output=True)
        told = json.loads(done.stdout)
        memory[side].append(told["mib"])
        norms[side] = told["gradient"]
        return float(told["seconds"])

    where = torch.cuda.get_device_name() if device == "cuda" else "CPU"
    print(f"{NAME}: {SEQUENCES * size.length} tokens, hidden {size.hidden}, vocabulary {size.vocabulary}, on {where}")
    tokens = SEQUENCES * size.length
    result = compare(NAME, lambda: run("chunked"), lambda: run("plain"), amount=tokens, unit="tokens")
    assert math.isclose(norms["chunked"], norms["plain"], rel_tol=1e-4), f"{NAME}: gradients of norms {norms}"
    ours, theirs = median(memory["chunked"]), median(memory["plain"])
    print(f"  {NAME}: peak memory: magcli {ours:,.0f} MiB, peer {theirs:,.0f} MiB, ratio {theirs / ours:.2f}")
    return result


def _chunked(model: PreTrainedModel, packed: Packed) -> tuple[Tensor, Tensor]:
    scored = token_logprobs(model, packed)
    return scored.values, scored.entropy


def _plain(model: PreTrainedModel, packed: Packed) -> tuple[Tensor, Tensor]:
    follows = (packed.position_ids[0] > 0).nonzero().squeeze(1)
    logprobs = model.lm_head(forward_packed(model, packed)[follows - 1]).float().log_softmax(dim=-1)
    with torch.no_grad():
        entropy = -(logprobs.exp() * logprobs).sum(dim=-1)
    return logprobs.gather(-1, packed.input_ids[0, follows, None]).squeeze(-1), entropy


SIDES: dict[str, Callable[[PreTrainedModel, Packed], tuple[Tensor, Tensor]]] = {"chunked": _chunked, "plain": _plain}


def child(side: str) -> None:
    """Score once on the clock, on a GPU after a warm-up, and tell."""
    device = _device()
    model, packed = _model(SIZES[device]).to(device), _tokens(SIZES[device]).to(device)
    use_packed_attention(model)
    before = _taken_mib(device)
    for _ in range(2 if device == "cuda" else 1):
        model.zero_grad(set_to_none=True)
        begun = _now(device)
        values, _ = SIDES[side](model, packed)
        (values.sum() / packed.num_tokens).backward()
        seconds = _now(device) - begun
    norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None])
    print(json.dumps({"seconds": seconds, "mib": _peak_mib(device) - before, "gradient": norm.item()}))


def _now(device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def _taken_mib(device: str) -> float:
    return torch.cuda.memory_allocated() / 2**20 if device == "cuda" else _resident_mib("VmRSS")


def _peak_mib(device: str) -> float:
    """The most that was taken so far."""
    return torch.cuda.max_memory_allocated() / 2**20 if device == "cuda" else _resident_mib("VmHWM")


def _resident_mib(name: str) -> float:
    (kib,) = re.findall(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return float(kib) / 2**10


def _device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def _tokens(size: Size) -> Packed:
    return pack([[(7 * i + 13 * j) % size.vocabulary for j in range(size.length)] for i in range(SEQUENCES)])


def _model(size: Size) -> PreTrainedModel:
    config = LlamaConfig(
        vocab_size=size.vocabulary,
        hidden_size=size.hidden,
        intermediate_size=size.hidden,
        num_hidden_layers=1,
        num_attention_heads=size.hidden // 64,
        num_key_value_heads=size.hidden // 64,
        max_position_embeddings=size.length,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=None,
    )
    torch.manual_seed(0)
    return LlamaForCausalLM(config).eval()


if __name__ == "__main__":
    child(sys.argv[1]) if sys.argv[1:] else report(head)
