"""Sample and grade the completions of a problem; shared by the stages that query a model.

A problem may have images, for vision-language models. The column ``images`` holds one or a list of: the bytes of an
image file; a mapping with ``bytes`` or ``path``, as `datasets` stores images; a ``data:`` URI in base64, for JSON
lines; or a path relative to the working directory. The columns of MMMU (``image_1`` ... ``image_7``) and MathVista
(``decoded_image``) are read too. ``<image 2>`` in a prompt marks the position of the second image; images without a
position come before the text.
"""

import asyncio
import base64
import binascii
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from magcli.data.schema import COMPLETION, EPISODE_COMPLETION, MESSAGES
from magcli.environments.text import TextEpisodes
from magcli.errors import DataError, UsageError
from magcli.generate.types import Completion, Generator, Sampling, VisionModel, sample_seed
from magcli.model.chat.prompts import to_messages

if TYPE_CHECKING:
    from magcli.verify.grader import CompletionGrader
    from magcli.verify.reward import Reward, RewardRule

IMAGES = "images"
NUMBERED_IMAGES = tuple(f"image_{number}" for number in range(1, 8))
DECODED_IMAGE = "decoded_image"


class SamplingPlan(NamedTuple):
    """How problems are sampled: system prompt (None for none), sampling parameters, samples per problem, seed.

    With ``episodes`` an environment answers the turns of the model.
    """

    system: str | None
    sampling: Sampling
    samples: int
    seed: int
    episodes: TextEpisodes | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """One completion of a problem.

    Of an episode it is the last turn; ``messages`` is the conversation, and ``reward`` as in ``TextEpisode``.
    """

    index: int
    seed: int
    completion: Completion
    messages: Sequence[Mapping[str, str]] = ()
    reward: "Reward | None" = None


async def sample_problem(
    generator: Generator, row: Mapping[str, Any], plan: SamplingPlan, indices: Sequence[int] | None = None
) -> list[Sample]:
    """Sample a problem: all its samples, or those with these ``indices``; the seed of a sample depends on its index.

    Raises:
        PromptRefused: the prompt does not fit into the context, or a server refuses it.
        UsageError: the row has images, which the model does not support.
        DataError: an image cannot be loaded.
    """
    indices = range(plan.samples) if indices is None else indices
    # By index, so that a sample is the same in whatever wave it is drawn.
    seeds = [sample_seed(plan.seed, row["id"], index) for index in indices]
    messages, images = to_messages(row["prompt"], plan.system), images_of(row)
    if plan.episodes is not None:
        if images:
            raise UsageError(f"row {row['id']} has images, which no --environment reads")
        episodes = await plan.episodes.complete(generator, row, messages, plan.sampling, seeds)
        played = zip(indices, seeds, episodes, strict=True)
        return [
            Sample(index, seed, episode.completion, episode.messages, episode.reward) for index, seed, episode in played
        ]
    if not images:
        completions = await generator.complete(messages, plan.sampling, seeds=seeds)
    elif isinstance(generator, VisionModel):
        completions = await generator.complete_with_images(messages, images, plan.sampling, seeds=seeds)
    else:
        raise UsageError(f"row {row['id']} has images, which only vision-language models with --engine torch read")
    drawn = zip(indices, seeds, completions, strict=True)
    return [Sample(index, seed, completion) for index, seed, completion in drawn]


@dataclass
class SamplingCost:
    """The cost of sampling in waves, and the savings compared to drawing all samples."""

    problems: int = 0
    samples: int = 0
    tokens: int = 0
    samples_saved: int = 0
    tokens_saved: float = 0.0
    """Estimated from the mean length of the samples of the same problem."""

    def add(self, samples: Sequence[Sample], maximum: int) -> None:
        """Count a problem with at most ``maximum`` samples."""
        tokens = sum(sample.completion.num_tokens for sample in samples)
        saved = maximum - len(samples)
        self.problems += 1
        self.samples += len(samples)
        self.tokens += tokens
        self.samples_saved += saved
        self.tokens_saved += saved * tokens / len(samples)

    def counts(self) -> dict[str, int]:
        """All counts, rounded to integers."""
        return {name: round(count) for name, count in asdict(self).items()}


