"""Samples of one problem, and their rewards: what the stages that ask a model share."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from magcli.data.schema import COMPLETION
from magcli.generate.seeds import seed_of
from magcli.generate.types import Completion, Generator, Sampling
from magcli.model.chat import to_messages
from magcli.verify.grader import Grader
from magcli.verify.reward import Reward, RewardRule


class Ask(NamedTuple):
    """How problems are put to a model: the system prompt (None for none), sampling, samples of each, the seed."""

    system: str | None
    sampling: Sampling
    samples: int
    seed: int


@dataclass(frozen=True, slots=True)
class Sample:
    """One completion of a problem."""

    index: int
    seed: int
    completion: Completion


async def samples_of(generator: Generator, row: Mapping[str, Any], ask: Ask) -> list[Sample]:
    """Sample a problem.

    Raises:
        PromptTooLong: the prompt does not fit into the model's context.
    """
    seeds = [seed_of(ask.seed, row["id"], index) for index in range(ask.samples)]
    completions = await generator.complete(to_messages(row["prompt"], ask.system), ask.sampling, seeds=seeds)
    return [Sample(index, seed, done) for index, (seed, done) in enumerate(zip(seeds, completions, strict=True))]


async def rewards_of(
    grader: Grader, row: Mapping[str, Any], samples: Sequence[Sample], rule: RewardRule
) -> list[Reward]:
    """Grade the samples of a problem."""
    verdicts = (grader.reward(sample.completion.text, sample.completion.num_tokens, row, rule) for sample in samples)
    return await asyncio.gather(*verdicts)


def completion_columns(samples: Sequence[Sample]) -> pa.RecordBatch:
    """Samples as the columns of ``magcli.data.schema.COMPLETION``."""
    columns = [
        [sample.index for sample in samples],
        [sample.completion.text for sample in samples],
        [sample.completion.num_tokens for sample in samples],
        [sample.completion.finish for sample in samples],
        [sample.seed for sample in samples],
    ]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, COMPLETION, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=COMPLETION)
