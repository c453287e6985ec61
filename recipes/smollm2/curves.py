"""Draw the learning curves of RL runs as two small SVG files, for light and dark pages.

    python recipes/smollm2/curves.py FOLDER/rl-* [--control FOLDER/shuffled] -o docs/assets/smollm2

writes ``docs/assets/smollm2-light.svg`` and ``-dark.svg``: the share of correct completions in each update, a moving
average over five updates, its mean over the seeds with their range as a band, and the control.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

WINDOW = 5
"""Updates of the moving average."""
SIZE = 6.4, 2.8
"""Inches."""
THEMES = {
    "light": {"text": "#1f2328", "grid": "#d1d9e0", "rl": "#0969da", "control": "#9a6700"},
    "dark": {"text": "#f0f6fc", "grid": "#3d444d", "rl": "#4493f8", "control": "#d29922"},
}
"""Colours on GitHub's light and dark backgrounds."""


def correct_shares(run: Path) -> np.ndarray:
    """The share of correct completions by update, ``[updates - WINDOW + 1]``, as a moving average."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    shares = np.array([line["correct"] for line in lines], dtype=float)
    return np.convolve(shares, np.full(WINDOW, 1 / WINDOW), mode="valid")


def draw(runs: Sequence[np.ndarray], control: np.ndarray | None, colours: dict[str, str], path: Path) -> None:
    """Draw one figure."""
    figure = Figure(figsize=SIZE, layout="constrained")
    FigureCanvasSVG(figure)
    axes = figure.add_subplot()
    common = min(map(len, runs))
    seeds = np.stack([run[:common] for run in runs])
    updates = np.arange(WINDOW, WINDOW + common)
    axes.fill_between(updates, seeds.min(axis=0), seeds.max(axis=0), color=colours["rl"], alpha=0.25, linewidth=0)
    axes.plot(updates, seeds.mean(axis=0), color=colours["rl"], label=f"RL, mean and range of {len(runs)} seeds")
    if control is not None:
        at = np.arange(WINDOW, WINDOW + len(control))
        axes.plot(at, control, color=colours["control"], linestyle="--", label="control: shuffled rewards")
    axes.set_xlabel("update (64 completions each)", color=colours["text"])
    axes.set_ylabel("correct completions", color=colours["text"])
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.tick_params(colors=colours["text"])
    axes.grid(color=colours["grid"], linewidth=0.6)
    axes.spines[:].set_visible(False)
    axes.legend(frameon=False, labelcolor=colours["text"], loc="upper left")
    figure.savefig(path, transparent=True, metadata={"Date": None})


def main() -> None:
    """Draw both figures."""
    parser = argparse.ArgumentParser(description="Draw the learning curves of RL runs.")
    parser.add_argument("runs", nargs="+", type=Path, help="folders of RL runs, one for each seed")
    parser.add_argument("--control", type=Path, help="folder of the run with shuffled rewards")
    parser.add_argument("-o", required=True, help="path of the figures without -light.svg and -dark.svg")
    given = parser.parse_args()
    runs = [correct_shares(run) for run in given.runs]
    control = correct_shares(given.control) if given.control else None
    with matplotlib.rc_context({"svg.hashsalt": "magcli", "svg.fonttype": "none", "font.size": 9}):
        for theme, colours in THEMES.items():
            draw(runs, control, colours, Path(f"{given.o}-{theme}.svg"))


if __name__ == "__main__":
    main()
