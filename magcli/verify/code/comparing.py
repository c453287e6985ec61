"""Comparisons of a test's script, inside the judge's sandbox.

They are those of Python, except that a value of the program equals an expected one by ``values.same``, which accepts a
tuple for a list and the last digits of floats, and does not accept True for 1; that an array has the shape of the
expected one; and that NaN and infinity have no order, since ``not abs(f(1) - 2) > 1e-6`` would hold for them.
"""

import math
import operator
from collections import deque
from decimal import Decimal
from fractions import Fraction

from magcli.verify.code.handles import Handle, Named, Nodes, values_of_nodes
from magcli.verify.code.proxies import ask, refused, refused_object
from magcli.verify.code.values import in_any_order, same, shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any


class Rule:
    """The comparison of the problem, and what comparisons had.

    ``difference``: of the last one of an assert; ``empty``: whether one has held in which something empty or zero was
    expected of the program; ``looked``: of each place that asserts something of all elements, whether there was one.
    """

    def __init__(self) -> None:
        self.mode = "tokens"
        self.tolerance: float | None = None
        self.difference = ""
        self.empty = False
        self.looked: dict[object, bool] = {}


rule = Rule()


def compare(sign: str, left: "Any", right: "Any", from_left: bool, from_right: bool) -> "Any":
    """One comparison of the script; whether its operands have values of the program is known from the syntax."""
    match sign:
        case "Eq":
            return equal(left, right, from_left, from_right)
        case "NotEq":
            met = equal(left, right, from_left, from_right)
            # Of arrays element by element.
            return not met if isinstance(met, bool) else ~met
        case "In":
            return contains(right, left, from_right)
        case "NotIn":
            return not contains(right, left, from_right)
        case "Is":
            return identical(left, right, from_left or from_right)
        case "IsNot":
            return not identical(left, right, from_left or from_right)
    refuse_unordered((left, right))
    # inf >= inf would hold for a program that gives up with an infinity.
    if (from_left or from_right) and isinstance(left, float) and left == right and math.isinf(left):
        raise refused("an infinity, which has no order")
    are_sets = isinstance(left, set | frozenset) and isinstance(right, set | frozenset)
    if are_sets and from_left != from_right:
        # The empty set is a subset of any.
        of_program = left if from_left else right
        rule.looked["subset"] = rule.looked.get("subset", False) or bool(of_program)
    return ORDER[sign](left, right)


ORDER: "dict[str, Callable[[Any, Any], Any]]" = {
    "Lt": operator.lt, "LtE": operator.le, "Gt": operator.gt, "GtE": operator.ge,
}  # fmt: skip


def refuse_unordered(values: "Iterable[Any]") -> None:
    """Raise Refused at NaN, which has no order."""
    if any(isinstance(value, float) and math.isnan(value) for value in values):
        raise refused("NaN, which has no order")


def refuse_handles(*values: "Any", unless_expected: bool = False) -> None:
    """Raise Refused if one of the values is or contains an object of the program (that the script does not expect)."""
    waiting = list(values)
    while waiting:
        value = waiting.pop()
        if isinstance(value, Handle) and not (unless_expected and value.is_object_()):
            raise refused_object(value.kind_)
        if isinstance(value, list | tuple):
            waiting.extend(value)
        elif isinstance(value, dict):
            waiting.extend(value.values())


def equal(left: "Any", right: "Any", from_left: bool, from_right: bool) -> "Any":
    """Equality; ``same`` where one side is of the program and the other is expected."""
    # A type of numpy equals its name, too.
    if is_dtype(left):
        return bool(left == right)
    if isinstance(left, type | Named) or isinstance(right, type | Named):
        return left is right
    if isinstance(left, Approx):
        return noted(left.matches(right), left.value, right)
    if isinstance(right, Approx):
        return noted(right.matches(left), right.value, left)
    if is_array(left) or is_array(right):
        return equal_arrays(left, right)
    if isinstance(left, Handle) and isinstance(right, Handle):
        return left == right
    # Neither side is the expected one: Python's equality decides.
    if from_left == from_right:
        refuse_handles(left, right, unless_expected=True)
        return bool(left == right)
    expected, actual = (right, left) if from_left else (left, right)
    # Its class derives from one of plain data.
    if isinstance(actual, Handle) and "p" in actual.abilities_:
        actual = ask(f"plain(H[{actual.number_}])")
    is_sequence = isinstance(actual, Handle) and actual.kind_ in ("range", "deque")
    if is_sequence and type(expected).__name__ == actual.kind_:
        return noted(same(list(expected), list(actual)), expected, list(actual))
    refuse_handles(actual)
    return noted(equal_by_rule(expected, actual), expected, actual)


def noted(met: bool, expected: "Any", actual: "Any") -> bool:
    """Whether a comparison holds; if not, its values are noted for the verdict."""
    if met:
        rule.empty = rule.empty or is_empty(expected)
    else:
        rule.difference = f"expected {shown(expected)}, got {shown(actual)}"
    return met


def is_empty(value: "Any") -> bool:
    """Whether an expected value is zero or has no elements."""
    return isinstance(value, int | str | bytes | list | tuple | dict | set | frozenset) and not value


def equal_by_rule(expected: "Any", actual: "Any") -> bool:
    """By the comparison of the problem."""
    if rule.mode == "unordered-lines":
        return in_any_order(expected, actual, rule.tolerance)
    exact = rule.mode == "exact"
    if same(expected, actual, rule.tolerance, exact=exact):
        return True
    # Rarely needed, and a copy of both.
    if same(without_numpy(expected), without_numpy(actual), rule.tolerance, exact=exact):
        return True
    return (has_library_value(expected) or is_dtype(actual)) and bool(expected == actual)


