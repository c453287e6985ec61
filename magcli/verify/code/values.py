"""What a function returns, as plain data: its text between processes, and when two values are equal.

The value of a function is plain data, decoded from text that the program's process wrote: JSON. What JSON lacks is an
object with one key: ``{"tuple": [1, 2]}``, ``set``, ``frozenset``, ``dict`` (a list of pairs), ``int`` (hexadecimal,
beyond 53 bits), ``float`` (``nan``, ``inf``), ``complex``, ``bytes``, ``fraction``, ``decimal``, ``date``,
``datetime``, ``time``, ``timedelta``; and ``other`` for an object that is not plain data: its type's name, and its
elements if it is iterable. Decoding executes nothing, and equality as defined by the program's classes has no effect.

It imports nothing of magcli, because the judge of asserts uses it inside its sandbox.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from math import inf
from typing import Any

MAX_EXCERPT = 60


@dataclass(frozen=True, slots=True)
class Other:
    """An object that is not plain data, such as a generator: its type's name, and its elements if it is iterable.

    Only ranges and deques are comparable: with the same kind and elements.
    """

    kind: str
    items: tuple[Any, ...] | None = None


Plain = (
    None | bool | int | float | complex | str | bytes | Fraction | Decimal | list[Any] | tuple[Any, ...] |
    frozenset[Any] | dict[Any, Any] | date | time | timedelta | Other
)  # fmt: skip

EXACT = 1e-9
"""Relative tolerance of floats, whose last digits depend on the order of operations."""

MAX_COLLISIONS = 3_000_000
"""Comparisons of keys with equal hashes that a value may cost, as keys can be chosen to make hashing quadratic."""

MAX_PAIRED = 1_000
"""Maximum length of lists in any order that are matched pair by pair, as floats with a tolerance must be."""

MAX_EXPONENT = 5_000
"""Maximum exponent and number of digits of a decimal; thirty times as many bits for a fraction's parts."""


class NotPlain(ValueError):
    """The text does not represent plain data."""


def decode(text: bytes, decoders: Mapping[str, Callable[[Any], Any]] | None = None) -> Plain:
    """The value of the text; a set becomes a frozenset.

    ``decoders`` are those of tagged values, ``DECODERS`` if None.

    Raises NotPlain if it has none, is nested too deep, or its keys collide too often.
    """
    readers = DECODERS if decoders is None else decoders
    # Of the whole value, which may have many collections.
    collided = 0

    def decode_object(pairs: list[tuple[str, Any]]) -> Any:
        nonlocal collided
        ((tag, content),) = pairs  # an object with one key; ValueError for any other
        if tag in ("set", "frozenset", "dict"):
            collided += collisions(content if tag != "dict" else [key for key, _ in content])
            if collided > MAX_COLLISIONS:
                raise NotPlain("too many keys collide")
        return readers[tag](content)

    # The hook is called from the inside out, so the contents are decoded already.
    try:
        value: Plain = json.loads(text, object_pairs_hook=decode_object)
    except (ValueError, KeyError, TypeError, ArithmeticError, RecursionError) as error:
        raise NotPlain(str(error)) from error
    return value


def collisions(keys: Sequence[Any]) -> int:
    """Comparisons that a set or dict of the keys costs beyond one per key; 0 for few keys."""
    if len(keys) <= 32:
        return 0
    # Inserting n keys of one hash compares each with those before it: about n squared.
    return sum(count**2 for count in Counter(map(hash, keys)).values() if count > 1)


def _complex(parts: list[float]) -> complex:
    real, imaginary = parts
    return complex(real, imaginary)


def _fraction(parts: list[Any]) -> Fraction:
    numerator, denominator = parts
    if any(type(part) is not int or part.bit_length() > 30 * MAX_EXPONENT for part in parts):
        raise NotPlain("a fraction is too large")
    return Fraction(numerator, denominator)


def _decimal(text: str) -> Decimal:
    if type(text) is not str or len(text) > MAX_EXPONENT:
        raise NotPlain("a decimal number is too long")
    number = Decimal(text)
    # A signaling NaN raises an exception where it is compared.
    if number.is_snan() or abs(number.adjusted()) > MAX_EXPONENT:
        raise NotPlain("a decimal number is too large")
    return number


def _other(parts: list[Any]) -> Other:
    kind, items = parts
    if type(kind) is not str or not isinstance(items, list | None):
        raise NotPlain("malformed object")
    return Other(kind[:MAX_EXCERPT], None if items is None else tuple(items))


DECODERS: dict[str, Callable[[Any], Any]] = {
    "tuple": tuple, "set": frozenset, "frozenset": frozenset, "dict": dict, "int": lambda digits: int(digits, 16),
    "float": float, "complex": _complex, "bytes": bytes.fromhex, "fraction": _fraction, "decimal": _decimal,
    "date": date.fromisoformat, "datetime": datetime.fromisoformat, "time": time.fromisoformat,
    "timedelta": lambda parts: timedelta(*parts), "other": _other,
}  # fmt: skip


def shown(value: Plain) -> str:
    """The value in Python syntax, truncated."""
    try:
        return shortened(f"a {value.kind}" if isinstance(value, Other) else repr(value))
    except (ValueError, RecursionError):
        return "a number too long to write"


def shortened(text: str) -> str:
    """The text, truncated for a message."""
    return text if len(text) <= MAX_EXCERPT else text[:MAX_EXCERPT] + "..."


