"""LoRA with ``peft``: train low-rank adapters of frozen layers; write both merged weights and adapters.

The adapters are injected into the model itself, so training and checkpoints work as for any model.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from magcli.data.durable import atomic_folder
from magcli.errors import EnvironmentFault

if TYPE_CHECKING:
    from peft import PeftModel
    from transformers import PreTrainedModel

ADAPTER = "default"
"""peft's name of the one adapter."""


def require_peft() -> None:
    """Raise EnvironmentFault where peft is not installed."""
    if find_spec("peft") is None:
        raise EnvironmentFault("LoRA needs the package peft: pip install 'magcli[lora]'")


def add_lora(model: PreTrainedModel, *, rank: int, alpha: float, seed: int) -> PeftModel:
    """Freeze a model and add LoRA adapters to all its linear layers except the LM head, in place.

    The product of a layer's two matrices is scaled by alpha / rank and is 0 at the start; ``seed`` determines the
    random initialization. Returns peft's view of the model.
    """
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(r=rank, lora_alpha=alpha, target_modules="all-linear", task_type="CAUSAL_LM")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        adapters: PeftModel = get_peft_model(model, config)
        return adapters


@contextmanager
def merged(model: PreTrainedModel) -> Iterator[None]:
    """Inside the block the model has its own layout with merged weights; afterwards it is unchanged, bit for bit."""
    found = dict(_lora_layers(model))
    plain = {name: _merged(layer) for name, layer in found.items()}
    try:
        for name, layer in plain.items():
            model.set_submodule(name, layer)
        yield
    finally:
        for name, layer in found.items():
            model.set_submodule(name, layer)


def save_adapter(adapters: PeftModel, folder: Path) -> None:
    """Write the adapter for ``PeftModel.from_pretrained``; the folder appears complete or not at all."""
    with atomic_folder(folder) as temp:
        adapters.save_pretrained(str(temp))


def try_saving(adapters: PeftModel, beside: Path) -> None:
    """Write the adapter, which is small, to a temporary folder beside a path and remove it."""
    with tempfile.TemporaryDirectory(prefix=".adapter.", suffix=".trial.tmp", dir=beside.parent) as trial:
        adapters.save_pretrained(trial)


def _lora_layers(model: nn.Module) -> Iterator[tuple[str, Any]]:
    from peft.tuners.lora import LoraLayer

    return ((name, module) for name, module in model.named_modules() if isinstance(module, LoraLayer))


@torch.no_grad()
def _merged(layer: Any) -> nn.Linear:
    """A linear layer with the frozen weights plus the adapter's."""
    base = layer.get_base_layer()
    weight = base.weight + layer.get_delta_weight(ADAPTER)
    with torch.device("meta"):
        plain = nn.Linear(base.in_features, base.out_features, bias=base.bias is not None)
    plain.weight, plain.bias = nn.Parameter(weight, requires_grad=False), base.bias
    return plain
