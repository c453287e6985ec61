"""Weights at a point: exact at the origin, where they are asked to be, and where they really are after rounding."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from magcli.errors import DataError
from magcli.landscape.checkpoints import open_checkpoint, read_tensor
from magcli.landscape.components import coordinates, dithered, hashed, perturbed, write_components
from magcli.landscape.pca import plane
from magcli.model.weights.tensors import read_header

BF16, F32 = torch.bfloat16, torch.float32


@pytest.fixture
def planted(make_run, curved, tmp_path):
    """A function that gives the plane, w*'s folder and the components' folder of a curved run."""

    def plant(drift=1e-2, dtype=F32, **options):
        found = plane(make_run(curved(7, drift, **options), dtypes=(dtype,)).folders)
        write_components(found, tmp_path / "components")
        return found, found.folders[-1], tmp_path / "components"

    return plant


def stored(folder):
    return {name: read_tensor(tensor) for name, tensor in open_checkpoint(folder).items()}


@pytest.mark.parametrize("bf16", [False, True])
def test_the_origin_has_the_bits_of_the_final_weights(planted, bf16):
    _, last, components = planted(dtype=BF16)
    for name, tensor in perturbed(last, components, 0.0, 0.0, bf16=bf16):
        assert torch.equal(tensor.bfloat16().view(torch.int16), stored(last)[name].view(torch.int16))


def test_the_origin_preserves_the_sign_of_zero_and_every_float32_bit(planted):
    _, last, components = planted()
    for name, tensor in perturbed(last, components, 0.0, -0.0):
        assert torch.equal(tensor.view(torch.int32), stored(last)[name].view(torch.int32))


def test_the_origin_of_float32_masters_is_what_a_bf16_engine_ran(planted):
    _, last, components = planted()
    for name, tensor in perturbed(last, components, 0.0, 0.0, bf16=True):
        assert torch.equal(tensor, stored(last)[name].bfloat16())


def test_a_point_is_the_final_weights_plus_the_components(planted):
    found, last, components = planted()
    a1, a2 = found.trajectory[2]
    c1, c2 = ({t.name: read_tensor(t) for t in read_header(components / f"c{k}.safetensors")} for k in (1, 2))
    for name, tensor in perturbed(last, components, a1, a2):
        expected = stored(last)[name].double() + a1 * c1[name].double() + a2 * c2[name].double()
        assert tensor.dtype == F32
        assert torch.allclose(tensor.double(), expected, rtol=1e-6, atol=1e-8)


def test_coordinates_of_a_point_are_the_requested_ones(planted):
    found, last, components = planted()
    a1, a2 = found.trajectory[0] * 0.7
    there = coordinates(perturbed(last, components, a1, a2), last, components)
    assert (there.a1, there.a2) == pytest.approx((a1, a2), rel=1e-4)
    assert there.off_plane < 1e-3 * abs(a1)


def test_coordinates_of_a_checkpoint_are_its_place_on_the_trajectory(planted):
    found, last, components = planted()
    for step in (0, 3, 6):
        there = coordinates(stored(found.folders[step]).items(), last, components)
        assert (there.a1, there.a2) == pytest.approx(found.trajectory[step], abs=1e-5 * found.distance[0])
        outside = found.off_plane[step] * found.distance[step]
        assert there.off_plane == pytest.approx(outside, rel=1e-2, abs=1e-4 * found.distance[0])


def test_dither_arrives_where_rounding_to_nearest_stays_behind(planted, save, tmp_path):
    """A step below the gap between bf16 values, from bf16 weights: nearest swallows it, dither keeps it in the mean."""
    found, last, components = planted(drift=1e-3)
    coarse = save(tmp_path / "coarse", {name: tensor.bfloat16() for name, tensor in stored(last).items()})
    a1 = 0.5 * found.trajectory[0, 0]
    exact = perturbed(coarse, components, a1, 0.0)
    nearest = coordinates(((name, tensor.bfloat16()) for name, tensor in exact), coarse, components)
    dither = coordinates(perturbed(coarse, components, a1, 0.0, bf16=True), coarse, components)
    assert nearest.a1 < 0.5 * a1
    assert dither.a1 == pytest.approx(a1, rel=0.15)


def test_a_point_repeated_has_the_same_bits(planted):
    found, last, components = planted(dtype=BF16)
    a1, a2 = found.trajectory[1]
    one, other = (dict(perturbed(last, components, a1, a2, bf16=True)) for _ in range(2))
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert {t.dtype for t in one.values()} == {BF16}


def test_components_of_another_model_are_refused(planted, tmp_path, save):
    _, _, components = planted()
    other = save(tmp_path / "other", {"w": torch.ones(3)})
    with pytest.raises(DataError, match="tensor w is missing"):
        next(perturbed(other, components, 1.0, 0.0))


def test_missing_components_are_named(planted, tmp_path):
    _, last, _ = planted()
    with pytest.raises(DataError, match=r"c1\.safetensors: no such file"):
        next(perturbed(last, tmp_path / "nowhere", 1.0, 0.0))


@given(st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=1, max_size=40), st.integers(0, 2**32 - 1))
def test_dither_rounds_to_a_neighbour_and_preserves_exact_values(values, key):
    tensor = torch.tensor(values, dtype=F32)
    exact = tensor.bfloat16().float()
    assert torch.equal(dithered(exact, key).float(), exact)
    rounded = dithered(tensor, key).float()
    toward_zero = (tensor.view(torch.int32) & -65536).view(F32)
    away = ((tensor.view(torch.int32) & -65536) + 65536).view(F32)
    assert ((rounded == toward_zero) | ((rounded == away) & (tensor != toward_zero))).all()


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_dither_preserves_the_mean(share):
    """Between 1 and the next bf16 value, 1 + 2^-7, for 100,000 weights and several tensors."""
    value = torch.full((100_000,), 1 + share * 2**-7)
    for key in range(5):
        up = float((dithered(value, key).float() > 1).float().mean())
        assert up == pytest.approx(share, abs=5 * np.sqrt(share * (1 - share) / 100_000) + 2**-16)


def test_dither_of_tensors_and_neighbours_is_uncorrelated():
    index = np.arange(1 << 16, dtype=np.uint32)
    one, other = (hashed(index ^ np.uint32(key)).astype(float) for key in (1, 0x9E3779B9))
    assert abs(np.corrcoef(one, other)[0, 1]) < 0.02
    assert abs(np.corrcoef(one[1:], one[:-1])[0, 1]) < 0.02
    assert len(np.unique(one)) == len(one)
