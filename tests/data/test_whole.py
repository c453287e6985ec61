"""A finished file proves that it is complete: truncated at any byte, or with any bit flipped, it is refused."""

import io
import random
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from magcli.data import arrow, table
from magcli.data.manifest import Link, manifest_path
from magcli.errors import DataError

ROWS = pa.RecordBatch.from_pylist([{"id": f"p{i}", "n": i, "l": ["x", None]} for i in range(5)])
CHAIN = (Link("made", "1", {"seed": 1}, (), 5, 5, {"wrong": 2}),)


def write(place: Path, batches: int = 2) -> Path:
    with table.write(str(place), ROWS.schema, "{}") as sink:
        for _ in range(batches):
            sink.write(ROWS)
        sink.finish(CHAIN)
    return place


def consume(name: Path) -> int:
    return sum(batch.num_rows for batch in table.read(str(name)).rows)


def consume_pipe(data: bytes) -> int:
    return sum(batch.num_rows for batch in arrow.open_stream(io.BytesIO(data), "stdin").rows)


def cuts(data: bytes) -> Iterator[bytes]:
    return (data[:length] for length in range(len(data)))


def flips(data: bytes, *, every_bit: bool = False) -> Iterator[bytes]:
    """The data with one bit flipped, for every bit or one bit of every byte."""
    damaged = bytearray(data)
    for place in range(len(data)):
        for bit in range(8) if every_bit else [5 * place % 8]:
            damaged[place] ^= 1 << bit
            yield bytes(damaged)
            damaged[place] ^= 1 << bit


def refused(victim: Path, damaged: Iterator[bytes], named: Path) -> int:
    count = 0
    for data in damaged:
        victim.write_bytes(data)
        with pytest.raises(DataError, match=re.escape(named.name)):
            consume(named)
        count += 1
    return count


@pytest.mark.parametrize("kind", [".arrow", ".parquet", ".jsonl", ".jsonl.gz", ".json", ".csv"])
def test_a_file_cut_at_any_byte_is_refused_by_name(tmp_path: Path, kind: str) -> None:
    place = write(tmp_path / f"rows{kind}")
    assert consume(place) == 10
    data = place.read_bytes()
    assert refused(place, cuts(data), place) == len(data)


@pytest.mark.parametrize("kind", [".arrow", ".parquet", ".jsonl", ".jsonl.gz", ".json", ".csv"])
@pytest.mark.parametrize("every_bit", [False, pytest.param(True, marks=pytest.mark.faults)])
def test_a_file_with_any_bit_flipped_is_refused_by_name(tmp_path: Path, kind: str, every_bit: bool) -> None:
    place = write(tmp_path / f"rows{kind}")
    data = place.read_bytes()
    assert refused(place, flips(data, every_bit=every_bit), place) == (8 if every_bit else 1) * len(data)


@pytest.mark.parametrize("kind", [".arrow", ".parquet", ".jsonl", ".jsonl.gz", ".json", ".csv", ""])
def test_anything_after_the_end_is_refused(tmp_path: Path, kind: str) -> None:
    place = write(tmp_path / f"rows{kind}")
    file = place if kind else place / "data-00000-of-00001.arrow"
    file.write_bytes(file.read_bytes() + b"\0")
    with pytest.raises(DataError, match=str(place)):
        consume(place)


@pytest.mark.parametrize("kind", [".jsonl", ".csv"])
def test_a_manifest_cut_or_flipped_anywhere_is_refused(tmp_path: Path, kind: str) -> None:
    place = write(tmp_path / f"rows{kind}")
    note = manifest_path(place)
    data = note.read_bytes()
    refused(note, cuts(data), place)
    sample = random.Random(0).sample(list(flips(data, every_bit=True)), 600)
    assert refused(note, iter(sample), place) == 600


@pytest.mark.parametrize("name", ["data-00000-of-00001.arrow", "dataset_info.json", "state.json", "manifest.json"])
def test_a_folder_with_a_cut_or_flipped_or_missing_file_is_refused(tmp_path: Path, name: str) -> None:
    place = write(tmp_path / "rows")
    assert consume(place) == 10
    data = (place / name).read_bytes()
    sample = random.Random(1).sample([*cuts(data), *flips(data, every_bit=True)], 300)
    assert refused(place / name, iter(sample), place) == 300
    (place / name).unlink()
    if name != "manifest.json":
        with pytest.raises(DataError, match=str(place)):
            consume(place)


