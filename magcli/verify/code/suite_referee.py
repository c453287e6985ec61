"""Judges a program by a test suite, inside a sandbox of its own: ``referee.py`` for scripts whose tests a runner calls.

Runs inside, without magcli, as a fork of a runner that has loaded it once, with unittest. The suite is executed as a
module; what it imports as the program's module is made of proxies. Values of the standard library and arrays come as
what they are (``library_values.py``), since suites ask for their type, shape and methods.
"""

import ast
import collections
import datetime
import gc
import sys
import unittest
from decimal import Decimal
from fractions import Fraction
from functools import partial
from types import GeneratorType, ModuleType, UnionType

from magcli.verify.code import proxies
from magcli.verify.code.comparing import compare, rule
from magcli.verify.code.handles import Handle, Named, is_instance
from magcli.verify.code.proxies import READERS, STANDINS, ask, receive, send, state
from magcli.verify.code.pytest_standin import Unsupported, made_module
from magcli.verify.code.reaching import described, reached, verdict_at_end
from magcli.verify.code.referee import WATCHED, execute, library, prepare, report
from magcli.verify.code.rewriting import names_in
from magcli.verify.code.suite_rewriting import asserting_functions, rewritten_suite
from magcli.verify.code.suite_runner import run_suite
from magcli.verify.code.values import shown
from magcli.verify.code.writing import CannotSend, written

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

NAME = "test_suite"
"""The name of the suite as a module."""
MAX_DETAIL = 200
FACTORIES: "dict[Any, Any]" = {kind.__name__: kind for kind in (int, float, str, list, dict, set, bool, tuple)}
FACTORIES[None] = None


# ---- values of libraries ----


def array(parts: "list[Any]") -> "Any":
    """An array of numpy, or one of its numbers where there is no shape."""
    import numpy

    kind, shape, items = parts
    made = numpy.array(items, dtype=numpy.dtype(kind))
    return made[0] if shape is None else made.reshape(shape)


LIBRARY_READERS: "dict[str, Callable[[Any], Any]]" = {
    "array": array,
    "Counter": lambda parts: collections.Counter(parts[0]),
    "OrderedDict": lambda parts: collections.OrderedDict(parts[0]),
    "defaultdict": lambda parts: collections.defaultdict(FACTORIES[parts[0]], parts[1]),
    "deque": lambda parts: collections.deque(parts[0], parts[1]),
}
"""Readers of what ``library_values.py`` writes."""
READERS.update(LIBRARY_READERS)

CARRIED: "frozenset[Any]" = frozenset((
    object, int, float, complex, bool, str, bytes, bytearray, list, tuple, dict, set, frozenset, type(None), type,
    range, Fraction, Decimal, collections.Counter, collections.OrderedDict, collections.defaultdict, collections.deque,
    datetime.date, datetime.datetime, datetime.time, datetime.timedelta, GeneratorType,
))  # fmt: skip
"""Classes of which values of the program are instances here, too."""
ABSTRACT_MODULES = ("collections.abc", "numbers", "typing")
"""Modules of classes that say what a value can do."""
NUMBERS_OF_NUMPY: "dict[str, Any]" = {
    "integer": int, "floating": float, "bool_": bool, "bool": bool, "number": int | float, "generic": int | float,
}  # fmt: skip
"""Base classes of numpy's numbers, which come as plain ones."""
ITERATOR_KINDS = ("generator", "map", "filter", "zip", "enumerate", "reversed", "chain", "islice", "iterator")
CALLABLE_KINDS = ("function", "method", "builtin_function_or_method", "type", "partial")


def checked_isinstance(value: "Any", kinds: "Any") -> bool:
    """``isinstance``, refused where the class of the program's values is not carried over."""
    flat = list(flat_kinds(kinds))
    own = tuple(kind for kind in flat if isinstance(kind, Named))
    if own and is_instance(value, own):
        return True
    # The answer is refused even if another class already fits: it must not depend on the order of classes.
    flat = [kind for kind in flat if kind not in own]
    for kind in flat:
        if not is_carried(kind):
            raise Unsupported(f"to know whether a value is a {getattr(kind, '__name__', kind)}")
    if isinstance(value, Handle):
        return any(is_handle_of(value, kind) for kind in flat)
    return isinstance(value, tuple(flat)) or any(is_number_of_numpy(value, kind) for kind in flat)


