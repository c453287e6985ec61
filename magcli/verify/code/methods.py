"""The methods of plain data that expressions of tests may name, and what they may cost."""

import builtins
import string
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from itertools import chain
from types import GeneratorType
from typing import Any

from magcli.verify.code.outputs import Other, collisions

MAX_WORK = 5_000_000
"""Maximum number of operations and of elements or characters that they read."""

MAX_SIZE = 1_000_000
"""Maximum elements or characters of a result; bytes of an integer."""

VIEWS: tuple[type, ...] = (type({}.keys()), type({}.values()), type({}.items()))


MAX_BITS = 200_000
"""Maximum size of a number that is computed with, of a fraction of each part."""

MAX_SECONDS = 5.0
"""CPU time of one expression. The work is bounded long before; this bounds what the work underestimates."""

_SPENDS_PER_LOOK = 256
"""How often work is spent between two looks at the clock."""


class Unsupported(ValueError):
    """An operation that is not supported, or too expensive."""


class Budget:
    """The remaining work of one expression, and the time until which its thread may compute."""

    def __init__(self, work: int = MAX_WORK, seconds: float = MAX_SECONDS) -> None:
        self._left = work
        self._spends = 0
        self._end = time.thread_time() + seconds

    def spend(self, amount: int) -> None:
        """Spend an amount; raises Unsupported if it, or the time, is exceeded."""
        self._left -= amount
        self._spends += 1
        late = self._spends % _SPENDS_PER_LOOK == 0 and time.thread_time() > self._end
        if self._left < 0 or late:
            raise Unsupported("it takes too long")

    def spend_on_numbers(self, one: Any, other: Any) -> None:
        """Spend for an operation on two values; raises Unsupported if one is a number that is too large."""
        first, second = bits_of(one), bits_of(other)
        if max(first, second) > MAX_BITS:
            raise Unsupported("a number is too large")
        self.spend(first * second // 10_000)

    def check_size(self, size: int) -> None:
        """Spend for a result of this size; raises Unsupported if it is too large."""
        if size > MAX_SIZE:
            raise Unsupported("the result is too large")
        self.spend(max(size, 0))

    def charge(self, value: Any) -> Any:
        """The value, charged for being read."""
        waiting = [value]
        while waiting:
            part = waiting.pop()
            kind = type(part)
            if kind in (str, bytes):
                self.spend(1 + len(part) // 8)
            elif kind in (int, Fraction, Decimal):
                size = bits_of(part)
                self.spend(1 + size // 64 + (0 if kind is int else (size // 512) ** 2))
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
        """An iterator over a value, charged for its elements; raises TypeError if it is not iterable."""
        if isinstance(value, GeneratorType):
            return value
        if isinstance(value, Other):
            if value.items is None:
                raise TypeError(f"a {value.kind} has no elements")
            value = value.items
        self.spend(len(value))
        elements: Iterable[Any] = iter(value)
        return elements

    def make_set(self, keys: Sequence[Any]) -> frozenset[Any]:
        """A set, charged for collisions of its elements, which can be adversarial."""
        self.spend(collisions(keys))
        return frozenset(keys)

    def make_dict(self, pairs: Sequence[tuple[Any, Any]]) -> dict[Any, Any]:
        """A dict, charged for collisions of its keys, which can be adversarial."""
        self.spend(collisions([key for key, _ in pairs]))
        return dict(pairs)


def bits_of(value: Any) -> int:
    """The size of a number, of a fraction that of its larger part, of a decimal that of the integer it may become."""
    if isinstance(value, Fraction):
        return max(value.numerator.bit_length(), value.denominator.bit_length())
    if isinstance(value, Decimal):
        return 4 * (len(value.as_tuple().digits) + abs(value.adjusted())) if value.is_finite() else 0
    return value.bit_length() if isinstance(value, int) else 0


_TEXT = (
    "capitalize casefold center count encode endswith expandtabs find format index isalnum isalpha isascii isdecimal "
    "isdigit isidentifier islower isnumeric isprintable isspace istitle isupper join ljust lower lstrip partition "
    "removeprefix removesuffix replace rfind rindex rjust rpartition rsplit rstrip split splitlines startswith strip "
    "swapcase title upper zfill"
)
_BYTES = "count decode endswith find hex index isalnum isalpha isdigit lower split startswith strip upper"
_SET = "copy difference intersection isdisjoint issubset issuperset symmetric_difference union"

METHODS: dict[type, frozenset[str]] = {
    str: frozenset(_TEXT.split()), bytes: frozenset(_BYTES.split()), list: frozenset(("copy", "count", "index")),
    tuple: frozenset(("count", "index")), frozenset: frozenset(_SET.split()),
    dict: frozenset(("copy", "get", "items", "keys", "values")),
    int: frozenset(("bit_count", "bit_length", "conjugate")), bool: frozenset(("bit_length",)),
    float: frozenset(("as_integer_ratio", "conjugate", "hex", "is_integer")), complex: frozenset(("conjugate",)),
}  # fmt: skip
"""The non-mutating methods of each type."""

PLAIN_METHODS = frozenset(chain.from_iterable(METHODS.values())) | {"all", "any", "tolist"}
"""The names of all of them, and of array methods."""

_WIDE = frozenset(("center", "ljust", "rjust", "zfill", "expandtabs"))


def method_of(budget: Budget, receiver: Any, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The value of a method call on plain data."""
    args = [list(value) if isinstance(value, GeneratorType) else value for value in args]
    kind = type(receiver)
    if name in ("all", "any") and kind in (list, bool) and not args and not kwargs:
        return getattr(builtins, name)(map(truth, flat(receiver)))
    if name == "tolist" and kind in (list, int, float, bool):
        return receiver
    if kind is Other and receiver.items is not None and name in ("count", "index"):
        receiver, kind = list(receiver.items), list
    if name not in METHODS.get(kind, ()):
        raise AttributeError(f"a {kind.__name__} has no {name!r}")
    for value in (receiver, *args, *kwargs.values()):
        budget.charge(value)
    _bound_method(budget, receiver, name, args)
    if kind is frozenset:
        budget.spend(sum(collisions(list(budget.items(value))) for value in args))
    return getattr(receiver, name)(*map(readable, args), **kwargs)


def _bound_method(budget: Budget, receiver: Any, name: str, args: Sequence[Any]) -> None:
    numbers = [value for value in args if isinstance(value, int)]
    if name in _WIDE and numbers:
        budget.check_size(max(numbers) * (len(receiver) if name == "expandtabs" else 1))
    elif name == "replace":
        budget.check_size((len(receiver) + 1) * (1 + len(args[1]) // max(1, len(args[0]))))
    elif name == "join":
        budget.check_size(sum(len(receiver) + len(element) for element in budget.items(_first(args))))
    elif name in ("format", "format_map"):
        _check_format(receiver)


def _first(args: Sequence[Any]) -> Any:
    (value,) = args
    return value


def readable(value: Any) -> Any:
    """A value that Python's own methods can iterate over."""
    return list(value.items or ()) if isinstance(value, Other) else value


def flat(value: Any) -> Iterator[Any]:
    """The numbers of an array, in order."""
    if isinstance(value, list):
        for part in value:
            yield from flat(part)
    else:
        yield value


def check_template(text: str | bytes) -> None:
    """Reject a template for ``%`` with a large or variable width."""
    letters = text.decode("latin-1") if isinstance(text, bytes) else text
    if "*" in letters or too_wide(letters):
        raise Unsupported("its width is not known")


def _check_format(text: str) -> None:
    for _, name, spec, _ in string.Formatter().parse(text):
        if name and not name.isalnum():
            raise Unsupported("a format looks into its values")
        if spec and ("{" in spec or too_wide(spec)):
            raise Unsupported("a format has a width that is not known")


def too_wide(text: str) -> bool:
    """Whether a template contains a number of more than three digits, such as a width."""
    digits = "".join(letter if letter.isdigit() else " " for letter in text)
    return any(len(number) > 3 for number in digits.split())


def truth(value: Any) -> bool:
    """The truth value; raises TypeError for objects of which it is unknown."""
    if isinstance(value, Other):
        if value.items is None and value.kind != "Match":
            raise TypeError(f"a {value.kind} is not plain data")
        return value.kind == "Match" or bool(value.items)
    return bool(value)
