"""Logs of inspect_ai: the samples of an ``.eval`` archive or of a ``.json`` log, a row each.

Events, attachments and the store of a sample, which are most of its size, are left out. A sample that an archive has
twice, as after an evaluation that was taken up again, is the last one of its name.
"""

import io
import json
import mmap
import re
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from magcli.data import jsonl
from magcli.data.manifest import check_manifest
from magcli.data.source import BadRow, Source
from magcli.errors import DataError, first_line

ARCHIVE = ".eval"
SAMPLES = "samples/"
LEFT_OUT = ("events", "events_data", "attachments", "store", "timelines")
"""Keys of a sample that are no columns."""
ZSTD = 93
"""The compression of newer archives, which ``zipfile`` does not know before Python 3.14."""
LOCAL_HEADER = 30
"""Bytes before the name of a member."""
HEAD_BYTES = 4096
# How inspect_ai begins a log, before the description of the evaluation.
HEAD = re.compile(rb'\s*\{\s*"version"\s*:\s*\d+\s*,\s*"status"\s*:\s*"[a-z]+"\s*,\s*"eval"\s*:\s*\{')
# A string, or what opens or closes a level; possessive, so that a string without an end is not tried again and again.
TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[\[\]{}]', re.DOTALL)
ARRAY = re.compile(rb"\s*:\s*(?=\[)")


def is_log(path: Path) -> bool:
    """Whether a file is a log of inspect_ai, by its name or its first bytes."""
    if path.suffix.lower() == ARCHIVE:
        return True
    if path.suffix.lower() != ".json":
        return False
    with open(path, "rb") as file:
        return HEAD.match(file.read(HEAD_BYTES)) is not None


def open_file(path: Path, bad: BadRow) -> Source:
    """Read the samples of a log; those that cannot be read are reported to ``bad``.

    Raises:
        DataError: it has no samples, is damaged, or is another archive.
    """
    digest, _ = check_manifest(path)
    members = _members if path.suffix.lower() == ARCHIVE else _elements

    def read() -> Iterator[bytes]:
        for sample in members(path):
            yield _row(sample)

    source = jsonl.open_texts(jsonl.Texts(read, "element"), str(path), bad)
    source.sha256 = digest
    return source


def _row(sample: bytes) -> bytes:
    """The text of a sample without what is left out; one that cannot be parsed stays as it is."""
    if len(sample) > jsonl.ROW_LIMIT:
        return sample
    try:
        value = json.loads(sample)
    except (ValueError, RecursionError):
        return sample
    if not isinstance(value, dict):
        return sample
    return json.dumps({key: part for key, part in value.items() if key not in LEFT_OUT}).encode()


# ---- archives ----


def _members(path: Path) -> Iterator[bytes]:
    """The texts of the samples of an archive.

    Raises:
        DataError: it is damaged, has none, or has one in an unknown compression.
    """
    with _damage(path), zipfile.ZipFile(path) as archive, open(path, "rb") as raw:
        names = [name for name in archive.NameToInfo if name.startswith(SAMPLES) and name.endswith(".json")]
        if not names:
            raise DataError(
                f"{path} has no samples: it is no log of inspect_ai, or of an evaluation that did not start"
            )
        for name in names:
            with _opened(archive, archive.NameToInfo[name], raw) as member:
                yield member.read(jsonl.ROW_LIMIT + 1)


@contextmanager
def _damage(path: Path) -> Iterator[None]:
    try:
        yield
    except (zipfile.BadZipFile, EOFError, zlib.error, RuntimeError) as error:
        raise DataError(f"{path} is truncated, damaged or no log of inspect_ai: {first_line(error)}") from None
    except OSError as error:
        if error.errno is not None:  # of the file system, not of Arrow's decompression
            raise
        raise DataError(f"{path} is damaged: {first_line(error)}") from None


@contextmanager
def _opened(archive: zipfile.ZipFile, member: zipfile.ZipInfo, raw: BinaryIO) -> Iterator[BinaryIO]:
    """A member of an archive, uncompressed."""
    if member.compress_type != ZSTD:
        with archive.open(member) as file:
            yield file  # type: ignore[misc]
        return
    raw.seek(member.header_offset)
    header = raw.read(LOCAL_HEADER)
    if len(header) < LOCAL_HEADER:
        raise zipfile.BadZipFile(f"{member.filename} lies beyond the end")
    # The lengths of the name and of the extra field, which follow the header.
    lengths = int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
    raw.seek(lengths, io.SEEK_CUR)
    packed = raw.read(member.compress_size)
    with pa.input_stream(pa.BufferReader(packed), compression="zstd") as file:
        yield file


# ---- JSON ----


def _elements(path: Path) -> Iterator[bytes]:
    """The texts of the samples of a log in JSON.

    Raises:
        DataError: it has none.
    """
    with open(path, "rb") as file:
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
            start = _start_of_samples(text)
        if start is None:
            raise DataError(
                f"{path} is a log of inspect_ai without samples: its evaluation did not end, or left them out"
            )
        file.seek(start)
        yield from jsonl.elements(file, str(path), alone=False)


def _start_of_samples(text: mmap.mmap) -> int | None:
    """Where the array of the samples begins."""
    depth = 0
    for token in TOKEN.finditer(text):
        sign = token[0]
        if sign in (b"{", b"["):
            depth += 1
        elif sign in (b"}", b"]"):
            depth -= 1
        # A key of the log itself; samples may have such a key within.
        elif depth == 1 and sign == b'"samples"' and (array := ARRAY.match(text, token.end())):
            return array.end()
    return None
