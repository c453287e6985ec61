"""The events of every group: reserved -> generated -> admitted -> taken -> trained, or dropped with a reason.

``RUN/ledger.jsonl`` has one line for each event, appended in order with its Unix time and a running checksum; no line
is ever changed. It is the run's queue and log, and with the groups on disk (see ``store``) the state to resume from: a
group that was reserved and never finished is generated again, and a batch that was taken is trained once.

===========  ======================================================================================================
event        other keys
===========  ======================================================================================================
reserved     ``problem`` (id), ``version`` of the weights at its start, ``stage`` of the run
again        the run was killed during generation: the group is started once more, with ``version``
generated    all completions have ended; number of ``tokens``
admitted     ready to train: ``right`` of its ``graded`` completions are correct
dropped      does not train: ``reason``; ``right`` and ``graded`` too, 0 if grading failed
taken        the ``groups`` of the update ``step`` in one line; the ``stage`` of the run and counts of its problems
trained      the update ``step`` of ``groups`` is done
===========  ======================================================================================================
"""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from magcli.data import checksum, durable
from magcli.errors import DataError

Event = Literal["reserved", "again", "generated", "admitted", "dropped", "taken", "trained"]
FINAL = ("trained", "dropped")
FIELDS_OF_TAKEN = ("groups", "event", "step", "time")
"""The fields of every ``taken`` event; the others are metrics of the update."""
DAMAGED = "restore the file or give --restart"
"""What to do with a damaged ledger."""


class Ledger:
    """The events of a run's groups on disk, and the state that they lead to.

    ``outstanding`` are the groups reserved and neither trained nor dropped, ``started`` the version of the weights that
    each of them was last started with, ``problems`` the problem of every group, ``graded`` the groups admitted or
    dropped. ``batches`` are the groups of each update, ``batch_fields`` the other fields of its event, ``trained`` the
    updates that are done.
    """

    def __init__(self, path: Path) -> None:
        """Open or create a ledger. An incomplete last line, left by a kill, is removed.

        Raises:
            DataError: the file is not a ledger.
        """
        self.path = path
        self.outstanding: set[int] = set()
        self.started: dict[int, int] = {}
        self.problems: dict[int, str] = {}
        self.graded: set[int] = set()
        self.batches: dict[int, list[int]] = {}
        self.batch_fields: dict[int, dict[str, Any]] = {}
        self.trained: set[int] = set()
        # Each line has a checksum over all before it, so a changed one is noticed.
        lines = checksum.read_lines(path, DAMAGED)
        self._crc = lines.crc
        for event in _checked(lines.objects, path):
            self._apply(event)
        with durable.disk_errors(path):
            self.file = open(path, "ab", buffering=0, opener=durable.opener)  # noqa: SIM115
            # What a kill has left of a line would be the beginning of the next.
            self.file.truncate(lines.size)

    @property
    def next_number(self) -> int:
        """The first group that was never reserved."""
        return len(self.problems)

    def record(self, group: int, event: Event, **fields: Any) -> None:
        """Append an event of a group."""
        self._append({"group": group, "event": event, **fields})

    def record_batch(
        self, groups: Sequence[int], event: Literal["taken", "trained"], *, step: int, **fields: Any
    ) -> None:
        """Append an event of an update's groups in one line, so that a kill leaves all of them or none."""
        self._append({"groups": list(groups), "event": event, "step": step, **fields})

    def _append(self, line: Mapping[str, Any]) -> None:
        left, self._crc = checksum.encode_line({**line, "time": round(time.time(), 4)}, self._crc)
        with durable.disk_errors(self.path):
            # An unbuffered file may take only the beginning of what it is given.
            while left:
                written = self.file.write(left)
                left = left[written:]
        self._apply(line)

    def _apply(self, line: Mapping[str, Any]) -> None:
        event = line["event"]
        if event == "taken":
            step = line["step"]
            self.batches[step] = line["groups"]
            self.batch_fields[step] = {key: value for key, value in line.items() if key not in FIELDS_OF_TAKEN}
        if event == "trained":
            self.trained.add(line["step"])
        for group, event_of_group in by_group([line]):
            self._apply_to_group(group, event_of_group)

    def _apply_to_group(self, group: int, line: Mapping[str, Any]) -> None:
        event = line["event"]
        if event == "reserved":
            self.problems[group] = line["problem"]
        if event in ("reserved", "again"):
            self.started[group] = line["version"]
            self.outstanding.add(group)
        if event in ("admitted", "dropped"):
            self.graded.add(group)
        if event in FINAL:
            self.outstanding.discard(group)
            self.started.pop(group, None)

    def sync(self) -> None:
        """Make the ledger survive a power cut."""
        with durable.disk_errors(self.path):
            durable.sync(self.file)

    def close(self) -> None:
        """Close the file."""
        self.file.close()


def read(path: Path) -> list[dict[str, Any]]:
    """The events of a ledger in order, without an incomplete last line.

    Raises:
        DataError: a line is damaged or is not an event; the message has its number.
    """
    events = checksum.read_lines(path, DAMAGED).objects
    return list(_checked(events, path))


def _checked(events: Iterable[dict[str, Any]], path: Path) -> Iterator[dict[str, Any]]:
    """Lines that are events; DataError names the first one that is not."""
    for number, event in enumerate(events, 1):
        is_event = event.get("event") in get_args(Event)
        names_groups = "group" in event or "groups" in event
        if not (is_event and names_groups):
            raise DataError(f"{path}: line {number}: invalid ledger event; {DAMAGED}")
        yield event


def by_group(events: Iterable[Mapping[str, Any]]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Each event once for every group that it names."""
    for event in events:
        # A line names one group or those of an update.
        for group in event.get("groups") or [event["group"]]:
            yield group, event


@dataclass(frozen=True, slots=True)
class Account:
    """The identity of every run: reserved = trained + dropped (by reason) + outstanding, each group once."""

    reserved: int
    trained: int
    dropped: Mapping[str, int]
    outstanding: int
    faults: tuple[str, ...]
    """Groups that break the identity: reserved twice, ended twice, ended without being reserved."""

    def __str__(self) -> str:
        dropped = sum(self.dropped.values())
        text = f"{self.reserved} groups reserved = {self.trained} trained + {dropped} dropped"
        if self.dropped:
            reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(self.dropped.items()))
            text += f" ({reasons})"
        if self.outstanding:
            text += f" + {self.outstanding} outstanding"
        return text


def account(events: Iterable[Mapping[str, Any]]) -> Account:
    """Count a ledger's events."""
    reserved: Counter[int] = Counter()
    ended: Counter[int] = Counter()
    trained = 0
    dropped: Counter[str] = Counter()
    for group, line in by_group(events):
        event = line["event"]
        # A count of 0 is added too: a group that was never reserved is a fault.
        reserved[group] += event == "reserved"
        ended[group] += event in FINAL
        if event == "trained":
            trained += 1
        if event == "dropped":
            dropped[line["reason"]] += 1
    faults = [f"group {group} reserved {count} times" for group, count in reserved.items() if count != 1]
    faults += [f"group {group} ended {count} times" for group, count in ended.items() if count > 1]
    outstanding = sum(count == 0 for count in ended.values())
    return Account(reserved.total(), trained, dict(dropped), outstanding, tuple(faults))