NextWave = Callable[[Sequence["Reward"]], Awaitable[int]]
"""The number of samples to draw next, given the rewards so far; 0 to stop."""


async def sample_in_waves(
    generator: Generator,
    grader: "CompletionGrader",
    row: Mapping[str, Any],
    plan: SamplingPlan,
    rule: "RewardRule",
    next_wave: NextWave,
) -> "tuple[list[Sample], list[Reward]]":
    """Sample and grade a problem in waves, until all samples are drawn or ``next_wave`` returns 0.

    Raises:
        PromptRefused: the prompt does not fit into the context, or a server refuses it.
    """
    samples: list[Sample] = []
    rewards: list[Reward] = []
    while len(samples) < plan.samples:
        wave = await next_wave(rewards)
        if not wave:
            break
        # The last wave is cut to the samples that the plan allows.
        indices = range(len(samples), min(len(samples) + wave, plan.samples))
        more = await sample_problem(generator, row, plan, indices)
        samples += more
        rewards += await grade_samples(grader, row, more, rule)
    return samples, rewards


async def grade_samples(
    grader: "CompletionGrader", row: Mapping[str, Any], samples: Sequence[Sample], rule: "RewardRule"
) -> "list[Reward]":
    """Grade the samples of a problem."""

    async def graded(sample: Sample) -> "Reward":
        # An environment that judges has given it already.
        if sample.reward is not None:
            return sample.reward
        return await grader.reward(sample.completion.text, sample.completion.num_tokens, row, rule)

    return await asyncio.gather(*map(graded, samples))


def completion_columns(samples: Sequence[Sample]) -> pa.RecordBatch:
    """Samples as the columns of ``magcli.data.schema.COMPLETION``, and ``messages`` of episodes."""
    columns = [
        [sample.index for sample in samples],
        [sample.completion.text for sample in samples],
        [sample.completion.num_tokens for sample in samples],
        [sample.completion.finish for sample in samples],
        [sample.seed for sample in samples],
    ]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, COMPLETION, strict=True)]
    if not any(sample.messages for sample in samples):
        return pa.RecordBatch.from_arrays(arrays, schema=COMPLETION)
    # Only role and content, which is what the column has.
    conversations = []
    for sample in samples:
        turns = [{"role": turn["role"], "content": turn["content"]} for turn in sample.messages]
        conversations.append(turns)
    arrays.append(pa.array(conversations, MESSAGES.type))
    return pa.RecordBatch.from_arrays(arrays, schema=EPISODE_COMPLETION)


def images_of(row: Mapping[str, Any]) -> list[bytes]:
    """The image files of a row in order.

    Raises:
        DataError: an image cannot be read; the message names the row and the image.
    """
    name = f"row {row.get('id')}: image"
    return [_image(value, f"{name} {number}") for number, value in enumerate(_image_values(row), 1)]


def _image_values(row: Mapping[str, Any]) -> list[Any]:
    """The images of a row in any of the forms that a table may have, without nulls."""
    images = row.get(IMAGES)
    if images is None:
        # MMMU has one column an image, most of them null.
        images = [row.get(name) for name in (*NUMBERED_IMAGES, DECODED_IMAGE)]
    elif not isinstance(images, list):
        images = [images]
    return [image for image in images if image is not None]


def _image(value: Any, where: str) -> bytes:
    if isinstance(value, Mapping):
        # `datasets` has either, the other is null.
        value = value.get("bytes") or value.get("path")
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str) or not value:
        raise DataError(f"{where} is {type(value).__name__}; give bytes, a path or a data: URI")
    return _bytes_of_uri(value, where) if value.startswith("data:") else _bytes_of_file(value, where)


def _bytes_of_uri(uri: str, where: str) -> bytes:
    head, _, body = uri.partition(",")
    if not head.endswith(";base64"):
        raise DataError(f"{where} is a data: URI without ;base64")
    try:
        return base64.b64decode(body, validate=True)
    except binascii.Error as error:
        raise DataError(f"{where} is not base64: {error}") from None


def _bytes_of_file(path: str, where: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise DataError(
            f"{where}: cannot read {path}: {error.strerror}; paths are relative to the working directory"
        ) from None
