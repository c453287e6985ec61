"""Generate arguments for tests that call a function: literals like those of existing calls, of all sizes.

The literals at the same position in all calls are described by their structure: numbers with their range, text with its
alphabet, homogeneous lists with their lengths, tuples and dicts. Lists that always have equal lengths keep them equal.
The range of a keyword argument is the statement's, if stated: ``0 <= nums[i] <= 50``.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Literal

from magcli.curate.inputs.drawing import MAX_FAILURES, Style, edited, length, number, size_and_style, word
from magcli.curate.inputs.values import StatedRange

Path = tuple[int | str, ...]

MAX_LENGTH = 2000
"""Maximum length of a list or text, if the statement allows it."""
_CENTS = 100
"""Floats are drawn with two decimal places."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The common structure of literals; ``low`` and ``high`` bound a number or a length."""

    kind: Literal["same", "int", "float", "str", "list", "tuple", "dict"]
    low: float = 0
    high: float = 0
    samples: tuple[Any, ...] = ()
    parts: "tuple[Shape, ...]" = ()


def mutations(calls: Sequence[str], stated: Sequence[StatedRange], seed: str) -> Iterator[str]:
    """New distinct calls like the existing ones; ends after ``MAX_FAILURES`` consecutive failures."""
    trees = [ast.parse(call, mode="eval").body for call in calls]
    # Only what stands at the same path in every call is replaced.
    literals = [dict(_literals(tree)) for tree in trees]
    ranges = {range_.name: range_ for range_ in stated}
    columns = {
        path: [call_literals[path] for call_literals in literals]
        for path in literals[0]
        if all(path in call_literals for call_literals in literals)
    }
    shapes = {path: _stated(shape_of(column), str(path[-1]), ranges) for path, column in columns.items()}
    equal = _equal_lengths(columns)
    seen = {ast.unparse(tree) for tree in trees}
    failures = 0
    while shapes and failures <= MAX_FAILURES:
        # A new generator each time, so that an attempt does not depend on how much the ones before it drew.
        random = Random(f"{seed}\0{len(seen)}\0{failures}")
        text = _drawn(random.choice(trees), shapes, equal, random)
        failures += 1
        if text not in seen:
            failures = 0
            seen.add(text)
            yield text


def _literals(node: ast.expr) -> Iterator[tuple[Path, Any]]:
    """The maximal literals in the arguments of nested calls, by path."""
    for path, child in _arguments(node):
        try:
            yield path, ast.literal_eval(child)
        except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
            for inner, value in _literals(child):
                yield (*path, *inner), value


def _arguments(node: ast.expr) -> Iterator[tuple[Path, ast.expr]]:
    match node:
        case ast.Call(function, arguments, keywords):
            yield ("function",), function
            yield from (((number,), argument) for number, argument in enumerate(arguments))
            yield from (((keyword.arg,), keyword.value) for keyword in keywords if keyword.arg)
        case ast.Attribute(inner) | ast.Subscript(inner):
            yield ("of",), inner


def shape_of(values: Sequence[Any]) -> Shape:
    """The common structure of values; ``same`` if they differ in kind, so one of them is used."""
    kinds = {type(value) for value in values}
    # Of values without a length this is never used.
    lengths = _range([len(value) for value in values if isinstance(value, str | list | dict)])
    if kinds == {int}:
        return Shape("int", *_range(values))
    if kinds in ({float}, {int, float}):
        return Shape("float", *_range(values))
    if kinds == {str}:
        return Shape("str", *lengths, tuple(values))
    if kinds == {list} and any(values):
        elements = [element for value in values for element in value]
        return Shape("list", *lengths, parts=(shape_of(elements),))
    if kinds == {tuple} and len({len(value) for value in values}) == 1 and values[0]:
        return Shape("tuple", parts=tuple(shape_of(column) for column in zip(*values, strict=True)))
    if kinds == {dict} and any(values):
        keys = [key for value in values for key in value]
        contents = [content for value in values for content in value.values()]
        return Shape("dict", *lengths, parts=(shape_of(keys), shape_of(contents)))
    return Shape("same", samples=tuple(values))


def _range(values: Sequence[float]) -> tuple[float, float]:
    """From the minimum, or 1 if it is positive, to twice the maximum, without changing signs."""
    lowest, highest = min(values, default=0), max(values, default=0)
    low = 2 * lowest if lowest < 0 else min(lowest, 1)
    # Up to 10 at least, so that small examples do not keep all new values small.
    high = highest if highest < 0 else max(2 * highest, 10)
    return low, high


