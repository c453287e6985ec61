"""Problems take turns: they run beside each other, and one for which the machine was too busy once more alone."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from magcli.curate.code.started import NotCompiled

Done = TypeVar("Done")


class Turns:
    """Whose turn it is. Shared by the threads that run problems; a turn is not taken within another one."""

    def __init__(self) -> None:
        self._first = threading.Lock()
        self._changed = threading.Condition()
        self._running, self._closed = 0, False

    def take(self, work: Callable[[], Done]) -> Done:
        """Do the work of a problem beside others; where a solution was not compiled in time, once more alone.

        Raises:
            NotCompiled: it was not when it was alone either.
        """
        try:
            with self._beside_others():
                return work()
        except NotCompiled:
            with self._alone():
                return work()

    @contextmanager
    def _beside_others(self) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not self._closed)
            self._running += 1
        try:
            yield
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        with self._first:
            with self._changed:
                self._closed = True
                self._changed.wait_for(lambda: not self._running)
            try:
                yield
            finally:
                with self._changed:
                    self._closed = False
                    self._changed.notify_all()
