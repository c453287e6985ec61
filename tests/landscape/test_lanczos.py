"""The plane is that of the method which the paper names: Lanczos iteration on the centred checkpoints."""

import numpy as np
import pytest
from safetensors.torch import load_file

from magcli.landscape.components import write_components
from magcli.landscape.pca import plane


def axes_of(found, folder):
    files = [load_file(file) for file in write_components(found, folder)]
    return np.stack([np.concatenate([file[name].numpy().ravel() for name in sorted(file)]) for file in files])


def by_lanczos(checkpoints):
    """The first two eigenvectors (2, W) and all eigenvalues of X^T X, of centred checkpoints X (T, W), in T - 1 steps.

    X^T X (W, W) is never formed: a step multiplies a vector by X and by X^T.
    """
    centred = checkpoints - checkpoints.mean(0)
    basis = np.empty((0, checkpoints.shape[1]))
    vector = np.random.default_rng(0).normal(size=len(centred)) @ centred
    for _ in range(len(centred) - 1):
        for _ in range(2):  # a second time, as the first leaves rounding errors
            vector = vector - (basis @ vector) @ basis
        basis = np.vstack([basis, vector / np.linalg.norm(vector)])
        vector = (centred @ basis[-1]) @ centred
    along = basis @ centred.T
    values, vectors = np.linalg.eigh(along @ along.T)
    return vectors.T[::-1][:2] @ basis, values[::-1]


@pytest.mark.parametrize("drift", [1e-1, 1e-3])
@pytest.mark.parametrize("count", [3, 4, 12])
def test_the_plane_is_that_of_lanczos_iteration(make_run, curved, tmp_path, drift, count):
    run = make_run(curved(count, drift))
    found = plane(run.folders)
    checkpoints = np.stack([weights_of(folder) for folder in run.folders])
    axes, values = by_lanczos(checkpoints)
    other = axes_of(found, tmp_path / "components").astype(float)
    assert np.abs(axes @ other.T) == pytest.approx(np.eye(2), abs=1e-4)
    assert found.explained == pytest.approx(values / values.sum(), rel=1e-3, abs=1e-6)
    moved = (checkpoints - checkpoints[-1]) @ axes.T
    assert np.abs(moved) == pytest.approx(np.abs(found.trajectory), abs=1e-4 * np.abs(found.trajectory).max())


def weights_of(folder):
    tensors = load_file(folder / "model.safetensors")
    return np.concatenate([tensors[name].double().numpy().ravel() for name in sorted(tensors)])


def test_symmetric_paths_hide_no_axis(make_run, tmp_path):
    """An arc whose second coordinate is even in time: a start vector that rises evenly would never see it."""
    base, along, across = np.random.default_rng(0).normal(size=(3, 2856))
    time = np.linspace(-1, 1, 9)
    run = make_run(base + 0.1 * np.outer(time, along) + 0.05 * np.outer(time**2, across))
    axes, _ = by_lanczos(np.stack([weights_of(folder) for folder in run.folders]))
    other = axes_of(plane(run.folders), tmp_path / "components").astype(float)
    assert np.abs(axes @ other.T) == pytest.approx(np.eye(2), abs=1e-4)
