"""A disk that may lose whatever was not fsynced: what a power cut can leave behind, at every point of a run.

File content survives as far as it was fsynced; a name in a folder (created, renamed, removed) survives when the folder
was fsynced. What was not may be there, or not, or torn.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Tree = dict[str, Any]
"""A folder's content: bytes for a file, a tree for a folder."""


class Disk:
    """Watches a folder while a program writes in it. ``watch`` replaces the calls of ``os`` that matter."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.numbers: dict[int, int] = {}
        self.live: dict[int, Any] = {}
        self.durable: dict[int, Any] = {}
        self.pending: dict[int, list[dict[str, int | None]]] = {}
        self.cuts: list[tuple[int, Tree]] = []
        self.moment = 0
        self._look()
        self.durable = {number: _copy(content) for number, content in self.live.items()}
        self.pending.clear()

    def watch(self, replace: Callable[[Any, str, Any], None]) -> None:
        """Hook ``os``: ``replace(module, name, function)`` puts a function in place of another, as monkeypatch does."""
        os_replace, os_unlink, os_rmdir = os.replace, os.unlink, os.rmdir
        replace(os, "fsync", lambda handle: self._around(lambda: None, handle))
        replace(os, "replace", lambda *names, **more: self._around(lambda: os_replace(*names, **more)))
        replace(os, "unlink", lambda *names, **more: self._around(lambda: os_unlink(*names, **more)))
        replace(os, "rmdir", lambda *names, **more: self._around(lambda: os_rmdir(*names, **more)))

    def _around(self, act: Callable[[], None], synced: int | None = None) -> None:
        self.point()
        act()
        self._look()
        if synced is not None:
            number = self.numbers[os.fstat(synced).st_ino]
            self.durable[number] = _copy(self.live[number])
            self.pending.pop(number, None)
        self.point()

    def point(self) -> int:
        """A moment at which the power may be cut; returns its number."""
        self._look()
        self.moment += 1
        self.cuts += [(self.moment, tree) for tree in self._states()]
        return self.moment

    def _look(self) -> None:
        """See what changed since the last look; a name that changed waits for its folder's fsync."""
        before, self.live = self.live, {}
        known, self.numbers = self.numbers, {}
        self._walk(self.root, known)
        for number, content in self.live.items():
            if isinstance(content, dict):
                was = before.get(number, {})
                changes = {name: content.get(name) for name in {**was, **content} if was.get(name) != content.get(name)}
                if changes:
                    self.pending.setdefault(number, []).append(changes)

    def _walk(self, place: Path, known: dict[int, int]) -> int:
        inode = place.stat().st_ino
        number = known.get(inode) or max([0, *known.values(), *self.numbers.values(), *self.durable, *self.live]) + 1
        self.numbers[inode] = number
        self.live[number] = None
        if place.is_dir():
            self.live[number] = {child.name: self._walk(child, known) for child in sorted(place.iterdir())}
        else:
            self.live[number] = place.read_bytes()
        return number

    def _states(self) -> Iterator[Tree]:
        """Nothing, everything, or everything but one change of names survived; and so for content not fsynced."""
        root = self.numbers[self.root.stat().st_ino]
        choices: list[int | None] = [None, *range(-1, len(self.pending.get(root, [])))]
        for lost in choices:
            for content in (_as_synced, _as_written, _torn):
                yield self._tree(root, lost, content)

    def _tree(self, number: int, lost: int | None, content: Callable[[bytes, bytes], bytes]) -> Tree:
        names = dict(self.durable.get(number) or {})
        changes = self.pending.get(number, [])
        for index, change in enumerate(changes if lost is not None else []):
            if index != lost:
                names.update(change)
        return {name: self._node(child, lost, content) for name, child in names.items() if child is not None}

    def _node(self, number: int, lost: int | None, content: Callable[[bytes, bytes], bytes]) -> Any:
        now, synced = self.live.get(number, self.durable.get(number)), self.durable.get(number)
        if isinstance(now, dict):
            return self._tree(number, None if lost is None else -1, content)
        return content(synced or b"", now or b"")


def _copy(content: Any) -> Any:
    return dict(content) if isinstance(content, dict) else content


def _as_synced(synced: bytes, now: bytes) -> bytes:
    return synced


def _as_written(synced: bytes, now: bytes) -> bytes:
    return now


def _torn(synced: bytes, now: bytes) -> bytes:
    return now[: (len(synced) + len(now)) // 2] if now.startswith(synced) else now[: len(now) // 2]


def restore(tree: Tree, place: Path) -> None:
    """Make the folder that a power cut left."""
    place.mkdir(parents=True)
    for name, content in tree.items():
        if isinstance(content, dict):
            restore(content, place / name)
        else:
            (place / name).write_bytes(content)
