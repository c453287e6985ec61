"""What to make of a plane, in plain words: how far the run went, in what, and what else would give this picture.

A random walk in very many weights shows 60.8 / 15.2 / 6.8 % of variance and arcs (Antognini and Sohl-Dickstein, arXiv
1806.08805). Weights kept in bf16 show the same of a perfectly straight path, where most steps are smaller than the
gap between neighbouring values: each weight then stays or jumps by one gap.
"""

from collections.abc import Sequence

import numpy as np
import torch

from magcli.landscape.checkpoints import Checkpoint, room
from magcli.landscape.pca import STRAIGHT, Plane
from magcli.landscape.principal import Array, random_walk

LIKE_A_WALK = 0.03
"""Largest difference of the first three shares of variance from a random walk's that counts as the same."""
ONE_GAP = 1.5
"""Mean size of a changed weight's step, in gaps of its number format, up to which rounding alone explains it."""
RMS_GAP = 0.65
"""Root mean square of the gap of Gaussian weights, as a share of the format's epsilon times theirs."""


def cost(checkpoints: Sequence[Checkpoint]) -> str:
    """What the plane of these checkpoints takes: bytes read and written, and memory besides that of the imports."""
    size = sum(stored.size for stored in checkpoints[-1].values())
    read = sum(stored.size * stored.dtype.itemsize for checkpoint in checkpoints for stored in checkpoint.values())
    count, tensors, threads = len(checkpoints), len(checkpoints[-1]), torch.get_num_threads()
    memory = threads * len(room(count)) + 8 * tensors * count**2
    return (
        f"{count} checkpoints of {_short(size)} weights: two reads of {_short(read)}B, components of"
        f" {_short(8 * size)}B, about {_short(memory)}B of memory"
    )


def summary(found: Plane) -> str:
    """One line for people: storage, drift, changed weights, and the spectrum beside that of a random walk."""
    walk = percent(random_walk(len(found.folders)))
    return (
        f"{len(found.folders)} checkpoints in {', '.join(found.storage)}, drift {found.drift:.2e}, {found.changed:.1%}"
        f" of the weights changed, explained variance {percent(found.explained)} (random walk {walk})"
    )


def details(found: Plane) -> list[str]:
    """More lines for people: how far each checkpoint lies off the plane, and which tensors moved the most."""
    outside = [f"{folder.name} {share:.0%}" for folder, share in zip(found.folders, found.off_plane, strict=True)][:-1]
    most = sorted(found.tensors, key=lambda tensor: -tensor.variance)[:3]
    moved = [f"{tensor.name} {tensor.variance:.0%} (drift {tensor.drift:.1e})" for tensor in most]
    return [
        "off the plane, of each checkpoint's distance to the last one: " + ", ".join(outside),
        "most of the variance lies in " + ", ".join(moved),
    ]


def warnings(found: Plane) -> list[str]:
    """What a reader of the plot must know before believing it, a sentence each."""
    texts = _rounding(found)
    if like_random_walk(found):
        texts.append(f"explained variance {percent(found.explained)} is what a random walk or rounding gives")
    if found.sigma[0] < 1.1 * found.sigma[1]:
        texts.append("the first two singular values are within 10 %: the plane is right, its axes are arbitrary")
    if found.explained[1] < STRAIGHT:
        texts.append(f"the path is straight: the second axis holds {found.explained[1]:.1e} of the variance")
    return texts


def _rounding(found: Plane) -> list[str]:
    gaps = step_in_gaps(found)
    if gaps is None:
        return []
    told = f"checkpoints are stored in {', '.join(found.storage)} and {found.changed:.0%} of the weights changed"
    if gaps < ONE_GAP:
        told += f", by {gaps:.1f} gaps between neighbouring values: rounding alone bends a straight path so"
    else:
        told += ": rounding may bend a straight path"
    return [told + "; keep float32 master weights for a landscape"]


def like_random_walk(found: Plane) -> bool:
    """Whether the first shares of variance are those of a random walk of as many checkpoints."""
    shares = found.explained[:3]
    return bool(np.abs(shares - random_walk(len(found.folders))[: len(shares)]).max() < LIKE_A_WALK)


def step_in_gaps(found: Plane) -> float | None:
    """The root mean square step of the weights that changed, from the first checkpoint to the last, in gaps.

    A gap lies between neighbouring values of the coarsest number format found. None for float32, whose gaps are far
    below any step of training.
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
    """A number in three digits with the letter of its thousands, such as ``4.82 T``."""
    power = min(max(len(f"{number:.0f}") - 1, 0) // 3, 4)
    return f"{number / 1000**power:.3g} {' kMGT'[power].strip()}"
