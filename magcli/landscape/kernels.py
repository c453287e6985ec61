"""The loops over all weights of all checkpoints, compiled by numba, in one pass over memory.

Each takes the same n weights of T checkpoints as their ``bits`` (T, n), uint16 for bfloat16 and uint32 for float32. The
differences to one of the checkpoints are formed ``CHUNK`` weights at a time in a scratch buffer that fits the L1 cache,
in float32 or float64. Sums over a chunk are added in float64, so results depend on the split into calls only by
rounding. The same operations in PyTorch take about 1.7 times the CPU time for bfloat16 checkpoints.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Bits = npt.NDArray[np.uint16] | npt.NDArray[np.uint32]
Floats = npt.NDArray[np.floating[Any]]
Function = TypeVar("Function", bound=Callable[..., Any])
CHUNK = 256
"""Number of weights in the scratch buffer."""
UNROLLED = 4
"""The number of rows of the scratch buffer is a multiple of this; rows past T stay zero."""


def gram(bits: Bits, precision: np.dtype[Any], known: int = 0) -> Array:
    """The Gram matrix (T - known, T) of differences to the last checkpoint, formed and multiplied in ``precision``.

    With ``known``, the first rows are skipped, and differences are to the last of those checkpoints.
    """
    count = len(bits)
    lower = _lower_gram(bits, (known or count) - 1, known, _scratch(count, precision))[:count, :count]
    return np.asarray((np.tril(lower) + np.tril(lower, -1).T)[known:])


def mix(bits: Bits, mixing: Floats) -> npt.NDArray[np.float32]:
    """``mixing`` (K, T) times the differences to the last row, formed and multiplied in its dtype: (K, n)."""
    differences = _scratch(len(bits), mixing.dtype)
    factors = np.zeros((len(mixing), len(differences)), mixing.dtype)
    factors[:, : len(bits)] = mixing
    out = np.empty((len(mixing), bits.shape[1]), np.float32)
    _mix(bits, factors, differences, out)
    return out


def _scratch(count: int, precision: np.dtype[Any]) -> Floats:
    """A zero buffer (P, CHUNK) with P >= T for the differences of ``count`` checkpoints."""
    return np.zeros((-(-count // UNROLLED) * UNROLLED, CHUNK), precision)


def _compiled(function: Function) -> Function:
    """Compile a function without the GIL, cached on disk if possible.

    Sums may be reordered, which vectorises them; NaN and infinity are preserved.
    """
    options = {"nogil": True, "fastmath": {"reassoc", "contract"}}
    try:
        return cast(Function, numba.njit(cache=True, **options)(function))
    except RuntimeError:
        return cast(Function, numba.njit(**options)(function))


@_compiled
def _value(bits: np.uint16 | np.uint32, halved: bool) -> np.float32:
    """The float32 with these bits or, ``halved``, this upper half."""
    return np.uint32(np.uint32(bits) << np.uint32(16) if halved else bits).view(np.float32)


@_compiled
def square(bits: Bits) -> float:
    """The sum of the squares of one checkpoint's weights, ``bits`` (n,)."""
    total, halved = 0.0, bits.itemsize == 2
    for k in range(len(bits)):
        value = np.float64(_value(bits[k], halved))
        total += value * value
    return total


@_compiled
def count_changed(one: Bits, other: Bits) -> int:
    """The number of weights (n,) with different bits."""
    count = 0
    for k in range(len(one)):
        count += one[k] != other[k]
    return count


@_compiled
def _subtract(bits: Bits, reference: int, start: int, length: int, differences: Floats) -> None:
    """Fill ``differences[t, :length]`` with x_t - x_reference from weight ``start`` on."""
    halved, kind = bits.itemsize == 2, differences.dtype.type
    base = bits[reference, start : start + length]
    for t in range(len(bits)):
        row, out = bits[t, start : start + length], differences[t]
        for k in range(length):
            out[k] = kind(_value(row[k], halved)) - kind(_value(base[k], halved))


@_compiled
def _add_tile(rows: Floats, i: int, j: int, length: int, gram: Array) -> None:
    """Add the four products of rows i, i + 1 with rows j, j + 1."""
    a, b, c, d = rows[i], rows[i + 1], rows[j], rows[j + 1]
    ac = ad = bc = bd = rows.dtype.type(0)
    for k in range(length):
        ac += a[k] * c[k]
        ad += a[k] * d[k]
        bc += b[k] * c[k]
        bd += b[k] * d[k]
    gram[i, j] += ac
    gram[i, j + 1] += ad
    gram[i + 1, j] += bc
    gram[i + 1, j + 1] += bd


@_compiled
def _lower_gram(bits: Bits, reference: int, known: int, differences: Floats) -> Array:
    """The Gram matrix (P, P) of differences to row ``reference``: its lower triangle, from row ``known`` on."""
    count, width = bits.shape
    gram = np.zeros((len(differences), len(differences)))
    for start in range(0, width, CHUNK):
        length = min(CHUNK, width - start)
        _subtract(bits, reference, start, length, differences)
        for i in range(known // 2 * 2, count, 2):
            for j in range(0, i + 1, 2):
                _add_tile(differences, i, j, length, gram)
    return gram


@_compiled
def _add_scaled(factors: Floats, rows: Floats, t: int, length: int, total: Floats) -> None:
    """Add rows t to t + 3 times their factors."""
    a, b, c, d = rows[t], rows[t + 1], rows[t + 2], rows[t + 3]
    e, f, g, h = factors[t], factors[t + 1], factors[t + 2], factors[t + 3]
    for k in range(length):
        total[k] += e * a[k] + f * b[k] + g * c[k] + h * d[k]


@_compiled
def _mix(bits: Bits, factors: Floats, differences: Floats, out: npt.NDArray[np.float32]) -> None:
    """Fill ``out`` (K, n) with ``factors`` (K, P) times the differences to the last row."""
    width, total = bits.shape[1], np.empty(CHUNK, differences.dtype)
    for start in range(0, width, CHUNK):
        length = min(CHUNK, width - start)
        _subtract(bits, len(bits) - 1, start, length, differences)
        for component in range(len(factors)):
            total[:] = 0
            for t in range(0, len(differences), UNROLLED):
                _add_scaled(factors[component], differences, t, length, total)
            out[component, start : start + length] = total[:length]
