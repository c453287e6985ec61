"""An update of ``magcli rl`` against a lower bound: the time of its matrix products and memory traffic on this machine.

The bound is computed for the sequences that the timed updates trained on:

- matrix products of sampling (decode steps of as many rows as run concurrently) and of training (one in the forward and
  two in the backward pass), at the speed of ``torch.matmul`` on these shapes;
- weights read once per decode step and keys and values once per token, at the bandwidth of a copy in memory;
- the optimizer's state, read and written once, and the new weights written to the engine.

It has no softmax, norm, activation or Python code. The ratio is the bound over the measured time, at most 1.
"""

import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.downloads import ROOT
from benchmarks.monitor import monitor
from benchmarks.pairs import Result
from benchmarks.rl import inputs, settings
from benchmarks.rl.runs import SECONDS, Task, environment, flags, magcli_options

BYTES = {"bf16": 2, "fp32": 4}
TOY = ROOT / "recipes" / "tiny"
TOY_UPDATES = 6
COPY_BYTES = 1 << 28


@dataclass(frozen=True, slots=True)
class Sampled:
    """Tokens of a prompt and of a completion; ``first`` if it is the update's first completion of that prompt."""

    prompt: int
    completion: int
    first: bool


@dataclass(frozen=True, slots=True)
class Update:
    """Seconds and sequences of one update, its number formats, concurrent sequences and micro-batch size."""

    seconds: float
    sequences: Sequence[Sampled]
    training: str
    sampling: str
    rows: int
    micro_tokens: int


def smollm2() -> Result:
    """SmolLM2-135M with the settings of ``rl-heavy-vs-trl``."""
    model = inputs.smollm2()
    task = Task(model, inputs.problems(4), settings.HEAVY_LIMIT, warmup=2, timed=2)
    return _compare(
        "rl-vs-floor", model, lambda run: _updates(run, str(task.problems), magcli_options(task, run), 2, 4)
    )


def toy() -> Result:
    """The demo's model and settings."""
    model = ROOT / "examples" / "model"
    options = {"recipe": TOY / "recipe.toml", "model": model, "updates": TOY_UPDATES, "checkpoint_every": 10**6}
    problems = str(TOY / "data" / "held_out.jsonl")
    return _compare(
        "rl-toy-vs-floor", model, lambda run: _updates(run, problems, {**options, "run": run}, 2, TOY_UPDATES - 1)
    )


def _compare(name: str, model: Path, measure: Callable[[Path], list[Update]]) -> Result:
    return Result(name, tuple(_ratio(name, model, measure) for _ in range(settings.PAIRS)))


def _ratio(name: str, model: Path, measure: Callable[[Path], list[Update]]) -> float:
    with tempfile.TemporaryDirectory() as folder:
        updates = measure(Path(folder) / "run")
    machine = Machine(json.loads((model / "config.json").read_text()))
    parts = [machine.floor(update) for update in updates]
    seconds = fmean(update.seconds for update in updates)
    floor = fmean(sum(part.values()) for part in parts)
    details = ", ".join(f"{part} {fmean(of_update[part] for of_update in parts):.2f}" for part in parts[0])
    print(f"  {name}: update {seconds:.2f} s, lower bound {floor:.2f} s ({details}): {seconds / floor:.2f} times")
    return floor / seconds


def _updates(run: Path, problems: str, options: dict[str, Any], first: int, last: int) -> list[Update]:
    """Run ``magcli rl``; its updates after ``first`` up to ``last``."""
    record = monitor(
        [sys.executable, "-m", "magcli", "rl", problems, *flags(options)],
        run / "metrics.jsonl",
        last=last,
        environment=environment(settings.THREADS),
        seconds=SECONDS,
    )
    options = json.loads((run / "run.json").read_text())
    formats = options["chosen"]
    steps = range(first + 1, last + 1)
    return [
        Update(
            record.at[step] - record.at[step - 1],
            _sequences(run / "rollouts" / f"step-{step:06d}.arrow"),
            "bf16" if formats["bf16"] == "yes" else "fp32",
            formats["dtype"],
            options["n_async"],
            options["micro_tokens"],
        )
        for step in steps
    ]


def _sequences(table: Path) -> list[Sampled]:
    from magcli.data.table import read

    rows = [row for batch in read(str(table)).rows for row in batch.to_pylist() if row["dropped"] is None]
    prompts: set[tuple[int, ...]] = set()
    sampled = []
    for row in rows:
        prompt = tuple(row["prompt_tokens"])
        sampled.append(Sampled(len(prompt), row["num_tokens"], prompt not in prompts))
        prompts.add(prompt)
    return sampled


