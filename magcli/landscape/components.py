"""The plane's components as files, and the weights at any point of it.

:func:`write_components` makes the second pass over the checkpoints and writes c1 and c2 as safetensors under the
model's own tensor names. :func:`perturbed` yields w* + a1 c1 + a2 c2, always recomputed from w*: adding and subtracting
steps in bf16 does not return to the start, and rounding to nearest swallows most of a small step. So the sum is formed
in float32 and, if the engine runs in bf16, rounded once: with a dither that is a fixed hash of the weight's name and
index, the same at every point, so the step survives in expectation and neighbouring points differ only where they
should.
"""

import contextlib
import hashlib
import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from magcli.data.durable import atomic_file, preallocate, start_sync
from magcli.errors import DataError
from magcli.landscape.checkpoints import Checkpoint, check_same, identity, open_checkpoint, pieces, read_tensor, verify
from magcli.landscape.gram import BLOCK, bits_of, mix, over_blocks
from magcli.landscape.pca import Plane, precision_of
from magcli.model.weights.sums import SUMS, check_weights, write_sums
from magcli.model.weights.tensors import Entry, Stored, metadata, packed_header, read_header

COMPONENTS = ("c1.safetensors", "c2.safetensors")
PIECE = 1 << 16
"""Elements hashed and rounded at a time, so that intermediate results stay in the cache."""


@dataclass(frozen=True, slots=True)
class Coordinates:
    """The position of weights: projections of w - w* onto c1 and c2, and the norm of the rest."""

    a1: float
    a2: float
    off_plane: float


def write_components(plane: Plane, folder: Path, *, block: int = BLOCK) -> tuple[Path, Path]:
    """Write c1 and c2, float32 with unit norm, to ``c1.safetensors`` and ``c2.safetensors``; both or neither.

    If both already exist for this plane and these files, only they are read, to check them.

    Raises:
        DataError: a checkpoint, or a component that exists already, does not match its checksum.
    """
    checkpoints = [open_checkpoint(source) for source in plane.folders]
    check_same(checkpoints)
    tensors = checkpoints[-1].values()
    paths = (folder / COMPONENTS[0], folder / COMPONENTS[1])
    key = _key(plane, checkpoints)
    if all(_has_key(path, key) for path in paths):
        check_weights([folder])
        return paths
    verify(checkpoints)
    entries = [Entry(stored.name, "F32", stored.shape, 4 * stored.size) for stored in tensors]
    header, offsets = packed_header(entries, {"key": key})
    file_size = len(header) + 4 * sum(stored.size for stored in tensors)
    second_share = float(plane.explained[1] / plane.explained[0])
    mixing = plane.mixing.astype(precision_of(second_share))
    folder.mkdir(parents=True, exist_ok=True)
    # The checksums of earlier components would be wrong after a kill between the files and ``write_sums``.
    (folder / SUMS).unlink(missing_ok=True)
    with contextlib.ExitStack() as opened:
        files = [opened.enter_context(atomic_file(path)) for path in paths]
        for file in files:
            preallocate(file, file_size)
            file.write(header)
            file.flush()

        def work(name: str, start: int, length: int, buffer: torch.Tensor) -> None:
            offset = offsets[name] + 4 * start  # in bytes
            stack = [checkpoint[name] for checkpoint in checkpoints]
            for rows in pieces(stack, start, length, buffer):  # (T, n)
                components = mix(bits_of(rows), mixing)  # (2, n)
                for file, values in zip(files, components, strict=True):
                    _write_at(file.fileno(), values, offset)
                offset += 4 * rows.shape[1]

        # The results are the files; taking them raises what a thread raised.
        for _ in over_blocks(work, checkpoints, block):
            pass
    write_sums(folder)
    return paths


def _key(plane: Plane, checkpoints: Sequence[Checkpoint]) -> str:
    """A digest of the checkpoints' files and the mixing coefficients."""
    digest = hashlib.sha256(plane.mixing.tobytes())
    for checkpoint in checkpoints:
        digest.update(identity(checkpoint).encode())
    return digest.hexdigest()


