"""The files of a LoRA adapter as peft has them, which vLLM reads too; peft itself is not needed."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors.torch import save_file
from torch import nn

from magcli.errors import DataError
from magcli.model.weights.plain import read_json

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

ADAPTER = "adapter_model.safetensors"
ADAPTER_CONFIG = "adapter_config.json"
PREFIX = "base_model.model."
MATRICES = {"lora_a": "lora_A.weight", "lora_b": "lora_B.weight"}
"""The names of an adapter's matrices in ``magcli.train.lora`` and in the files of peft."""


def adapted_linears(model: "PreTrainedModel") -> "list[tuple[str, nn.Linear]]":
    """The layers that get an adapter, by name: the linear layers of attention and feed-forward networks."""
    inside = {id(module) for module in model.get_decoder().layers.modules()}
    # Not subclasses, which may compute something else.
    return [(name, m) for name, m in model.named_modules() if type(m) is nn.Linear and id(m) in inside]


def stored_name(layer: str, matrix: str) -> str:
    """The name in the file of a matrix (``lora_a``, ``lora_b``) of the layer with this name in the model."""
    return f"{PREFIX}{layer}.{MATRICES[matrix]}"


def layer_of(name: str) -> str:
    """The layer that a matrix with this name in the file belongs to."""
    layer = name.removeprefix(PREFIX)
    for matrix in MATRICES.values():
        layer = layer.removesuffix(f".{matrix}")
    return layer


def adapter_advice(folder: Path) -> str:
    """What to give instead of a folder that has an adapter and no model; empty if it is not one."""
    config = read_json(folder / ADAPTER_CONFIG)
    if config is None or (folder / "config.json").is_file():
        return ""
    base = config.get("base_model_name_or_path") or "a model that it does not name"
    # A run of ours has the merged model beside its adapter.
    merged = folder.parent / "model"
    if (merged / "config.json").is_file():
        return f"is a LoRA adapter of {base}, not a model: give {merged}, which has it merged in"
    load = f"AutoPeftModelForCausalLM.from_pretrained({str(folder)!r})"
    command = f"from peft import AutoPeftModelForCausalLM; {load}.merge_and_unload().save_pretrained('merged')"
    return (
        f'is a LoRA adapter of {base}, not a model: merge them, by python -c "{command}", copy the tokenizer files of '
        f"{base} into merged, and give merged"
    )


def copy_adapter(source: Path, target: Path, base: str) -> None:
    """Copy the files of an adapter to a new folder, as one of the model ``base``.

    Raises:
        DataError: the adapter has no readable configuration.
    """
    config = read_json(source / ADAPTER_CONFIG)
    if config is None:
        raise DataError(f"{source / ADAPTER_CONFIG} is missing or damaged; copy the run's folder again")
    target.mkdir()
    shutil.copyfile(source / ADAPTER, target / ADAPTER)
    # The base may have moved, or be named differently where the copy goes.
    text = json.dumps({**config, "base_model_name_or_path": base}, indent=2)
    (target / ADAPTER_CONFIG).write_text(text + "\n", encoding="utf-8")


def write_files(tensors: "Mapping[str, Tensor]", folder: Path, *, alpha: float, base: str = "") -> None:
    """Write an adapter into a folder.

    Args:
        tensors: its matrices by their names in the file, at least one, all of one rank.
        folder: where to; it exists.
        alpha: the scale of the adapter is alpha / rank.
        base: name of the model that it belongs to.

    Raises:
        OSError, SafetensorError: the files cannot be written.
    """
    save_file(dict(tensors), folder / ADAPTER, {"format": "pt"})
    # A is ``[rank, inputs]``.
    ranks = [len(tensor) for name, tensor in tensors.items() if name.endswith(MATRICES["lora_a"])]
    config = {
        "base_model_name_or_path": base,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "lora_alpha": alpha,
        "lora_dropout": 0.0,
        "peft_type": "LORA",
        "r": ranks[0],
        # peft finds layers by the last part of their names.
        "target_modules": sorted({layer_of(name).rpartition(".")[2] for name in tensors}),
        "task_type": "CAUSAL_LM",
    }
    (folder / ADAPTER_CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
