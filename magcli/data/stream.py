"""Tables written to stdout and to named pipes: Arrow streams, JSON lines or CSV, each batch at once."""

import codecs
import os
import stat
import sys
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyarrow as pa

from magcli.console import visible
from magcli.data import arrow, csv, jsonl
from magcli.data.manifest import Chain, TextWriter
from magcli.data.source import Sink
from magcli.errors import UsageError, usage

STDOUT = "-"
FORMATS = ("arrow", "jsonl", "csv")
"""The values of ``--format``."""


def target(name: str) -> str:
    """The name of an output as it is used: ``-`` for /dev/stdout, and what a symbolic link of the user's points to."""
    if name == "/dev/stdout":
        return STDOUT
    # A file appears under its name by a rename, which would replace the link itself.
    return os.path.realpath(name) if os.path.islink(name) and not is_stream(name) else name


def is_stream(name: str | None) -> bool:
    """Whether an output is stdout, a named pipe or a device, which cannot be replaced, locked or read again."""
    if name is None or name == STDOUT:
        return name is not None
    try:
        mode = os.stat(name).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISCHR(mode) or stat.S_ISSOCK(mode)


def format_of(name: str, form: str) -> str:
    """The format of a stream: the one asked for, or that of the suffix of a named pipe, or Arrow."""
    suffix = Path(name).suffix.lower().removeprefix(".")
    return form or (suffix if suffix in FORMATS else FORMATS[0])


def check(name: str, form: str) -> None:
    """Check that a stream can be written.

    Raises:
        UsageError: stdout is closed, or is a terminal and the format is Arrow.
    """
    if name != STDOUT:
        return
    usage(sys.stdout is not None, "stdout is closed: give -o FILE")
    if sys.stdout.isatty() and format_of(name, form) == "arrow":
        choice = "give --format jsonl, -o FILE, or pipe into another command"
        raise UsageError(f"the output is an Arrow stream, not for a terminal: {choice}")


def sink(file: BinaryIO, schema: pa.Schema, head: str, form: str) -> Sink:
    """Writes a table to an open stream."""
    if form == "arrow":
        return arrow.StreamSink(file, schema, head, flush=True)
    out = cast(BinaryIO, _Terminal(file)) if file.isatty() else file
    writer = csv.CsvWriter(out, schema) if form == "csv" else jsonl.LinesWriter(out, schema, array=False)
    return _TextSink(writer, file)


class _TextSink:
    """Writes text; a stream of text has no history."""

    def __init__(self, writer: TextWriter, file: BinaryIO) -> None:
        self.writer, self.file = writer, file

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows, and send them."""
        self.writer.write(batch)
        self.file.flush()

    def finish(self, chain: Chain) -> str:
        """End the table."""
        self.writer.close()
        self.file.flush()
        return ""


class _Terminal:
    """A terminal that gets text with its control characters made visible."""

    closed = False

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def writable(self) -> bool:
        """Always."""
        return True

    def write(self, data: Any) -> int:
        """Write text, which may end within a character."""
        # A character that is cut waits in the decoder for its other bytes.
        text = self._decoder.decode(bytes(data))
        self._file.write(visible(text).encode())
        return len(data)

    def flush(self) -> None:
        """Send what was written."""
        self._file.flush()

    def close(self) -> None:
        """Nothing: the terminal stays open."""
