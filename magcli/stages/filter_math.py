"""One difficulty pass: sample each problem, keep those in the useful band.

Never-solved and too-easy problems are dropped; with --drop-suspect also those where most samples agree on an answer
that differs from the ground truth, which is then probably wrong. The recipe's two passes are this stage called twice,
with two models. For a model that has not learnt the format of <think> and box yet, --anywhere counts correct answers
in any form.

--adaptive samples in waves and stops when the remaining samples cannot change the decision: the same problems are kept,
for the same reasons, with fewer tokens. Pass rates and majorities are then those of the samples made (num_samples);
leave it out if they must be exact.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from magcli.config import opt
from magcli.errors import PromptRefused, usage
from magcli.run import options
from magcli.stages.parts import checks, setup

if TYPE_CHECKING:
    import pyarrow as pa

    from magcli.curate.math.difficulty import Summary
    from magcli.curate.sampling import Spent
    from magcli.data.source import Rows
    from magcli.run.job import Job
    from magcli.verify.grader import Grader
    from magcli.verify.reward import Reward

INPUTS = "Problems: columns prompt, answer, optional id; - is stdin."
OUTPUT = "the rows"
DEFAULT_OUTPUT = "-"
RESUMES = True
ALIASES = setup.ALIASES
EXAMPLE = (
    "magcli filter-math examples/problems.jsonl --model examples/model --samples 4 --max-tokens 48 "
    "--keep 0..0.9 -o kept.arrow --dropped dropped.jsonl"
)


@dataclass(frozen=True)
class Config:
    """Options of `magcli filter-math`."""

    model: str = options.model()
    samples: int = options.samples(16)
    keep: str = opt(
        "0.01..0.9", "Band of pass rates to keep, LOW..HIGH, ends included; the default drops only unsolved problems."
    )
    drop_suspect: bool = opt(False, "Drop problems whose majority answer contradicts the ground truth.")
    majority: float = opt(0.5, "Share of the samples that must agree on another answer for --drop-suspect.")
    anywhere: bool = opt(False, "Ignore the format: count correct answers without <think> and a box.")
    adaptive: bool = opt(False, "Stop sampling a problem once the decision is certain.")
    max_tokens: int = options.max_tokens()
    temperature: float = options.temperature()
    top_p: float = options.top_p()
    system: Path | None = options.system()
    seed: int = options.seed()
    engine: options.Engine = options.engine()
    dtype: options.DType = options.dtype()
    slots: int = options.slots()
    deterministic: bool = options.deterministic()
    device: str = options.device()
    deadline: float = options.deadline()
    workers: int = options.workers()
    verify_deadline: float = options.verify_deadline()
    sandbox: options.Sandbox = options.sandbox()


RUNTIME = ("workers", "deadline")
"""Options that do not change the rows."""


def whole(config: Config) -> str:
    """Nothing: each problem is judged by itself."""
    return ""


def reads(config: Config) -> tuple[str, ...]:
    """The columns that must be there."""
    return ("id", "prompt", "answer|tests")


def check(config: Config) -> None:
    """Refuse options that contradict themselves."""
    from magcli.curate.math.difficulty import band

    checks.engine("filter-math", config)
    checks.ask("filter-math", config)
    checks.grader("filter-math", config)
    band(config.keep)
    usage(0 < config.majority <= 1, f"filter-math.majority: {config.majority} is not in (0, 1]")


def settings(config: Config) -> dict[str, Any]:
    """What else decides the rows: the digests of the model and of the system prompt."""
    return setup.model_identity(config.model, config.system) | setup.grader_identity(config)


def schema(config: Config, given: pa.Schema) -> pa.Schema:
    """The problem's columns and what the pass learned."""
    from magcli.data.columns import extended
    from magcli.data.schema import DIFFICULTY

    return extended(given, DIFFICULTY)