def same(expected: Plain, actual: Plain, tolerance: float | None = None, *, exact: bool = False) -> bool:
    """Equality as ``==``, except: a tuple equals a list that is expected; True is not 1, but 1 is accepted for True;
    the last digits of floats may differ; NaN equals NaN.

    Args:
        expected: The right value; only its floats have a tolerance.
        actual: The program's value.
        tolerance: Absolute or relative, for floats; 1e-9 relative if None.
        exact: Require equal types and equal floats.
    """
    if exact:
        if type(actual) is not type(expected):
            return False
        tolerance = 0.0
    match expected:
        # Before int, of which it is an instance.
        case bool():
            return isinstance(actual, int) and actual == expected
        case None | str() | bytes() | date() | time() | timedelta():
            return type(actual) is type(expected) and actual == expected
        case int() | float() | complex() | Fraction() | Decimal():
            return _same_number(expected, actual, tolerance)
        # A tuple is accepted where a list is expected, but no list for a tuple.
        case list() | tuple():
            kinds = tuple if isinstance(expected, tuple) else list | tuple
            if not isinstance(actual, kinds) or len(actual) != len(expected):
                return False
            return all(same(want, got, tolerance, exact=exact) for want, got in zip(expected, actual, strict=True))
        case set() | frozenset():
            if not isinstance(actual, set | frozenset) or len(actual) != len(expected):
                return False
            return _same_keys(expected, actual, exact)
        case dict():
            if not isinstance(actual, dict) or len(actual) != len(expected):
                return False
            return _same_dict(expected, actual, tolerance, exact)
        case Other("range" | "deque", items):
            return isinstance(actual, Other) and actual.kind == expected.kind and same(items, actual.items)
    return False


def in_any_order(expected: Plain, actual: Plain, tolerance: float | None = None) -> bool:
    """``same``, but the elements of the outermost list may be in any order."""
    if not isinstance(expected, list) or not isinstance(actual, list | tuple) or len(expected) != len(actual):
        return same(expected, actual, tolerance)
    left = list(actual)
    # In linear time, where the elements are equal without a tolerance.
    counts = _counts(expected)
    if counts is not None and counts == _counts(left):
        return True
    if len(expected) > MAX_PAIRED:
        return False
    # Each expected element takes the first that is left and near it: n squared comparisons.
    for want in expected:
        for at, got in enumerate(left):
            if same(want, got, tolerance):
                del left[at]
                break
        else:
            return False
    return True


def _counts(values: list[Any]) -> Counter[Any] | None:
    """How often each value occurs, with tuples as lists; None if that cannot be counted quickly."""
    try:
        keys = [_typed(value, tuples=False) for value in values]
    except TypeError:
        return None
    return None if collisions(keys) > MAX_COLLISIONS else Counter(keys)


def _same_number(expected: complex | Fraction | Decimal, actual: Plain, tolerance: float | None) -> bool:
    if isinstance(actual, bool) or not isinstance(actual, int | float | complex | Fraction | Decimal):
        return False
    if actual == expected:
        return True
    # Exact numbers have no last digits that may differ.
    if isinstance(expected, int | Fraction | Decimal):
        return False
    try:
        one, other = complex(expected), complex(actual)
    except (OverflowError, ValueError):
        return False
    return _same_float(one.real, other.real, tolerance) and _same_float(one.imag, other.imag, tolerance)


def _same_float(expected: float, actual: float, tolerance: float | None) -> bool:
    if expected != expected:  # NaN
        return actual != actual
    if tolerance is not None:
        return close(expected, actual, tolerance)
    # The bound must be finite, or anything would be near an infinity.
    return expected == actual or abs(expected - actual) <= EXACT * abs(expected) < inf


def _same_keys(expected: Iterable[Any], actual: Iterable[Any], exact: bool) -> bool:
    """Whether keys are equal; given keys that differ in type only must not be True or False."""
    wanted, got = _typed_all(expected), _typed_all(actual)
    if wanted == got or exact:
        return wanted == got
    # 1.0 may be given for 1, but not True.
    return frozenset(expected) == frozenset(actual) and not any(map(_is_truth, got - wanted))


def _is_truth(key: Any) -> bool:
    """Whether a key of ``_typed`` is or contains True or False."""
    return isinstance(key, bool) or (isinstance(key, tuple | frozenset) and any(map(_is_truth, key)))


def _same_dict(expected: dict[Any, Any], actual: dict[Any, Any], tolerance: float | None, exact: bool) -> bool:
    return _same_keys(expected, actual, exact) and all(
        same(value, actual[key], tolerance, exact=exact) for key, value in expected.items()
    )


def _typed(key: Any, *, tuples: bool = True) -> Any:
    """A value as a key that distinguishes True from 1, and lists from tuples unless ``tuples`` is False.

    Raises TypeError if it is or contains a dict or an object that is not plain data.
    """
    match key:
        case bool():
            return bool, key  # True and 1 have one hash and are equal
        case list() | tuple():
            parts = tuple(_typed(element, tuples=tuples) for element in key)
            return parts if tuples and isinstance(key, tuple) else (list, parts)
        case set() | frozenset():
            return _typed_all(key)
        case dict() | Other():
            raise TypeError(f"a {type(key).__name__} cannot be a key")
    return key


def _typed_all(keys: Iterable[Any]) -> frozenset[Any]:
    return frozenset(map(_typed, keys))


def close(expected: float, actual: float, tolerance: float) -> bool:
    """Whether a number is within the absolute or relative tolerance; infinities equal themselves, NaN nothing."""
    return expected == actual or abs(expected - actual) <= tolerance * max(1.0, abs(expected)) < inf
