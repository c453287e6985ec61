"""Weights on their way to other processes: a safetensors file in shared memory that readers map, not copy."""

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from magcli.errors import EnvironmentFault
from magcli.generate.types import Weights

SHARED_MEMORY = Path("/dev/shm")


class WeightFile(Mapping[str, Tensor]):
    """The tensors of a safetensors file by name, each read when it is asked for."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = safe_open(str(path), framework="pt")
        self._names = tuple(self._file.keys())  # type: ignore[no-untyped-call]

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._names:
            raise KeyError(name)
        tensor: Tensor = self._file.get_tensor(name)  # type: ignore[no-untyped-call]
        return tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


@contextmanager
def shared(weights: Weights, *, dtype: torch.dtype | None = None) -> Iterator[WeightFile]:
    """Weights as a file in shared memory while the block lasts; of tied parameters only the first name is in it.

    Args:
        weights: parameters by name; a ``WeightFile`` is passed on as it is.
        dtype: what floating-point parameters are written as; None keeps theirs.

    Raises:
        EnvironmentFault: there is no room in shared memory.
    """
    if isinstance(weights, WeightFile):
        yield weights
        return
    handle, name = tempfile.mkstemp(prefix=f"magcli-{os.getpid()}-", suffix=".safetensors", dir=_place())
    os.close(handle)
    path = Path(name)
    try:
        _write(path, weights, dtype)
        yield WeightFile(path)
    finally:
        path.unlink(missing_ok=True)


def copied(weights: Weights, *, dtype: torch.dtype | None = None) -> Weights:
    """A copy of the weights where they are, types and tied parameters as in ``shared``."""
    return {name: tensor.detach().to(_type(tensor, dtype), copy=True) for name, tensor in _untied(weights).items()}


def sweep() -> None:
    """Remove what processes that were killed have left in shared memory."""
    for path in _place().glob("magcli-*.safetensors"):
        if not Path(f"/proc/{path.name.split('-')[1]}").exists():
            with suppress(OSError):  # another user's, who alone can remove it
                path.unlink()


def _place() -> Path:
    return SHARED_MEMORY if SHARED_MEMORY.is_dir() else Path(tempfile.gettempdir())


def _write(path: Path, weights: Weights, dtype: torch.dtype | None) -> None:
    tensors = {name: tensor.to(_type(tensor, dtype)).contiguous() for name, tensor in _untied(weights).items()}
    try:
        save_file(tensors, path)
    except (OSError, SafetensorError) as error:
        size = sum(tensor.nbytes for tensor in tensors.values()) / 2**20
        raise EnvironmentFault(f"{path}: {size:,.0f} MiB of weights cannot be written: {error}") from error


def _type(tensor: Tensor, dtype: torch.dtype | None) -> torch.dtype:
    return dtype if dtype and tensor.is_floating_point() else tensor.dtype


def _untied(weights: Weights) -> Weights:
    """Each tensor once, under the first of its names."""
    found: dict[tuple[int, int], str] = {}
    for name, tensor in weights.items():
        found.setdefault((tensor.data_ptr(), tensor.nbytes), name)
    return {name: weights[name] for name in found.values()}
