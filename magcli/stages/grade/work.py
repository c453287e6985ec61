"""The work of `magcli grade`, once its options are checked."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

from magcli.console import counted
from magcli.data.schema import CUSTOM_REWARD, REWARD, extend_schema, with_columns
from magcli.data.values import to_rows
from magcli.errors import first_line
from magcli.model.chat.thoughts import form_named
from magcli.run.shutdown import say_on_signal
from magcli.run.types import Result
from magcli.run.units import resumable
from magcli.stages.grade import TOKEN, Config, address, reads, serve
from magcli.stages.shared import environments, forms, graders, tables
from magcli.stages.shared.verdicts import accuracy_interval, graded, unit_size, with_thoughts
from magcli.verify.reward_columns import columns
from magcli.verify.types import UNCOUNTED

if TYPE_CHECKING:
    import pyarrow as pa

    from magcli.data.source import Rows
    from magcli.environments.environment import Environment
    from magcli.model.chat.thoughts import ThoughtForm
    from magcli.run.job import Job
    from magcli.verify import Grader
    from magcli.verify.reward import Reward

ALIASES = tables.ALIASES | tables.COMPLETION_ALIASES
layouts = tables.problem_layouts(reads)


def trial(config: Config) -> Callable[[Mapping[str, Any]], None] | None:
    """Tries a custom reward function or an environment on the first row."""
    # A stage has one of the two: ``check`` refuses both.
    return graders.reward_trial(config) or environments.environment_trial(config, config.environment)


def settings(config: Config) -> dict[str, Any]:
    """The resolved isolation level, and the digest of a user's own reward or environment."""
    return graders.grader_identity(config, config.reward, config.environment)


def schema(config: Config, input_schema: pa.Schema) -> pa.Schema:
    """The given columns and those of a reward."""
    return extend_schema(input_schema, CUSTOM_REWARD if _is_custom(config) else REWARD)


def _is_custom(config: Config) -> bool:
    """Whether the reward is a user's own, or that of an environment."""
    return bool(config.reward or config.environment)


def run(config: Config, rows: Rows, job: Job) -> Rows:
    """Grade in worker processes and sandboxes, in the order of the rows; or serve rewards."""
    if config.serve:
        _serve(config, job)
        return
    form, rows = forms.form_of_rows(config.thoughts, rows, job)
    grader = graders.open_grader(config, config.reward, config.environment)
    verdict = partial(graded, grader, graders.reward_rule(config, form), config.opening)
    with ExitStack() as stack:
        if config.environment:
            environment = stack.enter_context(environments.open_environment(config, config.environment))
            verdict = partial(judged, environment, form, config.opening)
        yield from _graded_rows(config, rows, job, grader, verdict)


def _serve(config: Config, job: Job) -> None:
    """Answer requests for rewards until a signal ends the process."""
    # Requests come one by one, without a table to look at.
    form = forms.form_of_option(config.thoughts)
    token = os.environ.get(TOKEN, "").strip()
    host, port = address(config.serve)
    with graders.open_grader(config, config.reward) as grader:
        rule = graders.reward_rule(config, form)
        verdicts = serve.Verdicts(grader, rule, config.opening)
        server = serve.Server(host, port, verdicts.answer, token)
        # A server has nothing to resume.
        say_on_signal("rewards are no longer served")
        job.console.say(f"grade: serving rewards at {server.url}; Ctrl-C ends it", event="serving", url=server.url)
        serve.serve(server)


def _graded_rows(
    config: Config,
    rows: Rows,
    job: Job,
    grader: Grader,
    verdict: Callable[[Mapping[str, Any]], Awaitable[Reward]],
) -> Rows:
    """The rows with their verdicts."""
    size = unit_size(job.schema)

    async def compute(part: pa.RecordBatch) -> Result:
        verdicts = await asyncio.gather(*map(verdict, to_rows(part)))
        return Result(with_columns(part, columns(verdicts, custom=_is_custom(config))))

    # Units of work that wait keep all workers busy.
    window = 4 * config.workers
    yield from resumable(rows, job, compute, grader.close, size=size, window=window, unit="completions")


def report(config: Config, rows: Rows, job: Job) -> Rows:
    """Report accuracy and reasons at the end of the graded rows."""
    counts: VerdictCounts | None = None
    for batch in rows:
        # Made here because the form is chosen when the first rows are read.
        counts = counts or VerdictCounts(_chosen_form(job), custom=_is_custom(config))
        counts.add(batch)
        # Not only at the end, which may be hours away.
        counts.warn(job)
        yield batch
    counts = counts or VerdictCounts(_chosen_form(job), custom=_is_custom(config))
    counts.report(job)


