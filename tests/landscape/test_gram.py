"""Gram matrices against numpy in float64, and their cache: nothing is read twice, and the plane stays the same."""

import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from magcli.landscape import checkpoints as reading
from magcli.landscape.components import write_components
from magcli.landscape.gram import CHUNK, bits_of, count_changed, gram, load_cache, mix, square
from magcli.landscape.pca import plane

PRECISIONS = [np.dtype(np.float32), np.dtype(np.float64)]
TYPES = [torch.bfloat16, torch.float16, torch.float32]


def weights(count: int, width: int, dtype: torch.dtype) -> torch.Tensor:
    random = torch.Generator().manual_seed(count * 1000 + width)
    return torch.randn(count, width, generator=random).to(dtype)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 9), st.integers(0, 2 * CHUNK + 3), st.sampled_from(TYPES), st.sampled_from(PRECISIONS), st.data())
def test_the_gram_is_that_of_the_differences(count, width, dtype, precision, data):
    known = data.draw(st.integers(0, count - 1))
    rows = weights(count, width, dtype)
    moved = (rows.double() - rows[known - 1].double()).numpy()
    found = gram(bits_of(rows), precision, known)
    assert found.shape == (count - known, count)
    assert found == pytest.approx(moved[known:] @ moved.T, rel=1e-5 if precision == np.float32 else 1e-13, abs=1e-4)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 9), st.integers(0, 2 * CHUNK + 3), st.sampled_from(TYPES), st.sampled_from(PRECISIONS))
def test_rows_are_mixed_as_a_matrix_product_mixes_them(count, width, dtype, precision):
    rows = weights(count, width, dtype)
    mixing = np.random.default_rng(0).standard_normal((2, count)).astype(precision)
    found = mix(bits_of(rows), mixing)
    assert found.dtype == np.float32
    assert found.shape == (2, width)
    assert found == pytest.approx(mixing @ (rows.double() - rows[-1].double()).numpy(), rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("dtype", TYPES)
def test_squares_and_differing_weights(dtype):
    rows = weights(2, 1000, dtype)
    rows[1, :700] = rows[0, :700]
    bits = bits_of(rows)
    assert square(bits[0]) == pytest.approx(float(rows[0].double().square().sum()))
    assert count_changed(bits[0], bits[1]) == int((rows[0] != rows[1]).sum())


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("dtype", TYPES)
def test_non_finite_values_stay_non_finite(dtype, bad):
    rows = weights(4, 1000, dtype)
    rows[1, 500] = bad
    assert not np.isfinite(gram(bits_of(rows), PRECISIONS[0])[1, 1])


def test_kernels_compile_without_a_cache_folder():
    code = "from magcli.landscape.gram import *; print(gram(np.ones((2, 5), np.uint16), np.dtype('f4')).tolist())"
    nowhere = os.environ | {"NUMBA_CACHE_DIR": "/proc/nowhere"}
    done = subprocess.run([sys.executable, "-c", code], env=nowhere, capture_output=True, text=True, check=True)
    assert done.stdout == "[[0.0, 0.0], [0.0, 0.0]]\n"


@pytest.fixture
def bytes_read(monkeypatch):
    """A function that counts the bytes of weights that a call reads."""
    counts = []
    original = reading.fill

    def counted(descriptor, stored, start, buffer):
        counts.append(len(buffer))
        original(descriptor, stored, start, buffer)

    monkeypatch.setattr(reading, "fill", counted)

    def count(call, *arguments, **options):
        counts.clear()
        return call(*arguments, **options), sum(counts)

    return count


def same(one, other, tolerance=1e-6):
    scale = np.abs(one.trajectory).max()
    assert other.trajectory == pytest.approx(one.trajectory, abs=tolerance * scale)
    assert other.explained == pytest.approx(one.explained, rel=1e-4, abs=tolerance)
    assert other.drift == pytest.approx(one.drift, rel=1e-6)
    assert other.changed == one.changed
    assert [t.name for t in other.tensors] == [t.name for t in one.tensors]
    assert [t.variance for t in other.tensors] == pytest.approx([t.variance for t in one.tensors], rel=1e-4)


def test_equal_checkpoints_are_not_read_again(make_run, curved, tmp_path, bytes_read):
    run = make_run(curved(6, 1e-2))
    file = tmp_path / "cache" / "grams.npz"
    first, whole = bytes_read(plane, run.folders, cache=file)
    assert whole == run.stack.size * 4
    again, none = bytes_read(plane, run.folders, cache=file)
    assert none == 0
    same(first, again, 0)
    _, written = bytes_read(write_components, first, tmp_path / "c")
    assert written == run.stack.size * 4
    _, nothing = bytes_read(write_components, again, tmp_path / "c")
    assert nothing == 0


@pytest.mark.parametrize("drift", [1e-1, 1e-3, 1e-5])
@pytest.mark.parametrize("more", [1, 3])
def test_more_checkpoints_cost_one_read_and_give_the_same_plane(make_run, curved, tmp_path, bytes_read, drift, more):
    run = make_run(curved(9, drift))
    file = tmp_path / "grams.npz"
    plane(run.folders[:-more], cache=file)
    found, read = bytes_read(plane, run.folders, cache=file)
    assert read == run.stack.size * 4
    same(plane(run.folders), found)
    assert len(load_cache(file).keys) == 9


def test_only_new_rows_of_the_gram_are_multiplied(make_run, curved, tmp_path, monkeypatch):
    from magcli.landscape import gram as module

    run, rows = make_run(curved(7, 1e-2)), []
    original = module.read_sums

    def watched(checkpoints, block, precision, *, skip_rows=0):
        sums = original(checkpoints, block, precision, skip_rows=skip_rows)
        rows.append({part.gram.shape for part in sums.values()})
        return sums

    monkeypatch.setattr(module, "read_sums", watched)
    plane(run.folders[:-1], cache=tmp_path / "grams.npz")
    plane(run.folders, cache=tmp_path / "grams.npz")
    assert rows == [{(6, 6)}, {(1, 7)}]


def test_a_changed_file_is_summed_again(make_run, curved, tmp_path, bytes_read):
    run = make_run(curved(5, 1e-2))
    file = tmp_path / "grams.npz"
    plane(run.folders, cache=file)
    weights = run.folders[2] / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-4:] = np.float32(0.5).tobytes()
    weights.write_bytes(bytes(content))
    found, read = bytes_read(plane, run.folders, cache=file)
    assert read == run.stack.size * 4
    same(plane(run.folders), found, 0)


