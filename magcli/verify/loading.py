"""Libraries that take long to import are imported when a verdict first needs them.

Whoever counts the time of a verdict is notified, so that the first one to need a library is not charged for it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

_observers: list[Callable[[bool], None]] = []


def observe(observer: Callable[[bool], None]) -> None:
    """Call a function with True before each import of such a library and with False after it."""
    _observers.append(observer)


@contextmanager
def loading() -> Iterator[None]:
    """Notify the observers before and after the block."""
    _notify(under_way=True)
    try:
        yield
    finally:
        _notify(under_way=False)


def _notify(*, under_way: bool) -> None:
    for observer in _observers:
        observer(under_way)
