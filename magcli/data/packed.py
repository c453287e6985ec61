"""Compressed text files (``.gz``, ``.zst``), and what a file is that is none of the known formats."""

import codecs
import contextlib
import gzip
import io
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, cast

import pyarrow as pa

from magcli.errors import DataError, first_line

Opener = Callable[[], contextlib.AbstractContextManager[BinaryIO]]
"""Opens a file from its start, each time it is called."""
PACKED = (".gz", ".zst")
MAGIC = {
    b"\x1f\x8b": "it is a gzip file; name it .gz",
    b"\x28\xb5\x2f\xfd": "it is a zstd file; name it .zst",
    b"PAR1": "it is a Parquet file; name it .parquet",
    b"ARROW1": "it is an Arrow file; name it .arrow",
    codecs.BOM_UTF16_LE: "it is UTF-16; convert it to UTF-8",
    codecs.BOM_UTF16_BE: "it is UTF-16; convert it to UTF-8",
    b"PK\x03\x04": "it is a zip archive; unpack it",
}


def opener(path: Path) -> Opener:
    """Opens a file that may be compressed, by its name."""

    @contextlib.contextmanager
    def opened() -> Iterator[BinaryIO]:
        match path.suffix.lower():
            case ".gz":
                with gzip.open(path, "rb") as packed, io.BufferedReader(packed) as file:
                    yield cast(BinaryIO, file)
            case ".zst":
                with pa.input_stream(str(path), compression="zstd") as packed:
                    yield cast(BinaryIO, io.BufferedReader(packed))
            case _:
                with open(path, "rb") as plain:
                    yield plain

    return opened


@contextlib.contextmanager
def damage(name: str) -> Iterator[None]:
    """Report a truncated or damaged compressed file.

    Raises:
        DataError: it is.
    """
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{name} is truncated, damaged or not a gzip file: {first_line(error)}") from None
    except OSError as error:
        if error.errno is not None:  # of the file system, not of Arrow's decompression
            raise
        raise DataError(f"{name} is truncated, damaged or not a zstd file: {first_line(error)}") from None


def described(head: bytes) -> str:
    """What a file without a JSON object is, by its first bytes: a text to append to a message; empty if unknown."""
    for magic, what in MAGIC.items():
        if head.startswith(magic):
            return f": {what}"
    if head[1:2] == b"\0" or head[:1] == b"\0":
        return ": it may be UTF-16; convert it to UTF-8"
    if b"\r" in head and b"\n" not in head:
        return ": its lines end with carriage returns only; convert them to newlines"
    if head.removeprefix(codecs.BOM_UTF8).lstrip()[:1] == b"{":
        return ": its objects may take several lines; write one a line (jq -c .), or an array in a .json file"
    return ""
