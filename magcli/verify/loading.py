"""Libraries that take long to import are imported on first use.

Observers are notified, so that the verdict that first needs a library is not charged for it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

_observers: list[Callable[[bool], None]] = []
# Observers are notified of the outermost block only.
_depth = [0]
"""How many such blocks are under way, one in another."""


def observe(observer: Callable[[bool], None]) -> None:
    """Call a function with True before each import of such a library and with False after it."""
    _observers.append(observer)


@contextmanager
def loading() -> Iterator[None]:
    """Notify the observers before and after the block; one within another is part of it."""
    _depth[0] += 1
    _notify(under_way=True)
    try:
        yield
    finally:
        _notify(under_way=False)
        _depth[0] -= 1


def _notify(*, under_way: bool) -> None:
    if _depth[0] > 1:
        return
    for observer in _observers:
        observer(under_way)
