"""Triangles at any scale of the axes, and the places that finer sampling is sent to."""

import numpy as np
import pytest

from magcli.landscape.surface import grid, near_best_and_path, refinement_points, triangulate

PATH = np.column_stack([np.linspace(4, 0, 6), 0.02 * np.sin(np.linspace(0, np.pi, 6))])
PATH[-1] = 0
POINTS = grid(PATH, points=61)


def bump(points, where, width=0.6):
    """A hill of height 1 at ``where``, in coordinates in which the grid is a square."""
    unit = (points - where) / np.ptp(POINTS, axis=0)
    return np.exp(-(unit**2).sum(1) / (2 * (0.2 * width) ** 2))


def by_prompt(mean, prompts=16):
    """The same means for every prompt, and a little that the prompts differ in."""
    return mean[:, None] + 0.01 * np.random.default_rng(0).normal(size=(len(mean), prompts))


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_triangles_do_not_depend_on_the_scale_of_an_axis(scale):
    points = np.random.default_rng(1).uniform(size=(40, 2))
    kept = [
        {frozenset(t) for t in triangulate(p).get_masked_triangles().tolist()} for p in (points, points * [1, scale])
    ]
    assert kept[0] == kept[1]


def test_triangles_cover_the_rectangle_of_the_grid():
    triangles = triangulate(POINTS)
    corners = POINTS[triangles.get_masked_triangles()]
    first, second = corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]
    area = np.abs(first[:, 0] * second[:, 1] - first[:, 1] * second[:, 0]).sum() / 2
    assert area == pytest.approx(np.prod(np.ptp(POINTS, axis=0)))


def test_slivers_are_masked():
    points = np.array([[0, 0], [0.5, 1e-4], [1, 0], [0, 1], [1, 1]], float)
    kept = {frozenset(t) for t in triangulate(points).get_masked_triangles().tolist()}
    assert frozenset({0, 1, 2}) not in kept
    assert frozenset({3, 1, 4}) in kept


def test_rounding_errors_give_no_warning_and_no_sliver():
    moved = POINTS * (1 + 1e-9 * np.random.default_rng(0).normal(size=POINTS.shape))
    assert {frozenset(t) for t in triangulate(moved).get_masked_triangles().tolist()} == {
        frozenset(t) for t in triangulate(POINTS).get_masked_triangles().tolist()
    }


def test_refinement_follows_the_slopes_of_a_hill():
    where = np.array([1.5, 0.01])
    chosen = refinement_points(POINTS, by_prompt(bump(POINTS, where)), 6)
    assert chosen.shape == (6, 2)
    assert len(np.unique(chosen, axis=0)) == 6
    away = np.linalg.norm((chosen - where) / np.ptp(POINTS, axis=0), axis=1)
    everywhere = np.linalg.norm((POINTS - where) / np.ptp(POINTS, axis=0), axis=1)
    assert away.max() < 0.3 < everywhere.max()


def test_refinement_does_not_follow_noise():
    """Two equal hills, one of them with problems that disagree: the sure one is looked at first."""
    one, other = np.array([0.5, 0.0]), np.array([3.5, 0.0])
    rewards = by_prompt(bump(POINTS, one) + bump(POINTS, other))
    noise = np.random.default_rng(0).normal(size=rewards.shape) * bump(POINTS, other, width=2)[:, None]
    chosen = refinement_points(POINTS, rewards + 3 * (noise - noise.mean(1, keepdims=True)), 4)
    assert (chosen[:, 0] < 2).all()


@pytest.mark.parametrize("count", [0, 1, 10_000])
def test_at_most_all_triangles_are_refined(count):
    found = refinement_points(POINTS, by_prompt(bump(POINTS, [1, 0])), count)
    assert len(found) == min(count, len(triangulate(POINTS).get_masked_triangles()))


def test_a_flat_landscape_can_be_refined():
    assert refinement_points(POINTS, np.ones((len(POINTS), 1)), 3).shape == (3, 2)


def test_more_samples_go_to_the_best_point_its_neighbours_and_the_path():
    best = 7
    chosen = near_best_and_path(POINTS, np.eye(len(POINTS))[best], PATH).tolist()
    origin = int((POINTS == 0).all(1).argmax())
    assert {best, origin} <= set(chosen)
    assert len(chosen) < len(POINTS)
    neighbours = {k for t in triangulate(POINTS).get_masked_triangles().tolist() if best in t for k in t}
    assert neighbours <= set(chosen)
    assert near_best_and_path(POINTS * [1, 100], np.eye(len(POINTS))[best], PATH * [1, 100]).tolist() == chosen


def test_checkpoints_outside_the_range_have_no_triangle():
    inside = near_best_and_path(POINTS, np.eye(len(POINTS))[0], PATH[-1:]).tolist()
    assert near_best_and_path(POINTS, np.eye(len(POINTS))[0], np.vstack([PATH[-1:], [[1e6, 1e6]]])).tolist() == inside
