"""Short labels for the tables of several models."""

from collections.abc import Iterable, Sequence
from itertools import count
from pathlib import Path


def labels(names: Sequence[str]) -> list[str]:
    """Distinct short labels of paths: each without the folders shared by all, and without its suffix.

    If only the suffix differs it is included; equal paths are numbered.
    """
    paths = [Path(name) if Path(name).name not in ("", "..") else Path(name).resolve() for name in names]
    parts = [path.with_suffix("").parts if path.name else path.parts for path in paths]
    shared = 0
    while parts and all(len(part) > shared + 1 and part[shared] == parts[0][shared] for part in parts):
        shared += 1
    short = ["/".join(part[shared:]) for part in parts]
    return distinct(
        label + Path(name).suffix if short.count(label) > 1 else label for label, name in zip(short, names, strict=True)
    )


def distinct(names: Iterable[str]) -> list[str]:
    """The names made distinct: a repeated one gets the next free number."""
    found: list[str] = []
    for name in names:
        numbered = (f"{name} ({number})" for number in count(2))
        found.append(name if name not in found else next(each for each in numbered if each not in found))
    return found
