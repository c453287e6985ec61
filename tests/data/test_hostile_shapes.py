"""Odd shapes of text files end in one line, in bounded time."""

import gzip
import io
import json
import random
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from magcli.data import csv, table
from magcli.data.shapes import key_order
from magcli.errors import DataError

COLUMNS = [f"k{number}" for number in range(10_000)]


def test_the_order_of_many_keys_agrees_with_every_row_in_little_time() -> None:
    random_keys = random.Random(0)
    rows = [tuple(COLUMNS), *(tuple(sorted(random_keys.sample(COLUMNS, 50), key=COLUMNS.index)) for _ in range(20))]
    started = time.monotonic()
    assert key_order(rows[::-1]) == COLUMNS
    assert time.monotonic() - started < 10
    assert key_order([("b", "c"), ("a", "b")]) == ["a", "b", "c"]
    assert key_order([("b", "a"), ("a", "b"), ("c",)]) == ["b", "a", "c"], "a contradiction: in order of appearance"


@pytest.mark.parametrize("kind", [".jsonl", ".parquet", ".csv"])
def test_ten_thousand_columns_are_opened(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"x{kind}"
    if kind == ".jsonl":
        path.write_text(json.dumps(dict.fromkeys(COLUMNS, 1)) + "\n")
    elif kind == ".csv":
        path.write_text(f"{','.join(COLUMNS)}\n" + f"{','.join(['1'] * len(COLUMNS))}\n" * 20)
    else:
        pq.write_table(pa.table({name: [1] for name in COLUMNS}), path)
    started = time.monotonic()
    source = table.read(str(path))
    assert source.schema.names == COLUMNS
    assert time.monotonic() - started < 30


@pytest.mark.parametrize("head", ["a" * 200_000 + ",b\n1,2\n", '"' + "a\n" * 200_000, "a" * (20 << 20)])
@pytest.mark.parametrize("packing", ["", ".zst"])
def test_a_header_that_is_none_is_one_error(tmp_path: Path, head: str, packing: str) -> None:
    path = tmp_path / f"x.csv{packing}"
    with pa.output_stream(str(path), compression="zstd" if packing else None) as file:
        file.write(head.encode())
    with pytest.raises(DataError, match=r"line 1 is not a header of column names"):
        table.read(str(path))


def test_a_header_of_names_in_several_lines_is_read(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes('\ufeff"a\né",b\r\n1,2\r\n'.encode())
    assert table.read(str(tmp_path / "x.csv")).schema.names == ["a\né", "b"]


def test_a_stream_that_announces_too_many_bytes_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "x.arrow").write_bytes(b"\xff\xff\xff\xff\xff\xff\xff\x7f" + b"\0" * 100)
    with pytest.raises(DataError, match="not an Arrow stream"):
        table.read(str(tmp_path / "x.arrow"))


def test_a_line_of_csv_beyond_the_limit_is_one_error(tmp_path: Path) -> None:
    path = tmp_path / "x.csv.zst"
    with pa.output_stream(str(path), compression="zstd") as file:
        file.write(b"a,b\n1,")
        for _ in range(40):
            file.write(b"x" * (1 << 20))
    with pytest.raises(DataError, match=r"x\.csv\.zst is not readable as CSV: a line has more than 16,777,216 bytes"):
        table.read(str(path), head=1)


def test_the_types_of_many_columns_are_those_of_their_cells(tmp_path: Path) -> None:
    cells = [("1", "2"), ("1", "0.5"), ("true", "false"), ("1", "x"), ("", ""), ("", "3"), ("01", "2"), ("9" * 19, "1")]
    names = [f"c{number}" for number in range(40_000)]
    rows = [",".join(cells[number % len(cells)][row] for number in range(len(names))) for row in (0, 1)]
    (tmp_path / "x.csv").write_text("\n".join([",".join(names), *rows]) + "\n")
    kinds = [str(kind) for kind in table.read(str(tmp_path / "x.csv")).schema.types]
    assert kinds == ["int64", "double", "bool", "string", "string", "int64", "string", "string"] * 5_000


LIMIT = 1 << 20


def _write(path: Path, text: bytes) -> Path:
    """Write text, compressed as the name says."""
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text, 1))
    else:
        with pa.output_stream(path, compression="zstd" if path.suffix == ".zst" else None) as file:
            file.write(text)
    return path


LONG_CELL = {"plain": b"x" * (LIMIT + LIMIT // 3), "quoted": b'"' + b"x\n" * (2 * LIMIT // 3) + b'"'}


@pytest.mark.parametrize("cell", LONG_CELL.values(), ids=LONG_CELL)
@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_the_limit_of_a_csv_line_holds_wherever_the_line_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, cell: bytes
) -> None:
    monkeypatch.setattr(csv, "BLOCK", LIMIT)
    path = _write(tmp_path / f"long.csv{suffix}", b"id,prompt\n1," + cell + b"\n2,b\n")
    with pytest.raises(DataError, match=rf"long\.csv{suffix} is not readable as CSV: a line has more than 1,048,576 "):
        list(table.read(str(path), table.ignore).rows)


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_lines_within_the_limit_are_read_whatever_their_sum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    monkeypatch.setattr(csv, "BLOCK", LIMIT)
    line = b"1," + b"x" * (LIMIT - 100) + b"\n"
    path = _write(tmp_path / f"long.csv{suffix}", b"id,prompt\n" + 4 * line)
    assert sum(batch.num_rows for batch in table.read(str(path), table.ignore).rows) == 4


def test_the_limit_of_a_csv_line_holds_on_stdin() -> None:
    text = b"id,prompt\n1," + LONG_CELL["plain"] + b"\n2,b\n"
    cells = csv.Cells("stdin", lambda: io.BytesIO(text), ",", LIMIT)
    with pytest.raises(DataError, match=r"^stdin is not readable as CSV: a line has more than 1,048,576 bytes"):
        csv.open_cells(cells, table.ignore)
