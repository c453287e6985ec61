"""Sharded weights and optimizer state on disk: each rank writes what it holds, any number of ranks reads it back.

``torch.distributed.checkpoint`` does the work. Names say what a tensor is: ``weights.NAME`` for a parameter or buffer,
``optimizer.NAME.KEY`` for what the optimizer keeps of a parameter.
"""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from safetensors import safe_open
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.optim import Optimizer

from magcli.errors import DataError, EnvironmentFault

if TYPE_CHECKING:
    from transformers import PreTrainedModel

METADATA = ".metadata"
"""The file that says which part of which tensor is where; written last."""


def is_sharded(model: "PreTrainedModel") -> bool:
    """Whether this process holds only its share of the weights."""
    return any(isinstance(parameter, DTensor) for parameter in model.parameters())


def write(folder: Path, model: "PreTrainedModel", optimizer: Optimizer) -> None:
    """Write the shards of all ranks, each of which must call this.

    Raises:
        EnvironmentFault: a rank could not write.
    """
    tensors = {f"weights.{names[0]}": tensor for names, tensor in _weights(model)} | _moments(model, optimizer)
    with _explained(f"cannot write {folder}"):
        save(tensors, storage_writer=FileSystemWriter(folder), no_dist=not dist.is_initialized())


def read(folder: Path, model: "PreTrainedModel", optimizer: Optimizer | None) -> None:
    """Read what ``write`` wrote, from any number of ranks to any other; every rank must call this.

    Raises:
        DataError: the tensors are those of another model.
    """
    sizes = _stored_sizes(folder)
    wanted = {f"weights.{names[0]}": tensor for names, tensor in _weights(model)}
    for name, tensor in wanted.items():
        if sizes.get(name) != tensor.shape:
            raise DataError(f"{folder} does not fit {type(model).__name__}: {name} is {sizes.get(name, 'not there')}")
    state = {} if optimizer is None else _room_for_moments(model, optimizer, sizes)
    tensors = wanted | {name: tensor for kept in state.values() for name, tensor in kept.items()}
    with _explained(f"cannot read {folder}"):
        load(tensors, storage_reader=FileSystemReader(folder), no_dist=not dist.is_initialized())
    if optimizer is not None:
        optimizer.state.clear()
        for parameter, kept in state.items():
            optimizer.state[parameter] = {name.rpartition(".")[2]: tensor for name, tensor in kept.items()}


def read_whole(file: Path, model: "PreTrainedModel") -> None:
    """Put the weights of one safetensors file into a sharded model; each rank reads the file by itself.

    Raises:
        DataError: the tensors are those of another model.
    """
    with safe_open(str(file), framework="pt") as stored, torch.no_grad():
        there = set(stored.keys())
        for names, tensor in _weights(model):
            name = next((name for name in names if name in there), None)
            whole = None if name is None else stored.get_tensor(name)
            if whole is None or whole.shape != tensor.shape:
                raise DataError(f"{file} does not fit {type(model).__name__}: {names[0]} is of another size or missing")
            tensor.copy_(_like(whole, tensor))


def share_state(optimizer: Optimizer, state: Mapping[str, Any]) -> dict[str, Any]:
    """The state of an optimizer over whole parameters, cut as the parameters of this one are, where they are."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    shares = {
        index: {key: _like(value, parameters[index]) if value.ndim else value for key, value in kept.items()}
        for index, kept in state["state"].items()
    }
    return {**state, "state": shares}


def _weights(model: "PreTrainedModel") -> Iterator[tuple[list[str], Tensor]]:
    """Each parameter and buffer once, with all of its names."""
    names: dict[int, list[str]] = {}
    tensors: dict[int, Tensor] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        names.setdefault(id(tensor), []).append(name)
        tensors[id(tensor)] = tensor.detach()
    return ((names[number], tensors[number]) for number in names)


def _moments(model: "PreTrainedModel", optimizer: Optimizer) -> dict[str, Tensor]:
    return {
        f"optimizer.{name}.{key}": tensor
        for name, parameter in model.named_parameters()
        for key, tensor in optimizer.state.get(parameter, {}).items()
    }


def _room_for_moments(
    model: "PreTrainedModel", optimizer: Optimizer, sizes: Mapping[str, torch.Size]
) -> dict[torch.nn.Parameter, dict[str, Tensor]]:
    """Empty tensors for what the optimizer shall keep of each parameter, by their names on disk."""
    trained = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    room: dict[torch.nn.Parameter, dict[str, Tensor]] = {}
    for name, parameter in model.named_parameters():
        stem = f"optimizer.{name}."
        stored = [key for key in sizes if key.startswith(stem) and "." not in key[len(stem) :]]
        if stored and id(parameter) in trained:
            room[parameter] = {key: _room(parameter.detach(), sizes[key]) for key in stored}
    return room


def _room(parameter: Tensor, size: torch.Size) -> Tensor:
    if size == parameter.shape:
        return torch.zeros_like(parameter)
    return torch.zeros(size, dtype=torch.float32, device=parameter.device)


def _like(whole: Tensor, tensor: Tensor) -> Tensor:
    """This rank's share of a tensor that every rank has whole, split as another one is."""
    if not isinstance(tensor, DTensor):
        return whole
    return distribute_tensor(whole, tensor.device_mesh, tensor.placements, src_data_rank=None)


def _stored_sizes(folder: Path) -> dict[str, torch.Size]:
    stored = FileSystemReader(folder).read_metadata().state_dict_metadata
    return {name: entry.size for name, entry in stored.items() if isinstance(entry, TensorStorageMetadata)}


@contextmanager
def _explained(what: str) -> Iterator[None]:
    """Turn torch's own exception, which is none, into one line; a process by itself is no reason to warn."""
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "torch.distributed is disabled")
            yield
    except CheckpointException as error:
        rank, (reason, _) = next(iter(error.failures.items()))
        raise EnvironmentFault(f"{what}: rank {rank}: {' '.join(str(reason).split())[:200]}") from error
