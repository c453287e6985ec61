"""The landscape as one HTML page: no network, drawn by the browser from figures that stand in the page itself.

Surfaces are linear on the same triangles as in the other figures. Every point can be reached by mouse and keyboard,
tells reward, interval, length and truncation, and opens the completions that were kept there.
"""

import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from magcli.data.durable import atomic_file
from magcli.landscape.results import PER_PROBLEM, places
from magcli.landscape.surface import Regression, band
from magcli.landscape.triangles import triangulate

SHOWN_TENSORS = 12
LONGEST_TEXT = 20_000
"""Characters of a prompt or completion on the page; longer ones are cut there, and whole in the table of samples."""


def write_page(
    path: Path, told: Mapping[str, Any], points: pa.Table, samples: pa.Table, fit: Regression | None
) -> None:
    """Write the page. ``told`` are the figures of ``landscape.json`` with ``name``, ``facts``, ``origin``, in words."""
    data = {
        **{key: value for key, value in told.items() if key not in ("regression", "tensors")},
        "tensors": _moved_most(told["tensors"]),
        "points": points.drop_columns(list(PER_PROBLEM)).to_pylist(),
        "triangles": triangulate(places(points)).get_masked_triangles().tolist(),
        "samples": [_cut(row) for row in samples.to_pylist()],
        "fit": told["regression"] | ({"band": _band(points, fit)} if fit else {}),
    }
    template = files("magcli.landscape").joinpath("page.html").read_text(encoding="utf-8")
    with atomic_file(path) as file:
        file.write(template.replace("@DATA@", embedded(data)).encode())


def embedded(data: Mapping[str, Any]) -> str:
    """JSON that no text in it can end early: it stands within a script element."""
    return json.dumps(data, allow_nan=False).replace("<", "\\u003c")


def _moved_most(tensors: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return sorted(tensors, key=lambda tensor: -tensor["variance"])[:SHOWN_TENSORS]


def _cut(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value[:LONGEST_TEXT] if isinstance(value, str) else value for key, value in row.items()}


def _band(points: pa.Table, fit: Regression) -> list[list[float]]:
    """Lengths with the ends of the line's 95 % interval there."""
    used = points.column("length").to_numpy()[fit.used]
    lengths = np.geomspace(used.min(), used.max(), 40)
    _, low, high = band(fit, lengths)
    found: list[list[float]] = np.stack([lengths, low, high], 1).tolist()
    return found
