"""The work of `magcli filter-math`, once its options are checked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from magcli.curate.math.difficulty import Rules, band, count_samples, judge, needed, summarise
from magcli.curate.sampling import SamplingCost, sample_in_waves
from magcli.data.schema import DIFFICULTY, extend_schema
from magcli.data.values import all_rows
from magcli.errors import PromptRefused
from magcli.model.chat.thoughts import form_named
from magcli.rl.last_rewards import Rewards, digest_of
from magcli.run.each_row import Counted, Drop, each_row
from magcli.stages.filter_math import Config, reads
from magcli.stages.shared import engines, environments, forms, graders, options, tables, templates
from magcli.stages.shared import preview as previews
from magcli.verify.reward import RewardRule

if TYPE_CHECKING:
    import pyarrow as pa

    from magcli.curate.math.difficulty import Summary
    from magcli.data.source import Rows
    from magcli.environments.text import TextEpisodes
    from magcli.run.each_row import Decision
    from magcli.run.job import Job
    from magcli.verify.grader import Grader
    from magcli.verify.reward import Reward

ALIASES = tables.ALIASES
layouts = tables.problem_layouts(reads)


def trial(config: Config) -> Callable[[Mapping[str, Any]], None] | None:
    """Tries an environment on the first problem."""
    return environments.environment_trial(config, config.environment)


def settings(config: Config) -> dict[str, Any]:
    """Digests of the model and of the system prompt, or of the run's record of its groups."""
    if config.from_ is not None:
        return {"from_sha256": digest_of(config.from_)} | graders.grader_identity(config)
    identity = engines.model_identity(templates.open_model(config), config.system)
    return identity | graders.grader_identity(config, environment=config.environment)


def schema(config: Config, input_schema: pa.Schema) -> pa.Schema:
    """The problem's columns and the results of the pass."""
    return extend_schema(input_schema, DIFFICULTY)


def preview(config: Config, rows: Rows, job: Job) -> int:
    """The number of usable problems, for --dry-run."""
    if config.from_ is not None:
        with graders.open_grader(config) as grader:
            return sum(1 for _ in engines.gradable(all_rows(rows), grader, job))
    return previews.graded_problems(config, rows, job)


def learned(_config: Config) -> pa.Schema:
    """The difficulty of dropped problems, by which they may be added later."""
    return DIFFICULTY


def run(config: Config, rows: Rows, job: Job) -> Rows:
    """Sample, grade and judge each problem, or judge it by the rollouts of a run."""
    yield from _judged_by_run(config, rows, job) if config.from_ is not None else _sampled(config, rows, job)


def _judged_by_run(config: Config, rows: Rows, job: Job) -> Rows:
    """The problems by the rewards that a run's policy got for them."""
    assert config.from_ is not None
    rewards_of_run = Rewards(config.from_, config.samples)
    grader = graders.open_grader(config)

    async def decide(row: dict[str, Any]) -> Decision:
        rewards = rewards_of_run.of(row)
        if not rewards:
            return Counted(row, {"unsampled": 1})
        return _decision(row, *await DifficultyJudge(config, grader, row).judge(rewards))

    yield from each_row(job, rows, decide, close=grader.close, window=8, unit="problems")


def _decision(row: dict[str, Any], summary: Summary | None, judgement: str) -> dict[str, Any] | Drop:
    """The problem with its difficulty, or why it is dropped."""
    # None if no sample could be graded.
    difficulty = summary._asdict() if summary else {}
    if judgement == "kept":
        return {**row, **difficulty}
    return Drop(judgement, **difficulty)


def _sampled(config: Config, rows: Rows, job: Job) -> Rows:
    """The problems by samples of a model."""
    with environments.opened_episodes(config, config) as episodes:
        yield from _sampled_in(config, rows, job, episodes)


def _sampled_in(config: Config, rows: Rows, job: Job, episodes: TextEpisodes | None) -> Rows:
    generator = engines.open_engine(config, job)
    plan = engines.sampling_plan(config, generator.thoughts, episodes)
    grader = graders.open_grader(config, environment=config.environment)
    rule = RewardRule(use_language=False, thoughts=generator.thoughts)

    async def decide(row: dict[str, Any]) -> Decision:
        grader.check(row)
        judge = DifficultyJudge(config, grader, row)
        try:
            samples, rewards = await sample_in_waves(generator, grader, row, plan, rule, judge.samples_wanted)
        except PromptRefused as error:
            return Drop(error.reason, error=str(error))
        # What the other samples would have cost is estimated from these.
        spent = SamplingCost()
        spent.add(samples, config.samples)
        no_think = sum(reward.reason == "no-think" for reward in rewards)
        tally = {"graded": len(rewards), "no-think": no_think, **spent.counts()}
        return Counted(_decision(row, *await judge.judge(rewards)), tally)

    async def close() -> None:
        await generator.close()
        await grader.close()

    yield from each_row(
        job,
        rows,
        decide,
        close=close,
        window=_window(config),
        unit="problems",
        completions=lambda: generator.num_finished,
    )


