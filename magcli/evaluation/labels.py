"""What tells tables of several models apart in the figures that are laid side by side."""

from collections.abc import Sequence
from pathlib import Path


def labels(names: Sequence[str]) -> list[str]:
    """What tells several paths apart: each without the folders that all of them share, and without its ending."""
    parts = [Path(name).with_suffix("").parts for name in names]
    shared = 0
    while parts and all(len(part) > shared + 1 and part[shared] == parts[0][shared] for part in parts):
        shared += 1
    return ["/".join(part[shared:]) for part in parts]
