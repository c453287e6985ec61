"""Tables from pipes, in every format that files have, which is detected from the first bytes.

An Arrow stream is read as it comes. The other formats are read twice or from their end, so the pipe is copied to an
unnamed temporary file first.
"""

import codecs
import contextlib
import io
import os
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import IO, BinaryIO, cast

from magcli.data import arrow, csv, jsonl, seal
from magcli.data.packed import Opener, damage, described, foreign, packing_of, unpacked
from magcli.data.source import BadRow, Rows, Source
from magcli.errors import DataError, EnvironmentFault, UsageError

HEAD = 1 << 12
"""Bytes from which the format is detected."""
DELIMITERS = (",", "\t", ";")
ARCHIVE = b"PK\x03\x04"
CHUNK = 1 << 20
"""Bytes that are copied at a time."""
ADVICE = "; set TMPDIR to a folder with room, or name a file instead of a pipe"
RESERVED_SHARE, MAX_RESERVED = 20, 1 << 30
"""A copy leaves a twentieth of the disk free, at most 1 GiB, so that other programs can go on."""


def read(raw: io.FileIO, name: str, bad: BadRow) -> Source:
    """Open a table from a pipe; ``name`` is that of the pipe in messages.

    Raises:
        DataError: it is empty, or in none of the formats.
        EnvironmentFault: there is no room for the copy.
        UsageError: it is a terminal.
    """
    if raw.isatty():
        raise UsageError("no input table: name one, or pipe one in")
    pipe = io.BufferedReader(raw, 1 << 16)
    # It stays in the pipe, to be read again.
    head = pipe.peek(HEAD)[:HEAD]
    if not head:
        raise DataError(f"{name} is empty: the previous command of the pipe wrote no table")
    if not (_is_spooled(head) or _is_text(head)):
        if head.startswith(ARCHIVE):
            raise DataError(f"{name} is a zip archive; give a log of inspect_ai (.eval) by its name, unpack any other")
        if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise DataError(f"{name} is neither Arrow, Parquet, JSON nor CSV{foreign(head)}")
        # Anything else goes to the reader of Arrow streams, which says what is wrong.
        return arrow.open_stream(pipe, name)
    copy, digest = _copied(pipe, name)
    source = _open(copy, name, bad)
    source.rows = _with_digest(source, source.rows, digest, copy)
    return source


def keep(path: Path) -> Path:
    """Copy a named pipe, such as ``<(...)`` of a shell; returns a path by which the copy can be read many times.

    Raises:
        EnvironmentFault: there is no room for the copy.
    """
    with open(path, "rb") as pipe:
        copy, _ = _copied(pipe, str(path))
    return Path(f"/dev/fd/{os.dup(copy.fileno())}")  # open until the process ends


def _is_spooled(head: bytes) -> bool:
    return bool(packing_of(head)) or head.startswith((b"PAR1", b"ARROW1"))


def _open(copy: IO[bytes], name: str, bad: BadRow) -> Source:
    """Open the copy of a pipe, which may be compressed."""
    path = Path(f"/dev/fd/{copy.fileno()}")
    raw = partial(_reopened, copy)
    with raw() as file:
        start = file.read(HEAD)
    if start.startswith(b"PAR1"):
        return arrow.open_parquet(path, name)
    if start.startswith(b"ARROW1"):
        return arrow.open_file(path, name)
    opened = unpacked(raw, packing_of(start))
    return _open_text(opened, name, bad)


def _open_text(opened: Opener, name: str, bad: BadRow) -> Source:
    """Read JSON or CSV.

    Raises:
        DataError: it is neither.
    """
    with damage(name), opened() as file:
        head = file.read(HEAD)
    first_sign = head.removeprefix(codecs.BOM_UTF8).lstrip()[:1]
    if first_sign in (b"{", b"["):
        texts = jsonl.opened_texts(opened, name, array=first_sign == b"[")
        return jsonl.open_texts(texts, name, bad)
    line, _, _ = head.partition(b"\n")
    header = line.decode("utf-8", "replace")
    delimiters = [sign for sign in DELIMITERS if sign in header]
    # A header without a delimiter could be any text, so it must be a name.
    is_one_column = header.strip("\ufeff\r ").isidentifier()
    if not foreign(line) and (delimiters or is_one_column):
        delimiter = delimiters[0] if delimiters else ","
        return csv.open_cells(csv.Cells(name, opened, delimiter), bad)
    what = described(head) or ": it is text"
    raise DataError(f"{name} is neither Arrow, Parquet, JSON nor CSV{what}")


def _is_text(head: bytes) -> bool:
    """Whether the first bytes of a pipe are text in UTF-8 or another encoding of bytes, such as JSON or CSV."""
    arrow_mark = b"\xff\xff\xff\xff"
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, arrow_mark)):
        return False
    text = head.removeprefix(codecs.BOM_UTF8).decode("latin-1")
    # Of the control characters a text has only white space.
    return not any(ord(sign) < 0x20 and not sign.isspace() for sign in text)


def _with_digest(source: Source, rows: Rows, digest: str, copy: IO[bytes]) -> Rows:
    """The rows of a pipe; its digest is set after the last one as for any pipe, since only files can be sharded."""
    with copy:
        yield from rows
    source.sha256 = digest


def _copied(pipe: BinaryIO, name: str) -> tuple[IO[bytes], str]:
    """Copy a pipe to an unnamed temporary file; returns it and its digest.

    Raises:
        EnvironmentFault: the folder for temporary files is missing, or the copy would fill its disk.
    """
    try:
        copy = tempfile.TemporaryFile()  # noqa: SIM115 - closed after its last row
        hashing = seal.HashingWriter(cast(BinaryIO, copy))
        while chunk := pipe.read(CHUNK):
            if not _has_room(copy.fileno(), len(chunk)):
                where, copied = tempfile.gettempdir(), f"{copy.tell() / 1e6:,.0f} MB"
                copy.close()
                raise EnvironmentFault(f"{name} is too large for {where}: after {copied} it is almost full{ADVICE}")
            hashing.write(chunk)
        copy.flush()
    except OSError as error:
        raise EnvironmentFault(f"cannot copy {name} to a temporary file: {error.strerror or error}{ADVICE}") from None
    return copy, hashing.hash.hexdigest()


def _has_room(file: int, size: int) -> bool:
    """Whether the disk of an open file has space for ``size`` more bytes and the reserve; true if it does not say."""
    disk = os.fstatvfs(file)
    if disk.f_blocks == 0:
        return True
    total, free = disk.f_blocks * disk.f_frsize, disk.f_bavail * disk.f_frsize
    reserved = min(total // RESERVED_SHARE, MAX_RESERVED)
    return free >= size + reserved


@contextlib.contextmanager
def _reopened(copy: IO[bytes]) -> Iterator[BinaryIO]:
    """The copy from its start, by a handle of its own, because some readers close it."""
    with open(os.dup(copy.fileno()), "rb") as file:
        file.seek(0)
        yield file