def report(config: Config, rows: Rows, job: Job) -> Rows:
    """Report at the end of the kept problems what adaptive sampling saved, and whether thoughts are missing."""
    yield from rows
    if config.adaptive:
        _report_saved(job)
    unsampled = job.tally["unsampled"]
    if unsampled:
        job.console.say(
            f"filter-math: {unsampled:,} problems are as they were: {config.from_} did not sample them, or had another "
            "statement or answer under their id",
            event="unsampled",
            problems=unsampled,
        )
    graded, no_think = job.tally["graded"], job.tally["no-think"]
    # With --anywhere the format does not count.
    if not config.anywhere and 2 * no_think > graded:
        opening = form_named(job.chosen[forms.THOUGHTS]).opening
        job.console.say(
            f"filter-math: {no_think:,} of {graded:,} samples do not begin with {opening}, and count as wrong; "
            "--anywhere counts correct answers in any form",
            event="no-think",
        )


def _wave(config: Config) -> int:
    """Minimum samples of a wave: a quarter, so that a problem waits at most three times, and at least two, as the
    embedded engine recomputes the prompt for each wave."""
    return max(2, -(-config.samples // 4)) if config.adaptive else config.samples


def _window(config: Config) -> int:
    """Concurrent problems: enough to keep every slot busy while others are graded."""
    return max(2, 2 * config.num_slots // _wave(config) + 2)


def _report_saved(job: Job) -> None:
    """One line on the samples saved."""
    counts = {name: job.tally[name] for name in ("samples", "tokens", "samples_saved", "tokens_saved")}
    job.facts["sampling"] = counts
    problems = job.tally["problems"]
    asked = counts["samples"] + counts["samples_saved"]
    tokens = counts["tokens"] + counts["tokens_saved"]
    job.console.result(
        f"filter-math: {problems:,} problems decided by {counts['samples']:,} of {asked:,} samples; about "
        f"{counts['tokens_saved']:,} of {tokens:,} tokens saved ({counts['tokens_saved'] / max(tokens, 1):.0%})",
        event="saved",
        problems=problems,
        **counts,
    )


class DifficultyJudge:
    """Judges one problem by its samples, except those whose grading failed (recipe, section 4).

    Answers are compared by the verifier, in its killable workers. Programs have no majority, as many different ones are
    correct.
    """

    def __init__(self, config: Config, grader: Grader, row: dict[str, Any]) -> None:
        self.samples = config.samples
        self.wave = _wave(config)
        self.row = row
        self.grader = grader
        self.anywhere = config.anywhere
        # Nor do environments say what an answer is, so there is no majority either.
        self.code = row.get("kind") == "code" or options.environment_judges(config.environment)
        self.rules = Rules(*band(config.keep), config.drop_suspect and not self.code)

    def is_gold(self, answer: str) -> bool:
        """Equality with the ground truth."""
        return self.grader.equal(answer, self.row["answer"])

    def graded_answers(self, rewards: Sequence[Reward]) -> tuple[list[str], list[bool]]:
        """The answers of the graded samples, and which are correct."""
        answers, correct = [], []
        for reward in rewards:
            # Else its grading failed, which says nothing about the problem.
            if reward.trainable:
                answers.append("" if self.code else reward.extracted)
                correct.append(reward.correct_anywhere if self.anywhere else reward.correct)
        return answers, correct

    async def samples_wanted(self, rewards: Sequence[Reward]) -> int:
        """The number of samples to make next: 0 if the remaining ones cannot change the judgement, else a wave, or as
        many as are needed before the judgement can be certain."""
        # Every sample would have the same reason.
        if rewards and rewards[0].reason == "bad-gold" and not self.code:
            return 0
        answers, correct = self.graded_answers(rewards)
        # The verifier blocks, so it is called in a thread.
        counts = await asyncio.to_thread(
            count_samples, answers, correct, self.rules, same=self.grader.equal, is_gold=self.is_gold
        )
        fewest = needed(counts, self.samples - len(rewards), self.rules)
        # Not less than a wave, so that a problem seldom waits for its next one.
        return max(fewest, self.wave) if fewest else 0

    async def judge(self, rewards: Sequence[Reward]) -> tuple[Summary | None, str]:
        """The summary of the samples, and ``kept`` or the reason to drop the problem."""
        answers, correct = self.graded_answers(rewards)
        # No sample could be graded: the reason of the first speaks for all.
        if not answers:
            return None, rewards[0].reason
        summary = await asyncio.to_thread(summarise, answers, correct, self.grader.equal)
        agrees = True  # without a majority nothing contradicts the ground truth
        if summary.majority:
            agrees = await asyncio.to_thread(self.is_gold, summary.majority)
        return summary, judge(summary, self.rules, gold_matches_majority=agrees)
