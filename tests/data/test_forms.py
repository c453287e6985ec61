"""Files in the forms that people have are read, or named for what they are."""

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from magcli.data import table
from magcli.data.values import to_rows
from magcli.errors import DataError

ROWS = [{"prompt": "Compute 1+1.", "answer": "2"}, {"prompt": "é", "answer": "3"}]
LINES = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS)
CSV = "prompt,answer\nCompute 1+1.,2\né,3\n"


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [row for batch in table.read(str(path)).rows for row in to_rows(batch)]


def zstd(text: str) -> bytes:
    packed: bytes = pa.compress(text.encode(), codec="zstd", asbytes=True)
    return packed


READ = {
    "array.jsonl": json.dumps(ROWS).encode(),
    "indented.jsonl": json.dumps(ROWS, indent=2).encode(),
    "bom.jsonl": b"\xef\xbb\xbf" + LINES.encode(),
    "bom.csv": b"\xef\xbb\xbf" + CSV.encode(),
    "C.JSONL": LINES.encode(),
    "X.Json.GZ": gzip.compress(json.dumps(ROWS).encode()),
    "x.jsonl.zst": zstd(LINES),
    "x.json.zst": zstd(json.dumps(ROWS)),
    "x.csv.gz": gzip.compress(CSV.encode()),
    "x.csv.zst": zstd(CSV),
    "x.tsv": CSV.replace(",", "\t").encode(),
    "x.tsv.gz": gzip.compress(CSV.replace(",", "\t").encode()),
    "x.ndjson": LINES.encode(),
}


@pytest.mark.parametrize("name", READ)
def test_forms_that_are_read(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(READ[name])
    assert rows_of(tmp_path / name) == ROWS


NAMED = {
    "utf16.jsonl": (LINES.encode("utf-16"), "it is UTF-16"),
    "bare-utf16.jsonl": (LINES.encode("utf-16-le"), "it may be UTF-16"),
    "gzip.jsonl": (gzip.compress(LINES.encode()), "it is a gzip file; name it .gz"),
    "zstd.jsonl": (zstd(LINES), "it is a zstd file; name it .zst"),
    "returns.jsonl": (LINES.replace("\n", "\r").encode(), "carriage returns"),
    "indented.jsonl": ("\n".join(json.dumps(row, indent=2) for row in ROWS).encode(), "may take several lines"),
    "columns.json": (b'{"prompt": ["a", "b"], "answer": ["1", "2"]}', "may be a table of columns"),
    "cut.jsonl.zst": (zstd(LINES)[:-5], "cut.jsonl.zst"),
    "cut.csv.gz": (gzip.compress(CSV.encode())[:-5], "cut.csv.gz is truncated"),
}


@pytest.mark.parametrize("name", NAMED)
def test_forms_that_are_named_for_what_they_are(tmp_path: Path, name: str) -> None:
    data, what = NAMED[name]
    (tmp_path / name).write_bytes(data)
    with pytest.raises(DataError, match=what):
        rows_of(tmp_path / name)


@pytest.mark.parametrize(
    ("data", "status", "what"),
    [
        (READ["bom.jsonl"], 0, "2 rows"),
        (READ["array.jsonl"], 0, "2 rows"),
        (CSV.encode(), 3, "stdin is neither an Arrow stream nor JSON: it is text; give the name of a file"),
        (READ["bom.csv"], 3, "it is text"),
        (gzip.compress(LINES.encode()), 3, "it is a gzip file"),
        (LINES.encode("utf-16"), 3, "it is UTF-16"),
    ],
)
def test_stdin_is_read_or_named_for_what_it_is(magcli, data: bytes, status: int, what: str) -> None:
    done = magcli("show", input=data)
    assert done.returncode == status
    assert what in done.stdout.decode() + done.stderr
