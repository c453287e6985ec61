"""Sample completions of problems from any model: a folder, a hub id, or a server.

The output has one row per sample, with the columns of its problem. The same command resumes an interrupted run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from magcli.errors import PromptRefused
from magcli.stages.shared import cluster, engines, options, tables, templates
from magcli.stages.shared import preview as previews

if TYPE_CHECKING:
    import pyarrow as pa

    from magcli.data.source import Rows
    from magcli.run.job import Job

INPUTS = "Problems: columns prompt, optional id; - is stdin."
RESUMES = True
ALIASES = tables.ALIASES
EXAMPLE = (
    "magcli generate examples/problems.jsonl --model examples/model --system none "
    "--samples 4 --max-tokens 48 -o completions.arrow"
)


@dataclass(frozen=True)
class Config(options.SamplingOptions, options.EngineOptions, cluster.ClusterOptions):
    """Options of `magcli generate`."""


def reads(config: Config) -> tuple[str, ...]:
    """The required columns."""
    return ("id", "prompt")


layouts = tables.problem_layouts(reads)


def check(config: Config) -> None:
    """Refuse options that are out of range or contradict each other."""
    options.check_engine("generate", config)


def settings(config: Config) -> dict[str, Any]:
    """Digests of the model and of the system prompt."""
    return engines.model_identity(templates.open_model(config.model, config), config.system)


def schema(config: Config, input_schema: pa.Schema) -> pa.Schema:
    """The problem's columns and those of a completion."""
    from magcli.data.schema import COMPLETION, extend_schema

    return extend_schema(input_schema, COMPLETION)


def preview(config: Config, rows: Rows, job: Job) -> int:
    """The number of usable problems, for --dry-run."""
    return previews.sampled_problems(config.model, config, config.system, rows, job)


def run(config: Config, rows: Rows, job: Job) -> Rows:
    """Sample each problem; a prompt that does not fit into the context, or that a server refuses, is dropped."""
    from magcli.curate.sampling import completion_columns, sample_problem
    from magcli.data.schema import repeat_rows, with_columns
    from magcli.data.values import to_rows
    from magcli.run.each_row import Drop, result_of
    from magcli.run.types import Result
    from magcli.run.units import resumable

    generator = engines.open_engine(config, job)
    plan = engines.sampling_plan(config, generator.thoughts)
    assert job.schema is not None
    columns = schema(config, job.schema)

    async def compute(part: pa.RecordBatch) -> Result:
        (row,) = to_rows(part)
        try:
            samples = await sample_problem(generator, row, plan)
        except PromptRefused as error:
            return result_of([row], [Drop(error.reason, error=str(error))], columns)
        return Result(with_columns(repeat_rows(part, config.samples), completion_columns(samples)))

    return resumable(
        rows,
        job,
        compute,
        generator.close,
        size=1,
        window=2 * config.num_slots,
        unit="problems",
        completions=lambda: generator.num_finished,
    )