def is_handle_of(value: Handle, kind: "Any") -> bool:
    """Whether an object of the program is of a class that says what it can do."""
    name = getattr(kind, "__name__", "")
    if name in ("generator", "Generator"):
        return bool(value.kind_ == "generator")
    if name == "Callable":
        return checked_callable(value)
    if name == "Iterator":
        return bool(value.kind_ in ITERATOR_KINDS or value.kind_.endswith("_iterator"))
    if name == "Iterable":
        return can_iterate(value)
    return kind is object


def can_iterate(value: Handle) -> bool:
    """Whether an object of the program has elements."""
    try:
        iter(value)
    except TypeError:
        return False
    return True


def flat_kinds(kinds: "Any") -> "Iterator[Any]":
    """The classes in nested tuples and unions."""
    parts = kinds.__args__ if isinstance(kinds, UnionType) else kinds
    if not isinstance(parts, tuple):
        yield parts
        return
    for part in parts:
        yield from flat_kinds(part)


def is_carried(kind: "Any") -> bool:
    """Whether a class is carried over with values, is one of the suite itself, or an abstract one."""
    module = getattr(kind, "__module__", "")
    if kind in CARRIED or module == NAME or module in ABSTRACT_MODULES:
        return True
    if isinstance(kind, type) and issubclass(kind, BaseException):
        return True
    return module == "numpy" and (kind.__name__ == "ndarray" or number_base(kind) is not None)


def number_base(kind: type) -> "Any":
    """The plain type of a class of numpy's numbers; None for any other class."""
    # The nearest base comes first: of ``int64`` it is ``integer``.
    names = [base.__name__ for base in kind.__mro__ if base.__name__ in NUMBERS_OF_NUMPY]
    return NUMBERS_OF_NUMPY[names[0]] if names else None


def is_number_of_numpy(value: "Any", kind: "Any") -> bool:
    """Whether a plain number may have been one of numpy's in the program."""
    if not isinstance(kind, type) or kind.__module__ != "numpy":
        return False
    base = number_base(kind)
    return base is not None and isinstance(value, base)


def checked_callable(value: "Any") -> bool:
    """``callable``, of an object of the program by its type."""
    return value.kind_ in CALLABLE_KINDS if isinstance(value, Handle) else callable(value)


# ---- assertions ----


def assertion(function: "Any", name: str, of_first: bool = False, of_second: bool = False) -> "Any":
    """What is called instead of an assertion; whether its arguments are of the program is known from the syntax."""
    reached.asserted = True
    rule.difference = ""
    if isinstance(getattr(function, "__self__", None), unittest.TestCase) and name in OF_UNITTEST:
        return partial(OF_UNITTEST[name], of_first, of_second)
    # numpy has its own tolerances, so it still compares once the shapes agree.
    if name in OF_NUMPY:
        return partial(checked_arrays, function, of_first)
    if name in ("raises", "assertRaises", "assertRaisesRegex"):
        return partial(expecting, function)
    return function


def expecting(function: "Any", *args: "Any", **kwargs: "Any") -> "Any":
    """An assertion that expects an exception; the program's own are known by name, as those of libraries are."""
    # pytest and unittest name the parameter differently.
    keyword = "expected_exception" if "expected_exception" in kwargs else "exception"
    kinds = kwargs[keyword] if keyword in kwargs else args[0]
    expected = tuple(map(expected_kind, kinds)) if isinstance(kinds, tuple) else expected_kind(kinds)
    if keyword in kwargs:
        return function(*args, **{**kwargs, keyword: expected})
    return function(expected, *args[1:], **kwargs)


