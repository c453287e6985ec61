"""One difficulty pass: sample each problem, keep those in the useful band.

Never-solved and too-easy problems go; with --drop-suspect also those where most samples agree on an answer that
is not the ground truth, which is then probably wrong. The recipe's two passes are this stage called twice, with
two models.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from magcli.config import opt
from magcli.run import options
from magcli.stages import setup

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from magcli.curate.difficulty import Summary
    from magcli.data.source import Rows
    from magcli.run.job import Job
    from magcli.verify.grader import Grader
    from magcli.verify.reward import Reward, RewardRule

INPUTS = "Problems: columns prompt, answer, id if there is one; - is stdin."
OUTPUT = "file, folder or -."
DEFAULT_OUTPUT = "-"
RESUMES = True
EXAMPLE = (
    "magcli filter-math examples/problems.jsonl --model examples/model --samples 4 --max-tokens 48 "
    "--low 0 -o kept.arrow --dropped dropped.jsonl"
)


@dataclass(frozen=True)
class Config:
    """Options of `magcli filter-math`."""

    model: str = options.model()
    samples: int = options.samples(16)
    low: float = opt(0.01, "Lowest pass rate that is kept: the default drops what was never solved.")
    high: float = opt(0.9, "Highest pass rate that is kept; above it a problem is too easy.")
    drop_suspect: bool = opt(False, "Drop problems whose ground truth most samples contradict with one answer.")
    majority: float = opt(0.5, "Share of samples that must agree for that.")
    max_tokens: int = options.max_tokens()
    temperature: float = options.temperature()
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


PLACES = ("workers", "deadline")
"""Options that do not change the rows."""


def reads(config: Config) -> tuple[str, ...]:
    """The columns that must be there."""
    return ("id", "prompt", "answer|tests")


def check(config: Config) -> None:
    """Refuse options that contradict themselves."""
    from magcli.run.job import usage

    setup.check_engine("filter-math", config)
    setup.check_ask("filter-math", config)
    setup.check_grader("filter-math", config)
    usage(0 <= config.low <= config.high <= 1, f"filter-math: band {config.low} to {config.high} is not within 0 to 1")
    usage(0 < config.majority <= 1, f"filter-math.majority: {config.majority} is not in (0, 1]")


def settings(config: Config) -> dict[str, Any]:
    """What else decides the rows: the bits of the model and of the system prompt."""
    return setup.model_bits(config.model, config.system) | setup.grader_bits(config)


def schema(config: Config, given: pa.Schema) -> pa.Schema:
    """The problem's columns and what the pass learned."""
    from magcli.data.columns import extended
    from magcli.data.schema import DIFFICULTY

    return extended(given, DIFFICULTY)


def run(config: Config, rows: Rows, job: Job) -> Rows:
    """Sample, grade and judge each problem."""
    import pyarrow as pa

    from magcli.curate.sampling import rewards_of, samples_of
    from magcli.errors import PromptTooLong
    from magcli.run.job import as_text
    from magcli.run.journal import Dropped, Result
    from magcli.run.units import resumable
    from magcli.verify.reward import RewardRule

    generator, asking = setup.open_engine(config), setup.ask(config)
    grader, rule = setup.open_grader(config), RewardRule(use_language=False)
    assert job.schema is not None
    nothing = pa.RecordBatch.from_pylist([], schema(config, job.schema))

    async def compute(part: pa.RecordBatch) -> Result:
        row = part.to_pylist()[0]
        grader.check(row)
        try:
            samples = await samples_of(generator, row, asking)
        except PromptTooLong as error:
            return Result(nothing, [Dropped(row["id"], "prompt-too-long", as_text({**row, "error": str(error)}))])
        rewards = await rewards_of(grader, row, samples, rule)
        summary, judgement = await _judge(config, grader, rule, row, rewards)
        learned = {**row, **(summary._asdict() if summary else {})}
        if judgement != "kept":
            return Result(nothing, [Dropped(row["id"], judgement, as_text(learned))])
        return Result(pa.RecordBatch.from_pylist([learned], schema(config, part.schema)))

    async def close() -> None:
        await generator.close()
        await grader.close()

    return resumable(rows, job, compute, close, size=1, window=_window(config), unit="problems")


def _window(config: Config) -> int:
    """Problems under way at once: enough to keep every slot busy while others are graded."""
    return max(2, 2 * config.slots // config.samples + 2)


async def _judge(
    config: Config, grader: Grader, rule: RewardRule, row: dict[str, Any], rewards: Sequence[Reward]
) -> tuple[Summary | None, str]:
    """What the samples say and whether the problem stays; samples whose grading failed say nothing.

    Programs have no majority: many different ones are right.
    """
    import asyncio

    from magcli.curate.difficulty import judge, summarise

    judged = [reward for reward in rewards if reward.trainable]
    if not judged:
        return None, rewards[0].reason

    def same(one: str, other: str) -> bool:
        """Equality by the verifier, in its killable workers."""
        job = (f"<think></think>\\boxed{{{one}}}", 0, {"answer": other}, rule)
        return grader.rewards([job])[0].correct

    answers = ["" if row.get("kind") == "code" else reward.extracted for reward in judged]
    correct = [reward.correct for reward in judged]
    summary = await asyncio.to_thread(summarise, answers, correct, same)
    agrees = not summary.majority or await asyncio.to_thread(same, summary.majority, row["answer"])
    return summary, judge(
        summary,
        low=config.low,
        high=config.high,
        drop_suspect=config.drop_suspect,
        gold_matches_majority=agrees,
        majority_threshold=config.majority,
    )
