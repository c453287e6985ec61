"""One update of ``magcli rl`` beside the floor of this machine: what its matrix products and memory traffic alone take.

The floor counts the sequences that the timed updates really trained on, and three things:

- the matrix products of sampling (decode steps of as many rows as may run at once) and of training (forward pass, and
  two products for each in the backward pass), at the throughput that ``torch.matmul`` reaches on those shapes;
- weights read once a decode step, keys and values read once a token, at the bandwidth of a copy in memory;
- the optimizer's state, read and written once, and the new weights on their way to the engine.

Nothing else: no softmax, norm, activation or Python. The ratio is the floor over the update's time, 1 at best.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.pairs import Result
from benchmarks.public import ROOT, Missing
from benchmarks.rl import prepare, settings
from benchmarks.rl.sides import SECONDS, Task, environment, flags, options_of
from benchmarks.rl.watch import watch

PAIRS = 1 if os.environ.get("PEERS_SHORT") == "1" else 3
BYTES = {"bf16": 2, "fp32": 4}
TOY = ROOT / "recipes" / "tiny"
TOY_UPDATES = 6
SCRATCH_BYTES = 1 << 28


@dataclass(frozen=True, slots=True)
class Sampled:
    """Tokens of a prompt and of a completion; ``first`` where no earlier completion of the update has that prompt."""

    prompt: int
    completion: int
    first: bool


@dataclass(frozen=True, slots=True)
class Update:
    """What one update did on the clock: its seconds, its sequences, and the formats and rows it computed with."""

    seconds: float
    sequences: Sequence[Sampled]
    training: str
    sampling: str
    rows: int
    micro_tokens: int


def race() -> Result | None:
    """SmolLM2-135M, the race's problems and lengths."""
    try:
        model = prepare.natural()
        task = Task(model, prepare.problems(4), settings.HEAVY_LIMIT, warmup=2, timed=2)
        return _compared(
            "rl-vs-floor", model, lambda run: _updates(run, str(task.problems), options_of(task, run), 2, 4)
        )
    except Missing as missing:
        print(f"rl-vs-floor: not run: {missing}", flush=True)
        return None


def toy() -> Result:
    """The demo's model and sizes."""
    model = ROOT / "examples" / "model"
    options = {"recipe": TOY / "recipe.toml", "model": model, "updates": TOY_UPDATES, "checkpoint_every": 10**6}
    problems = str(TOY / "data" / "held_out.jsonl")
    return _compared(
        "rl-toy-vs-floor", model, lambda run: _updates(run, problems, {**options, "run": run}, 2, TOY_UPDATES - 1)
    )


def _compared(name: str, model: Path, measure: Callable[[Path], list[Update]]) -> Result:
    return Result(name, tuple(_pair(name, model, measure) for _ in range(PAIRS)))


def _pair(name: str, model: Path, measure: Callable[[Path], list[Update]]) -> float:
    with tempfile.TemporaryDirectory() as folder:
        updates = measure(Path(folder) / "run")
    machine = Machine(json.loads((model / "config.json").read_text()))
    parts = [machine.floor(update) for update in updates]
    seconds = fmean(update.seconds for update in updates)
    floor = fmean(sum(part.values()) for part in parts)
    told = ", ".join(f"{part} {fmean(each[part] for each in parts):.2f}" for part in parts[0])
    print(
        f"  {name}: an update takes {seconds:.2f} s, the floor is {floor:.2f} s ({told}): {seconds / floor:.2f} times"
    )
    return floor / seconds


def _updates(run: Path, problems: str, options: dict[str, Any], first: int, last: int) -> list[Update]:
    """Run ``magcli rl`` and describe its updates after ``first`` up to ``last``."""
    watched = watch(
        [sys.executable, "-m", "magcli", "rl", problems, *flags(options)],
        run / "metrics.jsonl",
        last=last,
        environment=environment(settings.THREADS),
        seconds=SECONDS,
    )
    chosen = json.loads((run / "run.json").read_text())
    formats = chosen["chosen"]
    steps = range(first + 1, last + 1)
    return [
        Update(
            watched.at[step] - watched.at[step - 1],
            _sequences(run / "rollouts" / f"step-{step:06d}.arrow"),
            "bf16" if formats["bf16"] == "yes" else "fp32",
            formats["dtype"],
            chosen["n_async"],
            chosen["micro_tokens"],
        )
        for step in steps
    ]


def _sequences(table: Path) -> list[Sampled]:
    from magcli.data.table import read

    rows = [row for batch in read(str(table)).rows for row in batch.to_pylist() if row["dropped"] is None]
    seen: set[tuple[int, ...]] = set()
    found = []
    for row in rows:
        prompt = tuple(row["prompt_tokens"])
        found.append(Sampled(len(prompt), row["num_tokens"], prompt not in seen))
        seen.add(prompt)
    return found


class Machine:
    """This machine's peaks for the shapes of a model, by its configuration."""

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
        tokens = sum(each.completion for each in update.sequences)
        prompts = sum(each.prompt for each in update.sequences if each.first)
        return {
            "sampling": self._sampling(tokens, prompts, update),
            "its traffic": self._traffic(tokens, update),
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
        positions = sum(each.completion * (each.prompt + each.completion / 2) for each in update.sequences)
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
        """Scores and their mix of values, forward and twice that backward, each over whole squares."""
        length = max(16, round(fmean(each.prompt + each.completion for each in update.sequences)))
        once = batched(self.heads, length, self.head_dim, update.training)
        return 6 * self.layers * len(update.sequences) * once


@cache
def product(rows: int, inputs: int, outputs: int, kind: str) -> float:
    """Seconds of ``[rows, inputs] @ [inputs, outputs]``."""
    import torch

    dtype = {"bf16": torch.bfloat16, "fp32": torch.float32}[kind]
    left, right = torch.randn(rows, inputs, dtype=dtype), torch.randn(outputs, inputs, dtype=dtype)
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
    """Bytes a second that this machine reads and writes, by a copy of more than its caches hold."""
    import torch

    source = torch.zeros(SCRATCH_BYTES // 4)
    target = torch.empty_like(source)
    return 2 * SCRATCH_BYTES / _shortest(lambda: target.copy_(source))


def _shortest(work: Callable[[], object]) -> float:
    work()
    seconds: list[float] = []
    while len(seconds) < 5 or sum(seconds) < 0.1:
        begun = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - begun)
    return min(seconds)
