"""Keep problems with short statements: a stage of your own. See CONTRIBUTING.md for how to make it a command."""

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from magcli.config import opt
from magcli.data.source import Rows
from magcli.run.each_row import Decision, Drop, each_row
from magcli.run.job import Job

INPUTS = "Problems: column prompt; - is stdin."
EXAMPLE = "magcli short examples/problems.jsonl --words 2 -o short.jsonl --dropped long.jsonl"
RESUMES = True


@dataclass(frozen=True)
class Config:
    """Options of `magcli short`."""

    words: int = opt(20, "Maximum number of words of a statement.", gt=0)


def reads(config: Config) -> tuple[str, ...]:
    """The required columns."""
    return ("id", "prompt")


def schema(config: Config, input_schema: pa.Schema) -> pa.Schema:
    """The columns of the input."""
    return input_schema


def learned(config: Config) -> pa.Schema:
    """The number of words, in the table of dropped rows."""
    return pa.schema([pa.field("words", pa.int64())])


def run(config: Config, rows: Rows, job: Job) -> Rows:
    """Count the words of each statement."""

    async def decide(row: dict[str, Any]) -> Decision:
        words = len(row["prompt"].split())
        if words > config.words:
            return Drop("too-long", words=words)
        return row

    return each_row(job, rows, decide)