def expected_kind(kind: "Any") -> "Any":
    """The class of an expected exception, under which one of the program of that name is raised here."""
    if isinstance(kind, Named):
        # The type as which ``proxies.exception_of`` raises an exception whose class has this name.
        return STANDINS.setdefault(kind.name_, type(kind.name_, (Exception,), {}))
    if isinstance(kind, type) and issubclass(kind, Exception) and kind.__module__ != "builtins":
        STANDINS[kind.__name__] = kind
    return kind


def failing(first: "Any", second: "Any", message: "Any", what: str) -> AssertionError:
    """The exception of an assertion of two values."""
    said = rule.difference or f"{shown(first)} {what} {shown(second)}"
    return AssertionError(f"{said}: {message}" if message else said)


def checked_comparison(sign: str, what: str) -> "Callable[..., None]":
    """An assertion that compares as ``assert`` does."""

    def check(of_first: bool, of_second: bool, first: "Any", second: "Any", msg: "Any" = None) -> None:
        if not compare(sign, first, second, of_first, of_second):
            raise failing(first, second, msg, what)

    return check


def checked_kind(kind: type) -> "Callable[..., None]":
    """An assertion that two values of one type are equal."""

    def check(of_first: bool, of_second: bool, first: "Any", second: "Any", msg: "Any" = None) -> None:
        if not isinstance(first, kind) or not isinstance(second, kind):
            rule.difference = ""
            raise failing(first, second, msg, f"is not a {kind.__name__} equal to")
        if not compare("Eq", first, second, of_first, of_second):
            raise failing(first, second, msg, "is not")

    return check


def checked_instance(wanted: bool) -> "Callable[..., None]":
    """``assertIsInstance``, or if not ``wanted`` its opposite."""

    def check(of_first: bool, of_second: bool, obj: "Any", cls: "Any", msg: "Any" = None) -> None:
        if checked_isinstance(obj, cls) is not wanted:
            raise AssertionError(f"{shown_kind(obj)} is {'not ' if wanted else ''}an instance of {cls}")

    return check


def shown_kind(value: "Any") -> str:
    """A value for a message; of an object of the program its type."""
    return f"a {value.kind_}" if isinstance(value, Handle) else shown(value)


OF_UNITTEST: "dict[str, Callable[..., None]]" = {
    "assertEqual": checked_comparison("Eq", "is not"), "assertEquals": checked_comparison("Eq", "is not"),
    "assertNotEqual": checked_comparison("NotEq", "is"), "assertIn": checked_comparison("In", "is not in"),
    "assertNotIn": checked_comparison("NotIn", "is in"), "assertListEqual": checked_kind(list),
    "assertTupleEqual": checked_kind(tuple), "assertDictEqual": checked_kind(dict),
    "assertIsInstance": checked_instance(True), "assertNotIsInstance": checked_instance(False),
}  # fmt: skip
"""Methods of ``TestCase`` that compare values of the program as an ``assert`` does."""
OF_NUMPY = (
    "assert_allclose", "assert_array_equal", "assert_almost_equal", "assert_array_almost_equal", "assert_equal",
)  # fmt: skip
"""Functions of ``numpy.testing`` that would repeat a value until the shapes are equal."""


def checked_arrays(function: "Any", of_first: bool, first: "Any", second: "Any", *args: "Any", **kwargs: "Any") -> None:
    """An assertion of numpy, of values whose shapes agree."""
    actual, expected = (first, second) if of_first else (second, first)
    if not shapes_agree(actual, expected):
        raise AssertionError(f"expected {shown(expected)}, got {shown(actual)}")
    function(first, second, *args, **kwargs)


def shapes_agree(actual: "Any", expected: "Any") -> bool:
    """Whether an expected array has the shape of the program's; an expected number may repeat in one with elements."""
    import numpy

    try:
        shape, wanted = numpy.shape(actual), numpy.shape(expected)
    except ValueError:  # of lists of different lengths
        return False
    return shape == wanted or (wanted == () and 0 not in shape)


# ---- the suite ----


class ProgramModule(ModuleType):
    """The program as the module that a suite imports."""

    def __getattr__(self, name: str) -> "Any":
        if name.startswith("__"):
            raise AttributeError(name)
        return of_program(name)


