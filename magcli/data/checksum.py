"""Checksums inside JSON files: a CRC in each line of a file that grows, and one in an object that is written at once.

The CRC of a line is a running one: it covers the lines before it too, so a line that is changed, added, moved or left
out is detected, and appending needs only the last line. Files without checksums, from other tools, are read unchecked.
"""

import json
import re
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from magcli.errors import DataError

KEY = "crc"
"""The last key of a line or object: eight hexadecimal digits."""
_SUFFIX = re.compile(rb', "crc": "([0-9a-f]{8})"\}$')
_SUFFIX_BYTES = 64
"""More than a line's checksum and newline take."""
START = 0
"""The running CRC before the first line."""


class Lines(NamedTuple):
    """The complete lines of a file: the objects, the running CRC after them (None without), their size in bytes."""

    objects: list[dict[str, Any]]
    crc: int | None
    size: int


def encode_line(fields: Mapping[str, Any], crc: int | None) -> tuple[bytes, int | None]:
    """A line with its checksum, and the running CRC after it.

    ``crc`` is the one before it; None if the lines before it have no checksums, so that this one has none either.
    """
    body = json.dumps(fields, allow_nan=False).encode()
    if crc is None:
        return body + b"\n", None
    crc = zlib.crc32(body, crc)
    # The checksum becomes the last key, in front of the closing brace.
    return body[:-1] + f', "{KEY}": "{crc:08x}"}}\n'.encode(), crc


def encode_lines(lines: Iterable[Mapping[str, Any]]) -> bytes:
    """A whole file of lines with their checksums."""
    encoded: list[bytes] = []
    crc: int | None = START
    for fields in lines:
        line, crc = encode_line(fields, crc)
        encoded.append(line)
    return b"".join(encoded)


def read_lines(path: Path, what: str) -> Lines:
    """The objects of a file of lines, without their checksums; an incomplete last line is left out.

    Args:
        path: the file; one that does not exist has no lines.
        what: what is damaged and what to do, for the message.

    Raises:
        DataError: a line is not a JSON object, or does not match its checksum.
    """
    data = path.read_bytes() if path.exists() else b""
    # A line without its newline was cut off by a kill.
    size = data.rfind(b"\n") + 1
    lines = data[:size].split(b"\n")[:-1]
    has_checksums = bool(lines) and _SUFFIX.search(lines[0]) is not None
    crc = START if has_checksums or not lines else None
    objects = []
    for number, line in enumerate(lines, 1):
        try:
            fields, crc = _decode_line(line, crc)
        except ValueError as error:
            raise DataError(f"{path}: line {number}: {error}; {what}") from None
        objects.append(fields)
    return Lines(objects, crc, size)


def _decode_line(line: bytes, crc: int | None) -> tuple[dict[str, Any], int | None]:
    """A line's object and the running CRC after it; without a CRC before it, nothing is checked.

    Raises:
        ValueError: the line does not match its checksum, or is not a JSON object.
    """
    suffix = _SUFFIX.search(line)
    if suffix is None and crc is None:
        return _object(line), None
    if suffix is None:
        raise ValueError("its checksum is missing")
    if crc is None:
        raise ValueError("it has a checksum, unlike the lines before it")
    # The text that the checksum is of: its key out, the brace back.
    body = line[: suffix.start()] + b"}"
    crc = zlib.crc32(body, crc)
    if crc != int(suffix[1], 16):
        raise ValueError("it does not match its checksum")
    return _object(body), crc


def _object(text: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("it is not JSON") from None
    if not isinstance(fields, dict):
        raise ValueError("it is not a JSON object")
    return fields


def last_crc(file: BinaryIO) -> int | None:
    """The running CRC after the last line of a file; None if its lines have no checksums."""
    size = file.seek(0, 2)
    if not size:
        return START
    file.seek(max(0, size - _SUFFIX_BYTES))
    suffix = _SUFFIX.search(file.read().removesuffix(b"\n"))
    return int(suffix[1], 16) if suffix else None


def encode_object(fields: Mapping[str, Any]) -> bytes:
    """A file of one object with its checksum, indented for people."""
    return (json.dumps({**fields, KEY: _crc_of(fields)}, indent=1) + "\n").encode()


def read_object(path: Path) -> dict[str, Any]:
    """The object in a file, without its checksum.

    Raises:
        ValueError: the file is not a JSON object, or does not match its checksum.
        OSError: it cannot be read.
    """
    fields = _object(path.read_bytes())
    stored = fields.pop(KEY, None)
    if stored is not None and stored != _crc_of(fields):
        raise ValueError("it does not match its checksum")
    return fields


def _crc_of(fields: Mapping[str, Any]) -> str:
    """The CRC of an object's values, whatever the spacing of the file."""
    return f"{zlib.crc32(json.dumps(fields, sort_keys=True).encode()):08x}"
