"""Checkpoints from which training resumes bit for bit, and whose weights any Hugging Face tool can load.

A folder ``step-000123`` holds float32 weights, config and tokenizer in Hugging Face layout, the optimizer and random
states (``trainer.pt``), the caller's state (``state.json``), and ``checkpoint.json``, written last, with the size and
SHA-256 of every other file. It appears complete or not at all.

With LoRA it has the adapters in peft's layout instead of weights and config; the frozen weights are not stored.

With several ranks, weights and optimizer state are in ``shards/``, one file per rank and an index, written and read by
``torch.distributed.checkpoint`` (see ``train.shard_index``): ``weights.NAME`` is a parameter or buffer,
``optimizer.NAME.KEY`` the optimizer state of a parameter. ``train.background_save`` writes them. Either kind loads on
any number of ranks.
"""

import contextlib
import json
import pickle
import random
import re
import shutil
import warnings
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.distributed as dist
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_model, save_file
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load as load_shards
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.optim import Optimizer

from magcli.data.durable import remove_stale, rename, temp_path
from magcli.data.seal import hash_file
from magcli.errors import DataError, EnvironmentFault
from magcli.model.load import atomic_model_folder, one_line, quiet_transformers
from magcli.model.weights.peft import ADAPTER
from magcli.model.weights.slices import own_tensors
from magcli.train.lora import adapted_layers, read_adapter, write_adapter
from magcli.train.shard_index import INDEX, IndexReader

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

MANIFEST = "checkpoint.json"
STATE = "state.json"
TRAINER = "trainer.pt"
WEIGHTS = "model.safetensors"
SHARDS = "shards"
STEP_NAME = re.compile(r"step-(\d{6,})")


def step_folder(root: Path, step: int) -> Path:
    """The folder of the checkpoint after ``step`` optimizer steps."""
    return root / f"step-{step:06d}"


def save(
    folder: Path,
    *,
    model: "PreTrainedModel",
    optimizer: Optimizer,
    state: Mapping[str, Any],
    tokenizer: "PreTrainedTokenizerBase",
) -> None:
    """Write a checkpoint; ``state`` is the caller's, in JSON types: step, epoch, position in the data, best metric.

    Raises EnvironmentFault when the disk fails, or a weight is not float32 (bf16 master weights lose small updates,
    and their rounding alone shows up as a principal component of a trajectory).
    """
    require_float32(model)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with atomic_model_folder(folder, sums=False) as temp:
        _write_model(temp, model)
        torch.save({"optimizer": optimizer.state_dict(), "random": _random_states()}, temp / TRAINER)
        _write_state(temp, state, tokenizer)
        write_manifest(temp, {})


def load(folder: Path, model: "PreTrainedModel", optimizer: Optimizer | None = None) -> dict[str, Any]:
    """Load a checkpoint's weights into ``model`` and return the caller's state.

    With an optimizer, its state and the random states of Python, NumPy and PyTorch are restored too, and training
    continues as if never interrupted. Raises DataError, naming the file, when the checkpoint is incomplete, damaged or
    of another model.
    """
    check(folder)
    return load_verified(folder, model, optimizer)


def load_verified(folder: Path, model: "PreTrainedModel", optimizer: Optimizer | None = None) -> dict[str, Any]:
    """``load`` of a checkpoint that was checked before, once for all ranks."""
    shards = folder / SHARDS
    if shards.is_dir():
        _read_shards(shards, model, optimizer)
    elif adapted_layers(model):
        read_adapter(folder, model)
    else:
        _load_weights(folder / WEIGHTS, model)
    if optimizer is not None:
        # With shards the file has the random states alone.
        _load_trainer(folder / TRAINER, None if shards.is_dir() else optimizer)
    state: dict[str, Any] = json.loads((folder / STATE).read_text(encoding="utf-8"))
    return state


def check(folder: Path) -> None:
    """Raise DataError, naming the file, unless every file of a checkpoint is there with its size and SHA-256."""
    for name, expected in _manifest(folder).items():
        file = folder / name
        if not file.is_file():
            raise DataError(f"{file} is missing; remove {folder} to resume from an older checkpoint")
        if digest(file) != expected:
            raise DataError(f"{file} is damaged; remove {folder} to resume from an older checkpoint")


