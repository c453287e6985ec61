"""The work of `magcli generate`, once its options are checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from magcli.curate.sampling import completion_columns, sample_problem
from magcli.data.schema import COMPLETION, EPISODE_COMPLETION, extend_schema, repeat_rows, with_columns
from magcli.data.values import to_rows
from magcli.errors import PromptRefused
from magcli.run.each_row import Drop, result_of
from magcli.run.types import Result
from magcli.run.units import resumable
from magcli.stages.generate import ENVIRONMENT, Config, reads
from magcli.stages.shared import engines, environments, graders, tables, templates
from magcli.stages.shared import preview as previews

if TYPE_CHECKING:
    import pyarrow as pa

    from magcli.data.source import Rows
    from magcli.environments.text import TextEpisodes
    from magcli.run.job import Job

ALIASES = tables.ALIASES
layouts = tables.problem_layouts(reads)


def trial(config: Config) -> Callable[[Mapping[str, Any]], None] | None:
    """Tries an environment on the first problem."""
    return environments.environment_trial(ENVIRONMENT, config.environment)


def settings(config: Config) -> dict[str, Any]:
    """Digests of the model, of the system prompt and of the environment."""
    identity = engines.model_identity(templates.open_model(config), config.system)
    return identity | graders.environment_identity(config.environment)


def schema(config: Config, input_schema: pa.Schema) -> pa.Schema:
    """The problem's columns and those of a completion, with an environment also the conversation."""
    return extend_schema(input_schema, EPISODE_COMPLETION if config.environment else COMPLETION)


def preview(config: Config, rows: Rows, job: Job) -> int:
    """The number of usable problems, for --dry-run."""
    return len(previews.sampled_problems(config, rows, job))


def run(config: Config, rows: Rows, job: Job) -> Rows:
    """Sample each problem; a prompt that does not fit into the context, or that a server refuses, is dropped."""
    with environments.opened_episodes(ENVIRONMENT, config) as episodes:
        yield from _sampled(config, rows, job, episodes)


def _sampled(config: Config, rows: Rows, job: Job, episodes: TextEpisodes | None) -> Rows:
    generator = engines.open_engine(config, job)
    plan = engines.sampling_plan(config, generator.thoughts, episodes)

    async def compute(part: pa.RecordBatch) -> Result:
        (row,) = to_rows(part)
        try:
            samples = await sample_problem(generator, row, plan)
        except PromptRefused as error:
            return result_of([row], [Drop(error.reason, error=str(error))], job.output_schema)
        for sample in samples:
            if sample.reward and not sample.reward.trainable:  # the first failure speaks for the problem
                return result_of([row], [Drop("environment-error", error=sample.reward.detail)], job.output_schema)
        # A row for each sample, in their order.
        repeated = repeat_rows(part, config.samples)
        return Result(with_columns(repeated, completion_columns(samples)))

    yield from resumable(
        rows,
        job,
        compute,
        generator.close,
        size=1,
        # Enough problems to keep all slots busy, even with one sample each.
        window=2 * config.num_slots,
        unit="problems",
        completions=lambda: generator.num_finished,
    )