def choose(config: Config, rows: Rows, job: Job) -> None:
    """The form of thoughts, which depends on the first rows of the whole table."""
    forms.form_of_rows(config.thoughts, rows, job)


def _chosen_form(job: Job) -> ThoughtForm:
    """The form of thoughts that was found for the rows."""
    return form_named(job.chosen[forms.THOUGHTS])


async def judged(environment: Environment, form: ThoughtForm, opening: str, row: Mapping[str, Any]) -> Reward:
    """The reward that an environment gives the conversation of a row: its messages, or its prompt and completion."""
    messages = row.get("messages")
    if not messages:
        answer = {"role": "assistant", "content": opening + with_thoughts(row, form)}
        messages = [{"role": "user", "content": str(row.get("prompt") or "")}, answer]
    return await environment.reward(row, messages)


class VerdictCounts:
    """Counts verdicts: by reason, and by problem the correct ones and those that count.

    ``custom``: the reward is a user's own, of any scale.
    """

    def __init__(self, form: ThoughtForm, *, custom: bool = False) -> None:
        self.form = form
        self.custom = custom
        self.rewards: list[float] = []
        """Those that count, of a custom reward."""
        self.reasons: Counter[str] = Counter()
        self.correct: Counter[str] = Counter()
        self.counted: Counter[str] = Counter()
        self.without_thoughts: Counter[str] = Counter()
        self.first_error: str | None = None
        """The first failure of a reward function, and its row; empty once it has been said."""

    def add(self, batch: pa.RecordBatch) -> None:
        """Count a batch of graded rows."""
        names = ("id", "reason", "correct", "reward", "detail", "completion", "correct_anywhere")
        for row in batch.select(names).to_pylist():
            id, reason = row["id"], row["reason"]
            self.reasons[reason] += 1
            if reason not in UNCOUNTED:
                self.counted[id] += 1
                self.correct[id] += row["correct"]
                # A custom reward has any scale, which accuracy does not show.
                if self.custom:
                    self.rewards.append(row["reward"])
            if reason == "no-think":
                # Then the prompt may have ended with the opening.
                self.without_thoughts["ends thoughts"] += self.form.ending in row["completion"]
                self.without_thoughts["correct anywhere"] += bool(row["correct_anywhere"])
            if reason == "reward-error" and self.first_error is None:
                self.first_error = f"row {id}: {first_line(ValueError(row['detail']))}"

    def warn(self, job: Job) -> None:
        """Say at once that the reward function failed; the reasons at the end tell how often it did."""
        if self.first_error:
            job.console.warn(f"grade: the reward failed on {self.first_error}; such rows are not counted")
            self.first_error = ""

    def report(self, job: Job) -> None:
        """One line: accuracy of what could be graded, with its interval, and the reasons."""
        parts = []
        facts = {}
        total = self.counted.total()
        if total:
            accuracy, low, high = accuracy_interval(self.correct, self.counted)
            facts = {"accuracy": accuracy, "low": low, "high": high, "gradable": total}
            if self.rewards:
                parts.append(_mean_text(self.rewards))
            interval = f"[{100 * low:.1f}, {100 * high:.1f}]"
            parts.append(f"{100 * accuracy:.1f}% {interval} correct of {total:,} gradable")
        parts.append(counted(self.reasons) or "no rows")
        job.console.result(f"grade: {'; '.join(parts)}", event="verdicts", reasons=dict(self.reasons), **facts)
        self._hint(job)

    def _hint(self, job: Job) -> None:
        """Advice where most completions do not begin with thoughts."""
        opening = self.form.opening
        ending = self.form.ending
        lacking = self.reasons["no-think"]
        closed = self.without_thoughts["ends thoughts"]
        # A few are mistakes of the model, most are one of the command.
        if 2 * lacking <= self.reasons.total():
            return
        if closed:
            tip = f"{closed:,} of them have only {ending}: if the prompts end with {opening}, add --opening '{opening}'"
        else:
            correct = self.without_thoughts["correct anywhere"]
            tip = f"{correct:,} of them have the correct answer (column correct_anywhere), which does not count"
        job.console.say(f"grade: {lacking:,} completions do not begin with {opening}; {tip}")


def _mean_text(rewards: Sequence[float]) -> str:
    """Mean and range of custom rewards, which accuracy does not show."""
    mean = sum(rewards) / len(rewards)
    return f"mean reward {mean:.4g} ({min(rewards):.4g} to {max(rewards):.4g})"
