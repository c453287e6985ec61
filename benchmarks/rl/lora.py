"""``magcli rl --lora``: held-out accuracy beside that of all weights, and speed and memory beside TRL with peft.

``rl-lora-vs-full`` is ``make lora`` of ``recipes/tiny``: RL of all weights, and of adapters with ten times the learning
rate, from the toy model after SFT, with several seeds. Both are sampled on the same held-out problems.

``rl-lora-vs-trl`` trains adapters of the same rank on the same layers of SmolLM2-135M-Instruct with both tools. Nearly
all completions reach the token limit, so that static batching wastes nothing.
"""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from statistics import fmean

from benchmarks.downloads import ROOT, TRL_TITLE
from benchmarks.pairs import SHORT, Result
from benchmarks.rl import inputs, settings
from benchmarks.rl.runs import Task, Timed, environment, time_magcli, time_trl
from benchmarks.rl.settings import Arm

RECIPE = ROOT / "recipes" / "tiny"
OUT = inputs.FOLDER / "lora"
SEEDS = ("0",) if SHORT else ("0", "1", "2")
ACCURACY = "avg@n"
"""The metric of ``magcli evaluate``: the share of right samples."""

RANK, TOKENS = 16, 32 if SHORT else 64
"""Of ``rl-lora-vs-trl``: the rank of the adapters, and the tokens of every completion."""
WARMUP, TIMED = 2, 1 if SHORT else 2
PAIRS = 1 if SHORT else 2
LEAST_SHARE = 0.8
"""Of the tokens of whole completions: magcli ends a turn at the template's token too, which TRL trains on."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A share with its 95 % interval."""

    value: float
    low: float
    high: float

    def percent(self, sign: str = "") -> str:
        """As in the table."""
        return f"{100 * self.value:{sign}.1f} [{100 * self.low:{sign}.1f}, {100 * self.high:{sign}.1f}]"


@dataclass(frozen=True, slots=True)
class Seed:
    """Accuracy of full training and of adapters, and the difference on the same problems, adapters minus full."""

    full: Estimate
    lora: Estimate
    difference: Estimate


def against_full() -> None:
    """Print accuracies for each seed.

    Raises:
        AssertionError: adapters are worse, beyond the interval of the mean difference.
    """
    _make()
    seeds = {seed: read_seed(OUT / "lora" / seed / "accuracy.arrow") for seed in SEEDS}
    print("\n".join(table(seeds)), flush=True)
    difference = mean_difference([seed.difference for seed in seeds.values()])
    assert difference.high >= 0, f"rl-lora-vs-full: adapters are worse by {difference.percent('+')}"


def _make() -> None:
    """Train and evaluate with the recipe's Makefile, which does not repeat what is finished."""
    program = Path(sys.executable).with_name("magcli")
    seeds = " ".join(SEEDS)
    command = ["make", "-s", "-C", str(RECIPE), f"OUT={OUT}", f"MAGCLI={program}", f"SEEDS={seeds}", "lora"]
    subprocess.run(command, check=True, env=environment(1))


def read_seed(path: Path) -> Seed:
    """The accuracies in a table of ``magcli evaluate --before``."""
    from magcli.data import table as tables
    from magcli.evaluation.metrics import BEFORE, DIFFERENCE

    rows = {row["metric"]: row for batch in tables.read(str(path)).rows for row in batch.to_pylist()}
    names = (f"{ACCURACY}{BEFORE}", ACCURACY, f"{ACCURACY}{DIFFERENCE}")
    full, lora, difference = (Estimate(rows[name]["value"], rows[name]["low"], rows[name]["high"]) for name in names)
    return Seed(full, lora, difference)


def mean_difference(differences: Sequence[Estimate]) -> Estimate:
    """The mean over seeds, whose intervals are independent."""
    count = len(differences)
    value = fmean(difference.value for difference in differences)
    below = sqrt(sum((difference.value - difference.low) ** 2 for difference in differences)) / count
    above = sqrt(sum((difference.high - difference.value) ** 2 for difference in differences)) / count
    return Estimate(value, value - below, value + above)


def table(seeds: Mapping[str, Seed]) -> list[str]:
    """A Markdown table: a line for each seed, and the mean."""
    lines = ["| seed | all weights | LoRA | difference |", "| --- | --- | --- | --- |"]
    for name, seed in seeds.items():
        lines.append(f"| {name} | {seed.full.percent()} | {seed.lora.percent()} | {seed.difference.percent('+')} |")
    means = [100 * fmean(accuracy.value for accuracy in side) for side in zip(*_sides(seeds), strict=True)]
    difference = mean_difference([seed.difference for seed in seeds.values()])
    lines.append(f"| mean | {means[0]:.1f} | {means[1]:.1f} | {difference.percent('+')} |")
    return lines


def _sides(seeds: Mapping[str, Seed]) -> list[tuple[Estimate, Estimate]]:
    return [(seed.full, seed.lora) for seed in seeds.values()]


def against_trl() -> Result:
    """TRL's seconds over magcli's in pairs, and the memory of both, in the format that is fast on this machine."""
    print(f"rl-lora-vs-trl: against {TRL_TITLE} with peft", flush=True)
    task = Task(inputs.smollm2_without_end(), inputs.problems(WARMUP + TIMED), TOKENS, WARMUP, TIMED, lora=RANK)
    arm = Arm(continuous=False, bf16=_trains_in_bf16(task.model))
    return Result("rl-lora-vs-trl", tuple(_pair(task, arm) for _ in range(PAIRS)))


def _trains_in_bf16(model: Path) -> bool:
    """Whether bf16 is the faster format on this machine."""
    from magcli.model.compute import choose
    from magcli.model.model import Model

    return choose(Model.open(model), "cpu", "training").format == "bf16"


def _pair(task: Task, arm: Arm) -> float:
    ours, theirs = time_magcli(task), time_trl(task, arm)
    _print("magcli", ours)
    _print(f"TRL, {arm.name}", theirs)
    least = LEAST_SHARE * TOKENS * TIMED * settings.COMPLETIONS
    assert min(ours.trained_tokens, theirs.trained_tokens) >= least, "rl-lora-vs-trl: completions ended early"
    ratio, memory = ours.rate / theirs.rate, theirs.peak_mib / ours.peak_mib
    print(f"  rl-lora-vs-trl: ratio {ratio:.2f}, memory ratio (TRL's over magcli's) {memory:.2f}", flush=True)
    return ratio


def _print(side: str, timed: Timed) -> None:
    print(f"  rl-lora-vs-trl: {side}: {timed.summary()}", flush=True)