def _stated(shape: Shape, name: str, stated: Mapping[str, StatedRange]) -> Shape:
    """A shape with the ranges stated for its name and, by ``name[i]``, its elements."""
    # A range stated for a list itself is that of its elements, so only its length counts here.
    sized = shape.kind in ("list", "str")
    if range_ := stated.get(f"{name}.length" if sized else name):
        shape = replace(shape, low=range_.low, high=range_.high)
    if shape.kind != "list":
        return shape
    # nums[i], a_i, grid[i][j]
    for key in (f"{name}[i]", f"{name}_i", f"{name}[i][j]"):
        if key in stated:
            return replace(shape, parts=(_elements(shape.parts[0], stated[key]),))
    return shape


def _elements(shape: Shape, range_: StatedRange) -> Shape:
    if shape.kind in ("int", "float"):
        return replace(shape, low=range_.low, high=range_.high)
    return replace(shape, parts=tuple(_elements(part, range_) for part in shape.parts))


def _equal_lengths(columns: Mapping[Path, Sequence[Any]]) -> frozenset[Path]:
    """The paths of lists and texts that always have the length of the first one."""
    sized = {
        path: [len(value) for value in column]
        for path, column in columns.items()
        if all(isinstance(value, list | str) for value in column)
    }
    if not sized:
        return frozenset()
    first = next(iter(sized.values()))
    same = frozenset(path for path, lengths in sized.items() if lengths == first)
    # A single call, or a single list in all calls, shows no relation.
    is_relation = len(first) > 1 and len(same) > 1
    return same if is_relation else frozenset()


def _drawn(tree: ast.expr, shapes: Mapping[Path, Shape], equal: frozenset[Path], random: Random) -> str:
    """A call with all or one of its literals replaced."""
    size, style = size_and_style(random)
    paths = list(shapes)
    common_length = None
    if equal:
        # Literals of equal lengths can only change together.
        common_length = _length(shapes[min(equal, key=str)], size, random)
    elif random.random() >= 0.7:
        paths = [random.choice(paths)]
    new = {}
    for path in paths:
        tied = common_length if path in equal else None
        new[path] = draw(shapes[path], size, style, random, tied)
    return ast.unparse(_with(deepcopy(tree), new, ()))


def _with(node: ast.expr, new: Mapping[Path, Any], parent: Path) -> ast.expr:
    """The call with literals at their paths."""
    # A copy, as the arguments are replaced on the way.
    for path, child in list(_arguments(node)):
        here = (*parent, *path)
        if here not in new:
            _with(child, new, here)
            continue
        value = ast.parse(repr(new[here]), mode="eval").body
        match node, path:
            case ast.Call(_, arguments), (int(index),):
                arguments[index] = value
            case ast.Call(_, _, keywords), (name,):
                replaced = next(keyword for keyword in keywords if keyword.arg == name)
                replaced.value = value
            case ast.Attribute() | ast.Subscript(), ("of",):
                node.value = value
    return node


def draw(shape: Shape, size: float, style: Style, random: Random, tied: int | None = None) -> Any:
    """A random value of a shape, with the length ``tied`` if it is not None."""
    num_parts = tied if tied is not None else _length(shape, size, random)
    match shape.kind:
        case "int":
            return number(int(shape.low), int(shape.high), style, random)
        case "float":
            return number(round(shape.low * _CENTS), round(shape.high * _CENTS), style, random) / _CENTS
        case "str":
            alphabet = "".join(sorted(set("".join(shape.samples))))
            if style in ("any", "few") and random.random() < 0.5:
                return edited(random.choice(shape.samples), alphabet, random)
            return word(alphabet, num_parts, style, random)
        case "list":
            (part,) = shape.parts
            if style == "equal":
                return [draw(part, size, style, random)] * num_parts
            parts = [draw(part, size, style, random) for _ in range(num_parts)]
            return sorted(parts) if style == "rising" and part.kind in ("int", "float", "str") else parts
        case "tuple":
            return tuple(draw(part, size, style, random) for part in shape.parts)
        case "dict":
            keys, content = shape.parts
            return {draw(keys, size, "any", random): draw(content, size, style, random) for _ in range(num_parts)}
    return random.choice(shape.samples)


def _length(shape: Shape, size: float, random: Random) -> int:
    """The length of a text, list or dict; 0 of anything else."""
    if shape.kind not in ("str", "list", "dict"):
        return 0
    # More than ``MAX_LENGTH`` only if the statement demands it.
    max_length = min(shape.high, max(MAX_LENGTH, shape.low))
    return length(int(shape.low), int(max_length), size, random)
