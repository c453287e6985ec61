"""The plane against numpy's SVD in float64, and what must not change it."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from magcli.errors import DataError
from magcli.landscape.components import write_components
from magcli.landscape.gram import piece_sums
from magcli.landscape.pca import plane, random_walk, warnings

BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32


def components(run, folder, **options):
    """The plane of a run, and its components (2, W) in sorted order of tensor names."""
    found = plane(run.folders, **options)
    files = [load_file(file) for file in write_components(found, folder, **options)]
    return found, np.stack([np.concatenate([file[name].numpy().ravel() for name in sorted(file)]) for file in files])


def angle(one, other):
    """The largest principal angle between two planes (2, W), in radians."""
    p, q = (np.linalg.qr(rows.T.astype(np.float64))[0] for rows in (one, other))
    return float(np.arcsin(min(1.0, np.linalg.norm(p - q @ (q.T @ p), 2))))


@pytest.mark.parametrize("drift", [1e-1, 1e-3, 1e-5])
def test_the_plane_is_that_of_the_svd_at_any_drift(make_run, curved, tmp_path, drift):
    run = make_run(curved(9, drift))
    found, axes = components(run, tmp_path / "c")
    assert angle(axes, run.components()) < 1e-6
    assert np.linalg.norm(axes.astype(np.float64), axis=1) == pytest.approx(1, abs=1e-6)
    assert abs(axes[0] @ axes[1]) < 1e-6
    assert found.drift == pytest.approx(
        np.linalg.norm(run.stack[-1].astype(float) - run.stack[0]) / np.linalg.norm(run.stack[0]), rel=1e-5
    )


@pytest.mark.parametrize("dtypes", [(BF16,), (F16,), (F32, BF16, F16)])
def test_other_storage_gives_the_plane_of_the_stored_values(make_run, curved, tmp_path, dtypes):
    run = make_run(curved(7, 1e-1), dtypes=dtypes)
    found, axes = components(run, tmp_path / "c")
    assert angle(axes, run.components()) < 1e-6
    assert found.storage == tuple(sorted(str(dtype).removeprefix("torch.") for dtype in dtypes))


def test_one_vector_added_to_every_checkpoint_changes_nothing(make_run, curved, tmp_path):
    stack = np.round(curved(6, 1e-1) * 2**16) / 2**16
    one, first = components(make_run(stack, name="one"), tmp_path / "c1")
    shift = np.round(np.random.default_rng(3).normal(size=stack.shape[1]) * 2**6) / 2**6
    two, second = components(make_run(stack + shift, name="two"), tmp_path / "c2")
    assert np.array_equal(first, second)
    assert np.array_equal(one.trajectory, two.trajectory)


def test_shards_tensor_order_block_size_and_threads_do_not_matter(make_run, curved, tmp_path):
    stack = curved(6, 1e-2)
    found, axes = components(make_run(stack, name="plain"), tmp_path / "plain")
    again, same = components(make_run(stack, name="shards", shards=3, order=-1), tmp_path / "shards")
    assert np.array_equal(axes, same)
    assert np.array_equal(found.trajectory, again.trajectory)
    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        small, close = components(make_run(stack, name="small"), tmp_path / "small", block=101)
    finally:
        torch.set_num_threads(threads)
    assert angle(axes, close) < 1e-6
    assert small.trajectory == pytest.approx(found.trajectory, rel=1e-5, abs=1e-7)


def test_coordinates_are_the_projections_and_pythagoras_holds(make_run, curved, tmp_path):
    run = make_run(curved(8, 1e-2))
    found, axes = components(run, tmp_path / "c")
    moved = run.stack.astype(np.float64) - run.stack[-1]
    assert found.trajectory == pytest.approx(moved @ axes.T.astype(np.float64), abs=1e-6 * np.abs(moved @ axes.T).max())
    outside = found.off_plane * found.distance
    assert (found.trajectory**2).sum(1) + outside**2 == pytest.approx((moved**2).sum(1), rel=1e-6)
    assert found.trajectory[-1] == pytest.approx([0, 0], abs=0)
    assert found.off_plane[-1] == 0


def test_the_spectrum_is_that_of_the_centred_stack(make_run, curved):
    run = make_run(curved(6, 1e-2))
    stack = run.stack.astype(np.float64)
    sigma = np.linalg.svd(stack - stack.mean(0), compute_uv=False)[:5]
    found = plane(run.folders)
    assert found.sigma == pytest.approx(sigma, rel=1e-4)
    assert found.explained == pytest.approx(sigma**2 / (sigma**2).sum(), rel=1e-4)


def test_signs_are_fixed_start_at_positive_a1_and_c2_by_its_largest_coefficient(make_run, curved):
    stack = curved(7, 1e-1)
    for name, weights in {"as-is": stack, "mirrored": -stack}.items():
        found = plane(make_run(weights, name=name).folders)
        assert found.trajectory[0, 0] > 0
        assert found.mixing[1][np.abs(found.mixing[1]).argmax()] > 0


def test_every_tensors_drift_adds_up(make_run, curved):
    stack = curved(5, 1e-2)
    stack[:, :100] = stack[0, :100]
    found = plane(make_run(stack).folders)
    assert sum(t.variance for t in found.tensors) == pytest.approx(1)
    assert sum(t.size for t in found.tensors) == stack.shape[1]
    assert found.changed == pytest.approx(1 - 100 / stack.shape[1])
    assert found.tensors[0].name == "embed.weight"
    assert found.tensors[0].changed == pytest.approx(1 - 100 / found.tensors[0].size)


def test_a_nearly_straight_path_has_a_second_axis(make_run, tmp_path):
    rng = np.random.default_rng(0)
    base, along, across = rng.normal(size=(3, 2856))
    time = np.linspace(0, 1, 6)
    run = make_run(base * 0.03 + np.outer(time, along) + 1e-4 * np.outer(np.sin(3 * time), across))
    found, axes = components(run, tmp_path / "c")
    assert angle(axes, run.components()) < 1e-5
    assert any("the path is straight" in text for text in warnings(found))


def test_random_walk_spectrum_is_the_published_one():
    assert random_walk(10_000)[:3] == pytest.approx([0.608, 0.152, 0.068], abs=5e-4)
    walk = np.random.default_rng(0).normal(size=(16, 40_000)).cumsum(0)
    values = np.linalg.svd(walk - walk.mean(0), compute_uv=False)[:15] ** 2
    assert values / values.sum() == pytest.approx(random_walk(16), abs=0.01)


@pytest.mark.parametrize("count", [1, 2])
def test_fewer_than_three_checkpoints_are_refused(make_run, curved, count):
    with pytest.raises(DataError, match=f"at least 3 checkpoints, got {count}"):
        plane(make_run(curved(3, 1e-2)).folders[:count])


def test_three_checkpoints_are_enough(make_run, curved, tmp_path):
    run = make_run(curved(3, 1e-2))
    found, axes = components(run, tmp_path / "c")
    assert angle(axes, run.components()) < 1e-6
    assert found.off_plane == pytest.approx(0, abs=1e-3)


@pytest.mark.parametrize(("one", "other"), [(0, 3), (1, 2)])
def test_equal_checkpoints_are_named(make_run, curved, one, other):
    stack = curved(4, 1e-2)
    stack[other] = stack[one]
    with pytest.raises(DataError, match=f"step_0000{one} and .*step_0000{other} have the same weights"):
        plane(make_run(stack).folders)


def test_close_but_different_checkpoints_are_accepted(make_run, curved):
    stack = curved(5, 1e-1)
    stack[1] = stack[0]
    stack[1, 7] += 1e-6
    assert len(plane(make_run(stack).folders).trajectory) == 5


def test_no_drift_at_all_is_refused(make_run, curved):
    with pytest.raises(DataError, match="no weight changed in any checkpoint"):
        plane(make_run(np.repeat(curved(3, 1e-2)[:1], 4, axis=0)).folders)


def test_checkpoints_on_one_line_are_refused(make_run):
    base, along = np.random.default_rng(0).integers(-8, 8, size=(2, 2856))
    with pytest.raises(DataError, match="lie on one line"):
        plane(make_run(base + np.outer([0.0, 1, 3, 4], along)).folders)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("step", [0, 3])
def test_not_finite_weights_are_named(make_run, curved, value, step):
    stack = curved(4, 1e-2)
    stack[step, -1] = value
    with pytest.raises(DataError, match=rf"step_0000{step}/model\.safetensors: tensor norm\.weight contains NaN"):
        plane(make_run(stack).folders)


def test_components_are_written_completely_or_not_at_all(make_run, curved, tmp_path):
    run = make_run(curved(4, 1e-2))
    found = plane(run.folders)
    file = run.folders[1] / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-4])
    with pytest.raises(DataError, match=r"step_00001/model\.safetensors: truncated"):
        write_components(found, tmp_path / "c")
    assert list((tmp_path / "c").glob("*.safetensors")) == []


@settings(max_examples=20, deadline=None)
@given(st.integers(2, 6), st.integers(1, 70), st.data())
def test_piece_sums_add_up(count, width, data):
    rows = torch.randn(count, width, generator=torch.Generator().manual_seed(count * 100 + width))
    cut = data.draw(st.integers(0, width))
    whole, one, other = (
        piece_sums(part.contiguous(), np.dtype(np.float32)) for part in (rows, rows[:, :cut], rows[:, cut:])
    )
    parts = one + other
    moved = (rows - rows[-1]).double().numpy()
    assert whole.gram == pytest.approx(moved @ moved.T, rel=1e-4, abs=1e-5)
    assert parts.gram == pytest.approx(whole.gram, rel=1e-4, abs=1e-5)
    assert parts.changed == whole.changed == width
    assert parts.start == pytest.approx(float(rows[0].square().sum()), rel=1e-4)


LIMITED = """
import resource, sys
from pathlib import Path
import numpy as np, torch
from magcli.landscape.components import perturbed, write_components
from magcli.landscape.pca import plane
torch.ones(300, 300) @ torch.ones(300, 300)
used = int(next(l for l in open("/proc/self/status") if l.startswith("VmData")).split()[1]) * 1024
resource.setrlimit(resource.RLIMIT_DATA, (used + (160 << 20),) * 2)
root = Path(sys.argv[1])
found = plane(sorted(root.glob("step_*")), block=1 << 16)
write_components(found, root / "components", block=1 << 16)
norms = sum(float(t.square().sum()) for _, t in perturbed(found.folders[-1], root / "components", 1.0, 1.0))
try:
    np.zeros((len(found.folders), int(sys.argv[2])), np.float32)
except MemoryError:
    print("bounded", norms > 0)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and RLIMIT_DATA")
def test_memory_is_bounded_whatever_the_checkpoints_size(tmp_path, save):
    """Ten checkpoints of 20 MB under a limit of 160 MB more than the imports take; the stack itself does not fit."""
    base, along, across = torch.randn(3, 5, 1024, 1024, generator=torch.Generator().manual_seed(0))
    for step in range(10):
        weights = base + 0.1 * step * along + 0.01 * step**2 * across
        save(tmp_path / f"step_{step}", {f"layer.{i}": w.clone() for i, w in enumerate(weights)}, shards=2)
    command = [sys.executable, "-c", LIMITED, str(tmp_path), str(base.numel())]
    environment = {**os.environ, "OMP_NUM_THREADS": "2"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.stdout.strip() == "bounded True", done.stderr
