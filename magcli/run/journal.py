"""What an interrupted stage had finished: an append-only file beside its output.

A record is one unit of work (its key, what it dropped, its rows) or a note on all of them. Records carry their length
and CRC, so a torn last one is seen and cut off. A journal belongs to one configuration; another one is refused by name.
"""

import json
import os
import struct
import time
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from magcli.data import durable
from magcli.errors import UsageError
from magcli.run.identity import decisive

FRAME = struct.Struct("<II")
SYNC_EVERY = 0.5
"""Seconds between two fsyncs; what a kill leaves is in the page cache at once, a power cut may cost this much."""


class Dropped(NamedTuple):
    """A row left out: its id, the reason, the row as JSON."""

    id: str
    reason: str
    row: str


class Result(NamedTuple):
    """What one unit of work gave: rows for the output and rows left out.

    ``again``: the machine failed it, so it is in no journal, and a run that is resumed does it again.
    """

    rows: pa.RecordBatch
    dropped: Sequence[Dropped] = ()
    again: bool = False


class Journal:
    """The finished units of one output. Open it with ``Journal.open``."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.path, self.schema = path, schema
        with durable.disk_errors(path):
            self.file = open(path, "ab+", buffering=0)  # noqa: SIM115
        self.places: dict[str, tuple[int, int]] = {}
        self.notes: dict[str, str] = {}
        self.synced = time.monotonic()

    @classmethod
    def open(cls, path: Path, schema: pa.Schema, identity: Mapping[str, Any]) -> "Journal":
        """Open or begin a journal and find what is finished in it.

        Raises:
            UsageError: the journal was begun with another configuration; the message names what differs.
        """
        journal = cls(path, schema)
        head = json.dumps(identity, sort_keys=True, default=str).encode()
        try:
            end = journal._scan(head)
        except UsageError:
            journal.file.close()
            raise
        journal.file.truncate(end)
        if end == 0:
            journal._append(head)
            durable.sync_folder(path.parent)
        journal.sync()
        return journal

    def _scan(self, head: bytes) -> int:
        """Read the records; returns where the last whole one ends."""
        self.file.seek(0)
        end, begun = 0, b""
        while (payload := self._next()) is not None:
            if end == 0:
                begun = payload
            else:
                told = json.loads(payload[: payload.index(b"\n")])
                if "note" in told:
                    self.notes |= told["note"]
                else:
                    self.places[told["key"]] = (end + FRAME.size, len(payload))
            end += FRAME.size + len(payload)
        if begun != head and not self.places:
            self.notes.clear()
            return 0
        if begun != head:
            self._check(json.loads(begun), json.loads(head))
        return end

    def _next(self) -> bytes | None:
        prefix = self.file.read(FRAME.size)
        if len(prefix) < FRAME.size:
            return None
        length, crc = FRAME.unpack(prefix)
        payload = self.file.read(length)
        return payload if len(payload) == length and zlib.crc32(payload) == crc else None

    def _check(self, begun: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
        found, expected = decisive(begun), decisive(asked)
        differs = [key for key in {**found, **expected} if found.get(key) != expected.get(key)]
        if differs:
            told = ", ".join(f"{key} {found.get(key)!r} (now {expected.get(key)!r})" for key in sorted(differs))
            raise UsageError(
                f"{self.path} holds unfinished work begun with other settings: {told}; "
                "repeat those settings to go on, or give --restart to begin anew"
            )

    def __contains__(self, key: str) -> bool:
        return key in self.places

    def note(self, name: str, value: str) -> None:
        """Keep what all later units go by, such as a number format; the last note of a name holds."""
        if self.notes.get(name) != value:
            self.file.seek(0, os.SEEK_END)
            self._append(json.dumps({"note": {name: value}}).encode() + b"\n")
            self.notes[name] = value

    def put(self, key: str, result: Result) -> None:
        """Record a finished unit."""
        head = json.dumps({"key": key, "dropped": result.dropped}).encode() + b"\n"
        start = self.file.seek(0, os.SEEK_END)
        length = self._append(head + result.rows.serialize().to_pybytes())
        self.places[key] = (start + FRAME.size, length)
        if time.monotonic() - self.synced > SYNC_EVERY:
            self.sync()

    def get(self, key: str) -> Result:
        """A finished unit as it was recorded."""
        start, length = self.places[key]
        payload = os.pread(self.file.fileno(), length, start)
        cut = payload.index(b"\n")
        dropped = [Dropped(*each) for each in json.loads(payload[:cut])["dropped"]]
        return Result(pa.ipc.read_record_batch(pa.py_buffer(payload[cut + 1 :]), self.schema), dropped)

    def _append(self, payload: bytes) -> int:
        data = memoryview(FRAME.pack(len(payload), zlib.crc32(payload)) + payload)
        with durable.disk_errors(self.path):
            while data:
                data = data[self.file.write(data) :]
        return len(payload)

    def sync(self) -> None:
        """Make what is recorded survive a power cut."""
        with durable.disk_errors(self.path):
            durable.sync(self.file)
        self.synced = time.monotonic()

    def close(self) -> None:
        """Leave the journal for the next run."""
        self.sync()
        self.file.close()

    def remove(self) -> None:
        """The output is finished: the journal is no longer needed."""
        self.file.close()
        durable.remove(self.path)
