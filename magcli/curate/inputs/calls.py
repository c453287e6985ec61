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

from magcli.curate.inputs.values import StatedRange

Values = Literal["any", "few", "low", "high", "equal", "rising"]
Path = tuple[int | str, ...]

MAX_LENGTH = 2000
"""Maximum length of a list or text, if the statement allows it."""

_PLAN: tuple[tuple[float, Values], ...] = (
    (0.0, "low"), (0.4, "any"), (0.4, "few"), (0.0, "high"), (0.4, "equal"), (0.7, "any"), (0.4, "rising"),
    (0.2, "any"), (0.7, "few"), (0.2, "few"), (0.4, "high"), (1.0, "any"), (0.4, "low"), (0.2, "equal"),
)  # fmt: skip
_MAX_FAILURES = 60


@dataclass(frozen=True, slots=True)
class Shape:
    """The common structure of literals; ``low`` and ``high`` bound a number or a length."""

    kind: Literal["same", "bool", "int", "float", "str", "list", "tuple", "dict"]
    low: float = 0
    high: float = 0
    alphabet: str = ""
    samples: tuple[Any, ...] = ()
    parts: "tuple[Shape, ...]" = ()


def mutations(calls: Sequence[str], stated: Sequence[StatedRange], seed: str) -> Iterator[str]:
    """New distinct calls like the existing ones; ends after ``_MAX_FAILURES`` consecutive failures."""
    trees = [ast.parse(call, mode="eval").body for call in calls]
    literals = [dict(_literals(tree)) for tree in trees]
    shapes = {}
    for path in literals[0]:
        if all(path in call_literals for call_literals in literals):
            shape = shape_of([call_literals[path] for call_literals in literals])
            shapes[path] = _stated(shape, str(path[-1]), stated)
    equal = _equal_lengths(literals, list(shapes))
    seen = {ast.unparse(tree) for tree in trees}
    failures = 0
    while shapes and failures <= _MAX_FAILURES:
        random = Random(f"{seed}\0{len(seen)}\0{failures}")
        chosen = random.randrange(len(trees))
        text = _drawn(trees[chosen], literals[chosen], shapes, equal, random)
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
            yield from (((*path, *inner), value) for inner, value in _literals(child))


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
    if kinds == {int, float}:
        kinds = {float}
    match list(kinds):
        case [one] if one is bool:
            return Shape("bool")
        case [one] if one is int or one is float:
            return Shape("int" if one is int else "float", *_range(values))
        case [one] if one is str:
            alphabet = "".join(sorted(set("".join(values))))
            return Shape("str", *_range([len(value) for value in values]), alphabet, tuple(values))
        case [one] if one is list and any(values):
            lengths = _range([len(value) for value in values])
            return Shape("list", *lengths, parts=(shape_of([part for value in values for part in value]),))
        case [one] if one is tuple and len({len(value) for value in values}) == 1 and values[0]:
            return Shape("tuple", parts=tuple(shape_of(column) for column in zip(*values, strict=True)))
        case [one] if one is dict and any(values):
            keys = shape_of([key for value in values for key in value])
            content = shape_of([part for value in values for part in value.values()])
            return Shape("dict", *_range([len(value) for value in values]), parts=(keys, content))
    return Shape("same", samples=tuple(values))


def _range(values: Sequence[float]) -> tuple[float, float]:
    """From the minimum, or 1 if it is positive, to twice the maximum, without changing signs."""
    low, high = min(values), max(values)
    return min(low, 1) if low >= 0 else 2 * low, max(2 * high, 10) if high >= 0 else high


def _stated(shape: Shape, name: str, stated: Sequence[StatedRange]) -> Shape:
    """A shape with the ranges stated for its name and, by ``name[i]``, its elements."""
    ranges = {range_.name: range_ for range_ in stated}
    range_ = ranges.get(f"{name}.length" if shape.kind in ("list", "str") else name)
    element_names = (f"{name}[i]", f"{name}_i", f"{name}[i][j]")
    inner = next((ranges[key] for key in element_names if key in ranges), None)
    if range_ and shape.kind in ("list", "str", "int", "float"):
        shape = replace(shape, low=range_.low, high=range_.high)
    if inner and shape.kind == "list":
        shape = replace(shape, parts=(_elements(shape.parts[0], inner),))
    return shape


def _elements(shape: Shape, range_: StatedRange) -> Shape:
    if shape.kind in ("int", "float"):
        return replace(shape, low=range_.low, high=range_.high)
    return replace(shape, parts=tuple(_elements(part, range_) for part in shape.parts))


