"""Check everything that needs a GPU on one card, in about half an hour: ``make gpu``.

Prints a Markdown table for docs/gpu.md, and writes it to ``gpu.md`` in the current folder. The exit code is 1 if a part
failed, and 4 without a GPU. ``--device cpu --small`` runs the parts that need none; docs/gpu.md has results.
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.downloads import ROOT, Unavailable
from benchmarks.gpu.parts import ONLY_ON_GPUS, PARTS, Part
from benchmarks.gpu.runs import Failed, Setup
from benchmarks.models import random_llama
from benchmarks.rl import inputs

NO_GPU = 4
UPDATES = 64
"""The number of updates for whose problems there is a file; each takes four problems in the comparisons."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a part found, or why it failed."""

    part: str
    passed: bool
    text: str
    seconds: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the parts; returns the exit code."""
    options = _options(arguments)
    if options.device.startswith("cuda") and not _has_gpu():
        print(
            "error: make gpu needs a GPU, and PyTorch finds none (docs/gpu.md has the installation); without one: "
            "python -m benchmarks.gpu --device cpu --small",
            file=sys.stderr,
        )
        return NO_GPU
    chosen = _chosen(options.parts, on_gpu=options.device.startswith("cuda"))
    with tempfile.TemporaryDirectory() as folder:
        try:
            setup = _setup(options, Path(folder))
        except Unavailable as error:
            print(f"error: {error}", file=sys.stderr)
            return NO_GPU
        outcomes = [_outcome(name, part, setup) for name, part in chosen.items()]
    table = markdown(outcomes, describe(options.device))
    print(table)
    Path(options.output).write_text(table + "\n", encoding="utf-8")
    return 0 if all(outcome.passed for outcome in outcomes) else 1


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"all by default: {', '.join(PARTS)}")
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1, or cpu")
    parser.add_argument("--small", action="store_true", help="a toy model and a few updates")
    parser.add_argument("--model", help="a model's folder, instead of SmolLM2-135M-Instruct from the package registry")
    parser.add_argument("--problems", help="a table of math problems, instead of the shipped ones of GSM8K")
    parser.add_argument("--trl-python", default=".venv-trl/bin/python", help="an interpreter with trl[vllm]")
    parser.add_argument("--output", default="gpu.md", help="file for the table")
    options = parser.parse_args(arguments)
    unknown = sorted(set(options.parts) - PARTS.keys())
    if unknown:
        parser.error(f"unknown part {unknown[0]}: choose from {', '.join(PARTS)}")
    return options


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def _chosen(names: Sequence[str], *, on_gpu: bool) -> Mapping[str, Part]:
    """The named parts in their order, by default all that the device can run."""
    if names:
        return {name: part for name, part in PARTS.items() if name in names}
    return {name: part for name, part in PARTS.items() if on_gpu or name not in ONLY_ON_GPUS}


def _setup(options: argparse.Namespace, folder: Path) -> Setup:
    """The model and the problems of the short runs.

    Raises:
        Unavailable: the model cannot be downloaded.
    """
    model = _model(options, folder)
    problems = _problems(options)
    trl_python = Path(options.trl_python).absolute()
    return Setup(options.device, options.small, str(model), problems, folder, trl_python)


def _model(options: argparse.Namespace, folder: Path) -> Path:
    if options.model:
        return Path(options.model)
    if options.small:
        return _toy(folder / "toy")
    return inputs.smollm2()


def _problems(options: argparse.Namespace) -> Path:
    if options.problems:
        return Path(options.problems)
    if options.small:
        return ROOT / "examples/problems.jsonl"
    return inputs.problems(UPDATES)


def _toy(folder: Path) -> Path:
    """A random model with heads that vLLM's kernels for CPUs support, and the tokenizer of the example."""
    from transformers import AutoTokenizer

    example = ROOT / "examples/model"
    vocabulary = len(AutoTokenizer.from_pretrained(example, trust_remote_code=False))
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "max_position_embeddings": 512}
    heads = {"num_attention_heads": 2, "head_dim": 32}
    random_llama(vocab_size=vocabulary, **sizes, **heads).save_pretrained(folder)
    for file in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(example / file, folder / file)
    return folder


def _outcome(name: str, part: Part, setup: Setup) -> Outcome:
    print(f"{name} ...", file=sys.stderr, flush=True)
    started = time.monotonic()
    try:
        text, passed = part(setup), True
    except Failed as error:
        text, passed = str(error), False
    outcome = Outcome(name, passed, text, time.monotonic() - started)
    print(f"{name}: {'passed' if passed else 'FAILED'}: {text}", file=sys.stderr, flush=True)
    return outcome


def describe(device: str) -> str:
    """The machine and the day, in words."""
    import torch

    if device.startswith("cuda"):
        name = torch.cuda.get_device_name(device)
        size = torch.cuda.get_device_properties(device).total_memory / 2**30
        return f"{name}, {size:.0f} GiB, CUDA {torch.version.cuda}, PyTorch {torch.__version__}, {_today()}"
    return f"{os.cpu_count()} CPU cores, PyTorch {torch.__version__}, {_today()}"


def _today() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d")


def markdown(outcomes: Sequence[Outcome], machine: str) -> str:
    """The outcomes as a table for docs/gpu.md."""
    rows = [f"Measured on {machine}:", "", "| part | result | seconds | what it found |", "| --- | --- | --- | --- |"]
    for outcome in outcomes:
        result = "passed" if outcome.passed else "**failed**"
        text = outcome.text.replace("|", "\\|")
        rows.append(f"| {outcome.part} | {result} | {outcome.seconds:.0f} | {text} |")
    return "\n".join(rows)


if __name__ == "__main__":
    sys.exit(main())
