"""Whether the embedded engine samples with the trainer's own frozen weights, so that a GPU has them once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magcli.stages.rl.config import Config
from magcli.stages.shared import training

if TYPE_CHECKING:
    from magcli.model.model import Model


def shares_base(config: Config, model: Model, *, on_gpu: bool) -> bool:
    """Whether the embedded engine of a run takes the weights under LoRA adapters from the trainer of its process.

    On a CPU it does not: there it keeps weights in a layout of their own, which is faster. Models for which magcli has
    no decoder of its own are loaded a second time.
    """
    if not (config.lora and on_gpu) or config.generators or config.schedule == "sync" or model.decoder is None:
        return False
    samples_in_bf16 = config.dtype != "fp32"
    base_in_bf16 = training.has_bf16_base(config, model, bf16=config.bf16 != "no")
    return samples_in_bf16 == base_in_bf16
