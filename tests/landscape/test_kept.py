"""Grams kept between runs: no byte is read twice for nothing, and the plane is the same."""

import os
import shutil

import numpy as np
import pytest

from magcli.landscape import checkpoints as reading
from magcli.landscape.components import write_components
from magcli.landscape.kept import load
from magcli.landscape.pca import plane


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
    file = tmp_path / "kept" / "grams.npz"
    first, whole = bytes_read(plane, run.folders, kept=file)
    assert whole == run.stack.size * 4
    again, none = bytes_read(plane, run.folders, kept=file)
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
    plane(run.folders[:-more], kept=file)
    found, read = bytes_read(plane, run.folders, kept=file)
    assert read == run.stack.size * 4
    same(plane(run.folders), found)
    assert len(load(file).keys) == 9


def test_only_new_rows_of_the_gram_are_multiplied(make_run, curved, tmp_path, monkeypatch):
    from magcli.landscape import kept as module

    run, rows = make_run(curved(7, 1e-2)), []
    original = module.read_sums

    def watched(checkpoints, block, precision, *, known=0):
        sums = original(checkpoints, block, precision, known=known)
        rows.append({part.gram.shape for part in sums.values()})
        return sums

    monkeypatch.setattr(module, "read_sums", watched)
    plane(run.folders[:-1], kept=tmp_path / "grams.npz")
    plane(run.folders, kept=tmp_path / "grams.npz")
    assert rows == [{(6, 6)}, {(1, 7)}]


def test_a_changed_file_is_summed_anew(make_run, curved, tmp_path, bytes_read):
    run = make_run(curved(5, 1e-2))
    file = tmp_path / "grams.npz"
    plane(run.folders, kept=file)
    weights = run.folders[2] / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-4:] = np.float32(0.5).tobytes()
    weights.write_bytes(bytes(content))
    found, read = bytes_read(plane, run.folders, kept=file)
    assert read == run.stack.size * 4
    same(plane(run.folders), found, 0)


@pytest.mark.parametrize("change", ["touch", "copy", "fewer", "other order"])
def test_what_may_have_changed_is_read_again(make_run, curved, tmp_path, bytes_read, change):
    run = make_run(curved(5, 1e-2))
    file, folders = tmp_path / "grams.npz", list(run.folders)
    plane(folders, kept=file)
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
    _, read = bytes_read(plane, folders, kept=file)
    assert read == len(folders) * run.stack.shape[1] * 4


@pytest.mark.parametrize("damage", [lambda data: data[:100], lambda data: b"", lambda data: data[:-300] + bytes(300)])
def test_a_damaged_file_costs_a_read_and_nothing_else(make_run, curved, tmp_path, damage):
    run = make_run(curved(4, 1e-2))
    file = tmp_path / "grams.npz"
    first = plane(run.folders, kept=file)
    file.write_bytes(damage(file.read_bytes()))
    assert load(file) is None
    same(first, plane(run.folders, kept=file), 0)
    assert load(file) is not None


def test_a_straight_path_keeps_its_float64_sums(make_run, tmp_path, bytes_read):
    base, along, across = np.random.default_rng(0).normal(size=(3, 2856))
    time = np.linspace(0, 1, 6)
    run = make_run(base * 0.03 + np.outer(time, along) + 1e-4 * np.outer(np.sin(3 * time), across))
    file = tmp_path / "grams.npz"
    _, twice = bytes_read(plane, run.folders, kept=file)
    assert twice == 2 * run.stack.size * 4
    assert load(file).precision == np.float64
    assert bytes_read(plane, run.folders, kept=file)[1] == 0