def _has_key(path: Path, key: str) -> bool:
    """Whether a component file exists, is intact, and has this key."""
    try:
        return metadata(path).get("key") == key
    except DataError:
        return False


def _write_at(descriptor: int, values: npt.NDArray[np.float32], position: int) -> None:
    data = values.view(np.uint8).data
    offset = position
    while data:  # the system may write only a part
        written = os.pwrite(descriptor, data, offset)
        data = data[written:]
        offset += written
    start_sync(descriptor, position, values.nbytes)


def perturbed(
    last: Path, components: Path, a1: float, a2: float, *, bf16: bool = False
) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield every tensor of w* + a1 c1 + a2 c2 by name, one at a time, without a tied ``lm_head``.

    ``last`` is the folder of w*, ``components`` the output folder of ``write_components``. Tensors are
    float32, at (0, 0) exactly w*; with ``bf16`` bfloat16, at (0, 0) exactly w* rounded to nearest, and elsewhere
    rounded up or down with a probability that preserves the mean.

    Raises:
        DataError: the components are missing, damaged, or of another model.
    """
    origin, axes = _open(last, components)
    for name, stored in origin.items():
        base = read_tensor(stored).float()
        if bf16:
            base = base.bfloat16()  # to nearest, as an engine loads it
        if a1 or a2:
            moved = base.float().add_(_step([axis[name] for axis in axes], (a1, a2)))
            base = dithered(moved, zlib.crc32(name.encode())) if bf16 else moved
        yield name, base


def coordinates(weights: Iterable[tuple[str, torch.Tensor]], last: Path, components: Path) -> Coordinates:
    """Project ``weights``, such as those actually loaded after rounding, onto the plane; summed in float64."""
    origin, axes = _open(last, components)
    along = np.zeros(2)
    square = 0.0
    for name, tensor in weights:
        # Subtracted in float32, which is exact for close weights, and summed in float64.
        difference = tensor.float() - read_tensor(origin[name]).float()
        moved = difference.flatten().double()
        for k, axis in enumerate(axes):
            along[k] += float(moved @ read_tensor(axis[name]).flatten().double())
        square += float(moved @ moved)
    # By Pythagoras, as the axes are orthonormal.
    outside = max(square - float(along @ along), 0.0)  # rounding may make it negative
    return Coordinates(float(along[0]), float(along[1]), outside**0.5)


def dithered(values: torch.Tensor, key: int) -> torch.Tensor:
    """Round float32 to bfloat16 up or down by a hash of ``key`` and the flat index; exact values stay exact."""
    bits = values.contiguous().numpy().view(np.uint32).reshape(-1)
    out = np.empty(bits.size, np.uint16)
    for start in range(0, bits.size, PIECE):
        piece = bits[start : start + PIECE]
        end = start + piece.size
        index = np.arange(start, end, dtype=np.uint64).astype(np.uint32)  # beyond 2^32 it starts over
        noise = hashed(index ^ np.uint32(key)) >> 16
        # 16 random bits carry into the upper half, the bfloat16, with a probability proportional to the lower half.
        out[start:end] = (piece + noise) >> 16
    return torch.from_numpy(out).view(torch.bfloat16).view(values.shape)


def hashed(values: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """The finaliser of MurmurHash3: every input bit flips every output bit with probability about one half."""
    values = (values ^ (values >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    values = (values ^ (values >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return values ^ (values >> np.uint32(16))


def _open(last: Path, components: Path) -> tuple[Checkpoint, list[Checkpoint]]:
    origin = open_checkpoint(last)
    headers = [read_header(components / name) for name in COMPONENTS]
    axes: list[Checkpoint] = [{stored.name: stored for stored in header} for header in headers]
    for axis in axes:
        check_same([axis, origin])
    return origin, axes


def _step(axes: Sequence[Stored], along: Sequence[float]) -> torch.Tensor:
    """a1 c1 + a2 c2 of one tensor, in float32."""
    first, second = (read_tensor(axis).mul_(a) for axis, a in zip(axes, along, strict=True))
    return first.add_(second)