def steps(root: Path) -> list[Path]:
    """The complete checkpoints below ``root``, oldest first; ``load`` detects damage inside one."""
    named = [folder for folder in root.glob("step-*") if STEP_NAME.fullmatch(folder.name)]
    complete = [folder for folder in named if (folder / MANIFEST).is_file()]
    return sorted(complete, key=_step)


def latest(root: Path) -> Path | None:
    """The newest complete checkpoint below ``root``, or None."""
    return next(reversed(steps(root)), None)


def prune(root: Path, *, keep: int, protect: Collection[Path] = ()) -> None:
    """Remove all but the newest ``keep`` checkpoints and those protected, and what ``remove_unfinished`` does."""
    complete = steps(root)
    num_old = max(len(complete) - keep, 0)
    for folder in complete[:num_old]:
        if folder not in protect:
            # Renamed first, so that a half removed folder is never mistaken for a checkpoint.
            temp = temp_path(folder)
            rename(folder, temp)
            shutil.rmtree(temp)
    remove_unfinished(root)


def remove_unfinished(root: Path) -> None:
    """Remove what processes that are gone have left of checkpoints.

    Call it only while none is written: of a process on another machine it cannot be seen that it lives.
    """
    for folder in root.glob(".step-*.tmp"):
        # ``.step-000123....tmp``: the name that the folder would have got.
        remove_stale(folder.with_name(folder.name.split(".")[1]))


def _step(folder: Path) -> int:
    return int(folder.name.removeprefix("step-"))


def _write_model(temp: Path, model: "PreTrainedModel") -> None:
    """Weights by the names of the model's parameters, each tied one once; its configurations, whatever they contain.

    Of a model with adapters, only those.
    """
    if adapted_layers(model):
        write_adapter(model, temp)
        return
    weights = {name: tensor.detach().contiguous() for name, tensor in own_tensors(model).items()}
    save_file(weights, temp / WEIGHTS, {"format": "pt"})
    with quiet_transformers():
        model.config.save_pretrained(temp)
    if model.generation_config is not None:
        settings = model.generation_config.to_json_string()
        (temp / "generation_config.json").write_text(settings, encoding="utf-8")


def require_float32(model: "PreTrainedModel") -> None:
    """Raise EnvironmentFault unless the trained weights are float32."""
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and parameter.dtype != torch.float32:
            raise EnvironmentFault(f"{name} is {parameter.dtype}: checkpoints need float32 master weights")


def tensors_of(model: "PreTrainedModel", optimizer: Optimizer) -> dict[str, Tensor]:
    """This rank's parts of weights and optimizer state by their names in a sharded checkpoint: no copies."""
    return _named_weights(model) | _optimizer_state(model, optimizer)


def write_unsharded_files(
    folder: Path, model: "PreTrainedModel", state: Mapping[str, Any], tokenizer: "PreTrainedTokenizerBase"
) -> None:
    """Write the files of a sharded checkpoint besides its shards and the manifest; random states are this process's."""
    model.config.save_pretrained(folder)
    torch.save({"random": _random_states()}, folder / TRAINER)
    _write_state(folder, state, tokenizer)


def _write_state(folder: Path, state: Mapping[str, Any], tokenizer: "PreTrainedTokenizerBase") -> None:
    tokenizer.save_pretrained(folder)
    (folder / STATE).write_text(json.dumps(dict(state), indent=1), encoding="utf-8")


def write_manifest(folder: Path, shards: Mapping[str, Any]) -> None:
    """Write the last file of a checkpoint; ``shards`` are the digests of its shards by their names."""
    # Written last, so a folder with a manifest is complete.
    files = {file.name: digest(file) for file in sorted(folder.iterdir()) if file.is_file()}
    (folder / MANIFEST).write_text(json.dumps({"files": {**files, **shards}}, indent=1), encoding="utf-8")


def digest(file: Path) -> dict[str, Any]:
    """The size and SHA-256 of a file, as in the manifest."""
    return {"size": file.stat().st_size, "sha256": hash_file(file)}


