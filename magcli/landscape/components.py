"""The second read: the principal components c1 and c2, written as safetensors under the model's own tensor names."""

import contextlib
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from magcli.data.durable import atomic_file, preallocate, start_sync
from magcli.errors import DataError
from magcli.landscape.checkpoints import Checkpoint, check_same, identity, open_checkpoint, pieces
from magcli.landscape.gram import BLOCK, bits_of, over_blocks
from magcli.landscape.kernels import mixed
from magcli.landscape.pca import Plane, precision_of
from magcli.model.tensors import Entry, Stored, metadata, packed_header

COMPONENTS = ("c1.safetensors", "c2.safetensors")


def write_components(found: Plane, folder: Path, *, block: int = BLOCK) -> tuple[Path, Path]:
    """Write c1 and c2, float32 of length 1, to ``c1.safetensors`` and ``c2.safetensors``; both or none appear.

    Where both are there already, of this plane and these very files, nothing is read.
    """
    checkpoints = [open_checkpoint(source) for source in found.folders]
    check_same(checkpoints)
    paths, key = (folder / COMPONENTS[0], folder / COMPONENTS[1]), _key(found, checkpoints)
    if all(_is_of(path, key) for path in paths):
        return paths
    header, places = packed_header(map(_entry, checkpoints[-1].values()), {"key": key})
    mixing = found.mixing.astype(precision_of(float(found.explained[1] / found.explained[0])))
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(atomic_file(path)) for path in paths]
        for file in files:
            preallocate(file, len(header) + 4 * sum(stored.size for stored in checkpoints[-1].values()))
            file.write(header)
            file.flush()

        def work(name: str, start: int, length: int, buffer: torch.Tensor) -> None:
            place = places[name] + 4 * start
            for rows in pieces([c[name] for c in checkpoints], start, length, buffer):
                for file, values in zip(files, mixed(bits_of(rows), mixing), strict=True):
                    _write_at(file.fileno(), values, place)
                place += 4 * rows.shape[1]

        for _ in over_blocks(work, checkpoints, block):
            pass
    return paths


def _key(found: Plane, checkpoints: Sequence[Checkpoint]) -> str:
    """What the components are made of: the checkpoints' files and how they are mixed."""
    digest = hashlib.sha256(found.mixing.tobytes())
    for checkpoint in checkpoints:
        digest.update(identity(checkpoint).encode())
    return digest.hexdigest()


def _is_of(path: Path, key: str) -> bool:
    """Whether a component's file is there, whole, and of this key."""
    try:
        return metadata(path).get("key") == key
    except DataError:
        return False


def _entry(stored: Stored) -> Entry:
    """A float32 tensor of the same shape."""
    return Entry(stored.name, "F32", stored.shape, 4 * stored.size)


def _write_at(descriptor: int, values: npt.NDArray[np.float32], position: int) -> None:
    data, place = values.view(np.uint8).data, position
    while data:
        done = os.pwrite(descriptor, data, place)
        data, place = data[done:], place + done
    start_sync(descriptor, position, values.nbytes)
