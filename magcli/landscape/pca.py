"""The plane of a training run: top-2 principal components of its checkpoints, in two streaming reads.

Magistral (arXiv 2506.10910), section 7.1, stacks T checkpoints of W weights as X (T x W), subtracts the mean and
takes the top-2 eigenvectors of X^T X. X has rank below T, so the same plane follows from the T x T Gram matrix:

1. :func:`plane` reads every checkpoint once and forms, tensor by tensor, the Gram of the differences to the *last*
   checkpoint w* (float32 differences in small blocks, summed in float64: exact enough at any drift, where a Gram
   of raw weights is not). Centring it gives the spectrum, the path in the plane and the distance from it.
2. :func:`write_components` reads them once more and writes c1 and c2 under the model's own tensor names.

Memory is bounded by ``block`` elements a checkpoint and thread, whatever the model's size.
"""

import contextlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
import torch

from magcli.data.durable import whole_file
from magcli.errors import DataError
from magcli.landscape.checkpoints import Checkpoint, Stored, check_same, open_checkpoint, read_rows, read_tensor
from magcli.landscape.gram import Array, Sums, differences, over_blocks, read_sums, total

COMPONENTS = ("c1.safetensors", "c2.safetensors")
RANK_ONE = 1e-12
"""Second eigenvalue over the first, below which the checkpoints lie on one line."""
STRAIGHT = 1e-4
"""Second eigenvalue over the first, below which a float32 Gram is too coarse and float64 is used."""


@dataclass(frozen=True, slots=True)
class TensorDrift:
    """How far one tensor moved: ``drift`` = |w_T - w_0| / |w_0|, ``changed`` = share of its weights that differ
    between the first and the last checkpoint, ``variance`` = its share of the whole run's variance."""

    name: str
    size: int
    drift: float
    changed: float
    variance: float


@dataclass(frozen=True, slots=True)
class Plane:
    """The principal plane through w*, the last of T checkpoints, and the run as seen in it.

    ``folders`` are the checkpoints in training order, ``storage`` the dtypes found in them, ``tensors`` the same
    figures for every tensor. ``distance`` (T,) is |x_t - w*|.
    ``explained`` (T-1,) are shares of variance, falling; ``sigma`` (T-1,) the singular values of the centred stack.
    ``mixing`` (2, T) has rows that sum to 0, with c_k = sum_t mixing[k, t] (x_t - w*). ``trajectory`` (T, 2) are the
    coordinates (a1, a2) of every checkpoint relative to w*; the start lies at positive a1. ``off_plane`` (T,) is
    the part of |x_t - w*| outside the plane, as a share of it. ``drift`` and ``changed`` are as in TensorDrift.
    """

    folders: tuple[Path, ...]
    storage: tuple[str, ...]
    sigma: Array
    explained: Array
    mixing: Array
    trajectory: Array
    off_plane: Array
    distance: Array
    drift: float
    changed: float
    tensors: tuple[TensorDrift, ...]


def plane(folders: Sequence[Path], *, block: int = 1 << 18) -> Plane:
    """Find the principal plane of the checkpoints in ``folders``, in training order; one read of every file.

    Raises DataError, naming file and tensor, for fewer than three checkpoints, missing, extra, reshaped or
    quantised tensors, truncated files, NaN or infinity, two equal checkpoints, and checkpoints on one line.
    """
    if len(folders) < 3:
        raise DataError(f"{len(folders)} checkpoints span no plane; a landscape needs at least 3")
    checkpoints = [open_checkpoint(folder) for folder in folders]
    check_same(checkpoints)
    sums = read_sums(checkpoints, block, torch.float32)
    if _precision(_second(sums)) == torch.float64:
        sums = read_sums(checkpoints, block, torch.float64)
    _check_distinct(folders, checkpoints, total(sums).gram)
    if _second(sums) < RANK_ONE:
        raise DataError(f"{folders[0]} to {folders[-1]}: the checkpoints lie on one line, so there is no second axis")
    return _describe(folders, checkpoints, sums)


