"""A landscape in the report: drawn from its points, or of an older version its pictures, with its main numbers."""

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

from magcli.errors import DataError
from magcli.landscape.surface import difference_text, origin_text
from magcli.report import landscape_maps
from magcli.report.discovery import LANDSCAPE_FILES, open_table, rows_of
from magcli.report.formatting import number, percent, short_path
from magcli.report.landscape_maps import Drawing

FIGURES = (
    ("reward", "Mean reward over the plane of the two principal components; the arrows show the path of the weights."),
    ("length", "Mean completion length in tokens, over the same plane."),
    ("regression", "Raw reward (without length penalty) against mean length, with the 95 % band of the regression."),
)
TABLES = ("points.csv", "tensors.csv")
KINDS = (("svg", "image/svg+xml"), ("png", "image/png"))
MAX_BYTES = 1 << 20
"""Maximum size of an embedded image; if the SVG is larger, the PNG is used."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure: its caption and its bytes as a ``data:`` URL."""

    caption: str
    url: str


@dataclass(frozen=True, slots=True)
class Landscape:
    """A landscape: its name, facts, warnings, drawings or pictures, and the path of its interactive page."""

    name: str
    facts: Sequence[str]
    warnings: Sequence[str]
    drawings: Sequence[Drawing]
    pictures: Sequence[Picture]
    page: str


def read(folder: Path) -> Landscape:
    """Read a folder written by `magcli landscape`.

    Raises:
        DataError: its JSON is damaged.
    """
    paths = [folder / name for name in LANDSCAPE_FILES]
    path = next(path for path in paths if path.is_file())
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        # Older versions have no triangles, and their surfaces only as pictures.
        points = _points(folder) if data.get("triangles") else []
        facts = _plane(data)
        facts += _surface(points)
        facts += _fit(data.get("regression") or {})
        repeated = data.get("origin_again")
        if repeated:
            facts.append(origin_text(repeated))
        drawings = _drawings(points, data) if points else []
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):  # whatever a changed file may raise
        raise DataError(f"{path} is damaged; run magcli landscape again") from None
    pictures = [] if drawings else _pictures(folder)
    page = folder / "index.html"
    return Landscape(
        name=short_path(str(folder)),
        facts=facts,
        warnings=data.get("warnings", []),
        drawings=drawings,
        pictures=pictures,
        page=str(page) if page.is_file() else "",
    )


def _pictures(folder: Path) -> list[Picture]:
    pictures = [Picture(caption, _data_url(folder, stem)) for stem, caption in FIGURES]
    return [picture for picture in pictures if picture.url]


def _points(folder: Path) -> list[dict[str, Any]]:
    """The evaluated points; none where their table is missing."""
    path = folder / TABLES[0]
    return list(rows_of(open_table(path))) if path.is_file() else []


def _drawings(points: landscape_maps.Points, data: Mapping[str, Any]) -> list[Drawing]:
    return [
        landscape_maps.surface("Mean reward", "reward", points, data),
        landscape_maps.surface("Mean length in tokens", "length", points, data),
        landscape_maps.by_length(points, data["regression"]),
    ]


def _surface(points: landscape_maps.Points) -> list[str]:
    """The range of the reward over the points, and its best one."""
    if not points:
        return []
    rewards = [point["reward"] for point in points]
    values = f"Reward {min(rewards):.3f} to {max(rewards):.3f} over {len(points)} points"
    # By the difference, which is paired by problem, and less noisy than the reward itself.
    best = max(points, key=itemgetter("difference"))
    if best["difference"] <= 0:
        return [f"{values}; none has more than the final weights"]
    where = f"a1 {number(best['a1'])}, a2 {number(best['a2'])}"
    return [f"{values}; the best, at {where}, has {difference_text(best)} against the final weights"]


def tables(folder: Path) -> list[Path]:
    """The tables of a landscape, which carry its history."""
    paths = [folder / name for name in TABLES]
    return [path for path in paths if path.is_file()]


def _plane(data: Mapping[str, Any]) -> list[str]:
    facts = []
    checkpoints = data.get("checkpoints")
    if checkpoints:
        drift = data.get("drift")
        drifted = "" if drift is None else f"; relative drift {drift:.1e}"
        facts.append(f"{len(checkpoints)} checkpoints{drifted}")
    explained = data.get("explained")
    if explained:
        walk = data.get("random_walk")
        expected = f" (random walk: {_percents(walk)})" if walk else ""
        facts.append(f"The two components explain {_percents(explained)} of the variance of the path{expected}")
    return facts


def _percents(values: Sequence[float]) -> str:
    return " and ".join(map(percent, values[:2]))


def _fit(data: Mapping[str, Any]) -> list[str]:
    if not data.get("slope_per_doubling"):
        return []
    gain, low, high = data["slope_per_doubling"]
    used = f"R² {data['r2']:.2f}, {number(data['points_used'])} points"
    return [f"Raw reward per doubling of length: {gain:+.3f} [{low:+.3f}, {high:+.3f}], {used}"]


def _data_url(folder: Path, stem: str) -> str:
    # The sharper one first, if it is small enough.
    for ending, kind in KINDS:
        path = folder / f"{stem}.{ending}"
        if path.is_file() and 0 < path.stat().st_size <= MAX_BYTES:
            encoded = base64.b64encode(path.read_bytes()).decode()
            return f"data:{kind};base64,{encoded}"
    return ""
