"""Forecasts of memory against the resident memory of processes that train on this machine."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SHAPES = {
    "balanced": {"hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 6, "vocab_size": 16000},
    "large vocabulary": {"hidden_size": 384, "intermediate_size": 1024, "num_hidden_layers": 4, "vocab_size": 48000},
    "deep": {"hidden_size": 384, "intermediate_size": 1024, "num_hidden_layers": 12, "vocab_size": 4000},
}
TRAIN = """
import json, sys
from pathlib import Path
import torch
from transformers import AutoModelForCausalLM, LlamaConfig
from magcli.model.allocator import keep_freed_memory
from magcli.train import optim
from magcli.train.distributed import Ranks
from magcli.train.logprobs import token_logprobs
from magcli.train.attention import use_packed_attention
from magcli.train.packing import pack
from magcli.train.shard import shard

def resident(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))

def train(sizes, tokens, recompute):
    config = LlamaConfig(num_attention_heads=8, num_key_value_heads=4, tie_word_embeddings=True, **sizes)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    use_packed_attention(model)
    sharded = shard(model, Ranks(), checkpoint_activations=recompute)
    optimizer = optim.adamw(model, lr=1e-5, weight_decay=0.0)
    packed = pack([list(range(1, 1 + tokens // 8))] * 8)
    for micro_batches in (1, 2):
        for _ in range(micro_batches):
            loss = -sharded(lambda trained: token_logprobs(trained, packed)).values.mean()
            loss.backward()
            del loss
        optim.clip_and_step(optimizer, model.parameters(), max_norm=1.0)

sizes, tokens, recompute = json.loads(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "True"
torch.set_num_threads(1)
keep_freed_memory()
tiny = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1, "vocab_size": 2000}
train(tiny, 64, recompute)  # loads what is loaded on first use
before = resident("VmRSS")
train(sizes, tokens, recompute)
print(resident("VmHWM") - before)
"""
FORECAST = """
import json, sys
from types import SimpleNamespace
import torch
from transformers import AutoModelForCausalLM, LlamaConfig
from magcli.plan import memory
from magcli.model.shape import shape_of

config = LlamaConfig(num_attention_heads=8, num_key_value_heads=4, tie_word_embeddings=True, **json.loads(sys.argv[1]))
with torch.device("meta"):
    outline = AutoModelForCausalLM.from_config(config)
plan = memory.TrainingPlan(
    shape_of(SimpleNamespace(text_config=config, outline=outline)), int(sys.argv[2]), on_gpu=False, bf16=False,
    activation_checkpointing=sys.argv[3] == "True", padding=1.0,
)
print(memory.peak_bytes(memory.training_lines(plan)))
"""


def printed(script: str, *arguments: object) -> int:
    """The number that a script prints, run in a process of its own: resident memory only grows."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    folder = Path(__file__).parents[2]
    return int(subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder, timeout=500).stdout)


@pytest.mark.slow
@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("name", SHAPES)
def test_the_resident_memory_is_the_forecast_and_what_libraries_keep(name, recompute):
    """The forecast counts tensors; kernels have buffers of their own, and a process keeps memory that is free."""
    sizes, tokens = json.dumps(SHAPES[name]), 2048
    measured = printed(TRAIN, sizes, tokens, recompute)
    forecast = printed(FORECAST, sizes, tokens, recompute)
    print(f"{name}, recompute {recompute}: measured {measured >> 20} MiB, forecast {forecast >> 20} MiB")
    assert forecast < 1.15 * measured
    assert measured < forecast + (512 << 20)