def of_program(name: str) -> "Any":
    """A name of the program; a constant, by its capital letters, is its value."""
    return ask(f"P[{name!r}]") if name.isupper() and len(name) > 1 else Named(name)


def install(asked: "dict[str, Any]") -> None:
    """Make the modules that the suite imports: pytest, and the program by its names."""
    sys.modules["pytest"] = made_module()
    # Suites end with it; here the runner finds their tests.
    unittest.main = lambda *args, **kwargs: None  # type: ignore[assignment]
    for name in asked["modules"]:
        module = sys.modules[name] = ProgramModule(name)
        module.__all__ = asked["names"]  # type: ignore[attr-defined]
        # import package.module
        owner, _, last = name.rpartition(".")
        if owner:
            setattr(sys.modules.setdefault(owner, ModuleType(owner)), last, module)


def judge_suite(asked: "dict[str, Any]") -> str:
    """Run a suite; the verdict's word and detail."""
    tree = ast.parse(asked["script"], "test.py")
    # Before it is rewritten, which replaces the assertions.
    asserting = asserting_functions(tree)
    # unittest and the runner of pytest's functions find the tests in it.
    module = sys.modules[NAME] = ModuleType(NAME)
    space = vars(module)
    space |= library(set(names_in(tree)) - set(asked["names"]))
    install(asked)
    bound = set(asked["own"]) & set(asked["names"])
    space |= {name: of_program(name) for name in bound}
    space |= {**WATCHED, "__checked__": assertion, "isinstance": checked_isinstance, "callable": checked_callable}
    space["pytest"] = sys.modules["pytest"]
    # Looking at the generators costs time, and imports ``random``.
    if "seed" in asked["script"]:
        proxies.BEFORE_REQUEST.append(Seeds().pass_on)
    prepare(tree, asked["own"])
    execute(tree, rewritten_suite, asked["own"], space)
    outcome = run_suite(module, asserting)
    if outcome.error is not None:
        return verdict_of(outcome.error, "" if outcome.failed == asked["excerpt"] else outcome.failed)
    if not outcome.passed:
        return "broken all tests are skipped"
    if not state.calls:
        return "broken it calls nothing of the program"
    return verdict_at_end()


def verdict_of(error: BaseException, test: str = "") -> str:
    """The verdict where a test, or the suite itself, ended with an exception."""
    name = f"{test}: " if test else ""
    if error is state.raised:
        return "raised"
    if isinstance(error, ImportError) and error.name:
        return f"broken the tests import {error.name}, which is not installed for programs"
    detail = f"{type(error).__name__}: {error}"[:MAX_DETAIL]
    if isinstance(error, CannotSend | ImportError) or not state.calls:
        return f"broken {detail}"
    if isinstance(error, AssertionError):
        lines = str(error).strip().splitlines()
        said = rule.difference or (lines[0] if lines else f"it is false for {described(state.returned)}")
        return f"failed {name}{said}"[:MAX_DETAIL]
    return f"failed {name}it cannot be evaluated where the call returns {described(state.returned)}: {detail}"


class Seeds:
    """Passes the state of the generators of random numbers on to the program where the suite has set them."""

    def __init__(self) -> None:
        self._states = {"random": self._state("random")}

    def pass_on(self) -> None:
        """Set the program's generators to what the suite has changed since the last call."""
        for name in ("random", "numpy.random"):
            if name in sys.modules and (now := self._state(name)) != self._states.get(name):
                self._states[name] = now
                module, _, inner = name.partition(".")
                setter = f"N({module!r}, {inner!r}).set_state" if inner else f"N({module!r}, 'setstate')"
                exchange(f"{setter}({written(now)})")

    @staticmethod
    def _state(name: str) -> "Any":
        """The state of a generator as plain data."""
        module = sys.modules.get(name) or __import__(name)
        if name == "random":
            return module.getstate()
        kind, keys, *more = module.get_state()
        return (kind, keys.tolist(), *more)


def exchange(request: str) -> None:
    """Send a request whose reply says nothing."""
    send(f"?{request}")
    receive()


gc.collect()
gc.freeze()


def main() -> None:
    """Judge a suite."""
    report(judge_suite, verdict_of)
