"""Plain data that a function returned: read from text that the program's own process wrote, and compared.

The text is JSON. What JSON lacks stands in an object of one key: ``{"tuple": [1, 2]}``, ``set``, ``frozenset``,
``dict`` (a list of pairs), ``int`` (hexadecimal, beyond 53 bits), ``float`` (``nan``, ``inf``), ``complex``, ``bytes``.
Reading it can run nothing, and whatever a class of the program's says of equality does not come through.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable
from math import inf
from typing import Any

from magcli.verify.code.outputs import MAX_EXCERPT, close

Plain = (
    None | bool | int | float | complex | str | bytes | list[Any] | tuple[Any, ...] | frozenset[Any] | dict[Any, Any]
)

EXACT = 1e-9
"""Relative difference up to which a float is the expected one: the last digits depend on the order of operations."""

MAX_HASHED = 5_000
"""Elements of sets and keys of dicts in one value: integers can be chosen so that hashing them takes for ever."""


MAX_PAIRED = 1_000
"""Elements up to which lists in any order are matched pair by pair, as floats that differ slightly must be."""


class NotPlain(ValueError):
    """The text does not stand for plain data."""


def read(text: bytes) -> Plain:
    """The value that the text stands for; a set comes as a frozenset.

    Raises:
        NotPlain: it stands for none, or for one that is too deep or holds too many keys.
    """
    hashed = 0

    def untagged(pairs: list[tuple[str, Any]]) -> Any:
        nonlocal hashed
        ((tag, content),) = pairs
        hashed += len(content) if tag in ("set", "frozenset", "dict") else 0
        if hashed > MAX_HASHED:
            raise NotPlain(f"more than {MAX_HASHED} keys")
        return _TAGS[tag](content)

    try:
        value: Plain = json.loads(text, object_pairs_hook=untagged)
    except (ValueError, KeyError, TypeError, ArithmeticError, RecursionError) as error:
        raise NotPlain(str(error)) from error
    return value


def _complex(parts: list[float]) -> complex:
    real, imaginary = parts
    return complex(real, imaginary)


_TAGS: dict[str, Callable[[Any], Any]] = {
    "tuple": tuple,
    "set": frozenset,
    "frozenset": frozenset,
    "dict": dict,
    "int": lambda digits: int(digits, 16),
    "float": float,
    "complex": _complex,
    "bytes": bytes.fromhex,
}


def shown(value: Plain) -> str:
    """The value as Python writes it, cut to a short excerpt."""
    try:
        text = repr(value)
    except ValueError:
        return "a number too long to write"
    return text if len(text) <= MAX_EXCERPT else text[:MAX_EXCERPT] + "..."


def same(expected: Plain, given: Plain, tolerance: float | None = None) -> bool:
    """Equality as Python's ``==`` has it, but True is not 1, and floats may differ in their last digits; NaN is NaN.

    Args:
        expected: The right value. Only where it is a float a difference is tolerated.
        given: The program's.
        tolerance: Absolute or relative, for floats; 1e-9 relative where None.
    """
    match expected:
        case bool() | None | str() | bytes():
            return type(given) is type(expected) and given == expected
        case int() | float() | complex():
            return _same_number(expected, given, tolerance)
        case list() | tuple():
            return (
                isinstance(given, list | tuple)
                and type(given) is type(expected)
                and len(given) == len(expected)
                and all(same(want, got, tolerance) for want, got in zip(expected, given, strict=True))
            )
        case frozenset():
            return (
                isinstance(given, frozenset)
                and len(given) == len(expected)
                and _typed_all(given) == _typed_all(expected)
            )
        case dict():
            return isinstance(given, dict) and len(given) == len(expected) and _same_dict(expected, given, tolerance)


def in_any_order(expected: Plain, given: Plain, tolerance: float | None = None) -> bool:
    """``same``, but the elements of an outermost list may stand in any order; each is met once."""
    if not isinstance(expected, list) or not isinstance(given, list) or len(expected) != len(given):
        return same(expected, given, tolerance)
    if Counter(map(_typed, expected)) == Counter(map(_typed, given)):
        return True
    if len(expected) > MAX_PAIRED:
        return False
    left = list(given)
    for want in expected:
        found = next((at for at, got in enumerate(left) if same(want, got, tolerance)), None)
        if found is None:
            return False
        del left[found]
    return True


def _same_number(expected: complex, given: Plain, tolerance: float | None) -> bool:
    if isinstance(given, bool) or not isinstance(given, int | float | complex):
        return False
    if given == expected:
        return True
    if isinstance(expected, int):
        return False
    try:
        one, other = complex(expected), complex(given)
    except OverflowError:
        return False
    return _same_float(one.real, other.real, tolerance) and _same_float(one.imag, other.imag, tolerance)


def _same_float(expected: float, given: float, tolerance: float | None) -> bool:
    if expected != expected:
        return given != given
    if tolerance is not None:
        return close(expected, given, tolerance)
    return expected == given or abs(expected - given) <= EXACT * abs(expected) < inf


def _same_dict(expected: dict[Any, Any], given: dict[Any, Any], tolerance: float | None) -> bool:
    wanted = {_typed(key): value for key, value in expected.items()}
    got = {_typed(key): value for key, value in given.items()}
    return wanted.keys() == got.keys() and all(same(value, got[key], tolerance) for key, value in wanted.items())


def _typed(key: Any) -> Any:
    """A value as a key that tells True from 1, and a list from a tuple."""
    match key:
        case bool() | list():
            return type(key), tuple(map(_typed, key)) if isinstance(key, list) else key
        case tuple():
            return tuple(map(_typed, key))
        case frozenset():
            return _typed_all(key)
        case dict():
            return dict, frozenset((_typed(name), _typed(value)) for name, value in key.items())
    return key


def _typed_all(keys: Iterable[Any]) -> frozenset[Any]:
    return frozenset(map(_typed, keys))
