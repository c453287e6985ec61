"""Check what needs a GPU on one card, within twelve minutes, the most telling first: ``make gpu``.

Prints a Markdown table for docs/gpu.md, and writes it after each part to ``gpu.md`` in the current folder. A part that
passed with the same sources on the same machine is not repeated, so an interrupted check goes on where it was. A part
has two minutes. The exit code is 1 if a part failed, and 4 without a GPU. ``--device cpu --small`` runs the parts that
need none; docs/gpu.md has results.
"""

import argparse
import hashlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import distributions
from pathlib import Path
from typing import Literal

from benchmarks.downloads import ROOT, Unavailable
from benchmarks.gpu.parts import FIRST, MORE, ONLY_ON_GPUS, PARTS, SECONDS, Part
from benchmarks.gpu.race import Skipped
from benchmarks.gpu.runs import Failed, Setup
from benchmarks.models import random_llama
from benchmarks.rl import inputs

NO_GPU = 4
UPDATES = 64
"""The number of updates for whose problems there is a file; each takes four problems in the comparisons."""


Result = Literal["passed", "failed", "skipped"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a part found, or why it failed or was skipped."""

    part: str
    result: Result
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
        passed = Passed(Path(options.output).with_suffix(".json"), _key(options))
        outcomes: list[Outcome] = []
        for name, part in chosen.items():
            outcomes.append(passed.outcomes.get(name) or _outcome(name, part, setup))
            passed.add(outcomes[-1])
            table = markdown(outcomes, describe(options.device))
            Path(options.output).write_text(table + "\n", encoding="utf-8")
    print(table)
    return 1 if any(outcome.result == "failed" for outcome in outcomes) else 0


class Passed:
    """The parts that passed, in a file that is of no use for another ``key``."""

    def __init__(self, path: Path, key: str) -> None:
        self._path, self._key = path, key
        self.outcomes: dict[str, Outcome] = {}
        """What they found, by their names."""
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
            if stored["key"] == key:
                self.outcomes = {each["part"]: Outcome(**each) for each in stored["passed"]}
        except (OSError, ValueError, KeyError, TypeError):
            return  # there is none, or it was written by something else: all parts run

    def add(self, outcome: Outcome) -> None:
        """Keep an outcome if it is that of a part that passed."""
        if outcome.result == "passed":
            self.outcomes[outcome.part] = outcome
            stored = {"key": self._key, "passed": [asdict(each) for each in self.outcomes.values()]}
            unfinished = self._path.with_suffix(".tmp")
            unfinished.write_text(json.dumps(stored, indent=1), encoding="utf-8")
            unfinished.replace(self._path)


def _key(options: argparse.Namespace) -> str:
    """What outcomes depend on: the sources, committed or not, the packages, the model, and the device."""
    digest = hashlib.sha256()
    for folder in ("magcli", "benchmarks"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            digest.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    packages = sorted(f"{found.name} {found.version}" for found in distributions())
    asked = [options.device, str(options.small), str(options.model), str(options.problems)]
    digest.update("\n".join([*packages, *asked, _machine(options.device)]).encode())
    return digest.hexdigest()


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__.splitlines()[0])
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help=f"by default {', '.join(FIRST)}; also: {', '.join(MORE)}"
    )
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1, or cpu")
    parser.add_argument("--small", action="store_true", help="a toy model and a few updates")
    parser.add_argument("--model", help="a model's folder, instead of SmolLM2-135M-Instruct from the package registry")
    parser.add_argument("--problems", help="a table of math problems, instead of the shipped ones of GSM8K")
    parser.add_argument("--trl-python", default=".venv-trl/bin/python", help="an interpreter with trl[vllm]")
    parser.add_argument("--output", default="gpu.md", help="file for the table; what passed is beside it, as .json")
    options = parser.parse_args(arguments)
    unknown = sorted(set(options.parts) - PARTS.keys())
    if unknown:
        parser.error(f"unknown part {unknown[0]}: choose from {', '.join(PARTS)}")
    return options


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def _chosen(names: Sequence[str], *, on_gpu: bool) -> Mapping[str, Part]:
    """The named parts in their order, by default the first ones that the device can run."""
    if names:
        return {name: part for name, part in PARTS.items() if name in names}
    return {name: part for name, part in FIRST.items() if on_gpu or name not in ONLY_ON_GPUS}


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
    result: Result = "passed"
    try:
        text = part(replace(setup, ends=started + SECONDS) if setup.on_gpu else setup)
    except Failed as error:
        text, result = str(error), "failed"
    except Skipped as reason:
        text, result = str(reason), "skipped"
    outcome = Outcome(name, result, text, time.monotonic() - started)
    print(f"{name}: {result.upper() if result == 'failed' else result}: {text}", file=sys.stderr, flush=True)
    return outcome


def describe(device: str) -> str:
    """The machine and the day, in words."""
    return f"{_machine(device)}, {_today()}"


def _machine(device: str) -> str:
    import torch

    if device.startswith("cuda"):
        name = torch.cuda.get_device_name(device)
        size = torch.cuda.get_device_properties(device).total_memory / 2**30
        return f"{name}, {size:.0f} GiB, CUDA {torch.version.cuda}, PyTorch {torch.__version__}"
    return f"{os.cpu_count()} CPU cores, PyTorch {torch.__version__}"


def _today() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d")


def markdown(outcomes: Sequence[Outcome], machine: str) -> str:
    """The outcomes as a table for docs/gpu.md."""
    rows = [f"Measured on {machine}:", "", "| part | result | seconds | what it found |", "| --- | --- | --- | --- |"]
    for outcome in outcomes:
        result = "**failed**" if outcome.result == "failed" else outcome.result
        text = outcome.text.replace("|", "\\|")
        rows.append(f"| {outcome.part} | {result} | {outcome.seconds:.0f} | {text} |")
    return "\n".join(rows)


if __name__ == "__main__":
    sys.exit(main())
