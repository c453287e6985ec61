"""Weights for engines: matching them to an engine's parameters, and a shared-memory file that other processes map."""

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from magcli.errors import EnvironmentFault
from magcli.generate.types import Weights
from magcli.generate.weights.digest import WeightsFault, sent_type
from magcli.model.weights import peft

SHARED_MEMORY = Path("/dev/shm")
FILE_SUFFIX, ADAPTER_SUFFIX = ".safetensors", ".adapter"
"""The ends of the names of files with weights and of folders with adapters in shared memory."""

Names = tuple[str, ...]
"""All names of one parameter: its main name first, then those it is tied to."""


def parameter_names(model: nn.Module) -> dict[str, Names]:
    """For each name of a parameter, that name and then the other names of the same tied parameter."""
    named = list(model.named_parameters(remove_duplicate=False))
    names_of: dict[int, list[str]] = {}  # by the identity of the tensor
    for name, tensor in named:
        names_of.setdefault(id(tensor), []).append(name)
    names = {}
    for name, tensor in named:
        others = [other for other in names_of[id(tensor)] if other != name]
        names[name] = (name, *others)
    return names


def name_in(weights: Weights, names: Names, parameter: Tensor) -> str:
    """The name under which ``weights`` has a parameter; of tied parameters any one name is enough.

    Raises:
        WeightsFault: it is missing or has another shape.
    """
    name = next((name for name in names if name in weights), None)
    if name is None:
        raise WeightsFault(f"new weights lack {names[0]}, which the engine's model has")
    shape = weights[name].shape
    if shape != parameter.shape:
        raise WeightsFault(f"new weights: {names[0]} is {tuple(shape)}, the engine's is {tuple(parameter.shape)}")
    return name


def names_in(weights: Weights, model: nn.Module) -> dict[str, str]:
    """For each parameter of the model, its name in ``weights``; errors as in ``name_in``."""
    names = parameter_names(model)
    return {name: name_in(weights, names[name], parameter) for name, parameter in model.named_parameters()}


class WeightFile(Mapping[str, Tensor]):
    """The tensors of a safetensors file by name, each read on access."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = safe_open(str(path), framework="pt")
        self._names = tuple(self._file.keys())  # type: ignore[no-untyped-call]

    def __getitem__(self, name: str) -> Tensor:
        # safetensors has an error of its own for it, which is no KeyError.
        if name not in self._names:
            raise KeyError(name)
        tensor: Tensor = self._file.get_tensor(name)  # type: ignore[no-untyped-call]
        return tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


@contextmanager
def shared(weights: Weights, *, dtype: torch.dtype | None = None, folder: Path | None = None) -> Iterator[WeightFile]:
    """Weights as a file in shared memory for the duration of the block; of tied parameters only the first name.

    Args:
        weights: parameters by name; a ``WeightFile`` is passed through.
        dtype: the type of floating-point parameters in the file; None keeps theirs.
        folder: where the file is instead of in shared memory, such as on storage that other machines can read.

    Raises:
        EnvironmentFault: shared memory is full.
    """
    if isinstance(weights, WeightFile):
        yield weights
        return
    handle, name = tempfile.mkstemp(prefix=f"magcli-{os.getpid()}-", suffix=FILE_SUFFIX, dir=folder or _folder())
    # Only the name is needed: safetensors opens the file itself.
    os.close(handle)
    path = Path(name)
    try:
        _write(path, weights, dtype)
        yield WeightFile(path)
    finally:
        path.unlink(missing_ok=True)


@contextmanager
def shared_adapter(weights: Weights, alpha: float) -> Iterator[Path]:
    """A LoRA adapter, by the names of peft's files, as a folder in shared memory for the duration of the block.

    ``alpha``: its scale is alpha / rank.

    Raises:
        EnvironmentFault: shared memory is full.
    """
    folder = Path(tempfile.mkdtemp(prefix=f"magcli-{os.getpid()}-", suffix=ADAPTER_SUFFIX, dir=_folder()))
    try:
        tensors = {name: weights[name].detach().cpu().contiguous() for name in weights}
        try:
            peft.write_files(tensors, folder, alpha=alpha)
        except (OSError, SafetensorError) as error:
            raise EnvironmentFault(f"{folder}: cannot write the adapters: {error}") from error
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def untied(weights: Weights) -> Weights:
    """Each tensor once, under the first of its names."""
    first_names: dict[tuple[int, int], str] = {}
    for name, tensor in weights.items():
        # Tied parameters are at the same address.
        first_names.setdefault((tensor.data_ptr(), tensor.nbytes), name)
    return {name: weights[name] for name in first_names.values()}


def sweep() -> None:
    """Remove the weights that killed processes have left in shared memory."""
    for path in _folder().glob("magcli-*"):
        is_weights = path.suffix in (FILE_SUFFIX, ADAPTER_SUFFIX)
        # ``magcli-PID-...``: the process that wrote them.
        process = path.name.split("-")[1]
        if not is_weights or _is_running(process):
            continue
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            with suppress(OSError):  # files of another user
                path.unlink()


def _is_running(process: str) -> bool:
    """Whether there is a process of this number; one that was killed may wait long for its parent to notice."""
    try:
        status = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    # ``123 (name) Z ...``: the name may have parentheses and spaces itself.
    _, _, fields = status.rpartition(")")
    state = fields.split()[0]
    return state not in ("Z", "X")  # neither a zombie nor dead


def _folder() -> Path:
    return SHARED_MEMORY if SHARED_MEMORY.is_dir() else Path(tempfile.gettempdir())


def _write(path: Path, weights: Weights, dtype: torch.dtype | None) -> None:
    tensors = {}
    for name, tensor in untied(weights).items():
        cast = tensor.to(sent_type(tensor, dtype))
        tensors[name] = cast.contiguous()
    try:
        save_file(tensors, path)
    except (OSError, SafetensorError) as error:
        mib = sum(tensor.nbytes for tensor in tensors.values()) / 2**20
        raise EnvironmentFault(f"{path}: cannot write {mib:,.0f} MiB of weights: {error}") from error
