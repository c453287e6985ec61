"""pass@k, avg@n and maj@k with 95% intervals, on stored completions or on a model.

Without --model the table holds graded completions (from `magcli grade` or an RL run). With --model it holds
problems, which are sampled and graded; --completions keeps those. --against compares two runs problem by
problem.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from magcli.config import opt
from magcli.run import options
from magcli.stages import checks, setup

if TYPE_CHECKING:
    import pyarrow as pa

    from magcli.data.source import Rows
    from magcli.evaluation.metrics import Estimate, Problem
    from magcli.run.job import Job

INPUTS = "Graded completions (id, correct), or with --model problems (prompt, answer); - is stdin."
OUTPUT = "file, folder or -; without it only people are told."
DEFAULT_OUTPUT = None
EXAMPLE = (
    "magcli evaluate examples/problems.jsonl --model examples/model --samples 4 --max-tokens 48 --ks 1,4 "
    "-o evaluation.arrow"
)


@dataclass(frozen=True)
class Config:
    """Options of `magcli evaluate`."""

    model: str = options.model()
    ks: tuple[int, ...] = opt((1,), "The k of pass@k and maj@k; larger ones than there are samples are left out.")
    against: Path | None = opt(None, "Graded completions of another run to compare with, problem by problem.")
    completions: Path | None = opt(None, "With --model: keep the graded completions in this table.")
    language: bool = opt(False, "With --model: also tell the share in one language: question, thoughts, answer.")
    samples: int = options.samples(4)
    max_tokens: int = options.max_tokens()
    temperature: float = options.temperature(0.7)
    top_p: float = options.top_p()
    system: Path | None = options.system()
    seed: int = options.seed()
    engine: Literal["auto", "torch", "vllm", "server"] = options.engine()
    dtype: Literal["auto", "bf16", "fp32"] = options.dtype()
    slots: int = options.slots()
    deterministic: bool = options.deterministic()
    device: str = options.device()
    deadline: float = options.deadline()
    workers: int = options.workers()
    verify_deadline: float = options.verify_deadline()
    sandbox: Literal["full", "restricted", "auto", "dangerously-none"] = options.sandbox()


PLACES = ("workers", "completions", "deadline")
"""Options that do not change the rows."""
LANGUAGE = ("languages", "reward_language")
"""Columns by which a reward tells languages."""


def reads(config: Config) -> tuple[str, ...]:
    """The columns that must be there."""
    return ("id", "prompt", "answer|tests") if config.model else ("id", "correct")


def check(config: Config) -> None:
    """Refuse options that contradict themselves."""
    from magcli.run.job import usage

    usage(all(k > 0 for k in config.ks), "evaluate.ks: every k is at least 1")
    usage(bool(config.model) or config.completions is None, "evaluate: --completions goes with --model")
    if config.model:
        checks.engine("evaluate", config)
        checks.ask("evaluate", config)
        checks.grader("evaluate", config)


def settings(config: Config) -> dict[str, Any]:
    """What else decides the rows: the bits of the model, of the system prompt and of the other run."""
    bits = setup.model_bits(config.model, config.system) | setup.grader_bits(config) if config.model else {}
    return bits | setup.table_bits("against", config.against)


def beside(config: Config) -> tuple[Path, ...]:
    """The graded completions, when they are kept."""
    return (config.completions,) if config.completions else ()


def schema(config: Config, given: pa.Schema) -> pa.Schema:
    """One row a metric."""
    import pyarrow as pa

    counts = [pa.field(name, pa.int64()) for name in ("num_problems", "num_samples")]
    return pa.schema(
        [pa.field("metric", pa.string()), *[pa.field(n, pa.float64()) for n in ("value", "low", "high")], *counts]
    )


def run(config: Config, rows: Rows, job: Job) -> Rows:
    """Sample and grade if there is a model, then estimate and tell."""
    import pyarrow as pa

    from magcli.errors import DataError
    from magcli.evaluation import metrics

    problems = _gathered(_sampled(config, rows, job) if config.model else rows, job)
    if not problems:
        raise DataError("evaluate: there is no graded completion to evaluate")
    estimates = metrics.estimate(problems, config.ks, config.seed)
    if config.against:
        estimates += _compared(config, problems, config.against)
    _tell(estimates, job)
    yield pa.RecordBatch.from_pylist(list(map(_known, estimates)), schema(config, pa.schema([])))


def _known(estimate: Estimate) -> dict[str, Any]:
    """A row of the table; one problem alone has no interval, so its ends are null."""
    return {name: None if value != value else value for name, value in estimate._asdict().items()}


def _gathered(rows: Rows, job: Job | None = None) -> list[Problem]:
    """Graded completions by problem; those whose ground truth cannot be read say nothing of the model."""
    from magcli.evaluation import metrics
    from magcli.verify.types import UNCOUNTED

    names = [*("id", "prompt", "correct", "correct_anywhere", "extracted", "num_tokens", "reason"), *LANGUAGE]
    found = []
    for batch in rows:
        for row in batch.select([name for name in names if name in batch.schema.names]).to_pylist():
            if row.get("reason") not in UNCOUNTED:
                found.append(row)
            elif job is not None:
                job.drops.row(row["id"], row["reason"], row)
    return metrics.gather(found)


def _compared(config: Config, problems: list[Problem], path: Path) -> list[Estimate]:
    from magcli.data import table
    from magcli.data.schema import require
    from magcli.errors import DataError
    from magcli.evaluation import metrics

    source = table.read(str(path))
    require(source.schema, ("id", "correct"), stage="evaluate", where=str(path))
    differences = metrics.paired(problems, _gathered(source.rows), config.ks, config.seed)
    if not differences:
        raise DataError(f"evaluate: {path} has no problem in common with the input; ids must be the same")
    return differences


def _tell(estimates: list[Estimate], job: Job) -> None:
    width = max(len(each.metric) for each in estimates)
    for each in estimates:
        scale = 1 if each.metric.startswith("tokens") else 100
        sign = "+" if "difference" in each.metric else ""
        value, low, high = (scale * number for number in (each.value, each.low, each.high))
        bounds = f"[{low:{sign}.1f}, {high:{sign}.1f}]" if low == low else "(one problem has no interval)"
        text = f"{each.metric:<{width}}  {value:{sign}.1f}  {bounds}"
        job.console.say(
            f"{text}  {each.num_problems} problems, {each.num_samples} samples", event="metric", **_known(each)
        )


def _sampled(config: Config, rows: Rows, job: Job) -> Rows:
    """Graded samples of the problems; kept in a table when that was asked for."""
    from magcli.run.keep import kept

    graded = _graded(config, rows, job)
    return kept(graded, config.completions, job) if config.completions else graded


def _graded(config: Config, rows: Rows, job: Job) -> Rows:
    import pyarrow as pa

    from magcli.curate.sampling import completion_columns, rewards_of, samples_of
    from magcli.data.columns import attach, extended, repeated
    from magcli.data.schema import COMPLETION, REWARD
    from magcli.errors import PromptTooLong
    from magcli.run.job import as_text
    from magcli.run.journal import Dropped, Result
    from magcli.run.units import resumable
    from magcli.verify.reward import ALL_TESTS, RewardRule, columns

    generator, asking = setup.open_engine(config), setup.ask(config)
    grader, rule = setup.open_grader(config), RewardRule(use_language=config.language, num_tests=ALL_TESTS)
    assert job.schema is not None
    nothing = pa.RecordBatch.from_pylist([], extended(extended(job.schema, COMPLETION), REWARD))

    async def compute(part: pa.RecordBatch) -> Result:
        row = part.to_pylist()[0]
        grader.check(row)
        try:
            samples = await samples_of(generator, row, asking)
        except PromptTooLong as error:
            return Result(nothing, [Dropped(row["id"], "prompt-too-long", as_text({**row, "error": str(error)}))])
        rewards = await rewards_of(grader, row, samples, rule)
        many = attach(repeated(part, len(samples)), completion_columns(samples))
        return Result(attach(many, columns(rewards)))

    async def close() -> None:
        await generator.close()
        await grader.close()

    window = max(2, 2 * config.slots // config.samples + 2)
    return resumable(rows, job, compute, close, size=1, window=window, unit="problems")
