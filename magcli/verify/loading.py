"""Tools that take long to load are loaded when they are first asked for, and whoever counts the time is told.

A verdict that needs none of them does not pay for them, and one that is the first to need them is not charged.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

_observers: list[Callable[[bool], None]] = []


def observe(observer: Callable[[bool], None]) -> None:
    """Have a function called with True before each loading and with False after it."""
    _observers.append(observer)


@contextmanager
def loading() -> Iterator[None]:
    """Around what loads a tool."""
    _tell(under_way=True)
    try:
        yield
    finally:
        _tell(under_way=False)


def _tell(*, under_way: bool) -> None:
    for observer in _observers:
        observer(under_way)
