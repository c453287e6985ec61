"""Samples of one problem, and their rewards: what the stages that ask a model share."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from magcli.data.images import images_of
from magcli.data.schema import COMPLETION
from magcli.errors import UsageError
from magcli.generate.types import Completion, Generator, Sampling, VisionModel, sample_seed
from magcli.model.chat import to_messages

if TYPE_CHECKING:
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


async def samples_of(
    generator: Generator, row: Mapping[str, Any], ask: Ask, numbers: Sequence[int] | None = None
) -> list[Sample]:
    """Sample a problem: all its samples, or those of the given ``numbers``, whose seeds are the same either way.

    Raises:
        PromptRefused: the prompt does not fit into the model's context, or a server will not answer it.
        UsageError: the row has images, which the model cannot see.
        DataError: an image cannot be had.
    """
    indices = range(ask.samples) if numbers is None else numbers
    seeds = [sample_seed(ask.seed, row["id"], index) for index in indices]
    messages, images = to_messages(row["prompt"], ask.system), images_of(row)
    if not images:
        completions = await generator.complete(messages, ask.sampling, seeds=seeds)
    elif isinstance(generator, VisionModel):
        completions = await generator.complete_with_images(messages, images, ask.sampling, seeds=seeds)
    else:
        raise UsageError(f"row {row['id']} has images, which need a vision-language model and --engine torch")
    return [Sample(*each) for each in zip(indices, seeds, completions, strict=True)]


@dataclass
class Spent:
    """What sampling in waves has cost, and what all samples of the same problems would have."""

    problems: int = 0
    samples: int = 0
    tokens: int = 0
    samples_saved: int = 0
    tokens_saved: float = 0.0
    """An estimate: samples that were not made are taken to be as long as the mean of those of the same problem."""

    def add(self, samples: Sequence[Sample], asked: int) -> None:
        """Count a problem that was sampled, of which ``asked`` samples were wanted at most."""
        tokens, left = sum(sample.completion.num_tokens for sample in samples), asked - len(samples)
        self.problems += 1
        self.samples += len(samples)
        self.tokens += tokens
        self.samples_saved += left
        self.tokens_saved += left * tokens / len(samples)


Wanted = Callable[[Sequence["Reward"]], Awaitable[int]]
"""How many more samples are made at once, by the rewards of those so far; 0 where they are enough."""


async def graded_in_waves(
    generator: Generator,
    grader: "Grader",
    row: Mapping[str, Any],
    ask: Ask,
    rule: "RewardRule",
    wanted: Wanted,
) -> "tuple[list[Sample], list[Reward]]":
    """Sample and grade a problem in waves, until there are all samples or no more are ``wanted``.

    Raises:
        PromptRefused: the prompt does not fit into the model's context, or a server will not answer it.
    """
    samples: list[Sample] = []
    rewards: list[Reward] = []
    while len(samples) < ask.samples and (wave := await wanted(rewards)):
        numbers = range(len(samples), min(len(samples) + wave, ask.samples))
        more = await samples_of(generator, row, ask, numbers)
        samples += more
        rewards += await rewards_of(grader, row, more, rule)
    return samples, rewards


async def rewards_of(
    grader: "Grader", row: Mapping[str, Any], samples: Sequence[Sample], rule: "RewardRule"
) -> "list[Reward]":
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
