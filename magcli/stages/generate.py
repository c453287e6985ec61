"""Sample completions of problems from any model: a folder, a hub id, or a server.

One row per sample, with the problem's own columns. If it is interrupted at any point, the same command resumes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from magcli.errors import PromptRefused
from magcli.run import options
from magcli.stages.parts import checks, setup

if TYPE_CHECKING:
    import pyarrow as pa

    from magcli.data.source import Rows
    from magcli.run.job import Job

INPUTS = "Problems: columns prompt, optional id; - is stdin."
OUTPUT = "the rows"
DEFAULT_OUTPUT = "-"
RESUMES = True
ALIASES = setup.ALIASES
EXAMPLE = (
    "magcli generate examples/problems.jsonl --model examples/model --samples 4 --max-tokens 48 -o completions.arrow"
)


@dataclass(frozen=True)
class Config:
    """Options of `magcli generate`."""

    model: str = options.model()
    samples: int = options.samples(1)
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


RUNTIME = ("deadline",)
"""Options that do not change the rows."""


def whole(config: Config) -> str:
    """Nothing: each problem is sampled by itself."""
    return ""


def reads(config: Config) -> tuple[str, ...]:
    """The columns that must be there."""
    return ("id", "prompt")


def check(config: Config) -> None:
    """Refuse options that contradict themselves."""
    checks.engine("generate", config)
    checks.ask("generate", config)


def settings(config: Config) -> dict[str, Any]:
    """What else decides the rows: the digests of the model and of the system prompt."""
    return setup.model_identity(config.model, config.system)


def schema(config: Config, given: pa.Schema) -> pa.Schema:
    """The problem's columns and those of a completion."""
    from magcli.data.columns import extended
    from magcli.data.schema import COMPLETION

    return extended(given, COMPLETION)


def run(config: Config, rows: Rows, job: Job) -> Rows:
    """Sample each problem; a prompt that does not fit into the context, or that a server refuses, is dropped."""

    from magcli.curate.sampling import completion_columns, samples_of
    from magcli.data.columns import attach, repeated
    from magcli.run.job import left_out
    from magcli.run.journal import Result
    from magcli.run.units import resumable

    generator = setup.open_engine(config, job)
    asking = setup.ask(config)
    assert job.schema is not None
    columns = schema(config, job.schema)

    async def compute(part: pa.RecordBatch) -> Result:
        row = part.to_pylist()[0]
        try:
            samples = await samples_of(generator, row, asking)
        except PromptRefused as error:
            return left_out(row, error.reason, columns, error=str(error))
        return Result(attach(repeated(part, config.samples), completion_columns(samples)))

    return resumable(rows, job, compute, generator.close, size=1, window=2 * config.slots, unit="problems")