def _equal_lengths(literals: Sequence[Mapping[Path, Any]], paths: Sequence[Path]) -> frozenset[Path]:
    """The paths of lists and texts that always have the length of the first one."""
    columns = {path: [call_literals[path] for call_literals in literals] for path in paths}
    sized = {
        path: [len(value) for value in column]
        for path, column in columns.items()
        if all(isinstance(value, list | str) for value in column)
    }
    first = next(iter(sized.values()), [])
    same = [path for path, lengths in sized.items() if lengths == first]
    return frozenset(same) if len(literals) > 1 and len(same) > 1 else frozenset()


def _drawn(
    tree: ast.expr, literals: Mapping[Path, Any], shapes: Mapping[Path, Shape], equal: frozenset[Path], random: Random
) -> str:
    """A call with all or one of its literals replaced."""
    size, values = random.choice(_PLAN)
    all_of_them = random.random() < 0.7 or bool(equal)
    chosen = list(shapes) if all_of_them else [random.choice(list(shapes))]
    tied = _length(shapes[min(equal, key=str)], size, random) if equal else None
    new = {path: draw(shapes[path], size, values, random, tied if path in equal else None) for path in chosen}
    copy = deepcopy(tree)
    _put(copy, {path: value for path, value in new.items() if path in literals}, ())
    return ast.unparse(copy)


def _put(node: ast.expr, new: Mapping[Path, Any], parent: Path) -> None:
    """Insert literals at their paths."""
    for path, child in list(_arguments(node)):
        here = (*parent, *path)
        if here in new and isinstance(node, ast.Call):
            value = ast.parse(repr(new[here]), mode="eval").body
            if isinstance(path[0], int):
                node.args[path[0]] = value
            else:
                next(keyword for keyword in node.keywords if keyword.arg == path[0]).value = value
        else:
            _put(child, new, here)


def draw(shape: Shape, size: float, values: Values, random: Random, length: int | None = None) -> Any:
    """A random value of a shape; ``size`` 0 gives the minimum length, 1 the maximum."""
    match shape.kind:
        case "bool":
            return random.random() < 0.5
        case "int":
            return _whole(int(shape.low), int(shape.high), values, random)
        case "float":
            exact = {"low": shape.low, "high": shape.high}.get(values)
            return round(float(random.uniform(shape.low, shape.high) if exact is None else exact), 2)
        case "str":
            num_letters = _length(shape, size, random) if length is None else length
            return _text(shape, num_letters, values, random)
        case "list":
            num_parts = _length(shape, size, random) if length is None else length
            return _list(shape, num_parts, size, values, random)
        case "tuple":
            return tuple(draw(part, size, values, random) for part in shape.parts)
        case "dict":
            keys, content = shape.parts
            pairs = range(_length(shape, size, random))
            return {draw(keys, size, "any", random): draw(content, size, values, random) for _ in pairs}
    return random.choice(shape.samples)


def _length(shape: Shape, size: float, random: Random) -> int:
    low, high = int(shape.low), int(min(shape.high, max(MAX_LENGTH, shape.low)))
    if size in (0.0, 1.0):
        return high if size else low
    most = max(low, int(high**size) + 1)
    return random.randint(max(low, most // 2), most)


def _whole(low: int, high: int, values: Values, random: Random) -> int:
    match values:
        case "low":
            return low
        case "high":
            return high
        case "few" | "equal":
            middle = min(max(low, 0), high)
            return random.randint(middle, min(high, middle + 3))
    return random.randint(low, high)


def _text(shape: Shape, length: int, values: Values, random: Random) -> str:
    """Text over the alphabet; half of the time a sample with a letter replaced, deleted or inserted."""
    if random.random() < 0.5 and shape.samples and values in ("any", "few"):
        letters = list(random.choice(shape.samples))
        index = random.randint(0, len(letters))
        # An empty slice inserts, an empty choice deletes.
        letters[index : index + random.randint(0, 1)] = random.choices(shape.alphabet or "a", k=random.randint(0, 1))
        return "".join(letters)
    num_letters = {"few": 2, "equal": 1, "low": 1, "high": 1}.get(values, len(shape.alphabet))
    letters = random.choices(random.sample(shape.alphabet, min(num_letters, len(shape.alphabet))) or ["a"], k=length)
    return "".join(sorted(letters) if values == "rising" else letters)


def _list(shape: Shape, length: int, size: float, values: Values, random: Random) -> list[Any]:
    (part,) = shape.parts
    if values == "equal":
        return [draw(part, size, values, random)] * length
    parts = [draw(part, size, values, random) for _ in range(length)]
    return sorted(parts) if values == "rising" and part.kind in ("int", "float", "str") else parts
