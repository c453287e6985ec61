"""Load a sharded model without ever holding the whole of it: each rank reads its own slices of the files.

The model is built on the meta device and sharded there, so that memory is allocated for the shards only. FSDP splits a
tensor by rows, and rows are contiguous in a safetensors file.
"""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from magcli.choices import Attention
from magcli.model.allocator import freed_memory_returned
from magcli.model.load import load_outline, prepare_device
from magcli.model.weights.slices import own_tensors, sliced_tensors
from magcli.model.weights.tensors import Stored, read_values
from magcli.train.attention import use_packed_attention
from magcli.train.distributed import Ranks
from magcli.train.optim import autocast
from magcli.train.shard import ShardedModel, shard

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from magcli.model.model import Model

INITIALIZED = "_is_hf_initialized"
"""The attribute by which transformers knows what ``initialize_weights`` must leave as it is."""


def load_shards(
    model: "Model",
    ranks: Ranks,
    *,
    bf16: bool = False,
    checkpoint_activations: bool = False,
    attention: Attention = "sdpa",
) -> ShardedModel | None:
    """This rank's float32 shards of a model in evaluation mode, with packed attention; options are those of ``shard``.

    For several ranks, which all call it: in one process tied weights would come apart on leaving the meta device.
    Returns None, without having loaded anything, if ``magcli.model.weights.slices`` cannot read slices of this model.

    Raises:
        EnvironmentFault: packed attention would not compute what the model computes, or it has no list of layers.
        DataError: a file of weights is damaged.
    """
    assert ranks.mesh is not None, "a single process loads the whole model"
    stored = sliced_tensors(model)
    if not stored:
        return None
    device = str(ranks.device)
    prepare_device(device)
    with freed_memory_returned(device):
        sharded = shard(_outline(model), ranks, bf16=bf16, checkpoint_activations=checkpoint_activations)
        # Memory for the shards alone; what is in it comes from the files.
        sharded.to_empty(device=ranks.device)
        _read(sharded.model, stored, ranks)
        _compute_buffers(sharded.model)
        # The check of attention computes as training will.
        with autocast(ranks.device, bf16):
            sharded.eval()(partial(use_packed_attention, attention=attention))
    return sharded


def _outline(model: "Model") -> "PreTrainedModel":
    """A model of its own on the meta device, with float32 parameters."""
    return load_outline(model.name, model.text_config if model.is_nested else None, dtype=torch.float32)


@torch.no_grad()
def _read(model: "PreTrainedModel", stored: Mapping[str, Stored], ranks: Ranks) -> None:
    """Read this rank's part of each tensor."""
    for name, tensor in own_tensors(model).items():
        part, first_value = part_of(tensor.detach(), ranks)
        read_values(stored[name], part, first_value)


def part_of(tensor: Tensor, ranks: Ranks) -> tuple[Tensor, int]:
    """The part of a tensor that this rank has, and the number of its first value in the whole tensor.

    FSDP splits rows as ``torch.chunk`` does: all ranks that share a copy, but the last ones, have equally many.
    """
    if not isinstance(tensor, DTensor):
        return tensor, 0
    rows = tensor.shape[0]
    rows_per_rank = -(-rows // ranks.sharing)
    # The last ranks may begin beyond the last row, with nothing.
    first_row = min(ranks.rank % ranks.sharing * rows_per_rank, rows)
    return tensor.to_local(), first_row * (tensor.numel() // rows)


def _compute_buffers(model: "PreTrainedModel") -> None:
    """Compute the buffers that files do not have, such as rotary frequencies, by the code of their family."""
    for tensor in own_tensors(model).values():
        # All that the files have has been read, and must not be drawn anew.
        setattr(tensor, INITIALIZED, True)
    for module in model.modules():
        setattr(module, INITIALIZED, not _computed_buffers(module))
    model.initialize_weights()


def _computed_buffers(module: nn.Module) -> bool:
    """Whether a module itself has buffers that files do not have."""
    return any(name in module._non_persistent_buffers_set for name, _ in module.named_buffers(recurse=False))
