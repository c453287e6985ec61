"""Tests that call a Python function, made ready for a function in C++.

A test becomes stdin and stdout: the arguments as tokens, and the value that must come out as tokens. A ``main`` reads
the ones, calls the function and writes the others (``harness.cpp``). It is put after a program by
``magcli.verify.code.programs``; what is expected never goes into it.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from magcli.curate.twins.cpp_types import Type


class Signature(NamedTuple):
    """A C++ function: its name (``Solution::name`` is a method of that class), parameters and what it returns."""

    name: str
    parameters: tuple[tuple[str, Type], ...]
    returns: Type

    def __str__(self) -> str:
        named = ", ".join(f"{type} {name}" for name, type in self.parameters)
        owner, _, name = self.name.rpartition("::")
        declared = f"{self.returns} {name}({named})"
        return f"class {owner} {{\npublic:\n    {declared};\n}};" if owner else f"{declared};"


def harness(signature: Signature) -> str:
    """The end of a C++ program that calls the function once."""
    names = [f"magcli_argument_{number}" for number in range(len(signature.parameters))]
    lines = [
        f"    {type} {name}{{}};\n    values.read({name});"
        for name, (_, type) in zip(names, signature.parameters, strict=True)
    ]
    owner, _, name = signature.name.rpartition("::")
    call = f"{owner + '().' if owner else '::'}{name}({', '.join(names)})"
    return _filled("declared_main.cpp", ARGUMENTS="\n".join(lines), RETURNS=str(signature.returns), CALL=call)


def deduced_harness(signature: Signature) -> str:
    """The end of a C++ program whose function has types of its own.

    They are taken from the function itself or, where it is a template or one of several overloads, from the tests.
    """
    owner, _, own = signature.name.rpartition("::")
    return _filled(
        "deduced_main.cpp",
        COUNT=str(len(signature.parameters)),
        NAME=signature.name if owner else f"::{own}",
        TYPES=", ".join(str(type) for _, type in signature.parameters),
        CALL=f"{owner}().{own}" if owner else f"::{own}",
    )


def _filled(main: str, **blanks: str) -> str:
    text = _template("harness.cpp") + _template(main)
    for name, value in blanks.items():
        text = text.replace(f"@{name}@", value)
    return text


@cache
def _template(name: str) -> str:
    return files("magcli.curate.twins").joinpath(name).read_text(encoding="utf-8")


def feed(arguments: Sequence[Any], value: Any, signature: Signature) -> Mapping[str, str]:
    """A call and its value as a test by stdin and stdout."""
    return {"input": stdin(arguments, signature), "output": " ".join(_tokens(value, signature.returns))}


def stdin(arguments: Sequence[Any], signature: Signature) -> str:
    """The arguments of a call as the harness reads them; one line an argument."""
    types = [type for _, type in signature.parameters]
    return "".join(" ".join(_tokens(given, type)) + "\n" for given, type in zip(arguments, types, strict=True))


def _tokens(value: Any, type: Type) -> list[str]:
    """A value as tokens, written as ``harness.cpp`` writes it; sets and maps in the order of C++."""
    match type.kind:
        case "bool":
            return ["true" if value else "false"]
        case "double":
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
    """Without blanks, so that it is one token."""
    signs = (sign if "!" <= sign <= "~" and sign not in '"\\' else f"\\x{ord(sign):02x}" for sign in text)
    return f'"{"".join(signs)}"'
