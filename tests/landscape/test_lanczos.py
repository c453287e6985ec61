"""Lanczos against the Gram matrix: the same plane, and the number of passes it takes."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from magcli.errors import DataError
from magcli.landscape import pca as module
from magcli.landscape.components import write_components
from magcli.landscape.pca import plane, summary, warnings


def axes_of(found, folder):
    files = [load_file(file) for file in write_components(found, folder)]
    return np.stack([np.concatenate([file[name].numpy().ravel() for name in sorted(file)]) for file in files])


@pytest.mark.parametrize("drift", [1e-1, 1e-3, 1e-5])
@pytest.mark.parametrize("count", [3, 4, 12])
def test_the_plane_is_that_of_the_gram(make_run, curved, tmp_path, drift, count):
    run = make_run(curved(count, drift))
    one, other = plane(run.folders), plane(run.folders, method="lanczos")
    first, second = axes_of(one, tmp_path / "gram").astype(float), axes_of(other, tmp_path / "lanczos").astype(float)
    p, q = (np.linalg.qr(rows.T)[0] for rows in (first, second))
    assert np.linalg.norm(p - q @ (q.T @ p), 2) < 1e-6
    assert second @ first.T == pytest.approx(np.eye(2), abs=1e-5)
    assert other.trajectory == pytest.approx(one.trajectory, abs=1e-5 * np.abs(one.trajectory).max())
    assert other.explained == pytest.approx(one.explained[:2], rel=1e-5)
    assert other.off_plane == pytest.approx(one.off_plane, abs=1e-3)
    assert (other.drift, other.changed) == (pytest.approx(one.drift, rel=1e-5), one.changed)
    assert [t.variance for t in other.tensors] == pytest.approx([t.variance for t in one.tensors], rel=1e-4)
    assert {t.explained for t in other.tensors} == {()}
    assert summary(other).startswith(f"{count} checkpoints in float32")
    assert [text[:20] for text in warnings(other)] == [text[:20] for text in warnings(one)]


def test_files_are_read_only_a_few_times(make_run, curved, monkeypatch):
    run, reads = make_run(curved(20, 1e-2, noise=0.02)), []
    original = module.over_blocks
    monkeypatch.setattr(module, "over_blocks", lambda *given: reads.append(1) or original(*given))
    plane(run.folders, method="lanczos")
    assert 4 <= len(reads) <= 12


def test_symmetric_paths_hide_no_axis(make_run):
    """An arc whose second coordinate is even in time: a start vector that rises evenly would never see it."""
    base, along, across = np.random.default_rng(0).normal(size=(3, 2856))
    time = np.linspace(-1, 1, 9)
    run = make_run(base + 0.1 * np.outer(time, along) + 0.05 * np.outer(time**2, across))
    one, other = (plane(run.folders, method=method) for method in ("gram", "lanczos"))
    assert other.trajectory == pytest.approx(one.trajectory, rel=1e-4, abs=1e-5)


def test_invalid_checkpoints_are_refused(make_run, curved):
    stack = curved(4, 1e-2)
    with pytest.raises(DataError, match="no weight changed"):
        plane(make_run(np.repeat(stack[:1], 4, axis=0), name="still").folders, method="lanczos")
    stack[1, -1] = np.nan
    with pytest.raises(DataError, match=r"step_00001/model\.safetensors: tensor norm\.weight contains NaN"):
        plane(make_run(stack, name="nan").folders, method="lanczos")
    base, along = np.random.default_rng(0).integers(-8, 8, size=(2, 2856))
    line = base + np.outer([0.0, 1, 3, 4], along)
    with pytest.raises(DataError, match="lie on one line"):
        plane(make_run(line, name="line").folders, method="lanczos")


def test_block_size_does_not_matter(make_run, curved):
    run = make_run(curved(6, 1e-2), dtypes=(torch.bfloat16,))
    one, other = (plane(run.folders, method="lanczos", block=block) for block in (101, 1 << 18))
    assert one.trajectory == pytest.approx(other.trajectory, rel=1e-7, abs=1e-9)