@pytest.mark.parametrize("change", ["touch", "copy", "fewer", "other order"])
def test_files_that_may_have_changed_are_read_again(make_run, curved, tmp_path, bytes_read, change):
    run = make_run(curved(5, 1e-2))
    file, folders = tmp_path / "grams.npz", list(run.folders)
    plane(folders, cache=file)
    weights = folders[1] / "model.safetensors"
    if change == "touch":
        os.utime(weights)
    elif change == "copy":
        shutil.copy2(weights, tmp_path / "copy")
        os.replace(tmp_path / "copy", weights)
    elif change == "fewer":
        del folders[1]
    else:
        folders[0], folders[1] = folders[1], folders[0]
    _, read = bytes_read(plane, folders, cache=file)
    assert read == len(folders) * run.stack.shape[1] * 4


@pytest.mark.parametrize("damage", [lambda data: data[:100], lambda data: b"", lambda data: data[:-300] + bytes(300)])
def test_a_damaged_file_costs_a_read_and_nothing_else(make_run, curved, tmp_path, damage):
    run = make_run(curved(4, 1e-2))
    file = tmp_path / "grams.npz"
    first = plane(run.folders, cache=file)
    file.write_bytes(damage(file.read_bytes()))
    assert load_cache(file) is None
    same(first, plane(run.folders, cache=file), 0)
    assert load_cache(file) is not None


def test_a_straight_path_keeps_its_float64_sums(make_run, tmp_path, bytes_read):
    base, along, across = np.random.default_rng(0).normal(size=(3, 2856))
    time = np.linspace(0, 1, 6)
    run = make_run(base * 0.03 + np.outer(time, along) + 1e-4 * np.outer(np.sin(3 * time), across))
    file = tmp_path / "grams.npz"
    _, twice = bytes_read(plane, run.folders, cache=file)
    assert twice == 2 * run.stack.size * 4
    assert load_cache(file).precision == np.float64
    assert bytes_read(plane, run.folders, cache=file)[1] == 0
