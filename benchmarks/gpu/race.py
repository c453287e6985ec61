"""``magcli rl`` with vLLM on the trainer's GPU against TRL's GRPOTrainer with vLLM colocated: trained tokens a second.

TRL knows other releases of vLLM than magcli, so it runs by an interpreter of its own (``.venv-trl``).
"""

import tempfile
from pathlib import Path

from benchmarks.downloads import TRL_TITLE
from benchmarks.gpu.runs import Failed, Setup
from benchmarks.monitor import TooSlow
from benchmarks.rl import inputs
from benchmarks.rl.runs import Task, Timed, run_trl, time_magcli, trl_spec, trl_timed

QWEN = "Qwen/Qwen2.5-0.5B-Instruct"
COMPLETIONS, LIMIT = 256, 512
WARMUP, TIMED = 2, 3
MICRO = 16
"""Completions in a micro-batch of TRL."""

CONTEXT, SHARE = 1024, 0.35
"""The context of vLLM, prompt included, and its share of the GPU."""

SECONDS = 600.0
"""The longest that one side may take."""


def smollm2(setup: Setup) -> str:
    """SmolLM2-135M-Instruct, or the model of ``--model``; errors as ``_race``."""
    return _race(setup, Path(setup.model))


def qwen(setup: Setup) -> str:
    """Qwen2.5-0.5B-Instruct; errors as ``_race``."""
    return _race(setup, _downloaded(QWEN))


def _downloaded(name: str) -> Path:
    """A model of the hub; Failed if it cannot be downloaded."""
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=["*.json", "*.safetensors", "*.txt", "*.jinja"]))
    except Exception as error:  # whatever the hub's client raises, there is no model
        raise Failed(f"{name}: {error}") from error


def _race(setup: Setup, model: Path) -> str:
    """Time both sides.

    Raises:
        Failed: a side did not get through, or TRL's interpreter is missing.
    """
    if not setup.trl_python.exists():
        raise Failed(f"{setup.trl_python} is missing: make gpu installs TRL there")
    updates = (WARMUP + TIMED + 2) * COMPLETIONS // 32
    task = Task(model, inputs.problems(updates), LIMIT, WARMUP, TIMED)
    try:
        ours, theirs = _magcli(setup, task), _trl(setup, task)
    except (TooSlow, AssertionError) as error:
        raise Failed(" ".join(str(error).split())) from error
    return (
        f"magcli {ours.rate:,.0f} trained tokens/s, {TRL_TITLE} {theirs.rate:,.0f}: {ours.rate / theirs.rate:.2f} times"
    )


def _magcli(setup: Setup, task: Task) -> Timed:
    sizes = {"n_batch": COMPLETIONS, "n_mini": COMPLETIONS, "n_async": 2 * COMPLETIONS, "micro_tokens": 16384}
    placed = {"device": setup.device, "engine": "vllm", "gpu_memory": SHARE, "dtype": "bf16", "bf16": "yes"}
    return time_magcli(task, **sizes | placed)


def _trl(setup: Setup, task: Task) -> Timed:
    sizes = {"completions": COMPLETIONS, "micro": MICRO, "continuous": False, "bf16": True}
    placed = {"vllm": True, "gpu_memory": SHARE, "context": CONTEXT}
    spec = trl_spec(task) | sizes | placed
    with tempfile.TemporaryDirectory() as folder:
        record = run_trl(spec, Path(folder), last=WARMUP + TIMED, seconds=SECONDS, python=setup.trl_python)
        return trl_timed(task, record)
