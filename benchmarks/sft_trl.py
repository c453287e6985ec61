"""``magcli sft`` against TRL's SFTTrainer: trained tokens a second, peak memory and held-out loss.

A random model of SmolLM2-135M's shape is trained on the same traces on both sides: heavy-tailed lengths, identical
tokens, loss on completions only. Optimizer, learning rate, clipping and tokens per step are equal. Each side is a
process, timed from the end of its warm-up steps; short trials find TRL's fastest arm. After the same number of tokens
the held-out losses must agree.
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

from benchmarks.downloads import CACHE, ROOT, TRL_TITLE, trl_path
from benchmarks.models import SMOLLM2_135M, random_llama
from benchmarks.monitor import Record, TooSlow, monitor
from benchmarks.pairs import SHORT, Result
from benchmarks.rl.runs import environment, flags

NAME = "sft-vs-trl"
FOLDER = CACHE / "sft"
TOKENIZER = ROOT / "examples" / "model"
CONTEXT = 2048
TRACES, HELD_OUT = 250, 8
MEDIAN_SUMS = 20
SIGMA = 0.8
MAX_SUMS = 70
"""Sums per trace: log-normal, truncated; a sum takes a dozen tokens."""
LR = 3e-4
BETA2 = 0.95
MAX_NORM = 1.0
SEED = 0
THREADS = 2
MICRO_TOKENS = 2048
"""Of magcli: a whole step, as in TRL's arm with four traces."""
SECONDS = 3600.0
START_SECONDS = 60.0
TIMEOUT_FACTOR = 3.0
LOSS_TOLERANCE = 0.05
"""Relative difference of held-out losses: the sides read the traces in different orders."""


@dataclass(frozen=True, slots=True)
class Size:
    """Tokens per step, optimizer steps before the clock starts and on it, and pairs of runs."""

    step_tokens: int
    warmup: int
    timed: int
    pairs: int

    @property
    def steps(self) -> int:
        """Steps of one run; the last one, which ends with an evaluation, is not timed."""
        return self.warmup + self.timed + 1


TRIAL = Size(step_tokens=1024, warmup=1, timed=1, pairs=1)
SIZE = TRIAL if SHORT else Size(step_tokens=2048, warmup=1, timed=2, pairs=3)


@dataclass(frozen=True, slots=True)
class Arm:
    """A configuration of TRL: rows packed to ``length`` tokens or, with 0, that many traces without padding."""

    length: int
    rows: int
    bf16: bool

    @property
    def name(self) -> str:
        """As in the output."""
        layout = f"{self.rows} x packed to {self.length}" if self.length else f"{self.rows} traces without padding"
        return f"{layout}, {'bf16' if self.bf16 else 'fp32'}"


ARMS = tuple(Arm(length, rows, bf16) for bf16 in (True, False) for length, rows in ((1024, 1), (0, 2), (0, 4)))
"""Longer rows are slower on a CPU: without FlashAttention a row of T tokens needs a T x T mask (17 tokens/s packed to
2,048, 46 packed to 1,024)."""


@dataclass(frozen=True, slots=True)
class Timed:
    """Tokens and seconds on the clock, losses by step, held-out loss and peak memory."""

    tokens: int
    seconds: float
    losses: tuple[float, ...]
    held_out: float
    peak_mib: int

    @property
    def rate(self) -> float:
        """Tokens a second, prompts included."""
        return self.tokens / self.seconds

    def summary(self) -> str:
        """One line."""
        losses = " ".join(f"{loss:.2f}" for loss in self.losses)
        return (
            f"{self.rate:.1f} tokens/s ({self.tokens} in {self.seconds:.1f} s), peak {self.peak_mib:,} MiB, "
            f"losses {losses}, held-out {self.held_out:.3f}"
        )


def run() -> Result:
    """magcli against TRL's fastest arm."""
    trl_path()
    print(f"{NAME}: against {TRL_TITLE}", flush=True)
    arm = _best_arm()
    return Result(NAME, tuple(_pair(SIZE, arm) for _ in range(SIZE.pairs)), least=1.0)


