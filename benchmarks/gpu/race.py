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


class Skipped(Exception):
    """A part does not apply; the message says why."""


def speed(setup: Setup) -> str:
    """Trained tokens a second of SmolLM2-135M-Instruct, or the model of ``--model``; errors as ``_speed``."""
    return _speed(setup, Path(setup.model))


def speed_qwen(setup: Setup) -> str:
    """The same of Qwen2.5-0.5B-Instruct."""
    return _speed(setup, _downloaded(QWEN))


def trl(setup: Setup) -> str:
    """TRL with the model, problems and sizes of ``speed``.

    Raises:
        Skipped: TRL's interpreter is missing.
        Failed: it did not get through.
    """
    if not setup.trl_python.exists():
        raise Skipped(f"{setup.trl_python} is missing: make .venv-trl/.done installs TRL there")
    task = _task(Path(setup.model))
    try:
        theirs = _trl(setup, task)
    except (TooSlow, AssertionError) as error:
        raise Failed(" ".join(str(error).split())) from error
    return f"{TRL_TITLE}: {theirs.rate:,.0f} trained tokens/s, to compare with speed"


def _downloaded(name: str) -> Path:
    """A model of the hub; Failed if it cannot be downloaded."""
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=["*.json", "*.safetensors", "*.txt", "*.jinja"]))
    except Exception as error:  # whatever the hub's client raises, there is no model
        raise Failed(f"{name}: {error}") from error


def _speed(setup: Setup, model: Path) -> str:
    """Time magcli.

    Raises:
        Failed: it did not get through.
    """
    try:
        ours = _magcli(setup, _task(model))
    except (TooSlow, AssertionError) as error:
        raise Failed(" ".join(str(error).split())) from error
    return ours.summary()


def _task(model: Path) -> Task:
    updates = (WARMUP + TIMED + 2) * COMPLETIONS // 32
    return Task(model, inputs.problems(updates), LIMIT, WARMUP, TIMED)


def _magcli(setup: Setup, task: Task) -> Timed:
    sizes = {"n_batch": COMPLETIONS, "n_mini": COMPLETIONS, "n_async": 2 * COMPLETIONS, "micro_tokens": 16384}
    placed = {"device": setup.device, "engine": "vllm", "gpu_memory": SHARE, "dtype": "bf16", "bf16": "yes"}
    return time_magcli(task, seconds=setup.seconds_left, **sizes | placed)


def _trl(setup: Setup, task: Task) -> Timed:
    sizes = {"completions": COMPLETIONS, "micro": MICRO, "continuous": False, "bf16": True}
    placed = {"vllm": True, "gpu_memory": SHARE, "context": CONTEXT}
    spec = trl_spec(task) | sizes | placed
    with tempfile.TemporaryDirectory() as folder:
        record = run_trl(spec, Path(folder), last=WARMUP + TIMED, seconds=setup.seconds_left, python=setup.trl_python)
        return trl_timed(task, record)
