"""In which number formats a model is trained and sampled, with which attention, and what its backward pass keeps."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from magcli.choices import AUTO, AskedAttention, AskedFormat, Attention, Format, Switch
from magcli.model import compute
from magcli.model.compute import Purpose
from magcli.model.model import Model

SPELLINGS: Mapping[str, tuple[Purpose, Mapping[Format, str]]] = {
    "bf16": ("training", {"bf16": "yes", "fp32": "no"}),
    "dtype": ("sampling", {"bf16": "bf16", "fp32": "fp32"}),
}
"""Options of training runs that are number formats: their purpose, and their spelling of bf16 and float32."""


@dataclass(frozen=True, slots=True)
class Formats:
    """Whether matrix products of training are in bf16, and the dtype of the weights that sample."""

    bf16: bool
    dtype: Format


@dataclass(frozen=True, slots=True)
class TrainerPlan:
    """How each trainer rank computes.

    ``bf16``: matrix products in bf16 by autocast, master weights in float32. ``lora_rank`` 0 trains all weights;
    ``bf16_base``: the frozen weights under adapters are in bf16. ``recomputes``: the backward pass computes activations
    again. ``offloads_moments``: AdamW's moments are in host memory. ``micro_tokens``: tokens of a micro-batch, at most.
    """

    ranks: int = 1
    bf16: bool = False
    attention: Attention = "sdpa"
    recomputes: bool = False
    micro_tokens: int = 16384
    lora_rank: int = 0
    lora_alpha: float = 32.0
    bf16_base: bool = False
    offloads_moments: bool = False
    weight_decay: float = 0.0

    def text(self) -> str:
        """What a rank does, after the words "the run"."""
        trains = f"trains in {'bf16' if self.bf16 else 'fp32'}"
        if self.lora_rank:
            trains += f" adapters of rank {self.lora_rank}"
        if self.ranks > 1:
            trains += f" on {self.ranks} ranks"
        if self.recomputes:
            trains += ", recomputing activations"
        return f"{trains}, in micro-batches of up to {self.micro_tokens:,} tokens"


def spelled(option: str, model: Model, device: str) -> tuple[str, str]:
    """The value that ``auto`` stands for in an option for a model on a device, and the reason."""
    purpose, values = SPELLINGS[option]
    choice = compute.choose(model, device, purpose)
    return values[choice.format], choice.reason


def float32_for_auto(asked: Mapping[str, str]) -> dict[str, str]:
    """The options of a run that is exact, which is in float32 unless an option says something else."""
    decided = dict(asked)
    for option, value in asked.items():
        if value == AUTO:
            _, spellings = SPELLINGS[option]
            decided[option] = spellings["fp32"]
    return decided


def contradicts(asked: str, used: str) -> bool:
    """Whether an option asks for another value than the one that a run has."""
    return asked not in (AUTO, used)


def formats_of(values: Mapping[str, str]) -> Formats:
    """The formats that options name, none of which is ``auto``; without ``dtype`` nothing is sampled."""
    samples_in_bf16 = values.get("dtype") == "bf16"
    return Formats(bf16=values["bf16"] == "yes", dtype="bf16" if samples_in_bf16 else "fp32")


def expected(
    bf16: Switch,
    dtype: AskedFormat,
    model: Model,
    device: str,
    *,
    on_gpu: bool,
    exact: bool = False,
) -> Formats:
    """The formats of a run that is only planned: a GPU that need not be there is taken for one that has bf16.

    ``exact``: it samples in float32.
    """
    trains_in_bf16 = bf16 == "yes"
    if bf16 == AUTO:
        # The GPU may be another machine's, which cannot be asked.
        trains_in_bf16 = on_gpu or compute.choose(model, device, "training").format == "bf16"
    samples_in_bf16 = dtype == "bf16"
    if dtype == AUTO and not exact:
        samples_in_bf16 = on_gpu or compute.choose(model, device, "sampling").format == "bf16"
    return Formats(trains_in_bf16, "bf16" if samples_in_bf16 else "fp32")


def torch_dtype(name: AskedFormat, model: Model, device: str) -> torch.dtype:
    """The torch dtype of a sampling engine's weights for the value of ``--dtype``."""
    if name == AUTO:
        return compute.DTYPES[compute.choose(model, device, "sampling").format]
    return compute.DTYPES[name]


def attention(asked: AskedAttention, *, bf16: bool) -> Attention:
    """The attention to use; FlashAttention computes in bf16, so without it ``auto`` leaves it out."""
    if asked == AUTO:
        return "fastest" if bf16 else "sdpa"
    return asked


def recomputes(asked: Switch, *, on_gpu: bool) -> bool:
    """Whether layer activations are recomputed in the backward pass instead of kept, before memory is planned."""
    return on_gpu if asked == AUTO else asked == "yes"


def frozen_in_bf16(model: Model, *, bf16: bool) -> bool:
    """Whether weights that are not trained are in bf16: if they are stored and multiplied so.

    That is a third of the memory of float32 weights and their copies in bf16. Trained weights are float32.
    """
    return bf16 and bool(model.config.dtype == torch.bfloat16)
