"""A vision-language model as a ``Generator``: transformers' processor and ``generate``, one sample at a time.

It supports every model of transformers at the expense of speed. A sample's tokens depend only on its messages, images,
sampling parameters and seed.
"""

import asyncio
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from io import BytesIO
from typing import Any

import torch
from PIL import Image
from transformers import GenerationConfig, PreTrainedModel, ProcessorMixin, StoppingCriteriaList

from magcli.errors import DataError, MagError
from magcli.generate.types import Completion, Message, Sampling, tokens_left
from magcli.model.chat.ends import end_tokens
from magcli.model.chat.prompts import completion_text, rendered, template_variables, thought_form, use_template
from magcli.model.context import context_length
from magcli.model.model import Model

PLACEHOLDER = re.compile(r"<image (\d+)>")
"""The place of an image in a prompt, counted from 1."""


class VisionGenerator:
    """The ``model`` and processor of ``source``, which the generator owns."""

    def __init__(self, source: Model, model: PreTrainedModel, processor: ProcessorMixin) -> None:
        self._model, self._processor = model, processor
        use_template(processor.tokenizer, source.template)
        processor.chat_template = source.template.source or processor.chat_template
        self.thoughts = thought_form(processor.tokenizer)
        self._ends = end_tokens(model, processor.tokenizer, source.stop)
        self._context = context_length(model.config.get_text_config())
        self._padding = processor.tokenizer.pad_token_id
        # Otherwise generate() would use the model's own sampling defaults, such as top-k.
        model.generation_config = GenerationConfig(eos_token_id=sorted(self._ends), pad_token_id=self._padding)
        self._lock = asyncio.Lock()
        self._closed = threading.Event()
        self.num_finished = 0

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, *, seeds: Sequence[int]
    ) -> list[Completion]:
        """Sample one completion per seed for the same messages, in the order of the seeds."""
        return await self.complete_with_images(messages, [], sampling, seeds=seeds)

    async def complete_with_images(
        self, messages: Sequence[Message], images: Sequence[bytes], sampling: Sampling, *, seeds: Sequence[int]
    ) -> list[Completion]:
        """The same with images, which belong to the last message.

        Raises:
            DataError: an image cannot be decoded, or the processor rejects the messages.
            PromptTooLong: prompt and images do not fit the context.
        """
        # One at a time: samples share the process's random generators.
        async with self._lock:
            inputs = self._inputs(messages, [_decoded(data) for data in images])
            limit = tokens_left(inputs["input_ids"][0].tolist(), sampling, self._context)
            return [await self._in_thread(inputs, sampling, limit, seed) for seed in seeds]

    async def _in_thread(self, inputs: Mapping[str, Any], sampling: Sampling, limit: int, seed: int) -> Completion:
        """Sample in a thread, so as not to block the event loop, on which the verifiers' deadlines run."""
        try:
            completion = await asyncio.to_thread(self._sample, inputs, sampling, limit, seed)
        except asyncio.CancelledError:
            # A thread cannot be cancelled; ``generate`` asks ``_stops`` after each token.
            self._closed.set()
            raise
        self.num_finished += 1
        return completion

    def _inputs(self, messages: Sequence[Message], images: Sequence[Image.Image]) -> Mapping[str, Any]:
        tokenizer = self._processor.tokenizer
        turns = [{"role": turn["role"], "content": [_text(turn["content"])]} for turn in messages]
        turns[-1]["content"] = list(_parts(messages[-1]["content"], images))
        variables = template_variables(tokenizer)
        apply = partial(self._processor.apply_chat_template, turns, add_generation_prompt=True, **variables)
        try:
            # The template alone first, so that its own errors are told from those of the processor.
            rendered(tokenizer.name_or_path, partial(apply, tokenize=False))
            inputs = apply(tokenize=True, return_dict=True, return_tensors="pt")
        except (ValueError, TypeError, KeyError, IndexError) as error:
            raise DataError(f"the model's processor rejects a prompt with images: {error}") from error
        on_device = dict(inputs.to(self._model.device))
        for name, tensor in on_device.items():
            if torch.is_floating_point(tensor):  # pixels, in the model's type; token ids stay as they are
                on_device[name] = tensor.to(self._model.dtype)
        return on_device

    @torch.inference_mode()
    def _sample(self, inputs: Mapping[str, Any], sampling: Sampling, limit: int, seed: int) -> Completion:
        if self._closed.is_set():
            raise MagError("the engine has been closed")
        start = inputs["input_ids"].shape[1]
        # ``fork_rng`` restores the generator of the CPU by itself, that of a GPU if it is named.
        cuda = [self._model.device] if self._model.device.type == "cuda" else []
        with torch.random.fork_rng(devices=cuda):
            torch.manual_seed(seed)
            sequences = self._model.generate(
                **inputs,
                generation_config=_settings(sampling, limit),
                stopping_criteria=StoppingCriteriaList([self._stops]),
            )
        prompt = sequences[0, :start].tolist()
        tokens = sequences[0, start:].tolist()
        text = completion_text(self._processor.tokenizer, prompt, tokens, self._ends, self.thoughts)
        return Completion(text, len(tokens), "stop" if tokens[-1] in self._ends else "length")

    def _stops(self, tokens: torch.Tensor, _scores: Any, **_more: Any) -> torch.Tensor:
        return torch.full((len(tokens),), self._closed.is_set(), device=tokens.device)

    async def close(self) -> None:
        """Stop a running sample at its next token."""
        self._closed.set()


def _settings(sampling: Sampling, limit: int) -> GenerationConfig:
    if sampling.temperature == 0:
        return GenerationConfig(max_new_tokens=limit, do_sample=False)
    return GenerationConfig(
        max_new_tokens=limit,
        do_sample=True,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
    )


def _decoded(data: bytes) -> Image.Image:
    try:
        with Image.open(BytesIO(data)) as image:
            return image.convert("RGB")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise DataError(f"an image of {len(data):,} bytes cannot be decoded: {error}") from None


def _parts(text: str, images: Sequence[Image.Image]) -> Iterator[dict[str, Any]]:
    """A turn as images and text: images at their placeholders, those without one before the text."""
    pieces = PLACEHOLDER.split(text)  # texts and, at odd positions, the numbers of placeholders
    placed = {int(number) for number in pieces[1::2]}
    for number, image in enumerate(images, 1):
        if number not in placed:
            yield {"type": "image", "image": image}
    for index, piece in enumerate(pieces):
        is_number = index % 2 == 1
        if is_number and 0 < int(piece) <= len(images):
            yield {"type": "image", "image": images[int(piece) - 1]}
        elif is_number:
            yield _text(f"<image {piece}>")  # of no image: it stays text
        elif piece:
            yield _text(piece)


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}