def is_dtype(value: object) -> bool:
    """Whether a value is the type of an array's elements."""
    return type(value).__module__ in ("numpy", "numpy.dtypes") and "dtype" in type(value).__name__.lower()


def without_numpy(value: "Any") -> "Any":
    """A value with plain numbers for those of numpy, which the script has from arrays."""
    if type(value) in (list, tuple):
        return type(value)(map(without_numpy, value))
    if type(value) is dict:
        return {without_numpy(key): without_numpy(item) for key, item in value.items()}
    if type(value).__module__ == "numpy" and hasattr(value, "item") and getattr(value, "shape", None) == ():
        return value.item()
    return value


def has_library_value(value: "Any") -> bool:
    """Whether a value is or contains one of the standard library."""
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, deque):
            return True
        if isinstance(value, list | tuple | set | frozenset):
            waiting.extend(value)
        elif isinstance(value, dict):
            waiting.extend([*value, *value.values()])
    return False


def is_array(value: object) -> bool:
    """Whether a value is an array of numpy, which only the script can have made."""
    return type(value).__module__ == "numpy" and type(value).__name__ == "ndarray"


def equal_arrays(left: "Any", right: "Any") -> "Any":
    """Element by element; values of another shape are unequal, where numpy would repeat them."""
    import numpy

    try:
        one, other = numpy.asarray(left), numpy.asarray(right)
    except ValueError:
        return False
    return one == other if one.shape == other.shape else numpy.False_


def contains(container: "Any", value: "Any", from_program: bool) -> bool:
    """``in``; where an element of an expected collection equals a value as above."""
    if from_program and isinstance(value, Handle):
        return bool(value in container)
    refuse_handles(value)
    if from_program:
        return bool(value in container)
    # "" in "abc" holds.
    if isinstance(container, str) and value == "" and container:
        raise refused("an empty text, which is in any")
    # By hash True would be found as 1.
    is_bool_in_set = isinstance(value, bool) and isinstance(container, set | frozenset | dict)
    if is_bool_in_set or isinstance(container, list | tuple):
        return any(equal_by_rule(item, value) for item in container)
    return bool(value in container)


def identical(left: "Any", right: "Any", from_program: bool) -> bool:
    """``is``, of which only types, None, True and False can say anything about a value of the program."""
    if not from_program or any(value is None or isinstance(value, bool | type) for value in (left, right)):
        return left is right
    if isinstance(left, Handle) and isinstance(right, Handle):
        return ask(f"H[{left.number_}] is H[{right.number_}]") is True
    raise refused("compared by 'is', which says nothing of a value")


class Approx:
    """``pytest.approx`` of a number, or of numbers in lists, arrays and dicts."""

    def __init__(self, value: "Any", rel: "float | None" = None, abs: "float | None" = None) -> None:
        self.value = value
        # As in pytest, an absolute tolerance alone leaves no relative one.
        usual_rel = 1e-6 if abs is None else 0.0
        self._rel = usual_rel if rel is None else rel
        self._abs = 1e-12 if abs is None else abs

    def _of_part(self, value: "Any") -> "Approx":
        """The same tolerances for a part of the value."""
        return Approx(value, self._rel, self._abs)

    def _all_match(self, pairs: "Iterable[tuple[Any, Any]]") -> bool:
        """Whether each part is near the expected one before it."""
        return all(self._of_part(expected).matches(actual) for expected, actual in pairs)

    def matches(self, actual: "Any") -> bool:
        """Whether a value is near."""
        expected = self.value
        # By what is expected: its parts in turn, down to single numbers.
        if is_array(expected):
            return self._of_part(expected.tolist()).matches(actual)
        if is_array(actual):
            return self.matches(actual.tolist())
        if isinstance(expected, dict):
            if not isinstance(actual, dict) or actual.keys() != expected.keys():
                return False
            pairs = [(value, actual[key]) for key, value in expected.items()]
            return self._all_match(pairs)
        if expected is None or isinstance(expected, str | bool):
            return type(actual) is type(expected) and bool(actual == expected)
        if isinstance(expected, list | tuple):
            if not isinstance(actual, list | tuple) or len(actual) != len(expected):
                return False
            return self._all_match(zip(expected, actual, strict=True))
        is_number = isinstance(actual, int | float | Fraction | Decimal) and not isinstance(actual, bool)
        if not is_number:
            return False
        return math.isclose(actual, expected, rel_tol=self._rel, abs_tol=self._abs)


def ordered(function: "Callable[..., Any]") -> "Callable[..., Any]":
    """``sorted``, ``min`` or ``max``, refusing NaN."""

    def checked(*args: "Any", **kwargs: "Any") -> "Any":
        # max(values) or max(a, b)
        values = list(args[0]) if len(args) == 1 else list(args)
        refuse_unordered(values)
        return function(values, **kwargs)

    return checked


def type_of(*args: "Any") -> "Any":
    """``type``, which says nothing of an object of the program."""
    refuse_handles(*[value for value in args if isinstance(value, Handle)])
    return type(*args)


def same_nodes(kind: str) -> "Callable[[Any, Any], bool]":
    """``is_same_list`` or ``is_same_tree``."""

    def is_same(one: "Any", other: "Any") -> bool:
        # The script makes the expected ones itself.
        expected, actual = (one, other) if isinstance(one, Nodes) else (other, one)
        wanted, got = values_of_nodes(kind, expected), values_of_nodes(kind, actual)
        refuse_handles(got)
        return noted(equal_by_rule(wanted, got), wanted, got)

    return is_same
