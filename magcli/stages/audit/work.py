"""The work of `magcli audit`, once its options are checked."""

from __future__ import annotations

import asyncio
import hashlib
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from magcli.data.schema import REWARD, extend_schema, with_columns
from magcli.data.values import to_rows
from magcli.run.each_row import nothing_to_close
from magcli.run.types import Result
from magcli.run.units import resumable
from magcli.stages.audit import Config, reads, summary
from magcli.stages.audit.dump import Dump, dump_of
from magcli.stages.audit.findings import Rollout, find_all
from magcli.stages.audit.measures import Answer, Ratios, answer_of, ends_within, languages_of, ratios_of, repetition
from magcli.stages.shared import forms, graders, tables
from magcli.stages.shared.verdicts import graded, unit_size, with_thoughts
from magcli.verify.reward import RewardRule, ungraded
from magcli.verify.reward_columns import columns
from magcli.verify.types import UNCOUNTED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from magcli.data.source import Rows
    from magcli.run.job import Job
    from magcli.verify import Grader

ALIASES = tables.ALIASES | tables.COMPLETION_ALIASES
layouts = tables.problem_layouts(reads, more=tables.ROLLOUT_ROLES)

NO_ANSWER = "no-reference"
"""The reason of a rollout whose row has neither an answer nor tests."""

MEASURED = pa.schema(
    [
        pa.field("trainer_reward", pa.float64()),
        pa.field("trainer_right", pa.bool_()),
        pa.field("answer_found", pa.string()),
        pa.field("answer_boxed", pa.bool_()),
        pa.field("ends_within", pa.bool_()),
        pa.field("prompt_language", pa.string()),
        pa.field("completion_language", pa.string()),
        pa.field("drifts", pa.bool_()),
        pa.field("repetition", pa.float32()),
        pa.field("ratio_highest", pa.float32()),
        pa.field("ratio_mean", pa.float32()),
    ]
)
"""What one rollout tells by itself, see ``magcli.stages.audit.measures``."""
FOUND = pa.schema(
    [
        pa.field("group", pa.int32()),
        pa.field("copies", pa.int32()),
        *(pa.field(f"audit_{name}", pa.bool_()) for name in summary.NAMES),
    ]
)
"""What rollouts tell together: the number of the group, other rollouts with the same text, and the findings."""


def schema(config: Config, input_schema: pa.Schema) -> pa.Schema:
    """The given columns, those of our verdict, and the findings."""
    columns = input_schema
    for added in (REWARD, MEASURED, FOUND):
        columns = extend_schema(columns, added)
    return columns


def settings(config: Config) -> dict[str, Any]:
    """The resolved isolation level."""
    return graders.sandbox_identity(config.sandbox)


def run(config: Config, rows: Rows, job: Job) -> Rows:
    """Measure and grade each rollout, then compare them, and write the page."""
    assert job.inputs is not None
    dump = dump_of(job.schema, job.inputs, config.rewards)
    if dump.said:
        job.console.say(f"audit: {dump.said}", event="dump")
    form, rows = forms.form_of_rows(config.thoughts, rows, job)
    rule = RewardRule(use_language=False, thoughts=form)
    with graders.open_grader(config) as grader:
        # Held in memory: groups may lie anywhere in the dump.
        batches = list(_measured(dump, rows, job, grader, rule))
        rollouts = list(chain.from_iterable(_rollouts(dump, batch) for batch in batches))
        # Within the block: equal answers are told by the grader's workers.
        basis = find_all(rollouts, grader.equal, config.right_from)
    result = summary.of(rollouts, basis)
    start = 0
    for batch in batches:
        of_batch = rollouts[start : start + batch.num_rows]
        yield _with_findings(batch, of_batch, result.group_numbers)
        start += batch.num_rows
    result.say(job.console)
    if config.page:
        dumps = [source.name for source in job.sources]
        summary.write_page(config.page, result, dumps, batches, job.console)


