"""Tables in pipes: every format comes in, text and Arrow go out, and named pipes, devices and links are outputs."""

import gzip
import json
import os
import pty
import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from magcli.data import stream, table
from magcli.data.values import to_rows

ROWS = [{"prompt": "Compute 1+1.", "answer": "2"}, {"prompt": "Compute é.", "answer": None}]
LINES = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS).encode()
CSV = 'prompt,answer\nCompute 1+1.,2\n"Compute é.",\n'.encode()
BOM = b"\xef\xbb\xbf"


def zstd(data: bytes) -> bytes:
    packed = pa.BufferOutputStream()
    with pa.CompressedOutputStream(packed, "zstd") as file:
        file.write(data)
    return packed.getvalue().to_pybytes()


TEXTS: dict[str, Callable[[], bytes]] = {
    "lines": lambda: LINES,
    "lines after a byte-order mark": lambda: BOM + LINES,
    "gzip": lambda: gzip.compress(LINES),
    "zstd": lambda: zstd(LINES),
    "an array": lambda: json.dumps(ROWS).encode(),
    "csv": lambda: CSV,
    "csv after a byte-order mark": lambda: BOM + CSV,
    "csv in gzip": lambda: gzip.compress(CSV),
    "tabs": lambda: CSV.replace(b",", b"\t"),
    "semicolons": lambda: CSV.replace(b",", b";"),
}


def shown(magcli, data: bytes) -> list[dict[str, object]]:
    done = magcli("convert", "-", "--format", "jsonl", input=data)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("text", TEXTS)
def test_stdin_takes_text_in_every_form(magcli, text: str) -> None:
    assert shown(magcli, TEXTS[text]()) == ROWS


@pytest.mark.parametrize("kind", [".arrow", ".feather", ".parquet"])
def test_stdin_takes_the_binary_formats(tmp_path: Path, magcli, kind: str) -> None:
    assert magcli("convert", "-", "-o", tmp_path / f"x{kind}", input=LINES).returncode == 0
    assert shown(magcli, (tmp_path / f"x{kind}").read_bytes()) == ROWS


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (LINES.decode().encode("utf-16"), "stdin is neither Arrow, Parquet, JSON nor CSV: it is UTF-16"),
        (b"PK\x03\x04\x14\0\0\0", "stdin is a zip archive; give a log of inspect_ai (.eval) by its name"),
        (b"curl: (6) could not resolve host\n", "stdin is neither Arrow, Parquet, JSON nor CSV: it is text"),
        (json.dumps(ROWS[0], indent=1).encode(), "its objects may take several lines"),
        (LINES.replace(b"\n", b"\r"), "its lines end with carriage returns only"),
        ("frage;lösung\nja;nein\n".encode("latin-1"), "it is not UTF-8; convert it"),
        (b"PAR1" + bytes(100), "stdin is not a complete Parquet file"),
        (bytes(range(14, 200)), "stdin is not an Arrow stream"),
        (b"", "stdin is empty"),
    ],
)
def test_what_is_no_table_is_named(magcli, data: bytes, message: str) -> None:
    done = magcli("show", "-", input=data)
    assert done.returncode == 3
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_full_folder_for_temporary_files_is_one_line(magcli) -> None:
    done = magcli("show", "-", input=LINES * 1000, largest=20_000)
    assert done.returncode == 4
    assert done.stderr.startswith("error: cannot copy stdin to a temporary file: File too large; set TMPDIR")
    assert len(done.stderr.splitlines()) == 1


def test_text_goes_to_stdout_and_a_file_keeps_its_own_format(tmp_path: Path, magcli) -> None:
    done = magcli("convert", "-", "--format", "csv", "-o", "/dev/stdout", input=LINES)
    assert done.stdout.decode() == '"prompt","answer"\n"Compute 1+1.","2"\n"Compute é.",\n'
    done = magcli("convert", "-", "--format", "csv", "-o", tmp_path / "x.jsonl", input=LINES)
    assert (done.returncode, (tmp_path / "x.jsonl").exists()) == (2, False)
    assert "the format of" in done.stderr


def test_a_named_pipe_is_an_output_in_the_format_of_its_name(tmp_path: Path, magcli) -> None:

    os.mkfifo(tmp_path / "out.jsonl")
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append((tmp_path / "out.jsonl").read_bytes()), daemon=True)
    reader.start()
    done = magcli("convert", "-", "-o", tmp_path / "out.jsonl", input=LINES)
    reader.join(60)
    assert (done.returncode, read) == (0, [LINES])
    assert (tmp_path / "out.jsonl").is_fifo()
    assert [path.name for path in tmp_path.iterdir()] == ["out.jsonl"]
    assert magcli("convert", "-", "-o", "/dev/null", input=LINES).returncode == 0


@pytest.mark.parametrize("name", ["x.jsonl", "x.parquet", "folder"])
def test_a_link_of_the_users_is_written_through(tmp_path: Path, magcli, name: str) -> None:
    (tmp_path / "disk").mkdir()
    link = tmp_path / name
    link.symlink_to(tmp_path / "disk" / name)
    for _ in range(2):
        done = magcli("convert", "-", "-o", link, "--restart", input=LINES)
        assert done.returncode == 0, done.stderr
    assert link.is_symlink()
    source = table.read(str(link))
    assert [row for batch in source.rows for row in to_rows(batch)] == ROWS
    assert source.chain[-1].stage == "convert", "the history next to the table is found through the link"
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_json_for_a_terminal_has_no_control_characters() -> None:

    controller, terminal = pty.openpty()
    with open(terminal, "wb", closefd=False) as file:
        sink = stream.sink(file, pa.schema([("a", pa.string())]), "", "jsonl")
        sink.write(pa.record_batch({"a": ["é\x9b31m\u202e"]}))
        sink.finish(())
    text = b""
    while not text.endswith(b"\n"):
        text += os.read(controller, 1000)
    assert text.decode() == '{"a": "é[U+009B]31m[U+202E]"}\r\n'
    os.close(controller)
    os.close(terminal)


def test_a_file_in_another_encoding_is_not_read_in_silence(tmp_path: Path, magcli) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes("größe\n1\n".encode("latin-1"))
    done = magcli("show", path)
    assert done.returncode == 3
    assert "is not readable as CSV: it is not UTF-8; convert it" in done.stderr
