"""Log-probs computed in chunks against PyTorch's ``log_softmax`` over the logits of all tokens at once.

Both sides compute log-prob and entropy of every token in float32, then the gradient of the mean log-prob. The decoder
has one layer, so that the output head dominates: SmolLM2's on a CPU, an 8B model's on a GPU. Each run is a process that
reports its seconds and its peak memory above that of the model (resident pages on a CPU, PyTorch's allocations on a
GPU). The gradients must agree. The chunked side recomputes its logits in the backward pass instead of keeping them.
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
from transformers import PreTrainedModel

from benchmarks.models import random_llama
from benchmarks.pairs import Result, compare
from magcli.train.attention import forward_packed, use_packed_attention
from magcli.train.logprobs import token_logprobs
from magcli.train.packing import Packed, pack

NAME = "chunked-logprob-vs-plain"
SEQUENCES = 8


@dataclass(frozen=True, slots=True)
class Size:
    """Length of the sequences, and input and output width of the head."""

    length: int
    hidden: int
    vocabulary: int


SIZES = {"cpu": Size(256, 576, 49_152), "cuda": Size(2048, 4096, 128_256)}


def against_log_softmax() -> Result:
    """Forward and backward pass of all log-probs; also prints the peak memory of both sides."""
    device = _device()
    size = SIZES[device]
    memory: dict[str, list[float]] = {side: [] for side in SIDES}
    norms: dict[str, float] = {}

    def run(side: str) -> float:
        done = subprocess.run([sys.executable, "-m", "benchmarks.logprobs", side], check=True, capture_output=True)
        measured = json.loads(done.stdout)
        memory[side].append(measured["mib"])
        norms[side] = measured["gradient"]
        return float(measured["seconds"])

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
    """Time one side, on a GPU after a warm-up, and print the measurements."""
    device = _device()
    model = _model(SIZES[device]).to(device)
    packed = _tokens(SIZES[device]).to(device)
    use_packed_attention(model)
    before = _used_mib(device)
    for _ in range(2 if device == "cuda" else 1):
        model.zero_grad(set_to_none=True)
        started = _now(device)
        values, _ = SIDES[side](model, packed)
        (values.sum() / packed.num_tokens).backward()
        seconds = _now(device) - started
    norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None])
    print(json.dumps({"seconds": seconds, "mib": _peak_mib(device) - before, "gradient": norm.item()}))


def _now(device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def _used_mib(device: str) -> float:
    return torch.cuda.memory_allocated() / 2**20 if device == "cuda" else _resident_mib("VmRSS")


def _peak_mib(device: str) -> float:
    return torch.cuda.max_memory_allocated() / 2**20 if device == "cuda" else _resident_mib("VmHWM")


def _resident_mib(name: str) -> float:
    (kib,) = re.findall(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return float(kib) / 2**10


def _device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def _tokens(size: Size) -> Packed:
    return pack([[(7 * i + 13 * j) % size.vocabulary for j in range(size.length)] for i in range(SEQUENCES)])


def _model(size: Size) -> PreTrainedModel:
    return random_llama(
        vocab_size=size.vocabulary,
        hidden_size=size.hidden,
        intermediate_size=size.hidden,
        num_hidden_layers=1,
        num_attention_heads=size.hidden // 64,
        num_key_value_heads=size.hidden // 64,
        max_position_embeddings=size.length,
    )


if __name__ == "__main__":
    child(sys.argv[1])
