"""Which local engine is opened, and how: in this process or in another one that is sent this."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from magcli.choices import AskedEngine, AskedFormat, TransferName
from magcli.model.model import Model
from magcli.plan.machine import gpu_number

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Spec:
    """A local engine, as ``open_policy`` opens it in this process, or in a generator process that is sent this.

    Args:
        model: the model, its template and end tokens included, which a generator process opens itself.
        engine: ``auto`` is decided by ``magcli.plan.engines.policy_engine``.
        dtype: dtype of the weights; ``auto`` is decided by ``magcli.model.compute``.
        slots: concurrent sequences.
        deterministic: the bits of a sample do not depend on other samples; only the embedded engine in float32.
        device: torch device of the engine, such as cuda:1.
        deadline: seconds that vLLM may take for a phase of its start, or to answer.
        exact_head: compute vLLM's output head in float32, as in training and always in the embedded engine; slower, and
            not needed for text.
        threads: torch's threads in a generator process; 0 is torch's choice.
        transfer: with broadcast, vLLM gets new weights only through ``VllmPolicy.transfer``.
        source: the device from which a broadcast of weights comes.
        gpu_memory: the share of a GPU's memory that an engine takes for its weights and its cache; vLLM's scratch space
            is in it too.
        sleeps: vLLM on the trainer's GPU gives its memory back during updates (``magcli.generate.vllm.sleep``).
        lora_rank: with a rank, vLLM gets LoRA adapters of it (``magcli.generate.vllm.adapter``) instead of new weights,
            and samples only once it has the first.
        lora_alpha: their scale is alpha / rank.
        tensor_parallel: vLLM's ranks, over which the model is split (``magcli.generate.parallel``).
        cards: the numbers of their GPUs; without any, ``device`` and those after it.
        eager: vLLM on a GPU starts without compilation and CUDA graphs; on a CPU it always does.
    """

    model: Model
    engine: AskedEngine = "auto"
    dtype: AskedFormat = "auto"
    slots: int = 64
    deterministic: bool = False
    device: str = "cpu"
    deadline: float = 600.0
    exact_head: bool = True
    threads: int = 0
    transfer: TransferName = "file"
    source: str = "cpu"
    gpu_memory: float = 0.9
    sleeps: bool = False
    lora_rank: int = 0
    lora_alpha: float = 1.0
    tensor_parallel: int = 1
    cards: tuple[int, ...] = ()
    eager: bool = False

    @property
    def torch_dtype(self) -> "torch.dtype":
        """The dtype of the engine's weights."""
        from magcli.plan.formats import torch_dtype

        return torch_dtype("fp32" if self.deterministic else self.dtype, self.model, self.device)

    @property
    def gpu_numbers(self) -> list[int]:
        """The GPUs of vLLM's ranks, among those that this process sees."""
        first = gpu_number(self.device)
        return list(self.cards) or list(range(first, first + self.tensor_parallel))

    def placed(self, devices: Sequence[str], number: int) -> "Spec":
        """The same engine as the one with this number (from 0) among several, to which the devices are dealt in turn.

        On CPUs all ranks of an engine are on one device.
        """
        ranks = self.tensor_parallel if devices[0].startswith("cuda") else 1
        first = number * ranks
        own = [devices[index % len(devices)] for index in range(first, first + ranks)]
        cards = tuple(gpu_number(device) for device in own) if ranks > 1 else ()
        return replace(self, device=own[0], cards=cards)
