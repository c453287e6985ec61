"""C++ types of Python values: found from the values that tests hold and from annotations.

===========================================  ==========================================================
Python                                       C++
===========================================  ==========================================================
``bool``, ``str`` (ASCII), ``float``         ``bool``, ``std::string``, ``double``
``int``                                      ``int``; ``long long`` where a value needs it
``list``, ``tuple`` of one type              ``std::vector<T>``
``tuple`` of several types                   ``std::tuple<A, B>``
``set``, ``dict``                            ``std::set<T>``, ``std::map<K, V>``
``None`` and a type                          ``std::optional<T>``
===========================================  ==========================================================

What has no such type, as a list of numbers and strings, is said with the reason.
"""

import ast
from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Any, Literal, NamedTuple

Kind = Literal["unknown", "bool", "int", "long", "double", "string", "list", "tuple", "set", "map", "optional"]
Reason = Literal["types", "big-integers", "non-ascii-text"]


class Inexpressible(Exception):
    """Values that no C++ type holds."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason: Reason = reason


class Type(NamedTuple):
    """A type and those of its parts: one of a list, set or optional, two of a map, each of a tuple."""

    kind: Kind
    parts: tuple["Type", ...] = ()

    def __str__(self) -> str:
        return _NAMES[self.kind] + (f"<{', '.join(map(str, self.parts))}>" if self.parts else "")

    def holds(self, kind: Kind) -> bool:
        """Whether a kind is anywhere in it."""
        return self.kind == kind or any(part.holds(kind) for part in self.parts)


UNKNOWN = Type("unknown")
_NAMES: Mapping[Kind, str] = {
    "bool": "bool",
    "int": "int",
    "long": "long long",
    "double": "double",
    "string": "std::string",
    "list": "std::vector",
    "tuple": "std::tuple",
    "set": "std::set",
    "map": "std::map",
    "optional": "std::optional",
}
_NUMBERS: tuple[Kind, ...] = ("int", "long", "double")
_HINTS: Mapping[str, Kind] = {"bool": "bool", "int": "int", "float": "double", "str": "string"}
_GENERIC: Mapping[str, Kind] = {
    **dict.fromkeys(("list", "List", "Sequence", "Iterable"), "list"),
    **dict.fromkeys(("set", "Set", "frozenset"), "set"),
    **dict.fromkeys(("dict", "Dict", "Mapping"), "map"),
    "Optional": "optional",
}


def common(values: Iterable[Any], hint: Type = UNKNOWN) -> Type:
    """The type that holds all of the values and, where they leave it open, the hint.

    Raises:
        Inexpressible: there is none.
    """
    found = _settled(reduce(_unified, map(_of, values), hint))
    if found.holds("unknown"):
        raise Inexpressible("types")
    return found


def annotated(node: ast.expr | None) -> Type:
    """The type that an annotation names; ``UNKNOWN``, or with unknown parts, where it says less."""
    match node:
        case ast.Constant(str(text)):
            return annotated(ast.Name(text))
        case ast.Name(name) if name in _HINTS:
            return Type(_HINTS[name])
        case ast.Attribute(_, name) | ast.Name(name) if name in _GENERIC:
            return Type(_GENERIC[name], (UNKNOWN, UNKNOWN) if _GENERIC[name] == "map" else (UNKNOWN,))
        case ast.Subscript(ast.Name(name) | ast.Attribute(_, name), part):
            parts = part.elts if isinstance(part, ast.Tuple) else [part]
            return _generic(name, [annotated(each) for each in parts], parts)
        case ast.BinOp(one, ast.BitOr(), ast.Constant(None)) | ast.BinOp(ast.Constant(None), ast.BitOr(), one):
            return Type("optional", (annotated(one),))
    return UNKNOWN


def _generic(name: str, parts: list[Type], nodes: list[ast.expr]) -> Type:
    if name in ("tuple", "Tuple"):
        if len(nodes) == 2 and isinstance(nodes[1], ast.Constant) and nodes[1].value is ...:
            return Type("list", (parts[0],))
        return Type("tuple", tuple(parts))
    kind = _GENERIC.get(name)
    return Type(kind, tuple(parts)) if kind and len(parts) == (2 if kind == "map" else 1) else UNKNOWN


def _of(value: Any) -> Type:
    match value:
        case None:
            return Type("optional", (UNKNOWN,))
        case bool():
            return Type("bool")
        case int():
            return _integer(value)
        case float():
            return Type("double")
        case str():
            return _text(value)
        case tuple():
            return Type("tuple", tuple(map(_of, value)))
        case list():
            return Type("list", (reduce(_unified, map(_of, value), UNKNOWN),))
        case set() | frozenset():
            return Type("set", (reduce(_unified, map(_of, value), UNKNOWN),))
        case dict():
            return Type(
                "map",
                (reduce(_unified, map(_of, value), UNKNOWN), reduce(_unified, map(_of, value.values()), UNKNOWN)),
            )
    raise Inexpressible("types")


def _integer(value: int) -> Type:
    if not -(2**63) <= value < 2**63:
        raise Inexpressible("big-integers")
    return Type("int" if -(2**31) <= value < 2**31 else "long")


def _text(value: str) -> Type:
    """A character of ``std::string`` is a byte, so only ASCII has the same length and places as in Python."""
    if not value.isascii():
        raise Inexpressible("non-ascii-text")
    return Type("string")


def _unified(one: Type, other: Type) -> Type:
    """The type that holds the values of both."""
    if one == other or other == UNKNOWN:
        return one
    if one == UNKNOWN:
        return other
    if "optional" in (one.kind, other.kind):
        return Type("optional", (_unified(_inner(one), _inner(other)),))
    if one.kind in _NUMBERS and other.kind in _NUMBERS:
        return max(one, other, key=lambda number: _NUMBERS.index(number.kind))
    if {one.kind, other.kind} <= {"list", "tuple"}:
        return _sequence(one, other)
    if one.kind != other.kind or len(one.parts) != len(other.parts) or not one.parts:
        raise Inexpressible("types")
    return Type(one.kind, tuple(map(_unified, one.parts, other.parts)))


def _inner(type: Type) -> Type:
    return type.parts[0] if type.kind == "optional" else type


def _sequence(one: Type, other: Type) -> Type:
    """Tuples of one length stay tuples; what varies in length is a list."""
    if one.kind == other.kind == "tuple" and len(one.parts) == len(other.parts):
        return Type("tuple", tuple(map(_unified, one.parts, other.parts)))
    return Type("list", (reduce(_unified, (*one.parts, *other.parts), UNKNOWN),))


def _settled(type: Type) -> Type:
    """Tuples of one type become lists, as functions on them work for any length; an empty one is a list too."""
    parts = tuple(map(_settled, type.parts))
    if type.kind != "tuple" or len({_kind_of_tuple(part) for part in parts}) > 1:
        return Type(type.kind, parts)
    try:
        return Type("list", (reduce(_unified, parts, UNKNOWN),))
    except Inexpressible:
        return Type("tuple", parts)


def _kind_of_tuple(part: Type) -> Kind:
    return "int" if part.kind == "long" else part.kind