def run(config: Config, rows: Rows, job: Job) -> Rows:
    """Sample, grade and judge each problem; tells at the end what adaptive sampling saved."""
    import pyarrow as pa

    from magcli.curate.sampling import Spent, graded_in_waves
    from magcli.run.job import left_out
    from magcli.run.journal import Result
    from magcli.run.units import resumable
    from magcli.verify.reward import RewardRule

    generator, asking, spent, reasons = setup.open_engine(config, job), setup.ask(config), Spent(), Counter[str]()
    grader, rule = setup.open_grader(config), RewardRule(use_language=False)
    assert job.schema is not None
    columns = schema(config, job.schema)

    async def compute(part: pa.RecordBatch) -> Result:
        row = part.to_pylist()[0]
        grader.check(row)
        jury = Jury(config, grader, row)
        try:
            samples, rewards = await graded_in_waves(generator, grader, row, asking, rule, jury.wanted)
        except PromptRefused as error:
            return left_out(row, error.reason, columns, error=str(error))
        spent.add(samples, config.samples)
        reasons.update(reward.reason for reward in rewards)
        summary, judgement = await jury.judge(rewards)
        learned = {**row, **(summary._asdict() if summary else {})}
        if judgement != "kept":
            return left_out(learned, judgement, columns)
        return Result(pa.RecordBatch.from_pylist([learned], schema(config, part.schema)))

    async def close() -> None:
        await generator.close()
        await grader.close()

    yield from resumable(rows, job, compute, close, size=1, window=_window(config), unit="problems")
    if config.adaptive:
        _report(spent, job)
    if not config.anywhere and 2 * reasons["no-think"] > reasons.total():
        job.console.say(
            f"filter-math: {reasons['no-think']:,} of {reasons.total():,} samples do not begin with <think>, and count "
            "as wrong; --anywhere counts right answers in any form",
            event="no-think",
        )


def _wave(config: Config) -> int:
    """Samples of a problem that are made at once, at least: a quarter of them, so that a problem waits three times at
    most, and two, as the embedded engine computes the prompt of each wave anew."""
    return max(2, -(-config.samples // 4)) if config.adaptive else config.samples


def _window(config: Config) -> int:
    """Problems under way at once: enough to keep every slot busy while others are graded."""
    return max(2, 2 * config.slots // _wave(config) + 2)


def _report(spent: Spent, job: Job) -> None:
    """One line on what was not sampled, problems that an earlier run had finished apart."""
    asked, tokens = spent.samples + spent.samples_saved, spent.tokens + spent.tokens_saved
    told = {"samples": spent.samples, "tokens": spent.tokens, "samples_saved": spent.samples_saved}
    job.facts["sampling"] = told = {**told, "tokens_saved": round(spent.tokens_saved)}
    job.console.say(
        f"filter-math: {spent.problems:,} problems decided by {spent.samples:,} of {asked:,} samples; about "
        f"{round(spent.tokens_saved):,} of {round(tokens):,} tokens saved ({spent.tokens_saved / max(tokens, 1):.0%})",
        event="saved",
        problems=spent.problems,
        **told,
    )


class Jury:
    """Judges one problem by its samples; those whose grading failed say nothing.

    Answers are compared by the verifier, in its killable workers. Programs have no majority: many different ones are
    right.
    """

    def __init__(self, config: Config, grader: Grader, row: dict[str, Any]) -> None:
        from magcli.curate.math.difficulty import Rules, band

        self.samples, self.wave, self.row, self.grader = config.samples, _wave(config), row, grader
        self.anywhere = config.anywhere
        self.code = row.get("kind") == "code"
        self.rules = Rules(*band(config.keep), config.drop_suspect and not self.code, config.majority)

    def is_gold(self, answer: str) -> bool:
        """Equality with the ground truth."""
        return self.grader.equal(answer, self.row["answer"])

    def heard(self, rewards: Sequence[Reward]) -> tuple[list[str], list[bool]]:
        """The answers of the samples that were graded, and which are right."""
        judged = [reward for reward in rewards if reward.trainable]
        right = [reward.correct_anywhere if self.anywhere else reward.correct for reward in judged]
        return ["" if self.code else reward.extracted for reward in judged], right

    async def wanted(self, rewards: Sequence[Reward]) -> int:
        """How many samples to make next: none where those still to come cannot change what ``judge`` says, else a wave
        or as many as must be made before that can be so."""
        import asyncio

        from magcli.curate.math.difficulty import count, needed

        if rewards and rewards[0].reason == "bad-gold" and not self.code:
            return 0
        heard, left = self.heard(rewards), self.samples - len(rewards)
        found = await asyncio.to_thread(count, *heard, self.rules, same=self.grader.equal, is_gold=self.is_gold)
        least = needed(found, left, self.rules)
        return least and max(least, self.wave)

    async def judge(self, rewards: Sequence[Reward]) -> tuple[Summary | None, str]:
        """What the samples say and whether the problem stays, or why not."""
        import asyncio

        from magcli.curate.math.difficulty import judge, summarise

        answers, correct = self.heard(rewards)
        if not answers:
            return None, rewards[0].reason
        summary = await asyncio.to_thread(summarise, answers, correct, self.grader.equal)
        agrees = not summary.majority or await asyncio.to_thread(self.is_gold, summary.majority)
        return summary, judge(summary, self.rules, gold_matches_majority=agrees)
