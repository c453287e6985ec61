"""``magcli sft`` beside TRL's SFTTrainer with packing: trained tokens a second, peak memory, and the same learning.

A model of SmolLM2-135M's shape with random weights learns the same traces on both sides: of heavy-tailed lengths,
tokenised alike, only the answers being targets. Optimizer, rate, clipping and tokens of a step are the same. Each side
is a process of its own, timed from the end of its warm-up steps; short trials find TRL's best arm. After as many tokens
both must be as good on traces that neither has seen. ``PEERS_SHORT=1`` makes it a short one, on ``PEERS_THREADS``
threads.
"""

import json
import math
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.pairs import Result
from benchmarks.public import CACHE, ROOT, Missing
from benchmarks.rl.sides import environment, flags
from benchmarks.rl.watch import Watched, watch
from benchmarks.trl_reward import trl

PLACE = CACHE / "sft"
TOKENIZER = ROOT / "examples" / "model"
SHAPE = {
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "vocab_size": 49152,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": True,
}
TRACES, HELD_OUT = 250, 8
MEDIAN_SUMS, SIGMA, MOST_SUMS = 20, 0.8, 70
"""Sums of a trace: log-normal, cut; a sum takes a dozen tokens."""
LR, BETA2, MAX_NORM, SEED = 3e-4, 0.95, 1.0, 0
THREADS = int(os.environ.get("PEERS_THREADS", "2"))
MICRO_TOKENS = 2048
"""Tokens of magcli's micro-batches: a whole step, as TRL may have in the arm with four traces."""
SECONDS = 3600.0
START_SECONDS = 60.0
PATIENCE = 3.0
NOISE = 0.05
"""How far apart, relative to TRL's, losses on unseen traces may be: the sides see the traces in different orders."""


@dataclass(frozen=True, slots=True)
class Size:
    """Optimizer steps before the clock and on it, tokens of a step, pairs of runs; one more step ends the pipeline."""

    step_tokens: int
    warmup: int
    timed: int
    pairs: int

    @property
    def steps(self) -> int:
        """Steps of one run; the last one, after which models are evaluated, is not on the clock."""
        return self.warmup + self.timed + 1


FULL = Size(step_tokens=2048, warmup=1, timed=2, pairs=3)
SHORT = TRIAL = Size(step_tokens=1024, warmup=1, timed=1, pairs=1)


@dataclass(frozen=True, slots=True)
class Arm:
    """A way to run TRL: rows packed to ``length`` tokens or, with 0, so many traces laid end to end without padding."""

    length: int
    rows: int
    bf16: bool

    @property
    def name(self) -> str:
        """As it is printed."""
        laid = f"{self.rows} x packed to {self.length}" if self.length else f"{self.rows} traces without padding"
        return f"{laid}, {'bf16' if self.bf16 else 'fp32'}"


ARMS = tuple(Arm(length, rows, bf16) for bf16 in (True, False) for length, rows in ((1024, 1), (0, 2), (0, 4)))
"""Larger ones are slower on a CPU: without FlashAttention a row of T tokens takes a mask of T x T (packed to 2,048: 17
tokens/s where 1,024 made 46)."""


@dataclass(frozen=True, slots=True)
class Timed:
    """What a side did: on the clock its tokens and seconds, of the whole run losses and the peak of its memory."""

    tokens: int
    seconds: float
    losses: tuple[float, ...]
    held_out: float
    peak_mib: int

    @property
    def rate(self) -> float:
        """Trained tokens a second, those of prompts included."""
        return self.tokens / self.seconds

    def told(self) -> str:
        """One line for people."""
        losses = " ".join(f"{loss:.2f}" for loss in self.losses)
        return (
            f"{self.rate:.1f} tokens/s ({self.tokens} in {self.seconds:.1f} s), peak {self.peak_mib:,} MiB, "
            f"losses {losses}, on unseen traces {self.held_out:.3f}"
        )


NAME = "sft-vs-trl"


def run() -> Result | None:
    """TRL in the arm that short trials find best, magcli as it chooses itself."""
    size = SHORT if os.environ.get("PEERS_SHORT") == "1" else FULL
    try:
        trl()
        arm = _best_arm()
        return Result(NAME, tuple(_pair(size, arm) for _ in range(size.pairs)), least=1.0)
    except Missing as missing:
        print(f"{NAME}: not run: {missing}", flush=True)
        return None


def _best_arm() -> Arm:
    """TRL's fastest arm.

    The number format that this machine computes fast comes first, since the other may be 40 times slower: it is given
    up where an arm takes ``PATIENCE`` times as long as the best so far.
    """
    from magcli.model.compute import choose

    rates: dict[Arm, float] = {}
    hopeless: set[bool] = set()
    faster = choose(str(model()), "cpu", "training").format == "bf16"
    for arm in sorted(ARMS, key=lambda arm: arm.bf16 is not faster):
        if arm.bf16 in hopeless:
            continue
        patience = PATIENCE * TRIAL.steps * TRIAL.step_tokens / max(rates.values()) if rates else SECONDS
        try:
            tried = trl_trainer(TRIAL, arm, START_SECONDS + patience)
        except AssertionError as slow:
            if "too slow" not in str(slow):
                raise
            print(f"  {NAME}: trial of TRL, {arm.name}: given up, and its number format with it", flush=True)
            hopeless.add(arm.bf16)
            continue
        rates[arm] = tried.rate
        print(f"  {NAME}: trial of TRL, {arm.name}: {tried.told()}", flush=True)
    return max(rates, key=lambda arm: rates[arm])