def _manifest(folder: Path) -> dict[str, dict[str, Any]]:
    """The size and SHA-256 of each file of a checkpoint, by name."""
    file = folder / MANIFEST
    try:
        files: dict[str, dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))["files"]
        # What each kind of checkpoint must have.
        weights = ADAPTER if ADAPTER in files else WEIGHTS
        if (folder / SHARDS).is_dir():
            weights = f"{SHARDS}/{INDEX}"
        unlisted = {weights, TRAINER, STATE} - files.keys()
    except FileNotFoundError:
        raise DataError(f"{folder} is not a complete checkpoint: {MANIFEST} is missing") from None
    # RecursionError: JSON that is nested too deep.
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f"{file} is damaged; remove {folder} to resume from an older checkpoint") from error
    if unlisted:
        raise DataError(f"{file} is damaged: it does not list {min(unlisted)}")
    return files


def _load_weights(file: Path, model: "PreTrainedModel") -> None:
    if any(isinstance(parameter, DTensor) for parameter in model.parameters()):
        return _load_into_shards(file, model)
    try:
        load_model(model, file)
    except (RuntimeError, SafetensorError) as error:
        raise DataError(f"{file} does not fit {type(model).__name__}: {one_line(error)}") from error


def _load_into_shards(file: Path, model: "PreTrainedModel") -> None:
    """Load one safetensors file into a sharded model; each rank reads the file by itself."""
    with safe_open(str(file), framework="pt") as stored, torch.no_grad():
        stored_names = set(stored.keys())
        for names, tensor in _weights(model):
            # A tied weight is in the file under one of its names.
            name = next((name for name in names if name in stored_names), None)
            # Every rank reads the whole tensor, and keeps its part.
            full = None if name is None else stored.get_tensor(name)
            if full is None or full.shape != tensor.shape:
                fault = f"{names[0]} is missing or differs in shape"
                raise DataError(f"{file} does not fit {type(model).__name__}: {fault}")
            tensor.copy_(_sharded_like(full, tensor))


def _load_trainer(file: Path, optimizer: Optimizer | None) -> None:
    """Restore the random states, and the optimizer's state unless it is in shards."""
    try:
        stored = torch.load(file, map_location="cpu", weights_only=True)
        if optimizer is not None:
            optimizer.load_state_dict(_sharded_state(optimizer, stored["optimizer"]))
    except (RuntimeError, ValueError, KeyError, IndexError, pickle.UnpicklingError) as error:
        raise DataError(f"{file} does not fit this optimizer: {one_line(error)}") from error
    _restore_random(stored["random"])


