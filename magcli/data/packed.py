"""Compressed text files (``.gz``, ``.zst``), and guesses at the format of a file that cannot be read."""

import codecs
import contextlib
import gzip
import io
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, cast

import pyarrow as pa

from magcli.data.manifest import TextWriter
from magcli.errors import DataError, first_line

TO_UTF8 = "convert it, for example with iconv -f LATIN1 -t UTF-8"
"""What to do with a file in another encoding."""
Opener = Callable[[], contextlib.AbstractContextManager[BinaryIO]]
"""Opens a file from its start, each time it is called."""
# What gzip and zstd files begin with.
PACKED_MAGIC = {b"\x1f\x8b": ".gz", b"\x28\xb5\x2f\xfd": ".zst"}
PACKED = tuple(PACKED_MAGIC.values())
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
    return unpacked(lambda: open(path, "rb"), path.suffix.lower())


def unpacked(raw: Opener, packing: str) -> Opener:
    """Opens what ``raw`` opens, uncompressed; ``packing`` is ``.gz``, ``.zst`` or anything else for none."""

    @contextlib.contextmanager
    def opened() -> Iterator[BinaryIO]:
        with raw() as file:
            match packing:
                case ".gz":
                    with gzip.GzipFile(fileobj=file, mode="rb") as packed:
                        yield cast(BinaryIO, io.BufferedReader(packed))
                case ".zst":
                    # Python has no zstd before 3.14, Arrow has.
                    with pa.input_stream(file, compression="zstd") as packed:
                        yield cast(BinaryIO, io.BufferedReader(packed))
                case _:
                    yield file

    return opened


def has_suffix(path: Path, suffix: str) -> bool:
    """Whether a file has a suffix, at the end of its name or in front of that of its compression."""
    return suffix in [part.lower() for part in path.suffixes[-2:]]


def packing_of(head: bytes) -> str:
    """The suffix of the compression of a file that starts with these bytes; empty for none."""
    return next((packing for magic, packing in PACKED_MAGIC.items() if head.startswith(magic)), "")


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


def foreign(head: bytes) -> str:
    """Why a file is not UTF-8 text, by its first bytes, to append to a message; empty if it may be."""
    for magic, what in MAGIC.items():
        if head.startswith(magic):
            return f": {what}"
    # A letter of ASCII is beside a zero byte in UTF-16.
    if head[1:2] == b"\0" or head[:1] == b"\0":
        return ": it may be UTF-16; convert it to UTF-8"
    return "" if is_utf8(head) else f": it is not UTF-8; {TO_UTF8}"


def is_utf8(head: bytes) -> bool:
    """Whether the first bytes of a file are UTF-8; the last character may be cut."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return True


def described(head: bytes) -> str:
    """Why a file has no JSON object, by its first bytes, to append to a message; empty if unknown."""
    if what := foreign(head):
        return what
    if b"\r" in head and b"\n" not in head:
        return ": its lines end with carriage returns only; convert them to newlines"
    if head.removeprefix(codecs.BOM_UTF8).lstrip()[:1] == b"{":
        return ": its objects may take several lines; write one a line (jq -c .), or an array in a .json file"
    return ""


class GzipWriter:
    """Compresses the output of another writer, without time and name, so that equal tables have equal bytes."""

    def __init__(self, file: BinaryIO, make: Callable[[BinaryIO], TextWriter]) -> None:
        self.packed = gzip.GzipFile("", "wb", fileobj=file, mtime=0)
        self.writer = make(cast(BinaryIO, self.packed))

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows."""
        self.writer.write(batch)

    def close(self) -> None:
        """End the table and the gzip stream."""
        self.writer.close()
        self.packed.close()
