"""The compiled loops beside the same sums in float64 by numpy."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from magcli.landscape.gram import bits_of
from magcli.landscape.kernels import CHUNK, differing, gram, mixed, square

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
    found = mixed(bits_of(rows), mixing)
    assert found.dtype == np.float32
    assert found.shape == (2, width)
    assert found == pytest.approx(mixing @ (rows.double() - rows[-1].double()).numpy(), rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("dtype", TYPES)
def test_squares_and_differing_weights(dtype):
    rows = weights(2, 1000, dtype)
    rows[1, :700] = rows[0, :700]
    bits = bits_of(rows)
    assert square(bits[0]) == pytest.approx(float(rows[0].double().square().sum()))
    assert differing(bits[0], bits[1]) == int((rows[0] != rows[1]).sum())


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("dtype", TYPES)
def test_what_is_not_finite_stays_so(dtype, bad):
    rows = weights(4, 1000, dtype)
    rows[1, 500] = bad
    assert not np.isfinite(gram(bits_of(rows), PRECISIONS[0])[1, 1])


def test_they_compile_where_nothing_can_be_kept():
    code = "from magcli.landscape.kernels import *; print(gram(np.ones((2, 5), np.uint16), np.dtype('f4')).tolist())"
    nowhere = os.environ | {"NUMBA_CACHE_DIR": "/proc/nowhere"}
    done = subprocess.run([sys.executable, "-c", code], env=nowhere, capture_output=True, text=True, check=True)
    assert done.stdout == "[[0.0, 0.0], [0.0, 0.0]]\n"
