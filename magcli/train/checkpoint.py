"""Checkpoints that resume training to the bit, and that any Hugging Face tool loads.

A folder ``step-000123`` holds float32 weights, config and tokenizer in Hugging Face layout, the optimizer and random
states (``trainer.pt``), the caller's state (``state.json``), and ``checkpoint.json``, written last, with the size and
SHA-256 of every other file. It appears whole or not at all.

Where ranks share the weights, these and the optimizer's state lie in ``shards/``, a file a rank. Either kind loads on
any number of ranks.
"""

import contextlib
import hashlib
import json
import pickle
import random
import re
import shutil
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_model
from torch.optim import Optimizer
from transformers.utils import logging as transformers_logging

from magcli.data.durable import aside, rename, sweep, whole_folder
from magcli.errors import DataError, EnvironmentFault
from magcli.model.load import whole_model
from magcli.train import reshard
from magcli.train.distributed import Ranks

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

MANIFEST = "checkpoint.json"
STATE = "state.json"
TRAINER = "trainer.pt"
WEIGHTS = "model.safetensors"
SHARDS = "shards"
STEP_NAME = re.compile(r"step-(\d{6,})")


def step_folder(root: Path, step: int) -> Path:
    """Where the checkpoint after ``step`` optimizer steps lies."""
    return root / f"step-{step:06d}"


def save(
    folder: Path,
    *,
    model: "PreTrainedModel",
    optimizer: Optimizer,
    state: Mapping[str, Any],
    tokenizer: "PreTrainedTokenizerBase",
) -> None:
    """Write a checkpoint; ``state`` is what JSON can say: step, epoch, position in the data, best metric.

    Raises EnvironmentFault when the disk fails, or a weight is not float32 (bf16 masters lose small updates, and
    their rounding alone fakes a principal component of a trajectory).
    """
    _require_float32(model)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with whole_model(folder) as temp:
        with _no_progress_bar():
            model.save_pretrained(temp, max_shard_size="1TB")
        torch.save({"optimizer": optimizer.state_dict(), "random": _random_states()}, temp / TRAINER)
        _finish(temp, state, tokenizer, {})


def save_sharded(
    folder: Path,
    ranks: Ranks,
    *,
    model: "PreTrainedModel",
    optimizer: Optimizer,
    state: Mapping[str, Any],
    tokenizer: "PreTrainedTokenizerBase",
) -> None:
    """``save`` for ranks that share a model: all call it, each writes and reads back its shards, rank 0 the rest.

    The folder must be on a disk that all ranks see. Random states are those of rank 0.
    """
    _require_float32(model)
    if ranks.rank:
        _write_shards(Path(ranks.broadcast()), ranks, model, optimizer)
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    with whole_folder(folder) as temp:
        digests = _write_shards(Path(ranks.broadcast(str(temp))), ranks, model, optimizer)
        model.config.save_pretrained(temp)
        torch.save({"random": _random_states()}, temp / TRAINER)
        _finish(temp, state, tokenizer, digests)


def load(folder: Path, model: "PreTrainedModel", optimizer: Optimizer | None = None) -> dict[str, Any]:
    """Put a checkpoint's weights into ``model`` and return its state; after that training goes on as if unbroken.

    With an optimizer, its state and the random states of Python, NumPy and PyTorch come back too. Raises DataError,
    naming the file, when the checkpoint is incomplete, damaged or of another model.
    """
    check(folder)
    return load_verified(folder, model, optimizer)


def load_verified(folder: Path, model: "PreTrainedModel", optimizer: Optimizer | None = None) -> dict[str, Any]:
    """``load`` of a checkpoint that was checked already, by rank 0 before all ranks load it."""
    shards = folder / SHARDS
    if shards.is_dir():
        reshard.read(shards, model, optimizer)
    else:
        _load_weights(folder / WEIGHTS, model)
    if optimizer is not None:
        _load_trainer(folder / TRAINER, None if shards.is_dir() else optimizer)
    state: dict[str, Any] = json.loads((folder / STATE).read_text(encoding="utf-8"))
    return state


def check(folder: Path) -> None:
    """Raise DataError, naming the file, unless every file of a checkpoint is there with its size and SHA-256."""
    for name, expected in _manifest(folder).items():
        file = folder / name
        if not file.is_file():
            raise DataError(f"{file} is missing; remove {folder} to go on from an older checkpoint")
        if _fingerprint(file) != expected:
            raise DataError(f"{file} is damaged; remove {folder} to go on from an older checkpoint")


