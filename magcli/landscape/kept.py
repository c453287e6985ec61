"""Per-tensor Grams kept between runs: equal checkpoints are not read again, one more costs one read.

The differences of a new checkpoint to the old ones need all of them, so every file is read once, but only the new
rows of the Gram are multiplied: T products a weight in place of T^2. Checkpoints are known by their files' identity
(device, inode, size, time of change, digest of the header); any change there makes all be summed anew.
"""

import io
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from magcli.data.durable import atomic_file
from magcli.landscape.checkpoints import Checkpoint, identity
from magcli.landscape.gram import Sums, read_sums
from magcli.landscape.principal import Array


@dataclass(frozen=True, slots=True)
class Kept:
    """The sums of earlier checkpoints (named by ``keys``), of differences formed in ``precision``."""

    keys: tuple[str, ...]
    precision: np.dtype[Any]
    sums: dict[str, Sums]


def sums_of(
    checkpoints: Sequence[Checkpoint], block: int, precision: np.dtype[Any], file: Path | None
) -> dict[str, Sums]:
    """The sums of every tensor of differences to the last checkpoint; ``file`` keeps them for the next time."""
    keys = tuple(identity(checkpoint) for checkpoint in checkpoints)
    kept = load(file) if file else None
    if kept is None or kept.keys != keys[: len(kept.keys)] or kept.precision.itemsize < precision.itemsize:
        sums = read_sums(checkpoints, block, precision)
    elif kept.keys == keys:
        return kept.sums
    else:
        sums = extended(kept, read_sums(checkpoints, block, kept.precision, known=len(kept.keys)))
        precision = kept.precision
    if file:
        save(Kept(keys, precision, sums), file)
    return sums


def extended(kept: Kept, fresh: dict[str, Sums]) -> dict[str, Sums]:
    """Sums of all checkpoints from the kept ones and the ``fresh`` rows of the Gram."""
    return {name: Sums(_joined(kept.sums[name].gram, new.gram), new.start, new.changed) for name, new in fresh.items()}


def _joined(known: Array, fresh: Array) -> Array:
    """The Gram (T, T) of differences to the new last checkpoint, of rows that were taken against an earlier one."""
    whole = np.block([[known, fresh[:, : len(known)].T], [fresh]])
    moved = whole - whole[:, -1:] - whole[-1:] + whole[-1, -1]
    moved[-1] = moved[:, -1] = 0
    return np.asarray((moved + moved.T) / 2)


def save(kept: Kept, file: Path) -> None:
    """Write sums to ``file``, whole or not at all."""
    image, parts = io.BytesIO(), kept.sums.values()
    np.savez(
        image,
        keys=np.array(kept.keys),
        precision=np.array(str(kept.precision)),
        names=np.array(list(kept.sums)),
        grams=np.stack([part.gram for part in parts]),
        start=np.array([part.start for part in parts]),
        changed=np.array([part.changed for part in parts]),
    )
    file.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(file) as stream:
        stream.write(image.getvalue())


def load(file: Path) -> Kept | None:
    """What ``file`` keeps; None where it is missing or damaged, which costs a read and nothing else."""
    try:
        with np.load(io.BytesIO(file.read_bytes())) as found:
            each = zip(found["names"].tolist(), found["grams"], found["start"], found["changed"], strict=True)
            sums = {name: Sums(gram, float(start), int(changed)) for name, gram, start, changed in each}
            return Kept(tuple(found["keys"].tolist()), np.dtype(str(found["precision"])), sums)
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile):
        return None