def _measured(dump: Dump, rows: Rows, job: Job, grader: Grader, rule: RewardRule) -> Rows:
    """The rows with our verdicts and what each tells by itself."""
    measure = partial(_measure, dump, grader, rule)

    async def compute(part: pa.RecordBatch) -> Result:
        return Result(with_columns(*await measure(part)))

    size = unit_size(dump.schema)
    yield from resumable(rows, job, compute, nothing_to_close, size=size, window=4, unit="rollouts")


async def _measure(
    dump: Dump, grader: Grader, rule: RewardRule, part: pa.RecordBatch
) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Some rows, and the columns to add to them."""
    rows = to_rows(part)
    rewards = await asyncio.gather(*(_graded(dump, grader, rule, row) for row in rows))
    # Languages and n-grams take a while, in which the loop must serve the grader.
    measured = await asyncio.to_thread(lambda: [_measures(dump, rule, row) for row in rows])
    verdicts = columns(rewards)
    values = pa.RecordBatch.from_pylist(measured, schema=MEASURED)
    return part, with_columns(verdicts, values)


async def _graded(dump: Dump, grader: Grader, rule: RewardRule, row: dict[str, Any]) -> Any:
    """Our verdict on a rollout, or that it has no reference answer."""
    problem = dump.problem(row)
    if not dump.has_truth(problem):
        return ungraded("bad-gold", NO_ANSWER)
    return await graded(grader, rule, "", problem)


def _measures(dump: Dump, rule: RewardRule, row: dict[str, Any]) -> dict[str, Any]:
    """What a rollout tells by itself, as columns."""
    text = with_thoughts(row, rule.thoughts)
    answer = answer_of(text, is_code=row.get("kind") == "code")
    languages = languages_of(str(row.get("prompt") or ""), text)
    ratios = ratios_of(*dump.logprobs(row))
    return {
        "trainer_reward": dump.reward(row),
        "trainer_right": dump.verdict(row),
        "answer_found": answer.text if answer else None,
        "answer_boxed": answer.is_boxed if answer else None,
        "ends_within": ends_within(text, rule.thoughts),
        "prompt_language": languages.prompt,
        "completion_language": languages.completion,
        "drifts": languages.drifts,
        "repetition": repetition(text),
        "ratio_highest": ratios.highest if ratios else None,
        "ratio_mean": ratios.mean if ratios else None,
    }


def _rollouts(dump: Dump, batch: pa.RecordBatch) -> list[Rollout]:
    """The rollouts of some measured rows."""
    return [_rollout(dump, row) for row in to_rows(batch.select(dump.compared(batch.schema)))]


def _rollout(dump: Dump, row: dict[str, Any]) -> Rollout:
    counts = row["reason"] not in UNCOUNTED
    answer = row["answer_found"]
    highest = row["ratio_highest"]
    text = str(row["completion"]).encode("utf-8", "surrogatepass")
    return Rollout(
        group=dump.group(row),
        # 16 bytes are enough to tell all texts apart, and many texts would not fit into memory.
        text=hashlib.blake2b(text, digest_size=16).digest(),
        reward=row["trainer_reward"],
        said_right=row["trainer_right"],
        is_right=bool(row["correct_anywhere"]) if counts else None,
        ends_within=row["ends_within"],
        answer=Answer(answer, bool(row["answer_boxed"])) if answer is not None else None,
        finish=dump.finish(row),
        num_tokens=dump.num_tokens(row),
        ratios=Ratios(highest, row["ratio_mean"]) if highest is not None else None,
        drifts=row["drifts"],
        repetition=row["repetition"],
    )


def _with_findings(
    batch: pa.RecordBatch, rollouts: Sequence[Rollout], numbers: dict[tuple[Any, ...], int]
) -> pa.RecordBatch:
    rows = []
    for rollout in rollouts:
        row: dict[str, Any] = {"group": numbers[rollout.group], "copies": rollout.copies}
        for name in summary.NAMES:
            row[f"audit_{name}"] = rollout.findings.get(name)
        rows.append(row)
    # In place of what was measured: the limit of rewards is known only now.
    right = pa.array([rollout.said_right for rollout in rollouts], pa.bool_())
    position = batch.schema.get_field_index("trainer_right")
    judged = batch.set_column(position, batch.schema.field(position), right)
    return with_columns(judged, pa.RecordBatch.from_pylist(rows, schema=FOUND))
