"""How to interpret a plane: drift, storage format, and artefacts that would give the same picture.

A random walk in very many dimensions shows 60.8 / 15.2 / 6.8 % of variance and arcs (Antognini and Sohl-Dickstein,
arXiv 1806.08805). bf16 weights on a perfectly straight path show the same if most steps are smaller than the gap
between neighbouring values: each weight then stays or jumps by one gap.
"""

from collections.abc import Sequence

import numpy as np
import torch

from magcli.landscape.checkpoints import Checkpoint, piece_buffer
from magcli.landscape.gram import Array
from magcli.landscape.pca import STRAIGHT, Plane, random_walk

WALK_TOLERANCE = 0.03
"""Maximum difference of the first three shares of variance from those of a random walk."""
ONE_GAP = 1.5
"""Mean step of the changed weights, in gaps of the number format, up to which rounding alone explains it."""
RMS_GAP = 0.65
"""RMS gap of Gaussian weights, relative to the format's epsilon times their RMS."""


def cost(checkpoints: Sequence[Checkpoint]) -> str:
    """The cost of computing the plane: bytes read and written, and memory beyond the imports."""
    size = sum(stored.size for stored in checkpoints[-1].values())
    read = sum(stored.size * stored.dtype.itemsize for checkpoint in checkpoints for stored in checkpoint.values())
    count, tensors, threads = len(checkpoints), len(checkpoints[-1]), torch.get_num_threads()
    memory = threads * len(piece_buffer(count)) + 8 * tensors * count**2
    return (
        f"{count} checkpoints of {_short(size)} weights: 2 x {_short(read)}B read, {_short(8 * size)}B written,"
        f" about {_short(memory)}B of memory"
    )


def summary(found: Plane) -> str:
    """One line: storage, drift, changed weights, and the spectrum next to that of a random walk."""
    walk = percent(random_walk(len(found.folders)))
    return (
        f"{len(found.folders)} checkpoints in {', '.join(found.storage)}, drift {found.drift:.2e}, {found.changed:.1%}"
        f" of the weights changed, explained variance {percent(found.explained)} (random walk {walk})"
    )


def details(found: Plane) -> list[str]:
    """Further lines: the distance of each checkpoint from the plane, and the tensors that moved most."""
    outside = [f"{folder.name} {share:.0%}" for folder, share in zip(found.folders, found.off_plane, strict=True)][:-1]
    most = sorted(found.tensors, key=lambda tensor: -tensor.variance)[:3]
    moved = [f"{tensor.name} {tensor.variance:.0%} (drift {tensor.drift:.1e})" for tensor in most]
    return [
        "fraction of each checkpoint's displacement outside the plane: " + ", ".join(outside),
        "tensors with the most variance: " + ", ".join(moved),
    ]


def warnings(found: Plane) -> list[str]:
    """Caveats for readers of the plot, one sentence each."""
    texts = _rounding(found)
    if like_random_walk(found):
        texts.append(f"explained variance {percent(found.explained)} is that of a random walk or of rounding")
    if found.sigma[0] < 1.1 * found.sigma[1]:
        texts.append("the first two singular values are within 10 %: the plane is well defined, its axes are not")
    if found.explained[1] < STRAIGHT:
        texts.append(f"the path is straight: the second component explains {found.explained[1]:.1e} of the variance")
    return texts


def _rounding(found: Plane) -> list[str]:
    gaps = step_in_gaps(found)
    if gaps is None:
        return []
    text = f"checkpoints are stored in {', '.join(found.storage)} and {found.changed:.0%} of the weights changed"
    if gaps < ONE_GAP:
        text += f", by {gaps:.1f} gaps between neighbouring values: rounding alone would bend a straight path like this"
    else:
        text += ": rounding may bend a straight path"
    return [text + "; store float32 checkpoints for a landscape"]


def like_random_walk(found: Plane) -> bool:
    """Whether the first shares of variance match those of a random walk with as many checkpoints."""
    shares = found.explained[:3]
    return bool(np.abs(shares - random_walk(len(found.folders))[: len(shares)]).max() < WALK_TOLERANCE)


def step_in_gaps(found: Plane) -> float | None:
    """The RMS step of the changed weights from the first checkpoint to the last, in gaps.

    A gap is the distance of neighbouring values in the coarsest storage format. None for float32, whose gaps are far
    smaller than any training step.
    """
    coarse = [dtype for dtype in found.storage if dtype != "float32"]
    if not coarse or not found.changed:
        return None
    epsilon = max(torch.finfo(getattr(torch, dtype)).eps for dtype in coarse)
    return float(found.drift / np.sqrt(found.changed) / (RMS_GAP * epsilon))


def percent(shares: Array) -> str:
    """The first three shares as ``60.8 / 15.2 / 6.8 %``."""
    return " / ".join(f"{100 * share:.1f}" for share in shares[:3]) + " %"


def _short(number: float) -> str:
    """A number with three digits and an SI prefix, such as ``4.82 T``."""
    power = min(max(len(f"{number:.0f}") - 1, 0) // 3, 4)
    return f"{number / 1000**power:.3g} {' kMGT'[power].strip()}"
