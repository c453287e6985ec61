"""LoRA adapters for a vLLM engine instead of new weights: a few MB per update, and the base model stays as it is.

vLLM binds a request to the id of its adapter. All requests have one id, and each update replaces the adapter of that id
in place (``load_inplace``), so running sequences continue with the newest adapter, as they do with new weights. Its
slot in vLLM's buffers stays the same, which captured CUDA graphs need. The engine's end is in
``magcli.generate.vllm.worker``.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from magcli.errors import MagError
from magcli.generate.spec import Spec
from magcli.generate.types import Digests, Weights
from magcli.generate.vllm.transfer import FILE_TRANSFER, Pause, Send
from magcli.generate.weights.digest import WeightsFault, merged
from magcli.generate.weights.matching import shared_adapter
from magcli.model.weights.peft import adapted_linears

NAME, ID = "magcli", 1
"""vLLM's name and id of the adapter."""

RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""The values that vLLM's ``max_lora_rank`` may have."""


def accepts(rank: int, *, on_gpu: bool, bf16: bool) -> bool:
    """Whether vLLM can apply adapters of a rank: its kernels for GPUs have no float32."""
    return 0 < rank <= RANKS[-1] and (bf16 or not on_gpu)


def engine_settings(spec: Spec) -> dict[str, Any]:
    """The arguments of an engine with adapters; none without.

    Only layers that have adapters are prepared for them: with an LM head that is, vLLM 0.32 cannot give log-probs of
    prompts.
    """
    if not spec.lora_rank:
        return {}
    # vLLM allocates buffers for one of its sizes, which may be larger than the rank.
    largest = next(rank for rank in RANKS if rank >= spec.lora_rank)
    layers = sorted({name.rpartition(".")[2] for name, _ in adapted_linears(spec.model.outline)})
    return {"enable_lora": True, "max_lora_rank": largest, "max_loras": 1, "lora_target_modules": layers}


def adapter_request(folder: Path, *, replaces: bool = False) -> Any:
    """vLLM's ``LoRARequest`` for the adapter in a folder, which is read only if it ``replaces`` the one before."""
    from vllm.lora.request import LoRARequest

    return LoRARequest(NAME, ID, str(folder), load_inplace=replaces)


class AdapterSender:
    """A folder in shared memory, in peft's format. ``backend`` is not used: the engine's own weights never change."""

    backend = FILE_TRANSFER

    def __init__(self, alpha: float) -> None:
        self._alpha = alpha
        self._request: Any = None

    @property
    def lora_request(self) -> Any:
        """The ``LoRARequest`` that a sequence is sampled with.

        Raises:
            MagError: the engine has no adapter yet.
        """
        if self._request is None:
            raise MagError("an engine with adapters samples only once it has one: load it first")
        return self._request

    @contextmanager
    def ready(self, weights: Weights, outline: PreTrainedModel) -> Iterator[Send]:
        """Write the folder, which exists for the duration of the block.

        Raises:
            WeightsFault: the weights are no adapter.
            EnvironmentFault: shared memory is full.
        """
        # A sender of whole weights would otherwise be told only of a missing name.
        if not weights or not all(".lora_" in name for name in weights):
            raise WeightsFault("an engine with LoRA adapters got other weights")
        with shared_adapter(weights, self._alpha) as folder:

            async def send(engine: Any, pause: Pause) -> Digests:
                await pause()
                arrived = await engine.collective_rpc("load_adapter", args=(str(folder),))
                self._request = adapter_request(folder)
                return merged(arrived)

            yield send