class Machine:
    """The speed of this machine on the shapes of a model."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.layers, self.hidden, self.inner = (
            config[name] for name in ("num_hidden_layers", "hidden_size", "intermediate_size")
        )
        self.vocab, self.heads = config["vocab_size"], config["num_attention_heads"]
        self.head_dim = config.get("head_dim") or self.hidden // self.heads
        self.kv = config.get("num_key_value_heads") or self.heads
        queries, keys = self.heads * self.head_dim, self.kv * self.head_dim
        self.linear = (
            (self.hidden, queries), (self.hidden, keys), (self.hidden, keys), (queries, self.hidden),
            (self.hidden, self.inner), (self.hidden, self.inner), (self.inner, self.hidden),
        )  # fmt: skip
        self.weights = self.layers * sum(inputs * outputs for inputs, outputs in self.linear) + self.vocab * self.hidden

    def floor(self, update: Update) -> dict[str, float]:
        """Seconds of each part."""
        tokens = sum(sequence.completion for sequence in update.sequences)
        prompts = sum(sequence.prompt for sequence in update.sequences if sequence.first)
        return {
            "sampling": self._sampling(tokens, prompts, update),
            "memory traffic": self._traffic(tokens, update),
            "training": self._training(tokens + prompts, tokens, update),
            "attention": self._attention(update),
            "optimizer": self.weights * (7 * 4 + 4 + BYTES[update.sampling]) / bandwidth(),
        }

    def _sampling(self, tokens: int, prompts: int, update: Update) -> float:
        rows, kind = update.rows, update.sampling
        layers = self.layers * sum(product(rows, *shape, kind) for shape in self.linear)
        head = product(rows, self.hidden, self.vocab, "fp32")
        prefill = self.layers * sum(product(max(1, prompts), *shape, kind) for shape in self.linear)
        return (layers + head) * tokens / rows + prefill

    def _traffic(self, tokens: int, update: Update) -> float:
        read = self.weights * BYTES[update.sampling] * tokens / update.rows
        positions = sum(
            sequence.completion * (sequence.prompt + sequence.completion / 2) for sequence in update.sequences
        )
        read += positions * self.layers * 2 * self.kv * self.head_dim * BYTES[update.sampling]
        return read / bandwidth()

    def _training(self, tokens: int, scored: int, update: Update) -> float:
        size = min(tokens, update.micro_tokens)
        kind, times = update.training, tokens / size
        layers = sum(
            product(size, inputs, outputs, kind)
            + product(size, outputs, inputs, kind)
            + product(outputs, size, inputs, kind)
            for inputs, outputs in self.linear
        )
        rows = min(scored, 512)
        head = (
            product(rows, self.hidden, self.vocab, "fp32")
            + product(rows, self.vocab, self.hidden, kind)
            + product(self.vocab, rows, self.hidden, kind)
        )
        return self.layers * layers * times + head * scored / rows

    def _attention(self, update: Update) -> float:
        """Two products in the forward and four in the backward pass, without the causal mask."""
        length = max(16, round(fmean(sequence.prompt + sequence.completion for sequence in update.sequences)))
        once = batched(self.heads, length, self.head_dim, update.training)
        return 6 * self.layers * len(update.sequences) * once


@cache
def product(rows: int, inputs: int, outputs: int, kind: str) -> float:
    """Seconds of ``[rows, inputs] @ [inputs, outputs]``."""
    import torch

    dtype = {"bf16": torch.bfloat16, "fp32": torch.float32}[kind]
    left = torch.randn(rows, inputs, dtype=dtype)
    right = torch.randn(outputs, inputs, dtype=dtype)
    return _shortest(lambda: torch.matmul(left, right.T))


@cache
def batched(heads: int, length: int, width: int, kind: str) -> float:
    """Seconds of ``[heads, length, width] @ [heads, width, length]``."""
    import torch

    dtype = {"bf16": torch.bfloat16, "fp32": torch.float32}[kind]
    left = torch.randn(heads, length, width, dtype=dtype)
    return _shortest(lambda: torch.matmul(left, left.transpose(1, 2)))


@cache
def bandwidth() -> float:
    """Bytes read and written per second, by a copy larger than the caches."""
    import torch

    source = torch.zeros(COPY_BYTES // 4)
    target = torch.empty_like(source)
    return 2 * COPY_BYTES / _shortest(lambda: target.copy_(source))


def _shortest(work: Callable[[], object]) -> float:
    work()
    seconds: list[float] = []
    while len(seconds) < 5 or sum(seconds) < 0.1:
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return min(seconds)
