"""Opens the engine for a model; an engine's packages are imported only when it is opened."""

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from magcli.console import Console
from magcli.errors import EnvironmentFault, UsageError
from magcli.generate.parallel import check_split
from magcli.generate.spec import Spec
from magcli.generate.types import Completion, Generator, Message, Sampling
from magcli.model.shape import shape_of
from magcli.plan import memory
from magcli.plan.engines import may_be_replaced, policy_engine, require_vllm
from magcli.plan.machine import Machine

if TYPE_CHECKING:
    from magcli.generate.torch.policy import TorchPolicy
    from magcli.generate.torch.vision import VisionGenerator
    from magcli.generate.vllm.policy import VllmPolicy

FOR_CHECKS = (
    "the embedded engine is for checks only on a GPU: it launches each operation of each token from Python; sample "
    "with --engine vllm"
)
"""What a command says at the start of the embedded engine on a GPU."""


def open_generator(spec: Spec, console: Console | None = None) -> Generator:
    """Open a text generator: a server for a URL, a local engine for a model.

    Args:
        spec: the engine, in which an exact head is not needed. Of a server, its ``slots`` are the concurrent requests,
            and its ``deadline`` is for one sample.
        console: says what a starting vLLM does, and that the embedded engine takes its place.

    Raises:
        UsageError: the options contradict each other.
        EnvironmentFault: the model, the device or vLLM is missing.
    """
    model = spec.model
    if model.is_url:
        return _open_server(spec)
    # Only RL compares log-probs with the trainer's, for which the head has to be exact.
    spec = replace(spec, exact_head=False)
    _check_deterministic(spec)
    if not model.is_vision:
        return open_policy(spec, console)
    return NestedGenerator(spec, console) if model.is_nested else open_vision(spec)


def _open_server(spec: Spec) -> Generator:
    model = spec.model
    if spec.engine != "auto":
        raise UsageError(f"engine {spec.engine} needs a model folder or hub id, not the URL {model.name}")
    if spec.deterministic:
        raise UsageError(f"{model.name}: a server cannot guarantee deterministic generation; use a model folder")
    from magcli.generate.server import ServerGenerator

    key = os.environ.get("OPENAI_API_KEY", "")
    return ServerGenerator(model, deadline=spec.deadline, concurrency=spec.slots, api_key=key)


def open_policy(spec: Spec, console: Console | None = None) -> "TorchPolicy | VllmPolicy":
    """Open a local engine, for RL or for text; ``console`` and errors as in ``open_generator``.

    If vLLM is the choice of ``auto`` and does not start, the embedded engine takes its place where it fits.
    """
    name = policy_engine(spec.engine, spec.device, deterministic=spec.deterministic)
    _check_deterministic(spec)
    if spec.tensor_parallel > 1 and name == "torch":
        raise UsageError("tensor parallelism needs engine vllm, not torch")
    # Before an engine starts, which takes up to minutes.
    check_split(spec.model, spec.tensor_parallel)
    console = console or Console(quiet=True)
    if name == "torch":
        warn_of_embedded(spec.device, console)
        return _open_torch(spec)
    try:
        return _open_vllm(spec, console)
    except EnvironmentFault as fault:
        if not (may_be_replaced(spec.engine) and embedded_fits(spec)):
            raise
        console.warn(f"{fault}; sampling with --engine torch instead")
        return _open_torch(spec)


def warn_of_embedded(device: str, console: Console) -> None:
    """Say that the embedded engine is not meant for sampling much on a GPU; on a CPU it is, and nothing is said."""
    if device.startswith("cuda"):
        console.warn(FOR_CHECKS)


def embedded_fits(spec: Spec) -> bool:
    """Whether the embedded engine could take vLLM's place: one rank, and a sequence as long as the context has room."""
    if spec.tensor_parallel > 1:
        return False
    on_gpu = spec.device.startswith("cuda")
    in_bf16 = spec.torch_dtype.itemsize == memory.BF16
    # The least that it must hold: one sequence as long as the context.
    plan = memory.EnginePlan(shape_of(spec.model), slots=1, longest=spec.model.context, bf16=in_bf16, on_gpu=on_gpu)
    room = Machine.ask(spec.device).required_card()
    return memory.peak_bytes(memory.engine_lines(plan)) <= room.usable


def _open_torch(spec: Spec) -> "TorchPolicy":
    from magcli.generate.torch.open import open_torch

    return open_torch(spec)


def _open_vllm(spec: Spec, console: Console) -> "VllmPolicy":
    require_vllm()
    from magcli.generate.vllm.open import open_vllm

    return open_vllm(spec, console)


def _check_deterministic(spec: Spec) -> None:
    engine = policy_engine(spec.engine, spec.device, deterministic=spec.deterministic)
    if spec.deterministic and engine == "vllm":
        raise UsageError("deterministic generation needs engine torch, not vllm")
    if spec.deterministic and spec.dtype == "bf16":
        raise UsageError("deterministic generation needs dtype fp32, not bf16")


def open_vision(spec: Spec) -> "VisionGenerator":
    """The whole of a vision-language model, which also accepts prompts without images.

    Raises:
        UsageError: the engine is vLLM or split, which are used for text only.
        EnvironmentFault: the model is missing, or its processor.
    """
    if spec.engine == "vllm":
        raise UsageError(
            f"engine vllm is used for text only; {spec.model.name} is a vision-language model: use --engine torch"
        )
    if spec.tensor_parallel > 1:
        raise UsageError(f"tensor parallelism is for text only; {spec.model.name} is a vision-language model")
    from magcli.generate.torch.vision import VisionGenerator

    loaded, processor = spec.model.load_vision(dtype=spec.torch_dtype, device=spec.device)
    return VisionGenerator(spec.model, loaded, processor)


class NestedGenerator:
    """A vision-language model: its text model in any engine for prompts without images, the whole model for others.

    Each is opened when the first such prompt comes, so a table without images pays for the text model only. Which one
    samples a row depends on that row alone.
    """

    def __init__(self, spec: Spec, console: Console | None = None) -> None:
        self._spec, self._console = spec, console
        self._text: TorchPolicy | VllmPolicy | None = None
        self._vision: VisionGenerator | None = None
        self.thoughts = spec.model.thoughts  # a tokenizer that cannot be used is an error at once

    @property
    def num_finished(self) -> int:
        """Completions finished so far."""
        return sum(opened.num_finished for opened in (self._text, self._vision) if opened is not None)

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, *, seeds: Sequence[int]
    ) -> list[Completion]:
        """Sample one completion per seed with the text model, in the order of the seeds."""
        # The first prompt without images pays for opening it.
        self._text = self._text or open_policy(self._spec, self._console)
        return await self._text.complete(messages, sampling, seeds=seeds)

    async def complete_with_images(
        self, messages: Sequence[Message], images: Sequence[bytes], sampling: Sampling, *, seeds: Sequence[int]
    ) -> list[Completion]:
        """The same with the whole model and images; errors as ``open_vision`` and ``VisionGenerator``."""
        self._vision = self._vision or open_vision(self._spec)
        return await self._vision.complete_with_images(messages, images, sampling, seeds=seeds)

    async def close(self) -> None:
        """Close what has been opened."""
        for opened in (self._text, self._vision):
            if opened is not None:
                await opened.close()