def _best_arm() -> Arm:
    """TRL's fastest arm.

    The number format that is fast on this machine comes first, since the other one may be 40 times slower; a format is
    skipped once one of its arms takes ``TIMEOUT_FACTOR`` times as long as the fastest so far.
    """
    from magcli.model.compute import choose
    from magcli.model.model import Model

    rates: dict[Arm, float] = {}
    too_slow: set[bool] = set()
    faster = choose(Model.open(model()), "cpu", "training").format == "bf16"
    for arm in sorted(ARMS, key=lambda arm: arm.bf16 is not faster):
        if arm.bf16 in too_slow:
            continue
        timeout = TIMEOUT_FACTOR * TRIAL.steps * TRIAL.step_tokens / max(rates.values()) if rates else SECONDS
        try:
            trial = time_trl(TRIAL, arm, START_SECONDS + timeout)
        except TooSlow:
            print(f"  {NAME}: trial of TRL, {arm.name}: stopped; its number format is skipped", flush=True)
            too_slow.add(arm.bf16)
            continue
        rates[arm] = trial.rate
        print(f"  {NAME}: trial of TRL, {arm.name}: {trial.summary()}", flush=True)
    return max(rates, key=lambda arm: rates[arm])


def _pair(size: Size, arm: Arm) -> float:
    ours, theirs = time_magcli(size), time_trl(size, arm, SECONDS)
    print(f"  {NAME}: magcli: {ours.summary()}", flush=True)
    print(f"  {NAME}: TRL, {arm.name}: {theirs.summary()}", flush=True)
    memory = theirs.peak_mib / ours.peak_mib
    print(f"  {NAME}: ratio {ours.rate / theirs.rate:.2f}, memory ratio (TRL's over magcli's) {memory:.2f}", flush=True)
    difference = abs(ours.held_out - theirs.held_out) / theirs.held_out
    assert difference <= LOSS_TOLERANCE, f"{NAME}: held-out losses {ours.held_out:.3f} and {theirs.held_out:.3f}"
    return ours.rate / theirs.rate


def time_magcli(size: Size) -> Timed:
    """Time ``magcli sft``."""
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
        record = monitor(command, metrics, last=size.steps, environment=environment(THREADS), seconds=SECONDS)
        return _timed(record, size, [int(record.lines[step]["tokens"]) for step in range(1, size.steps + 1)])


def time_trl(size: Size, arm: Arm, seconds: float) -> Timed:
    """Time TRL's SFTTrainer for at most ``seconds``."""
    with tempfile.TemporaryDirectory() as folder:
        output, path = Path(folder) / "trl", Path(folder) / "spec.json"
        spec = {
            "model": str(model()),
            "traces": str(traces("traces")),
            "held_out": str(traces("held-out")),
            "folder": str(output),
            "metrics": str(output / "metrics.jsonl"),
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
        variables = environment(THREADS) | {"PYTHONPATH": os.pathsep.join((str(ROOT), trl_path()))}
        command = [sys.executable, "-m", "benchmarks.sft_trl_child", str(path)]
        record = monitor(command, output / "metrics.jsonl", last=size.steps, environment=variables, seconds=seconds)
        return _timed(record, size, [record.lines[step]["tokens"] for step in range(1, size.steps + 1)])


def _timed(record: Record, size: Size, tokens: Sequence[int]) -> Timed:
    begin, end = size.warmup, size.warmup + size.timed
    return Timed(
        sum(tokens[begin:end]),
        record.at[end] - record.at[begin],
        tuple(record.lines[step]["loss"] for step in range(1, size.steps + 1)),
        record.lines[size.steps]["held_out_loss"],
        record.peak_mib,
    )


@cache
def model() -> Path:
    """A random Llama of SmolLM2-135M's shape with the tokenizer of the examples."""
    from transformers import AutoTokenizer

    folder = FOLDER / "model"
    shutil.rmtree(folder, ignore_errors=True)
    tokenizer = AutoTokenizer.from_pretrained(TOKENIZER, trust_remote_code=False, model_max_length=CONTEXT)
    end = tokenizer.eos_token_id
    llama = random_llama(**SMOLLM2_135M, max_position_embeddings=CONTEXT, eos_token_id=end, pad_token_id=end)
    llama.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@cache
def traces(name: str) -> Path:
    """Worked sums as JSONL; ``traces`` and ``held-out`` have none in common."""
    choose = random.Random(f"{name} {SEED}")
    rows = [trace(choose) for _ in range(TRACES if name == "traces" else HELD_OUT)]
    path = FOLDER / f"{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def trace(choose: random.Random) -> Mapping[str, Any]:
    """A long sum, worked out number by number."""
    count = min(MAX_SUMS, max(2, round(MEDIAN_SUMS * math.exp(choose.gauss(0, SIGMA)))))
    numbers = [choose.randrange(1, 100) for _ in range(count)]
    total, steps = numbers[0], []
    for number in numbers[1:]:
        steps.append(f"{total}+{number}={total + number}")
        total += number
    expression = "+".join(map(str, numbers))
    return {"prompt": f"Compute {expression}.", "completion": f"<think>{' '.join(steps)}</think>\\boxed{{{total}}}"}
