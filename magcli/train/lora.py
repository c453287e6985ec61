"""LoRA: train low-rank adapters of frozen linear layers; write them, and the weights that they are merged into.

Adapters are injected into the model itself, so training works as for any model. A layer keeps the names of its frozen
parameters, ``NAME.weight`` and ``NAME.bias``; its adapter adds ``NAME.lora_a`` and ``NAME.lora_b``. The files of an
adapter are those of peft (``adapter_model.safetensors``, ``adapter_config.json``), which is not needed here.

The frozen weights may be bf16: adapters, residual stream, logits and merged weights are float32 all the same.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.functional import linear

from magcli.data.durable import atomic_folder
from magcli.errors import DataError, EnvironmentFault
from magcli.model.load import one_line
from magcli.model.weights.peft import ADAPTER, MATRICES, adapted_linears, stored_name, write_files

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class LoraLinear(nn.Linear):
    """A frozen linear layer W x + b plus scale * B A x, where A ``[rank, inputs]`` and B ``[outputs, rank]`` train.

    ``weight`` ``[outputs, inputs]`` and ``bias`` are those of the layer that it replaces, in their type; A and B are
    float32. B is 0 at the start. With ``active`` False the layer is the frozen one alone.
    """

    def __init__(self, base: nn.Linear, *, rank: int, alpha: float) -> None:
        inputs, outputs = base.in_features, base.out_features
        with torch.device("meta"):  # no memory for weights that are replaced
            super().__init__(inputs, outputs, bias=base.bias is not None)
        self.weight = base.weight
        self.bias = base.bias
        self.rank = rank
        self.alpha = alpha
        self.active = True
        device = base.weight.device
        self.lora_a = nn.Parameter(torch.empty(rank, inputs, device=device))
        # 0, so that training begins with the model itself.
        self.lora_b = nn.Parameter(torch.zeros(outputs, rank, device=device))

    @property
    def scale(self) -> float:
        """The factor of the product of both matrices."""
        return self.alpha / self.rank

    def initialize(self) -> None:
        """Draw A from torch's generator on the CPU, so that it is the same on every device."""
        # The distribution of ``nn.Linear``, as in peft.
        drawn = torch.empty(self.lora_a.shape)
        nn.init.kaiming_uniform_(drawn, a=math.sqrt(5))
        with torch.no_grad():
            self.lora_a.copy_(drawn)

    def forward(self, inputs: Tensor) -> Tensor:
        """``[..., inputs]`` to ``[..., outputs]``."""
        frozen = linear(inputs, self.weight, self.bias)
        if not self.active:
            return frozen
        return frozen + linear(linear(inputs, self.lora_a), self.lora_b) * self.scale

    @torch.no_grad()
    def merged_weight(self) -> Tensor:
        """W + scale * B A in float32."""
        # A rounded product would change the frozen weights, too.
        with torch.autocast(self.weight.device.type, enabled=False):
            return torch.addmm(self.weight.float(), self.lora_b, self.lora_a, alpha=self.scale)


def add_lora(model: "PreTrainedModel", *, rank: int, alpha: float, seed: int) -> None:
    """Freeze a model and add an adapter to every linear layer of its attention and feed-forward networks, in place.

    Embeddings, norms and LM head stay as they are. ``seed`` determines the initialization.

    Raises:
        EnvironmentFault: the model's layers have no linear layers.
    """
    model.requires_grad_(False)
    chosen = adapted_linears(model)
    if not chosen:
        raise EnvironmentFault(f"{type(model).__name__} has no linear layers that LoRA could adapt; leave --lora out")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for name, base in chosen:
            layer = LoraLinear(base, rank=rank, alpha=alpha)
            layer.initialize()
            model.set_submodule(name, layer)
    keep_stream_in_float32(model)


def keep_stream_in_float32(model: "PreTrainedModel") -> None:
    """Keep frozen bf16 embeddings from making the residual stream bf16; autocast does so for float32 weights."""
    model.get_input_embeddings().register_forward_hook(lambda module, inputs, output: output.float())


def adapted_layers(model: nn.Module) -> dict[str, LoraLinear]:
    """The layers that have an adapter, by name; none without LoRA."""
    return {name: module for name, module in model.named_modules() if isinstance(module, LoraLinear)}


@contextmanager
def adapters_off(model: nn.Module) -> Iterator[None]:
    """Inside the block the model computes what it did before LoRA; without adapters the block does nothing."""
    # A list: the same layers are switched on again, whatever the block does.
    layers = list(adapted_layers(model).values())
    for layer in layers:
        layer.active = False
    try:
        yield
    finally:
        for layer in layers:
            layer.active = True


def frozen_weights(model: nn.Module) -> dict[str, Tensor]:
    """The model's state dict without the adapters: names and shapes are those of the model before LoRA."""
    added = {f"{name}.{matrix}" for name in adapted_layers(model) for matrix in MATRICES}
    return {name: tensor for name, tensor in model.state_dict().items() if name not in added}


def merged_weights(model: nn.Module, *, dtype: torch.dtype | None = None, on_cpu: bool = False) -> dict[str, Tensor]:
    """The state dict of the model with its adapters merged, under the names that it had before LoRA.

    Merged weights are new tensors, float32 or of ``dtype``, which with ``on_cpu`` leave the device one by one. All
    others are the model's own.
    """
    weights = frozen_weights(model)
    for name, layer in adapted_layers(model).items():
        merged = layer.merged_weight()
        # With ``on_cpu`` one by one, so that a GPU never has all of them besides the model.
        weights[f"{name}.weight"] = merged.to("cpu" if on_cpu else merged.device, dtype or merged.dtype)
    return weights


def adapter_weights(model: nn.Module) -> dict[str, Tensor]:
    """The adapters' own matrices, by their names in peft's files."""
    matrices = {}
    for name, layer in adapted_layers(model).items():
        for matrix in MATRICES:
            matrices[stored_name(name, matrix)] = getattr(layer, matrix)
    return matrices


def write_adapter(model: "PreTrainedModel", folder: Path) -> None:
    """Write a model's adapters into a folder, in the files of peft."""
    tensors = {name: matrix.detach().contiguous() for name, matrix in adapter_weights(model).items()}
    first = next(iter(adapted_layers(model).values()))
    base = model.name_or_path
    if Path(base).is_dir():
        # a relative path would name another folder, or none, where the adapter is used
        base = str(Path(base).resolve())
    write_files(tensors, folder, alpha=first.alpha, base=base)


def save_adapter(model: "PreTrainedModel", folder: Path) -> None:
    """Write the adapters for ``PeftModel.from_pretrained``; the folder appears complete or not at all."""
    with atomic_folder(folder) as temp:
        write_adapter(model, temp)


@torch.no_grad()
def read_adapter(folder: Path, model: "PreTrainedModel") -> None:
    """Set a model's adapters from a folder that ``write_adapter`` wrote.

    Raises:
        DataError: the file is missing, damaged, or has other layers or ranks than the model.
    """
    file = folder / ADAPTER
    try:
        stored = load_file(file)
    except (OSError, SafetensorError) as error:
        raise DataError(f"{file} cannot be read: {one_line(error)}") from error
    matrices = adapter_weights(model)
    different = matrices.keys() ^ stored.keys()  # in one of them only
    for name in matrices.keys() & stored.keys():
        if matrices[name].shape != stored[name].shape:
            different.add(name)
    if different:
        raise DataError(f"{file} does not fit the adapters of this run: {min(different)} is missing or of another rank")
    for name, matrix in matrices.items():
        matrix.copy_(stored[name])
