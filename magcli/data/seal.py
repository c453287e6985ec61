"""The seal of a file: a SHA-256 over all of its bytes, stored inside it.

The digest follows a marker in the file's last message (Arrow) or footer (Parquet). It is computed over the whole file
with zeros in place of its own 64 characters, so truncation at any byte and any flipped bit are detected.
"""

import hashlib
import io
import json
import mmap
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from magcli.errors import DataError

DIGEST_KEY = "magcli.sha256"
SEAL_KEY = "magcli.seal"
HEAD_KEY = "magcli.head"
MARK = b"magcli:sha256:"
BLANK = b"0" * 64
PLACEHOLDER = (MARK + BLANK).decode()
"""The digest of a file that is not finished."""
TAIL = 1 << 24
"""Maximum distance in bytes of a file's seal from its end."""


def foreign_metadata(metadata: Mapping[bytes, bytes] | None) -> dict[bytes, bytes] | None:
    """The metadata of a table without that of its seal."""
    own = {HEAD_KEY.encode(), SEAL_KEY.encode(), DIGEST_KEY.encode()}
    return {key: value for key, value in (metadata or {}).items() if key not in own} or None


def patch(file: BinaryIO) -> str:
    """Compute the digest of a finished file and write it into its placeholder; returns the digest."""
    file.flush()
    with mmap.mmap(file.fileno(), 0) as data:
        # The last one: a value in the table may look like it.
        at = data.rfind(MARK + BLANK) + len(MARK)
        digest = hashlib.sha256(data).hexdigest()
        data[at : at + 64] = digest.encode()
        data.flush()
    return digest


def verify_file(path: Path) -> str | None:
    """Check a file against its seal.

    Returns the digest, or None for a file without a seal, which another tool wrote.

    Raises:
        DataError: the file is empty or does not match its seal.
    """
    if path.stat().st_size == 0:
        raise DataError(f"{path} is empty: it was truncated or never written")
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        mark = data.rfind(MARK, max(0, len(data) - TAIL))
        if mark < 0:
            return None
        start = mark + len(MARK)
        end = start + len(BLANK)
        digest = data[start:end]
        is_digest = len(digest) == len(BLANK) and not digest.strip(b"0123456789abcdef")
        # Other tools' files may contain the mark by chance; ours have the head key too, even with a damaged digest.
        if not is_digest and data.find(HEAD_KEY.encode()) < 0:
            return None
        # The digest is that of the file with blanks instead of it.
        hasher = hashlib.sha256(memoryview(data)[:start])
        hasher.update(BLANK)
        hasher.update(memoryview(data)[end:])
    if digest.decode("ascii", "replace") != hasher.hexdigest():
        raise DataError(f"{path} is damaged: its content does not match its seal")
    return hasher.hexdigest()


def hash_file(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with open(path, "rb") as file:
        return hash_open(file)


def hash_open(file: BinaryIO) -> str:
    """SHA-256 of an open file from its current position."""
    return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]


def hash_text(text: str) -> str:
    """SHA-256 of a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


PIECE = 1 << 26
"""Bytes that are read from a stream at a time."""


class HashingWriter(io.RawIOBase):
    """A file that hashes what is written, and can hold back the last bytes until their digest is known."""

    def __init__(self, out: BinaryIO) -> None:
        self.out = out
        self.hash = hashlib.sha256()
        self.pending: list[bytes] | None = None

    def writable(self) -> bool:
        """Always; pyarrow asks."""
        return True

    def write(self, data: Any) -> int:
        """Hash and write, or hold back."""
        view = bytes(data)
        if self.pending is not None:
            self.pending.append(view)
        else:
            self.hash.update(view)
            self.out.write(view)
        return len(view)

    def finish(self) -> str:
        """Write the pending bytes with the digest of the whole file in its place; returns the digest."""
        tail = b"".join(self.pending or [])
        at = tail.rindex(MARK + BLANK) + len(MARK)
        # Of the file with blanks where the digest goes.
        self.hash.update(tail)
        digest = self.hash.hexdigest()
        self.out.write(tail[:at] + digest.encode() + tail[at + 64 :])
        return digest


class HashingReader:
    """A stream that keeps the bytes since the last mark, to verify the seal of a pipe."""

    def __init__(self, source: BinaryIO) -> None:
        self.source = source
        self.hash = hashlib.sha256()
        self.recent: list[bytes] = []
        self.closed = False

    @property
    def since_mark(self) -> bytes:
        """The bytes read since the last mark."""
        return b"".join(self.recent)

    def read(self, size: int = -1) -> bytes:
        """Read exactly ``size`` bytes, fewer only at the end."""
        data = self.source.read(size) if size <= PIECE else self._pieces(size)
        self.recent.append(data)
        return data

    def _pieces(self, size: int) -> bytes:
        """Read piece by piece, because a damaged stream may announce more bytes than memory has."""
        pieces = []
        while size > 0 and (piece := self.source.read(min(size, PIECE))):
            pieces.append(piece)
            size -= len(piece)
        return b"".join(pieces)

    def mark(self) -> None:
        """Hash the bytes so far, which are not part of the seal."""
        for data in self.recent:
            self.hash.update(data)
        self.recent.clear()

    def matches(self, digest: str) -> bool:
        """Whether all bytes, up to the end of the stream and with the placeholder, have this digest."""
        while self.read(1 << 16):
            pass
        tail = self.since_mark.replace(MARK + digest.encode(), MARK + BLANK)
        self.hash.update(tail)
        return self.hash.hexdigest() == digest

    def close_digest(self) -> str:
        """SHA-256 of all bytes, at the end of the stream."""
        self.mark()
        return self.hash.hexdigest()

    # pyarrow asks for these.

    def readable(self) -> bool:
        """Always."""
        return True

    def writable(self) -> bool:
        """Never."""
        return False

    def seekable(self) -> bool:
        """Never; it may be a pipe."""
        return False

    def close(self) -> None:
        """Leave the source open for its owner."""
        self.closed = True


def pack(value: Mapping[str, Any]) -> str:
    """Metadata as canonical JSON, so that equal outputs have equal bytes; a seal's marker in a string is escaped."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return text.replace(MARK.decode(), MARK.decode().replace(":", "\\u003a"))


def seal_json(value: Mapping[str, Any]) -> str:
    """JSON for a file, with its own checksum."""
    return json.dumps({**value, "check": hash_text(pack(value))}, sort_keys=True, indent=1) + "\n"


def open_json(text: bytes) -> dict[str, Any]:
    """The value that ``seal_json`` wrote.

    Raises:
        ValueError: it is truncated or damaged.
        KeyError: it has no checksum.
    """
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError("it is not an object")
    check = value.pop("check")
    # The text as well, since the same values could be written in another way.
    if check != hash_text(pack(value)) or seal_json(value).encode() != text:
        raise ValueError("content and checksum differ")
    return dict(value)