def write_components(found: Plane, folder: Path, *, block: int = 1 << 18) -> tuple[Path, Path]:
    """The second read: write c1 and c2, float32 of length 1, to ``c1.safetensors`` and ``c2.safetensors``."""
    checkpoints = [open_checkpoint(source) for source in found.folders]
    check_same(checkpoints)
    header, offsets = _header(checkpoints[-1])
    precision = _precision(float(found.explained[1] / found.explained[0]))
    mixing = torch.from_numpy(found.mixing).to(precision)
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(whole_file(folder / name)) for name in COMPONENTS]
        for file in files:
            file.write(header)
            file.flush()

        def work(name: str, start: int, length: int, buffer: torch.Tensor) -> None:
            rows = read_rows([c[name] for c in checkpoints], start, length, buffer)
            for file, values in zip(files, mix(mixing, rows), strict=True):
                _write_at(file.fileno(), values, len(header) + offsets[name] + 4 * start)

        for _ in over_blocks(work, checkpoints, block):
            pass
    return folder / COMPONENTS[0], folder / COMPONENTS[1]


def mix(mixing: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """``mixing`` (2, T) applied to the differences of ``rows`` (T, n) to the last one: (2, n) in float32."""
    return torch.cat([(mixing @ moved).float() for _, moved in differences(rows, mixing.dtype)], dim=1)


def random_walk(count: int) -> Array:
    """Explained variance (count-1,) of a random walk of ``count`` checkpoints in a space of very many weights.

    Antognini and Sohl-Dickstein (arXiv 1806.08805): 1 / (2 - 2 cos(pi k / T)), in the limit 6 / (pi k)^2, that is
    60.8, 15.2, 6.8 %. bf16 rounding of a perfectly straight path gives the same spectrum.
    """
    values = 1 / (2 - 2 * np.cos(np.pi * np.arange(1, count) / count))
    return np.asarray(values / values.sum())


def warnings(found: Plane) -> list[str]:
    """What a reader of the plot must know before believing it, a sentence each."""
    texts = []
    if any(dtype != "float32" for dtype in found.storage):
        texts.append(
            f"checkpoints are stored in {', '.join(found.storage)} and {found.changed:.0%} of the weights changed:"
            " rounding alone can bend a straight path; keep float32 master weights for a landscape"
        )
    walk = random_walk(len(found.folders))
    if np.abs(found.explained[:3] - walk[:3]).max() < 0.03:
        texts.append(f"explained variance {percent(found.explained)} is what a random walk or rounding gives")
    if found.sigma[0] < 1.1 * found.sigma[1]:
        texts.append("the first two singular values are within 10 %: the plane is right, its axes are arbitrary")
    if found.explained[1] < STRAIGHT:
        texts.append(f"the path is straight: the second axis holds {found.explained[1]:.1e} of the variance")
    return texts


def summary(found: Plane) -> str:
    """One line for people: storage, drift, changed weights, and the spectrum beside that of a random walk."""
    walk = percent(random_walk(len(found.folders)))
    return (
        f"{len(found.folders)} checkpoints in {', '.join(found.storage)}, drift {found.drift:.2e}, {found.changed:.1%}"
        f" of the weights changed, explained variance {percent(found.explained)} (random walk {walk})"
    )


def percent(shares: Array) -> str:
    """The first three shares as ``60.8 / 15.2 / 6.8 %``."""
    return " / ".join(f"{100 * share:.1f}" for share in shares[:3]) + " %"


def _describe(folders: Sequence[Path], checkpoints: Sequence[Checkpoint], sums: dict[str, Sums]) -> Plane:
    whole = total(sums)
    values, mixing = _principal(whole.gram)
    trajectory = whole.gram @ mixing.T
    distance = np.sqrt(whole.gram.diagonal())
    outside = np.sqrt(np.maximum(distance**2 - (trajectory**2).sum(1), 0))
    return Plane(
        folders=tuple(folders),
        storage=tuple(sorted({str(t.dtype).removeprefix("torch.") for c in checkpoints for t in c.values()})),
        sigma=np.sqrt(values),
        explained=values / values.sum(),
        mixing=mixing,
        trajectory=trajectory,
        off_plane=np.divide(outside, distance, out=np.zeros_like(outside), where=distance > 0),
        distance=distance,
        drift=_ratio(whole),
        changed=whole.changed / sum(t.size for t in checkpoints[-1].values()),
        tensors=tuple(_tensor_drift(checkpoints[-1][name], part, values.sum()) for name, part in sums.items()),
    )


def _principal(gram: Array) -> tuple[Array, Array]:
    """Eigenvalues (T-1,) of the centred Gram, falling, and the signed mixing (2, T) of unit components."""
    values, vectors = np.linalg.eigh(_centre(gram))
    values, vectors = np.maximum(values[:0:-1], 0), vectors[:, :0:-1]
    mixing = vectors[:, :2].T / np.sqrt(values[:2, None])
    mixing -= mixing.mean(1, keepdims=True)
    if gram[0] @ mixing[0] < 0:
        mixing[0] *= -1
    if mixing[1][np.abs(mixing[1]).argmax()] < 0:
        mixing[1] *= -1
    return values, mixing


def _centre(gram: Array) -> Array:
    return np.asarray(gram - gram.mean(0) - gram.mean(1, keepdims=True) + gram.mean())


def _second(sums: dict[str, Sums]) -> float:
    values = np.linalg.eigvalsh(_centre(total(sums).gram))
    return float(values[-2] / values[-1]) if values[-1] > 0 else 0.0


def _precision(second: float) -> torch.dtype:
    """The dtype that resolves a second eigenvalue of ``second`` times the first."""
    return torch.float64 if second < STRAIGHT else torch.float32


def _tensor_drift(stored: Stored, part: Sums, variance: float) -> TensorDrift:
    share = float(np.trace(_centre(part.gram)) / variance)
    return TensorDrift(stored.name, stored.size, _ratio(part), part.changed / max(stored.size, 1), share)


def _ratio(part: Sums) -> float:
    return float(np.sqrt(part.gram[0, 0] / part.start)) if part.start > 0 else float("inf")


def _check_distinct(folders: Sequence[Path], checkpoints: Sequence[Checkpoint], gram: Array) -> None:
    squares = gram.diagonal()
    if not squares.any():
        raise DataError(f"{folders[0]} to {folders[-1]}: no weight changed in any checkpoint, so there is no path")
    apart = squares[:, None] + squares - 2 * gram
    close = apart <= 1e-5 * np.maximum(squares[:, None], squares)
    for i, j in zip(*np.nonzero(np.triu(close, 1)), strict=True):
        if _equal(checkpoints[i], checkpoints[j]):
            raise DataError(f"{folders[i]} and {folders[j]} hold the same weights; give each checkpoint once")


def _equal(one: Checkpoint, other: Checkpoint) -> bool:
    return all(torch.equal(read_tensor(stored), read_tensor(other[name])) for name, stored in one.items())


def _header(checkpoint: Checkpoint) -> tuple[bytes, dict[str, int]]:
    """A safetensors header for float32 copies of the tensors, and each one's offset behind it."""
    entries, offsets, end = {}, {}, 0
    for name, stored in checkpoint.items():
        offsets[name], end = end, end + 4 * prod(stored.shape)
        entries[name] = {"dtype": "F32", "shape": list(stored.shape), "data_offsets": [offsets[name], end]}
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text, offsets


def _write_at(descriptor: int, values: torch.Tensor, position: int) -> None:
    data = values.contiguous().view(torch.uint8).numpy().data
    while data:
        done = os.pwrite(descriptor, data, position)
        data, position = data[done:], position + done