def _sharded_state(optimizer: Optimizer, state: Mapping[str, Any]) -> dict[str, Any]:
    """The state of an optimizer over full parameters, sharded like the parameters of this one."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    sharded: dict[int, dict[str, Any]] = {}
    for index, full_state in state["state"].items():
        own_state = dict(full_state)
        for key, value in full_state.items():
            # Scalars, such as the number of steps, are the same on all ranks.
            if value.ndim > 0:
                own_state[key] = _sharded_like(value, parameters[index])
        sharded[index] = own_state
    return {**state, "state": sharded}


def _read_shards(folder: Path, model: "PreTrainedModel", optimizer: Optimizer | None) -> None:
    """Read shards of any number of ranks into any other number; every rank must call this."""
    sizes = _stored_sizes(folder)
    tensors = _named_weights(model)
    for name, tensor in tensors.items():
        if sizes.get(name) != tensor.shape:
            raise DataError(f"{folder} does not fit {type(model).__name__}: {name} is {sizes.get(name, 'missing')}")
    optimizer_state = {} if optimizer is None else _empty_optimizer_state(model, optimizer, sizes)
    for stored in optimizer_state.values():
        tensors |= stored

    # Reads into the tensors in place.
    with one_line_errors(f"cannot read {folder}"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled")
        load_shards(tensors, storage_reader=IndexReader(folder), no_dist=not dist.is_initialized())
    if optimizer is None:
        return
    # What it had before belongs to other weights.
    optimizer.state.clear()
    for parameter, stored in optimizer_state.items():
        # ``optimizer.NAME.KEY``: the optimizer knows its tensors by KEY.
        optimizer.state[parameter] = {name.rpartition(".")[2]: tensor for name, tensor in stored.items()}


def _named_weights(model: "PreTrainedModel") -> dict[str, Tensor]:
    """Weights and buffers by their names in a sharded checkpoint, each tied one once."""
    return {f"weights.{names[0]}": tensor for names, tensor in _weights(model)}


def _weights(model: "PreTrainedModel") -> Iterator[tuple[list[str], Tensor]]:
    """Each parameter and buffer once, with all of its names."""
    names: dict[int, list[str]] = {}
    tensors: dict[int, Tensor] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        names.setdefault(id(tensor), []).append(name)
        # ``keep_vars``: tied names give the same object, which detached tensors are not.
        tensors[id(tensor)] = tensor.detach()
    return ((names[number], tensors[number]) for number in names)


def _optimizer_state(model: "PreTrainedModel", optimizer: Optimizer) -> dict[str, Tensor]:
    state = {}
    for name, parameter in model.named_parameters():
        for key, tensor in optimizer.state.get(parameter, {}).items():
            state[f"optimizer.{name}.{key}"] = tensor
    return state


def _empty_optimizer_state(
    model: "PreTrainedModel", optimizer: Optimizer, sizes: Mapping[str, torch.Size]
) -> dict[torch.nn.Parameter, dict[str, Tensor]]:
    """Tensors to read the stored optimizer state of each parameter into, by their names on disk."""
    # Frozen parameters have no state, and must not get any.
    trained = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    state: dict[torch.nn.Parameter, dict[str, Tensor]] = {}
    for name, parameter in model.named_parameters():
        # Without a dot in KEY: NAME may be the beginning of another parameter's name.
        stem = f"optimizer.{name}."
        stored = [key for key in sizes if key.startswith(stem) and "." not in key.removeprefix(stem)]
        if not stored or id(parameter) not in trained:
            continue
        like = parameter.detach()
        state[parameter] = {}
        for key in stored:
            # Moments have the parameter's shape and are sharded like it; the number of steps is a scalar.
            if sizes[key] == like.shape:
                state[parameter][key] = torch.zeros_like(like)
            else:
                state[parameter][key] = torch.zeros(sizes[key], device=like.device)
    return state


def _sharded_like(full: Tensor, tensor: Tensor) -> Tensor:
    """This rank's shard of a tensor that every rank has in full, split like ``tensor``."""
    if not isinstance(tensor, DTensor):
        return full
    return distribute_tensor(full, tensor.device_mesh, tensor.placements, src_data_rank=None)


def _stored_sizes(folder: Path) -> dict[str, torch.Size]:
    stored = IndexReader(folder).read_metadata().state_dict_metadata
    return {name: entry.size for name, entry in stored.items() if isinstance(entry, TensorStorageMetadata)}


@contextlib.contextmanager
def one_line_errors(what: str) -> Iterator[None]:
    """Turn torch's CheckpointException, a BaseException, into one line that names the first rank that failed."""
    try:
        yield
    except CheckpointException as error:
        # Of each rank that failed its error and the traceback.
        rank, (reason, _) = next(iter(error.failures.items()))
        raise EnvironmentFault(f"{what}: rank {rank}: {one_line(reason)}") from error


def _random_states() -> dict[str, Any]:
    """The states of all generators in types that ``torch.load`` reads with ``weights_only``: no NumPy arrays."""
    numpy_state = np.random.get_state(legacy=False)
    keys = torch.from_numpy(numpy_state["state"]["key"].astype(np.int64))
    return {
        "python": random.getstate(),
        "numpy": {**numpy_state, "state": {**numpy_state["state"], "key": keys}},
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }


def _restore_random(states: Mapping[str, Any]) -> None:
    random.setstate(states["python"])
    numpy_state = states["numpy"]
    keys = numpy_state["state"]["key"].numpy().astype(np.uint32)
    np.random.set_state({**numpy_state, "state": {**numpy_state["state"], "key": keys}})
    torch.set_rng_state(states["torch"])
    # On another number of GPUs their states cannot be restored.
    if states["cuda"] and torch.cuda.device_count() == len(states["cuda"]):
        torch.cuda.set_rng_state_all(states["cuda"])
