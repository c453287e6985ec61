"""The rows of a JSON file as text: its lines, or the elements of its one array; packed with gzip or not.

Memory holds one row at a time, and of a row over the limit its start. A packed file or an array that is cut is refused;
so is a packed one that is damaged.
"""

import codecs
import contextlib
import gzip
import io
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import BinaryIO, NamedTuple

from magcli.data.source import brief
from magcli.errors import DataError

ROW_LIMIT = 1 << 25
"""A row longer than this many bytes is set aside as ``line-too-large``."""

CHUNK = 1 << 20
_OUTSIDE = re.compile(rb'["\[\]{},]')
_INSIDE = re.compile(rb'"|\\.', re.DOTALL)

Opener = Callable[[], contextlib.AbstractContextManager[BinaryIO]]
"""Gives a file from its start, each time it is called."""


class Texts(NamedTuple):
    """The texts of all rows, from the first one each time that they are asked for; and what one of them is."""

    each: Callable[[], Iterator[bytes]]
    noun: str


def texts_of(path: Path) -> Texts:
    """The rows of a file: the elements of an array where a ``.json`` file begins with one, else lines."""
    opened = _unpacked(path) if path.suffix == ".gz" else lambda: open(path, "rb")  # noqa: SIM115
    may_be_array = ".json" in path.suffixes[-2:]
    return opened_texts(opened, str(path), array=may_be_array and _first(opened, str(path)) == b"[")


def opened_texts(opened: Opener, name: str, *, array: bool) -> Texts:
    """The rows of what ``opened`` gives: the elements of its array, or its lines."""
    return Texts(partial(_each, opened, name, _elements if array else _lines), "element" if array else "line")


def _unpacked(path: Path) -> Opener:
    @contextlib.contextmanager
    def opened() -> Iterator[BinaryIO]:
        with gzip.open(path, "rb") as packed, io.BufferedReader(packed) as file:
            yield file

    return opened


def _first(opened: Opener, name: str) -> bytes:
    """The first byte that is neither blank nor of a byte-order mark."""
    pieces = (piece.removeprefix(codecs.BOM_UTF8).lstrip() for piece in _each(opened, name, _pieces))
    return next(filter(None, pieces), b"")[:1]


def _pieces(file: BinaryIO, name: str) -> Iterator[bytes]:
    return iter(partial(file.read, CHUNK), b"")


def _each(opened: Opener, name: str, split: Callable[[BinaryIO, str], Iterator[bytes]]) -> Iterator[bytes]:
    try:
        with opened() as file:
            yield from split(file, name)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{name} is cut, damaged or no gzip file: {brief(error)}") from None


def _lines(file: BinaryIO, name: str) -> Iterator[bytes]:
    while line := file.readline(ROW_LIMIT + 1):
        if len(line) > ROW_LIMIT and not line.endswith(b"\n"):
            while (more := file.readline(ROW_LIMIT)) and not more.endswith(b"\n"):
                pass
        yield line


def _elements(file: BinaryIO, name: str) -> Iterator[bytes]:
    """The text of each element, found by brackets and commas outside of strings.

    Raises:
        DataError: the array does not end, or something follows it.
    """
    text, start, at, depth, quoted = b"", 0, 0, 0, False
    while chunk := file.read(CHUNK):
        text += chunk
        while found := (_INSIDE if quoted else _OUTSIDE).search(text, at):
            sign, at = found[0], found.end()
            if sign == b'"':
                quoted = not quoted
            elif sign in (b"[", b"{"):
                depth += 1
                start = at if depth == 1 else start
            elif not quoted and (depth > 1 or sign != b"}"):
                if depth == 1:
                    yield text[start : at - 1].strip()
                    start = at
                depth -= sign != b","
                if depth == 0:
                    _refuse_more(chain([text[at:]], _pieces(file, name)), name)
                    return
        in_escape = quoted and at < len(text) and text.endswith(b"\\")
        text, start = text[start : start + ROW_LIMIT + 1], 0
        at = len(text) + in_escape
    raise DataError(f"{name} is cut: its array does not end")


def _refuse_more(rest: Iterable[bytes], name: str) -> None:
    """Read to the end, where a packed file proves itself; nothing but blanks may stand there."""
    for piece in rest:
        if piece.strip():
            raise DataError(f"{name} is no one array: after its end stands {piece.strip()[:40]!r}")
