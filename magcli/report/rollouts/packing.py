"""Bytes of the page: chunks of several parts, compressed, as text in elements that the browser does not run.

A chunk begins with the number of its parts and their lengths in bytes; numbers are little-endian. Two- and three-byte
numbers are stored byte by byte: first all low bytes, then the others, which repeat and compress better.
"""

import base64
import zlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from magcli.report.rollouts.rows import TOKEN_VALUES

LEVEL = 6
"""Level of zlib: 9 takes twice the time for one percent."""
Numbers = npt.NDArray[np.int64]


def element(name: str, parts: Sequence[bytes]) -> bytes:
    """A chunk as an element of HTML: zlib in base64, which has no character that ends it."""
    lengths = np.array([len(parts), *map(len, parts)], "<u4").tobytes()
    packed = base64.b64encode(zlib.compress(lengths + b"".join(parts), LEVEL))
    return b'<script type="text/plain" id="%s">%s</script>\n' % (name.encode(), packed)


def text_parts(column: pa.Array) -> list[bytes]:
    """A column of texts (N,): their lengths in bytes, and the bytes. Null is an empty text."""
    texts = pc.fill_null(column, "").cast(pa.binary())
    lengths = pc.binary_length(texts).to_numpy(zero_copy_only=False)
    return [lengths.astype("<u4").tobytes(), b"".join(texts.to_pylist())]


def byte_planes(values: npt.NDArray[np.unsignedinteger], planes: int) -> list[bytes]:
    """Integers (N,) as their lowest ``planes`` bytes, each of all numbers."""
    return [(values >> (8 * plane)).astype(np.uint8).tobytes() for plane in range(planes)]


def lists(column: pa.Array) -> tuple[Numbers, pa.Array]:
    """The lengths (N,) of a column of lists, 0 for null, and the values of all lists."""
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    return lengths.astype(np.int64), column.flatten()


def token_parts(batch: pa.RecordBatch, codes: npt.NDArray[np.uint32]) -> list[bytes]:
    """What a chunk has for each token: counts (N,), codes of the vocabulary (T,), values, spans of versions, ranges."""
    counts, _ = lists(batch.column("tokens"))
    parts = [counts.astype("<u4").tobytes(), *byte_planes(codes, 3)]
    for name in TOKEN_VALUES:
        parts += _half_floats(batch.column(name), counts)
    parts += _spans(batch.column("versions"), ("start", "version"))
    parts += _spans(batch.column("given"), ("start", "end"))
    return parts


def _half_floats(column: pa.Array, counts: Numbers) -> list[bytes]:
    """A number for each token, with three digits; empty if the column has none. Missing numbers are NaN."""
    if column.null_count == len(column):
        return [b"", b""]
    lengths, flat = lists(column)
    values = flat.to_numpy(zero_copy_only=False).astype(np.float32)
    if not np.array_equal(lengths, counts):
        values = _aligned(values, lengths, counts)
    with np.errstate(over="ignore"):  # numbers beyond float16 become infinite
        halves = values.astype("<f2").view(np.uint16)
    return byte_planes(halves, 2)


def _aligned(values: npt.NDArray[np.float32], lengths: Numbers, counts: Numbers) -> npt.NDArray[np.float32]:
    """Values of rows with ``lengths`` as those of rows with ``counts``: missing for a row whose length differs."""
    aligned = np.full(int(counts.sum()), np.nan, np.float32)
    starts = np.cumsum(lengths) - lengths  # of the rows in ``values``
    aligned_starts = np.cumsum(counts) - counts
    # Row by row, as this is only for tables in which some row lacks values.
    for row in np.flatnonzero(lengths == counts):
        start, new_start, length = starts[row], aligned_starts[row], counts[row]
        aligned[new_start : new_start + length] = values[start : start + length]
    return aligned


def _spans(column: pa.Array, fields: tuple[str, str]) -> list[bytes]:
    """A column of lists of two integers: the number of pairs of each row, all first ones, all second ones."""
    lengths, flat = lists(column)
    parts = [lengths.astype("<u4").tobytes()]
    for name in fields:
        values = pc.struct_field(flat, name).to_numpy(zero_copy_only=False)
        parts.append(values.astype("<i4").tobytes())
    return parts