def test_a_pipe_cut_at_any_byte_is_refused(tmp_path: Path) -> None:
    data = write(tmp_path / "rows.arrow").read_bytes()
    assert consume_pipe(data) == 10
    for part in cuts(data):
        with pytest.raises(DataError):
            consume_pipe(part)


def test_a_pipe_with_a_flipped_bit_is_refused(tmp_path: Path) -> None:
    data = write(tmp_path / "rows.arrow").read_bytes()
    for damaged in flips(data):
        with pytest.raises(DataError):
            consume_pipe(damaged)


def test_larger_files_are_refused_too(tmp_path: Path) -> None:
    draw = random.Random(2)
    for kind in (".arrow", ".parquet"):
        place = write(tmp_path / f"large{kind}", 5000)
        data = place.read_bytes()
        damaged = []
        for _ in range(20):
            at = draw.randrange(len(data))
            damaged += [data[:at], data[:at] + bytes([data[at] ^ 1 << draw.randrange(8)]) + data[at + 1 :]]
        assert refused(place, iter(damaged), place) == 40


def test_a_file_of_zero_rows_is_valid_and_keeps_its_columns(tmp_path: Path) -> None:
    for kind in (".arrow", ".parquet", ".jsonl", ".jsonl.gz", ".json", ".csv", ""):
        place = write(tmp_path / f"none{kind}", 0)
        source = table.read(str(place))
        assert source.schema == ROWS.schema
        assert sum(batch.num_rows for batch in source.rows) == 0
        assert source.chain == CHAIN


@pytest.mark.parametrize("kind", [".arrow", ".parquet", ".jsonl", ".jsonl.gz", ".json", ".csv"])
def test_an_empty_file_is_refused(tmp_path: Path, kind: str) -> None:
    place = tmp_path / f"rows{kind}"
    place.touch()
    with pytest.raises(DataError, match="empty"):
        consume(place)


def test_a_foreign_stream_cut_between_batches_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "foreign.arrow"
    with pa.OSFile(str(place), "wb") as file, pa.ipc.new_stream(file, ROWS.schema) as writer:
        writer.write_batch(ROWS)
        boundary = file.tell()
        writer.write_batch(ROWS)
    assert consume(place) == 10
    place.write_bytes(place.read_bytes()[:boundary])
    with pytest.raises(DataError, match="no end mark after 5 rows"):
        consume(place)


def test_text_that_looks_like_a_checksum_is_only_text(tmp_path: Path) -> None:
    texts = ["magcli:sha256:" + "0" * 64, "magcli:sha256:", "magcli.head magcli.seal"]
    batch = pa.RecordBatch.from_pydict({"t": texts})
    for kind in (".arrow", ".parquet"):
        place = tmp_path / f"rows{kind}"
        with table.write(str(place), batch.schema, "{}") as sink:
            sink.write(batch)
            sink.finish((Link("made", "1", {"note": texts[0]}),))
        assert [row["t"] for part in table.read(str(place)).rows for row in part.to_pylist()] == texts


def test_a_damaged_file_leaves_no_output(tmp_path: Path, magcli) -> None:
    place = write(tmp_path / "rows.arrow")
    place.write_bytes(place.read_bytes()[:-1])
    done = magcli("convert", place, "-o", tmp_path / "out.parquet")
    assert done.returncode == 3
    assert str(place) in done.stderr
    assert not (tmp_path / "out.parquet").exists()


@pytest.mark.parametrize("keep", [0.2, 0.9, 0.999])
def test_a_cut_pipe_leaves_no_output(tmp_path: Path, magcli, keep: float) -> None:
    data = write(tmp_path / "rows.arrow", 3000).read_bytes()
    done = magcli("convert", "-o", tmp_path / "out.jsonl", input=data[: int(len(data) * keep)])
    assert done.returncode == 3
    assert "Traceback" not in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rows.arrow"]


def test_replacing_a_folder_leaves_the_new_one(tmp_path: Path) -> None:
    write(tmp_path / "rows", 1)
    write(tmp_path / "rows", 3)
    assert consume(tmp_path / "rows") == 15
    shutil.rmtree(tmp_path / "rows")
    assert list(tmp_path.iterdir()) == []
