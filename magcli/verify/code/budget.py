"""What working out an expression on hostile values may cost: each operation is paid for, and sizes are bounded."""

from collections.abc import Iterable, Sequence
from types import GeneratorType
from typing import Any

from magcli.verify.code.plain import Other, collisions

MAX_WORK = 5_000_000
"""Operations, and elements or letters that they read."""

MAX_SIZE = 1_000_000
"""Elements or letters of what is made; bytes of an integer."""

VIEWS: tuple[type, ...] = (type({}.keys()), type({}.values()), type({}.items()))


class Refused(ValueError):
    """An operation that is not worked out, or that would take too much."""


class Budget:
    """The work that is left to one expression."""

    def __init__(self, work: int = MAX_WORK) -> None:
        self._left = work

    def spend(self, amount: int) -> None:
        """Take some of it; raises Refused where there is none left."""
        self._left -= amount
        if self._left < 0:
            raise Refused("it takes too long")

    def make(self, size: int) -> None:
        """Make something of a size; raises Refused where that is too large."""
        if size > MAX_SIZE:
            raise Refused("it becomes too large")
        self.spend(max(size, 0))

    def charged(self, value: Any) -> Any:
        """The value, paid for as if it were read."""
        waiting = [value]
        while waiting:
            part = waiting.pop()
            kind = type(part)
            if kind in (str, bytes):
                self.spend(1 + len(part) // 8)
            elif kind is int:
                self.spend(1 + part.bit_length() // 64)
            elif kind is dict:
                self.spend(1 + 2 * len(part))
                waiting += [*part.keys(), *part.values()]
            elif kind in (list, tuple, frozenset, *VIEWS):
                self.spend(1 + len(part))
                waiting += part
            elif kind is Other:
                waiting.append(part.items)
            else:
                self.spend(1 + len(part) if kind is range else 1)
        return value

    def items(self, value: Any) -> Iterable[Any]:
        """What iterating over a value gives, paid for as it is; raises TypeError where that is nothing."""
        if isinstance(value, GeneratorType):
            return value
        if isinstance(value, Other):
            if value.items is None:
                raise TypeError(f"a {value.kind} has no elements")
            value = value.items
        self.spend(len(value))
        found: Iterable[Any] = iter(value)
        return found

    def hashed(self, keys: Sequence[Any]) -> frozenset[Any]:
        """A set; the collisions of its elements, which may have been chosen so, are paid for."""
        self.spend(collisions(keys))
        return frozenset(keys)

    def mapped(self, pairs: Sequence[tuple[Any, Any]]) -> dict[Any, Any]:
        """A dict; the collisions of its keys, which may have been chosen so, are paid for."""
        self.spend(collisions([key for key, _ in pairs]))
        return dict(pairs)
