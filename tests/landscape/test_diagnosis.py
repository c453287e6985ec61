"""What is said of a plane: figures that are there, and warnings where rounding or a random walk would look the same."""

import numpy as np
import pytest
import torch

from magcli.landscape.checkpoints import open_checkpoint
from magcli.landscape.pca import cost, details, like_random_walk, plane, step_in_gaps, summary, warnings

BF16 = torch.bfloat16


def straight(count, drift):
    """Weights on a straight path of relative length ``drift``."""
    base, along = 0.03 * np.random.default_rng(0).normal(size=(2, 2856))
    return base + drift * np.outer(np.linspace(0, 1, count), along)


def test_a_straight_path_in_bf16_looks_like_a_random_walk_and_is_called_so(make_run):
    rng = np.random.default_rng(0)
    base, along = 0.03 * rng.normal(size=(2, 2856))
    stack = base + 1e-3 * np.outer(np.linspace(0, 1, 16), along)
    found = plane(make_run(stack, dtypes=(BF16,)).folders)
    first, second, *rest = warnings(found)
    assert "stored in bfloat16" in first
    assert "that of a random walk or of rounding" in second
    assert not rest
    assert "drift 2.01e-03, 30.5% of the weights changed" in summary(found)
    assert "random walk 61.2 / 15.5 / 7.0 %" in summary(found)


def test_a_curved_path_in_float32_raises_no_warning(make_run, curved):
    assert warnings(plane(make_run(curved(9, 1e-2, noise=0.01)).folders)) == []


def test_equal_singular_values_are_called_arbitrary_axes(make_run):
    time = np.arange(12) * np.pi / 6
    circle = np.column_stack([np.cos(time), np.sin(time)]) @ np.random.default_rng(0).normal(size=(2, 2856))
    assert any("within 10 %" in text for text in warnings(plane(make_run(circle).folders)))


@pytest.mark.parametrize(("drift", "alone"), [(1e-4, True), (1e-3, True), (3e-3, True), (3e-2, False)])
def test_rounding_noise_is_distinguished_from_larger_steps(make_run, drift, alone):
    found = plane(make_run(straight(8, drift), dtypes=(BF16,)).folders)
    assert ("rounding alone would bend a straight path like this" in warnings(found)[0]) is alone
    assert step_in_gaps(found) == pytest.approx(true_gaps(found), rel=0.5)


def true_gaps(found):
    """The rms step of the changed weights over the rms of their own gaps, weight by weight."""
    first, last = (dict(_tensors(folder)) for folder in (found.folders[0], found.folders[-1]))
    moved, gaps = 0.0, 0.0
    for name, tensor in first.items():
        step, gap = last[name] - tensor, torch.exp2(torch.floor(torch.log2(tensor.abs())) - 7)
        moved += float(step.square().sum())
        gaps += float(gap[step != 0].square().sum())
    return (moved / gaps) ** 0.5


def _tensors(folder):
    from safetensors.torch import load_file

    return [(name, tensor.float()) for name, tensor in load_file(folder / "model.safetensors").items()]


def test_a_random_walk_in_float32_is_called_so(make_run):
    walk = np.random.default_rng(1).normal(size=(12, 2856)).cumsum(0)
    found = plane(make_run(walk).folders)
    assert like_random_walk(found)
    assert step_in_gaps(found) is None
    (sentence,) = warnings(found)
    assert sentence.endswith("is that of a random walk or of rounding")


def test_details_name_each_checkpoints_share_off_the_plane_and_the_tensors_that_moved(make_run, curved):
    found = plane(make_run(curved(5, 1e-2)).folders)
    outside, moved = details(found)
    for folder, share in zip(found.folders[:-1], found.off_plane, strict=False):
        assert f"{folder.name} {share:.0%}" in outside
    assert found.folders[-1].name not in outside
    assert "embed.weight" in moved


def test_the_cost_counts_every_byte(make_run, curved):
    run = make_run(curved(5, 1e-2), dtypes=(BF16,))
    sentence = cost([open_checkpoint(folder) for folder in run.folders])
    assert sentence.startswith("5 checkpoints of 2.86 k weights: 2 x 28.6 kB read, 22.8 kB written, about ")
