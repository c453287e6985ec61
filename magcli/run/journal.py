"""The finished work of an interrupted stage: an append-only file next to its output.

A record is one unit of work (its key, what it dropped and counted, its rows) or a note on all of them. Records carry
their length and CRC, so an incomplete last one is detected and truncated. A journal belongs to one configuration; with
another one it is refused, and the error says what differs.
"""

import json
import os
import struct
import time
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from magcli.data import durable
from magcli.errors import UsageError
from magcli.run.settings import changes, with_reason
from magcli.run.types import Dropped, Result

FRAME = struct.Struct("<II")
"""In front of each record: its length in bytes, and its CRC-32."""
SYNC_EVERY = 0.5
"""Seconds between two fsyncs. A kill loses nothing, as the page cache has it; a power cut may lose this much."""


class Journal:
    """The finished units of one output. Open it with ``Journal.open``."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.path, self.schema = path, schema
        with durable.disk_errors(path):
            # Without a buffer, so that a record which is written survives a kill.
            self.file = open(path, "ab+", buffering=0, opener=durable.opener)  # noqa: SIM115
        self.positions: dict[str, tuple[int, int]] = {}
        self.notes: dict[str, str] = {}
        self.synced = time.monotonic()

    @classmethod
    def open(cls, path: Path, schema: pa.Schema, identity: Mapping[str, Any]) -> "Journal":
        """Open or create a journal and index the finished units in it.

        Raises:
            UsageError: the journal was started with another configuration; the message names what differs.
        """
        journal = cls(path, schema)
        head = json.dumps(identity, sort_keys=True, default=str).encode()
        try:
            end = journal._scan(head)
        except UsageError:
            journal.file.close()
            raise
        # What follows the last complete record was cut off by a kill.
        journal.file.truncate(end)
        if end == 0:
            journal._append(head)
            durable.sync_folder(path.parent)
        journal.sync()
        return journal

    def _scan(self, head: bytes) -> int:
        """Read the records; returns where the last complete one ends."""
        self.file.seek(0)
        end = 0
        stored_head = b""
        while (payload := self._next()) is not None:
            if end == 0:  # the first record is the head
                stored_head = payload
            else:
                line_end = payload.index(b"\n")  # of JSON, which the rows of a unit follow
                record = json.loads(payload[:line_end])
                if "note" in record:
                    self.notes |= record["note"]
                else:
                    self.positions[record["key"]] = (end + FRAME.size, len(payload))
            end += FRAME.size + len(payload)
        if stored_head == head:
            return end
        if not self.positions:  # no unit is finished: it starts anew
            self.notes.clear()
            return 0
        self._check(json.loads(stored_head), json.loads(head))
        return end

    def _next(self) -> bytes | None:
        prefix = self.file.read(FRAME.size)
        if len(prefix) < FRAME.size:
            return None
        length, crc = FRAME.unpack(prefix)
        payload = self.file.read(length)
        is_whole = len(payload) == length and zlib.crc32(payload) == crc
        return payload if is_whole else None

    def _check(self, identity: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
        if changed := changes(identity, expected):
            raise UsageError(
                f"{self.path} holds unfinished work with other settings: {with_reason(changed)}; "
                "repeat those settings to resume it, or give --restart to start over"
            )

    def __contains__(self, key: str) -> bool:
        return key in self.positions

    def note(self, name: str, value: str) -> None:
        """Record what all later units use, such as a number format; the last note of a name applies."""
        if self.notes.get(name) != value:
            self.file.seek(0, os.SEEK_END)
            self._append(json.dumps({"note": {name: value}}).encode() + b"\n")
            self.notes[name] = value

    def put(self, key: str, result: Result) -> None:
        """Record a finished unit."""
        dropped = [[row.id, row.reason, row.detail, row.position] for row in result.dropped]
        record = {"key": key, "dropped": dropped, "tally": dict(result.tally)}
        head = json.dumps(record, default=str).encode() + b"\n"
        start = self.file.seek(0, os.SEEK_END)
        length = self._append(head + result.rows.serialize().to_pybytes())
        self.positions[key] = (start + FRAME.size, length)
        if time.monotonic() - self.synced > SYNC_EVERY:
            self.sync()

    def get(self, key: str) -> Result:
        """A finished unit."""
        start, length = self.positions[key]
        # Without moving the position, at which records are appended.
        payload = os.pread(self.file.fileno(), length, start)
        line, _, serialized = payload.partition(b"\n")
        dropped = []
        record = json.loads(line)
        for id, reason, detail, position in record["dropped"]:
            dropped.append(Dropped(id, reason, detail, position=position))
        rows = pa.ipc.read_record_batch(pa.py_buffer(serialized), self.schema)
        # A matrix of an earlier version has no tally.
        return Result(rows, dropped, tally=record.get("tally", {}))

    def _append(self, payload: bytes) -> int:
        frame = FRAME.pack(len(payload), zlib.crc32(payload))
        data = memoryview(frame + payload)
        with durable.disk_errors(self.path):
            while data:  # an unbuffered file may write a part
                data = data[self.file.write(data) :]
        return len(payload)

    def sync(self) -> None:
        """Make the records survive a power cut."""
        with durable.disk_errors(self.path):
            durable.sync(self.file)
        self.synced = time.monotonic()

    def close(self) -> None:
        """Leave the journal for the next run."""
        self.sync()
        self.file.close()

    def remove(self) -> None:
        """Delete the journal, as the output is finished."""
        self.file.close()
        durable.remove(self.path)