def _pair(size: Size, arm: Arm) -> float:
    name, ours, theirs = NAME, magcli(size), trl_trainer(size, arm, SECONDS)
    print(f"  {name}: magcli {ours.told()}", flush=True)
    print(f"  {name}: TRL, {arm.name}: {theirs.told()}", flush=True)
    memory = theirs.peak_mib / ours.peak_mib
    print(f"  {name}: ratio {ours.rate / theirs.rate:.2f}, of memory (TRL's over magcli's) {memory:.2f}", flush=True)
    apart = abs(ours.held_out - theirs.held_out) / theirs.held_out
    assert apart <= NOISE, f"{name}: losses on unseen traces {ours.held_out:.3f} and {theirs.held_out:.3f}"
    return ours.rate / theirs.rate


def magcli(size: Size) -> Timed:
    """A run of ``magcli sft``."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        options = {
            "model": model(),
            "run": run,
            "held_out": traces("held-out"),
            "evaluate_every": 10**6,
            "epochs": 4,
            "max_steps": size.steps,
            "lr": LR,
            "warmup": 0.0,
            "floor": 1.0,
            "max_norm": MAX_NORM,
            "step_tokens": size.step_tokens,
            "micro_tokens": MICRO_TOKENS,
            "system": "none",
            "checkpoint_every": 10**6,
            "seed": SEED,
        }
        command = [sys.executable, "-m", "magcli", "sft", str(traces("traces")), *flags(options)]
        metrics = run / "metrics.jsonl"
        seen = watch(command, metrics, last=size.steps, environment=environment(THREADS), seconds=SECONDS)
        return _timed(seen, size, [int(seen.lines[step]["tokens"]) for step in range(1, size.steps + 1)])


def trl_trainer(size: Size, arm: Arm, seconds: float) -> Timed:
    """A run of TRL's SFTTrainer, for so many seconds at most."""
    with tempfile.TemporaryDirectory() as folder:
        place, path = Path(folder) / "trl", Path(folder) / "spec.json"
        spec = {
            "model": str(model()),
            "traces": str(traces("traces")),
            "held_out": str(traces("held-out")),
            "folder": str(place),
            "metrics": str(place / "metrics.jsonl"),
            "steps": size.steps,
            "step_tokens": size.step_tokens,
            "lr": LR,
            "beta2": BETA2,
            "max_norm": MAX_NORM,
            "seed": SEED,
            "threads": THREADS,
            **asdict(arm),
        }
        path.write_text(json.dumps(spec))
        around = environment(THREADS) | {"PYTHONPATH": os.pathsep.join((str(ROOT), trl()))}
        command = [sys.executable, "-m", "benchmarks.sft_trl_child", str(path)]
        seen = watch(command, place / "metrics.jsonl", last=size.steps, environment=around, seconds=seconds)
        return _timed(seen, size, [seen.lines[step]["tokens"] for step in range(1, size.steps + 1)])


def _timed(seen: Watched, size: Size, tokens: Sequence[int]) -> Timed:
    begin, end = size.warmup, size.warmup + size.timed
    return Timed(
        sum(tokens[begin:end]),
        seen.at[end] - seen.at[begin],
        tuple(seen.lines[step]["loss"] for step in range(1, size.steps + 1)),
        seen.lines[size.steps]["held_out_loss"],
        seen.peak_mib,
    )


@cache
def model() -> Path:
    """A Llama of SmolLM2-135M's shape with random weights, and the tokenizer of the examples."""
    import torch
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    folder = PLACE / "model"
    shutil.rmtree(folder, ignore_errors=True)
    tokenizer = AutoTokenizer.from_pretrained(TOKENIZER, model_max_length=SHAPE["max_position_embeddings"])
    torch.manual_seed(SEED)
    ends = {"bos_token_id": None, "eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.eos_token_id}
    LlamaForCausalLM(LlamaConfig(**SHAPE, **ends)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@cache
def traces(name: str) -> Path:
    """Worked sums as lines of JSON, of two kinds that share none: ``traces`` and ``held-out``."""
    choose = random.Random(f"{name} {SEED}")
    rows = [trace(choose) for _ in range(TRACES if name == "traces" else HELD_OUT)]
    path = PLACE / f"{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def trace(choose: random.Random) -> Mapping[str, Any]:
    """A long sum and how it is worked out, number by number."""
    count = min(MOST_SUMS, max(2, round(MEDIAN_SUMS * math.exp(choose.gauss(0, SIGMA)))))
    numbers = [choose.randrange(1, 100) for _ in range(count)]
    total, steps = numbers[0], []
    for number in numbers[1:]:
        steps.append(f"{total}+{number}={total + number}")
        total += number
    asked = "+".join(map(str, numbers))
    return {"prompt": f"Compute {asked}.", "completion": f"<think>{' '.join(steps)}</think>\\boxed{{{total}}}"}


if __name__ == "__main__":
    if found := run():
        print(found.line())
