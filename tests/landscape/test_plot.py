"""The figures: exact on triangles, the same bytes twice, and drawable whatever the data."""

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.tri import LinearTriInterpolator

from magcli.landscape import results
from magcli.landscape.surface import grid, length_regression, triangulate

PATH = np.column_stack([np.linspace(4, 0, 6), 0.02 * np.sin(np.linspace(0, np.pi, 6))])
PATH[-1] = 0
POINTS = grid(PATH, points=19)
EXPLAINED = [0.7, 0.2, 0.1]


def evaluations(points=POINTS, prompts=8):
    """Lengths and raw rewards (points, prompts)."""
    lengths = 2000 * np.exp(-0.2 * points[:, :1]) * np.linspace(0.8, 1.2, prompts)
    return lengths, 0.1 * np.log(lengths) + 0.01 * np.sin(np.arange(lengths.size)).reshape(lengths.shape)


def test_values_at_a_triangles_centroid_are_the_mean_of_its_corners():
    values = np.random.default_rng(0).normal(size=len(POINTS))
    triangles = triangulate(POINTS)
    kept = triangles.get_masked_triangles()
    linear = LinearTriInterpolator(triangles, values)
    centroids = POINTS[kept].mean(1)
    assert len(kept) > len(POINTS)
    assert np.asarray(linear(*centroids.T)) == pytest.approx(values[kept].mean(1), abs=1e-12)


def surface(values):
    return results.Surface(POINTS, values, PATH, EXPLAINED, "Mean reward", "reward")


def draw_all(folder):
    lengths, rewards = evaluations()
    fit = length_regression(lengths, rewards, low=1000, high=3000)
    mean_lengths, mean_rewards = lengths.mean(1), rewards.mean(1)
    regression = results.LengthFit(mean_lengths, mean_rewards, fit)
    return [
        *results.write_figure(folder / "v1.5" / "reward", surface(mean_rewards)),
        *results.write_figure(folder / "regression", regression),
        *results.write_figure(folder / "all", surface(mean_rewards), surface(mean_lengths), regression),
    ]


def test_figures_are_written_as_png_svg_and_pdf_with_the_same_bytes_twice(tmp_path):
    one, other = draw_all(tmp_path / "one"), draw_all(tmp_path / "other")
    assert [path.name for path in one] == [
        f"{stem}.{kind}" for stem in ("reward", "regression", "all") for kind in ("png", "svg", "pdf")
    ]
    for first, second in zip(one, other, strict=True):
        assert first.read_bytes() == second.read_bytes()
        assert first.read_bytes().startswith({".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}[first.suffix])
    assert b"<dc:date>" not in one[1].read_bytes()


def test_a_stem_may_contain_a_dot(tmp_path):
    lengths, rewards = evaluations()
    written = results.write_figure(tmp_path / "v1.5", results.LengthFit(lengths.mean(1), rewards.mean(1), None))
    assert [path.name for path in written] == ["v1.5.png", "v1.5.svg", "v1.5.pdf"]


def test_a_surface_marks_points_path_and_final_weights():
    axes = Figure().add_subplot()
    surface(np.arange(len(POINTS))).draw(axes)
    dots, star = axes.lines
    assert np.column_stack(dots.get_data()) == pytest.approx(POINTS)
    assert np.column_stack(star.get_data()) == pytest.approx(PATH[-1:])
    arrows = next(c for c in axes.collections if type(c).__name__ == "Quiver")
    assert np.column_stack([arrows.U, arrows.V]) == pytest.approx(np.diff(PATH, axis=0))
    assert "(70.0 % of variance)" in axes.get_xlabel()
    assert "(20.0 % of variance)" in axes.get_ylabel()


@pytest.mark.parametrize("value", [0.0, 1e6])
def test_a_flat_surface_is_drawn(tmp_path, value):
    written = results.write_figure(tmp_path / "flat", surface(np.full(len(POINTS), value)))
    assert all(path.stat().st_size > 1000 for path in written)


@pytest.mark.parametrize("lengths", [np.full(4, 20.0), np.array([20.0, 21, 22, 23]), np.geomspace(3, 30_000, 4)])
def test_any_range_of_lengths_has_a_few_distinct_ticks(tmp_path, lengths):
    axes = Figure().add_subplot()
    results.LengthFit(lengths, np.arange(4.0), None).draw(axes)
    labels = [label.get_text() for label in axes.get_xticklabels()]
    assert 1 <= len(labels) <= 5
    assert len(set(labels)) == len(labels)
    assert "too few lengths" in axes.get_title()
