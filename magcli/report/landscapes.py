"""A landscape on the page: its figures as pictures within the page, and what its numbers say."""

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from magcli.errors import DataError
from magcli.report.wording import number, share, tail

FIGURES = (
    ("reward", "Mean reward over the plane of the two principal components; arrows are the path of the weights."),
    ("length", "Mean length of the completions, in tokens, over the same plane."),
    ("regression", "Raw reward, without the length penalty, against mean length, with the regression's 95 % band."),
)
TABLES = ("points.csv", "tensors.csv")
KINDS = (("svg", "image/svg+xml"), ("png", "image/png"))
LARGEST = 1 << 20
"""Bytes of a picture that is taken into the page; of an SVG that is larger the PNG is taken."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure: what it shows, and its bytes as an address within the page."""

    told: str
    address: str


@dataclass(frozen=True, slots=True)
class Landscape:
    """A landscape: where it lies, facts, warnings, pictures, and the page beside it to look around in."""

    name: str
    facts: Sequence[str]
    warnings: Sequence[str]
    pictures: Sequence[Picture]
    page: str


def read(folder: Path) -> Landscape:
    """What a folder of `magcli landscape` holds.

    Raises:
        DataError: its figures are damaged.
    """
    path = next(path for name in ("landscape.json", "plane.json") if (path := folder / name).is_file())
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        facts = [*_plane(told), *_fit(told.get("regression") or {}), *_again(told.get("origin_again") or {})]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise DataError(f"{path} is damaged; make the landscape again") from None
    pictures = [Picture(words, address) for stem, words in FIGURES if (address := _address(folder, stem))]
    page = folder / "index.html"
    warnings = told.get("warnings", [])
    return Landscape(tail(str(folder)), facts, warnings, pictures, str(page) if page.is_file() else "")


def tables(folder: Path) -> list[Path]:
    """The tables of a landscape, whose histories tell what made it."""
    return [path for name in TABLES if (path := folder / name).is_file()]


def _plane(told: Mapping[str, Any]) -> list[str]:
    facts = []
    if told.get("checkpoints"):
        drift = f"; drift {told['drift']:.1e} of the weights' size" if told.get("drift") is not None else ""
        facts.append(f"{len(told['checkpoints'])} checkpoints{drift}")
    if explained := told.get("explained"):
        walk = told.get("random_walk")
        beside = f"; a random walk would show {_shares(walk)}" if walk else ""
        facts.append(f"The two components explain {_shares(explained)} of the path's variance{beside}")
    return facts


def _shares(values: Sequence[float]) -> str:
    return " and ".join(map(share, values[:2]))


def _fit(told: Mapping[str, Any]) -> list[str]:
    if not told.get("slope_per_doubling"):
        return []
    gain, low, high = told["slope_per_doubling"]
    used = f"R² {told['r2']:.2f}, {number(told['points_used'])} points"
    return [f"Raw reward per doubling of the length {gain:+.3f} [{low:+.3f}, {high:+.3f}], {used}"]


def _again(told: Mapping[str, Any]) -> list[str]:
    if not told:
        return []
    apart = f"{told['difference']:+.3f} [{told['difference_low']:+.3f}, {told['difference_high']:+.3f}]"
    equal = f"{told['equal']:,} of {told['completions']:,} completions equal"
    return [f"Final weights again at the end: {equal}, reward {apart}"]


def _address(folder: Path, stem: str) -> str:
    for ending, kind in KINDS:
        path = folder / f"{stem}.{ending}"
        if path.is_file() and 0 < path.stat().st_size <= LARGEST:
            return f"data:{kind};base64,{base64.b64encode(path.read_bytes()).decode()}"
    return ""
