"""C++ types for Python values, and the harness that calls a C++ function on them.

Types are inferred from the values in the tests and from annotations:

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

Tests that call a Python function become stdin and stdout: arguments and expected value as tokens. A ``main`` reads the
arguments, calls the function and writes the value (``harness.cpp``). ``magcli.verify.code.judge`` appends it to the
program; it never contains expected values.
"""

import ast
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, reduce
from importlib.resources import files
from typing import Any, Literal, NamedTuple

Kind = Literal["unknown", "bool", "int", "long", "double", "string", "list", "tuple", "set", "map", "optional"]
Reason = Literal[
    "asks-already", "about-python", "helper-code", "arguments", "value", "any-order", "names", "bad-tests", "types",
    "big-integers", "non-ascii-text",
]  # fmt: skip


class UnsupportedSignature(Exception):
    """A problem or its tests cannot be ported to C++."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason: Reason = reason


class Type(NamedTuple):
    """A type and its type arguments: one for a list, set or optional, two for a map, one per item of a tuple."""

    kind: Kind
    parts: tuple["Type", ...] = ()

    def __str__(self) -> str:
        return _NAMES[self.kind] + (f"<{', '.join(map(str, self.parts))}>" if self.parts else "")

    def contains(self, kind: Kind) -> bool:
        """Whether a kind occurs anywhere in it."""
        return self.kind == kind or any(part.contains(kind) for part in self.parts)


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
_GENERIC: Mapping[str, Type] = {
    **dict.fromkeys(("list", "List", "Sequence", "Iterable"), Type("list", (UNKNOWN,))),
    **dict.fromkeys(("set", "Set", "frozenset"), Type("set", (UNKNOWN,))),
    **dict.fromkeys(("dict", "Dict", "Mapping"), Type("map", (UNKNOWN, UNKNOWN))),
    "Optional": Type("optional", (UNKNOWN,)),
}
"""The types of generic annotations without their arguments."""


def common_type(values: Iterable[Any], hint: Type = UNKNOWN) -> Type:
    """The type that holds all of the values, completed by the hint.

    Raises:
        UnsupportedSignature: there is none.
    """
    common = _settled(_of_all(values, hint))
    if common.contains("unknown"):
        raise UnsupportedSignature("types")
    return common


def annotation_type(node: ast.expr | None) -> Type:
    """The type of an annotation; ``UNKNOWN``, or with unknown parts, if it is less specific."""
    match node:
        case ast.Constant(str(text)):
            # A quoted annotation, of which only a plain name is understood.
            return annotation_type(ast.Name(text))
        case ast.Name(name) if name in _HINTS:
            return Type(_HINTS[name])
        case ast.Attribute(_, name) | ast.Name(name) if name in _GENERIC:
            return _GENERIC[name]
        case ast.Subscript(ast.Name(name) | ast.Attribute(_, name), part):
            parts = part.elts if isinstance(part, ast.Tuple) else [part]
            return _generic(name, [annotation_type(argument) for argument in parts], parts)
        case ast.BinOp(one, ast.BitOr(), ast.Constant(None)) | ast.BinOp(ast.Constant(None), ast.BitOr(), one):
            return Type("optional", (annotation_type(one),))
    return UNKNOWN


def _generic(name: str, parts: list[Type], nodes: list[ast.expr]) -> Type:
    """The type of a generic annotation with the types of its parts; ``UNKNOWN`` for another number of parts."""
    if name in ("tuple", "Tuple"):
        # tuple[int, ...] has any length.
        if len(nodes) == 2 and isinstance(nodes[1], ast.Constant) and nodes[1].value is ...:
            return Type("list", (parts[0],))
        return Type("tuple", tuple(parts))
    bare = _GENERIC.get(name, UNKNOWN)
    return Type(bare.kind, tuple(parts)) if len(parts) == len(bare.parts) else UNKNOWN


def _of(value: Any) -> Type:
    """The narrowest type of a value. Raises UnsupportedSignature if C++ has none of the same meaning."""
    match value:
        case None:
            return Type("optional", (UNKNOWN,))
        case bool():
            return Type("bool")
        case int():
            # The ranges of long long and int.
            if not -(2**63) <= value < 2**63:
                raise UnsupportedSignature("big-integers")
            return Type("int" if -(2**31) <= value < 2**31 else "long")
        case float():
            return Type("double")
        case str():
            # A character of ``std::string`` is a byte, so only ASCII has the same length and indices as in Python.
            if not value.isascii():
                raise UnsupportedSignature("non-ascii-text")
            return Type("string")
        case tuple():
            return Type("tuple", tuple(map(_of, value)))
        case list():
            return Type("list", (_of_all(value),))
        case set() | frozenset():
            return Type("set", (_of_all(value),))
        case dict():
            return Type("map", (_of_all(value), _of_all(value.values())))
    raise UnsupportedSignature("types")


def _of_all(values: Iterable[Any], hint: Type = UNKNOWN) -> Type:
    return reduce(_unified, map(_of, values), hint)


def _unified(one: Type, other: Type) -> Type:
    """The type that holds values of both."""
    if one == other or other == UNKNOWN:
        return one
    if one == UNKNOWN:
        return other
    if "optional" in (one.kind, other.kind):
        inner = one.parts[0] if one.kind == "optional" else one
        other_inner = other.parts[0] if other.kind == "optional" else other
        return Type("optional", (_unified(inner, other_inner),))
    # The later of two types of numbers holds the values of both.
    if one.kind in _NUMBERS and other.kind in _NUMBERS:
        return max(one, other, key=lambda number: _NUMBERS.index(number.kind))
    if {one.kind, other.kind} <= {"list", "tuple"}:
        return _sequence(one, other)
    # Types without parts differ if they are not equal.
    if one.kind != other.kind or len(one.parts) != len(other.parts) or not one.parts:
        raise UnsupportedSignature("types")
    return Type(one.kind, tuple(map(_unified, one.parts, other.parts)))


def _sequence(one: Type, other: Type) -> Type:
    """Tuples of equal length stay tuples; others become lists."""
    if one.kind == other.kind == "tuple" and len(one.parts) == len(other.parts):
        return Type("tuple", tuple(map(_unified, one.parts, other.parts)))
    return Type("list", (reduce(_unified, (*one.parts, *other.parts), UNKNOWN),))


def _settled(type: Type) -> Type:
    """Tuples of one type, and empty ones, become lists, since functions on them usually work for any length."""
    parts = tuple(map(_settled, type.parts))
    # An integer is int or long by its size alone.
    kinds = {"int" if part.kind == "long" else part.kind for part in parts}
    if type.kind != "tuple" or len(kinds) > 1:
        return Type(type.kind, parts)
    try:
        return Type("list", (reduce(_unified, parts, UNKNOWN),))
    except UnsupportedSignature:
        return Type("tuple", parts)


class Signature(NamedTuple):
    """A C++ function: its name (``Solution::name`` is a method of that class), parameters and return type."""

    name: str
    parameters: tuple[tuple[str, Type], ...]
    returns: Type

    @property
    def called(self) -> str:
        """The function where it is called; a method on a new object."""
        owner, _, name = self.name.rpartition("::")
        return f"{owner}().{name}" if owner else f"::{name}"

    def __str__(self) -> str:
        named = ", ".join(f"{type} {name}" for name, type in self.parameters)
        owner, _, name = self.name.rpartition("::")
        declared = f"{self.returns} {name}({named})"
        return f"class {owner} {{\npublic:\n    {declared};\n}};" if owner else f"{declared};"


def harness(signature: Signature) -> str:
    """A ``main`` that calls the function once."""
    variables = []
    lines = []
    for number, (_, type) in enumerate(signature.parameters):
        # Names that no program has.
        variable = f"magcli_argument_{number}"
        variables.append(variable)
        lines.append(f"    {type} {variable}{{}};\n    values.read({variable});")
    return _filled(
        "declared_main.cpp",
        ARGUMENTS="\n".join(lines),
        RETURNS=str(signature.returns),
        CALL=f"{signature.called}({', '.join(variables)})",
    )


def generic_harness(signature: Signature) -> str:
    """A ``main`` for a function with other types than the signature.

    They are deduced from the function itself or, if it is a template or overloaded, taken from the tests.
    """
    return _filled(
        "generic_main.cpp",
        COUNT=str(len(signature.parameters)),
        NAME=signature.name if "::" in signature.name else f"::{signature.name}",
        TYPES=", ".join(str(type) for _, type in signature.parameters),
        CALL=signature.called,
    )


def _filled(main: str, **values: str) -> str:
    text = _template("harness.cpp") + _template(main)
    for name, value in values.items():
        # Braces, as in format strings, are everywhere in C++.
        text = text.replace(f"@{name}@", value)
    return text


@cache
def _template(name: str) -> str:
    return files("magcli.curate.cpp_ports").joinpath(name).read_text(encoding="utf-8")


def stdin_test(arguments: Sequence[Any], value: Any, signature: Signature) -> Mapping[str, str]:
    """A call and its value as a test with stdin and stdout."""
    return {"input": stdin(arguments, signature), "output": " ".join(_tokens(value, signature.returns))}


def stdin(arguments: Sequence[Any], signature: Signature) -> str:
    """The arguments of a call as the harness reads them, one line each."""
    types = [type for _, type in signature.parameters]
    lines = (" ".join(_tokens(argument, type)) for argument, type in zip(arguments, types, strict=True))
    return "".join(f"{line}\n" for line in lines)


def _tokens(value: Any, type: Type) -> list[str]:
    """A value as tokens in the format of ``harness.cpp``; sets and maps in the order of C++."""
    match type.kind:
        case "bool":
            return ["true" if value else "false"]
        case "double":
            # ``repr`` is the shortest text that reads back as the same number.
            return [repr(float(value))]
        case "string":
            return [_quoted(value)]
        case "optional":
            return ["null"] if value is None else _tokens(value, type.parts[0])
        case "list" | "set":
            items = sorted(value) if type.kind == "set" else value
            return _bracketed(_tokens(item, type.parts[0]) for item in items)
        case "tuple":
            return _bracketed(map(_tokens, value, type.parts))
        case "map":
            pairs = sorted(value.items())
            return _bracketed(
                _tokens(item, part) for pair in pairs for item, part in zip(pair, type.parts, strict=True)
            )
    return [str(value)]


def _bracketed(parts: Any) -> list[str]:
    return ["[", *(token for part in parts for token in part), "]"]


def _quoted(text: str) -> str:
    """A string as one token without blanks."""
    # Escaped are blanks, which separate tokens, and what quoting needs itself.
    signs = (sign if "!" <= sign <= "~" and sign not in '"\\' else f"\\x{ord(sign):02x}" for sign in text)
    return f'"{"".join(signs)}"'