def steps(root: Path) -> list[Path]:
    """The complete checkpoints below ``root``, oldest first; damage inside one is for ``load`` to find."""
    found = [folder for folder in root.glob("step-*") if (folder / MANIFEST).is_file()]
    return sorted((folder for folder in found if STEP_NAME.fullmatch(folder.name)), key=_step)


def latest(root: Path) -> Path | None:
    """The newest complete checkpoint below ``root``, or None."""
    return next(reversed(steps(root)), None)


def prune(root: Path, *, keep: int, protect: Collection[Path] = ()) -> None:
    """Remove all but the newest ``keep`` checkpoints and those protected, and what dead processes left aside."""
    complete = steps(root)
    for folder in complete[: max(len(complete) - keep, 0)]:
        if folder not in protect:
            # Renamed first, so that a half removed folder is never taken for a checkpoint.
            rename(folder, aside(folder))
            shutil.rmtree(aside(folder))
    for folder in root.glob(".step-*.tmp"):
        sweep(folder.with_name(folder.name.split(".")[1]))


def _step(folder: Path) -> int:
    return int(folder.name.removeprefix("step-"))


def _require_float32(model: "PreTrainedModel") -> None:
    for name, parameter in model.named_parameters():
        if parameter.dtype != torch.float32:
            raise EnvironmentFault(f"{name} is {parameter.dtype}: checkpoints are written from float32 master weights")


def _write_shards(temp: Path, ranks: Ranks, model: "PreTrainedModel", optimizer: Optimizer) -> dict[str, Any]:
    """Write the shards of all ranks; returns, on rank 0, the fingerprint of every file, each taken by its writer."""
    reshard.write(temp / SHARDS, model, optimizer)
    own = [*(temp / SHARDS).glob(f"__{ranks.rank}_*"), *([] if ranks.rank else [temp / SHARDS / reshard.METADATA])]
    gathered = ranks.gather({file.relative_to(temp).as_posix(): _fingerprint(file) for file in own})
    return {name: digest for digests in gathered for name, digest in digests.items()}


def _finish(
    temp: Path, state: Mapping[str, Any], tokenizer: "PreTrainedTokenizerBase", digests: dict[str, Any]
) -> None:
    """Write what every checkpoint has, and last the manifest; ``digests`` are those of files below ``temp``."""
    tokenizer.save_pretrained(temp)
    (temp / STATE).write_text(json.dumps(dict(state), indent=1), encoding="utf-8")
    files = {file.name: _fingerprint(file) for file in sorted(temp.iterdir()) if file.is_file()}
    (temp / MANIFEST).write_text(json.dumps({"files": files | digests}, indent=1), encoding="utf-8")


def _fingerprint(file: Path) -> dict[str, Any]:
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return {"size": file.stat().st_size, "sha256": digest}


def _manifest(folder: Path) -> dict[str, dict[str, Any]]:
    file = folder / MANIFEST
    try:
        files: dict[str, dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))["files"]
        sharded = (folder / SHARDS).is_dir()
        required = {f"{SHARDS}/{reshard.METADATA}" if sharded else WEIGHTS, TRAINER, STATE} - files.keys()
    except FileNotFoundError:
        raise DataError(f"{folder} is not a complete checkpoint: {MANIFEST} is missing") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{file} is damaged; remove {folder} to go on from an older checkpoint") from error
    if required:
        raise DataError(f"{file} is damaged: it does not list {min(required)}")
    return files


def _load_weights(file: Path, model: "PreTrainedModel") -> None:
    if reshard.is_sharded(model):
        reshard.read_whole(file, model)
        return
    try:
        load_model(model, file)
    except (RuntimeError, SafetensorError) as error:
        raise DataError(f"{file} does not fit {type(model).__name__}: {_one_line(error)}") from error


def _load_trainer(file: Path, optimizer: Optimizer | None) -> None:
    """Bring back the random states, and the optimizer's where it is not in shards."""
    try:
        stored = torch.load(file, map_location="cpu", weights_only=True)
        if optimizer is not None:
            optimizer.load_state_dict(reshard.share_state(optimizer, stored["optimizer"]))
    except (RuntimeError, ValueError, KeyError, IndexError, pickle.UnpicklingError) as error:
        raise DataError(f"{file} does not fit this optimizer: {_one_line(error)}") from error
    _restore_random(stored["random"])


def _random_states() -> dict[str, Any]:
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
    if states["cuda"] and torch.cuda.device_count() == len(states["cuda"]):
        torch.cuda.set_rng_state_all(states["cuda"])


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


@contextlib.contextmanager
def _no_progress_bar() -> Iterator[None]:
    shown = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            transformers_logging.enable_progress_bar()
