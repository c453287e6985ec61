"""Finds and runs the tests of a suite: unittest's own loader and runner, and a small one for pytest's functions.

Runs inside the judge's sandbox. The first test that fails ends the run. A test passes if it ends without an exception,
and reaches an assertion if it has one; all must pass, and one must have run.
"""

import inspect
import unittest
from itertools import groupby
from types import ModuleType

from magcli.verify.code.comparing import rule
from magcli.verify.code.proxies import state
from magcli.verify.code.pytest_standin import MARKS, ExpectedFailure, Fixture, Mark, Parameters, Unsupported
from magcli.verify.code.reaching import reached

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

MAX_RUNS = 10_000
"""Runs of one parametrised test."""


class Outcome:
    """What the tests so far came to; of unittest the result that its tests report to.

    ``failed`` is the name of the first test that failed, and ``error`` its exception.
    """

    def __init__(self, asserting: "set[str]") -> None:
        self.asserting = asserting
        self.passed = 0
        self.failed = ""
        self.error: BaseException | None = None
        self.shouldStop = False
        self._calls = 0

    def start(self) -> None:
        """Before a test."""
        reached.asserted = False
        rule.difference = ""
        self._calls = state.calls

    def succeed(self, name: str) -> None:
        """After a test that ended without an exception."""
        # By the name of the function: that of a method follows the name of its class.
        if name.rpartition(".")[2] in self.asserting and not reached.asserted:
            self.fail(name, AssertionError("no assertion is reached"))
        else:
            self.passed += 1

    def skip(self, name: str) -> None:
        """A test was skipped; it fails if the program can have caused it."""
        if state.calls > self._calls:
            self.fail(name, AssertionError("skipped after the program was called"))

    def fail(self, name: str, error: BaseException) -> None:
        """A test failed, and ends the run."""
        if not self.failed:
            self.failed, self.error = name, error
        self.shouldStop = True

    # What unittest calls.

    def startTest(self, test: unittest.TestCase) -> None:
        """Before a test."""
        self.start()

    def stopTest(self, test: unittest.TestCase) -> None:
        """After a test; a final verdict ends the run."""
        self.shouldStop = self.shouldStop or bool(state.final)

    def addSuccess(self, test: unittest.TestCase) -> None:
        """A test ended without an exception."""
        self.succeed(name_of(test))

    def addError(self, test: unittest.TestCase, error: "Any") -> None:
        """A test, or the set-up of a class or module, ended with an exception."""
        # ``error`` is what ``sys.exc_info`` returns: type, exception, traceback.
        self.fail(name_of(test), error[1])

    addFailure = addError

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        """A test was skipped."""
        self.skip(name_of(test))

    def addExpectedFailure(self, test: unittest.TestCase, error: "Any") -> None:
        """Counts as not run."""

    def addUnexpectedSuccess(self, test: unittest.TestCase) -> None:
        """A test passed that was expected to fail."""
        self.fail(name_of(test), AssertionError("passes although it is expected to fail"))

    def addSubTest(self, test: unittest.TestCase, part: unittest.TestCase, error: "Any") -> None:
        """A part of a test ended."""
        if error is not None:
            self.fail(name_of(test), error[1])


def name_of(test: unittest.TestCase) -> str:
    """Class and method of a test; what unittest calls a failed set-up of a class or module."""
    method = getattr(test, "_testMethodName", "")
    return f"{type(test).__name__}.{method}" if method else str(test)


def run_suite(module: ModuleType, asserting: "set[str]") -> Outcome:
    """Run all tests of an executed suite; ``asserting`` are the names of functions that assert something."""
    outcome = Outcome(asserting)
    # unittest first, then pytest's functions and classes; the first failure ends both.
    cases = [kind for kind in classes_of(module) if issubclass(kind, unittest.TestCase)]
    loader = unittest.defaultTestLoader
    suite = unittest.TestSuite(map(loader.loadTestsFromTestCase, cases))
    suite.run(outcome)  # type: ignore[arg-type]
    if not outcome.shouldStop:
        run_functions(module, outcome)
    return outcome


def classes_of(module: ModuleType) -> "list[type]":
    """The classes that a suite defines, in its order."""
    # Once each, as a class may have several names.
    values = list(dict.fromkeys(value for value in vars(module).values() if isinstance(value, type)))
    return [value for value in values if value.__module__ == module.__name__]


# ---- pytest ----


class Item:
    """A test function or method, with the class of the method and all marks that it has."""

    def __init__(self, name: str, function: "Callable[..., Any]", owner: "type | None", marks: "list[Mark]") -> None:
        self.name, self.function, self.owner = name, function, owner
        self.marks = marks

    def marked(self, name: str) -> "list[Mark]":
        """Its marks of a name."""
        return [mark for mark in self.marks if mark.name == name]


def marks_of(target: "Any") -> "list[Mark]":
    """The marks of a function, class or module."""
    # Not those of base classes, which ``items_of`` adds.
    stated = vars(target).get(MARKS, [])
    return list(stated) if isinstance(stated, list | tuple) else [stated]


def items_of(module: ModuleType) -> "Iterator[Item]":
    """The tests of a module, in its order."""
    shared = marks_of(module)
    for name, value in list(vars(module).items()):
        if name.startswith("test") and inspect.isfunction(value):
            yield Item(name, value, None, [*shared, *marks_of(value)])
    for kind in classes_of(module):
        if not kind.__name__.startswith("Test") or issubclass(kind, unittest.TestCase):
            continue
        methods: dict[str, Any] = {}
        of_class: list[Mark] = []
        # From the most general class on, so that a method replaces those that it overrides.
        for base in reversed(kind.__mro__):
            if base is not object:
                methods.update({name: method for name, method in vars(base).items() if name.startswith("test")})
                of_class += marks_of(base)
        for name, method in methods.items():
            function = method.__func__ if isinstance(method, staticmethod | classmethod) else method
            if inspect.isfunction(function):
                yield Item(f"{kind.__name__}.{name}", function, kind, [*shared, *of_class, *marks_of(function)])


def run_functions(module: ModuleType, outcome: Outcome) -> None:
    """Run the tests of pytest's form."""
    with_scope = Fixtures(module)
    items = list(items_of(module))
    try:
        if items:
            call_hook(module, "setup_module", module)
        # The tests of a class are next to each other.
        for owner, tests in groupby(items, key=lambda item: item.owner):
            if outcome.shouldStop:
                return
            if owner is not None:
                call_hook(owner, "setup_class", owner)
            for item in tests:
                # After a failure nothing is run any more, not even the tear-down of a class that has further tests.
                if outcome.shouldStop:
                    return
                run_item(item, with_scope, outcome)
            if owner is not None:
                with_scope.close("class")
                call_hook(owner, "teardown_class", owner)
        with_scope.close("module")
        if items:
            call_hook(module, "teardown_module", module)
    except Exception as error:
        outcome.fail("the tests' set-up", error)


def call_hook(owner: "Any", name: str, *args: "Any") -> None:
    """Call a set-up or tear-down function, with as many of the arguments as it takes."""
    hook = getattr(owner, name, None)
    # ``setup_method`` may take the test's function, or nothing.
    if hook is not None and not isinstance(hook, Fixture):
        count = len(inspect.signature(hook).parameters)
        hook(*args[:count])


def is_skipped(marks: "list[Mark]") -> bool:
    """Whether marks say that a test is not run, or that it is expected to fail."""
    for mark in marks:
        # xfail without a condition always holds.
        condition = mark.args[0] if mark.args else mark.kwargs.get("condition", True)
        if mark.name == "skip":
            return True
        if mark.name in ("skipif", "xfail") and condition:
            return True
    return False


def run_item(item: Item, fixtures: "Fixtures", outcome: Outcome) -> None:
    """Run a test with all its parameters."""
    for number, (parameters, marks) in enumerate(parameter_sets(item)):
        if number >= MAX_RUNS:
            raise Unsupported(f"more than {MAX_RUNS:,} runs of {item.name}")
        if is_skipped([*item.marks, *marks]):
            continue
        for chosen in fixtures.variants(item, parameters):
            run_once(item, {**parameters}, chosen, fixtures, outcome)
            if outcome.shouldStop or state.final:
                outcome.shouldStop = True
                return


def run_once(
    item: Item, parameters: "dict[str, Any]", chosen: "dict[str, Any]", fixtures: "Fixtures", outcome: Outcome
) -> None:
    """Run a test once: set-up, fixtures, the test, tear-down."""
    outcome.start()
    try:
        # A new object for each run, as in pytest: what a test sets on it is gone for the next.
        instance = item.owner() if item.owner else None
        owner, kind = (fixtures.module, "function") if instance is None else (instance, "method")
        call_hook(owner, f"setup_{kind}", item.function)
        values = fixtures.arguments(item, parameters, chosen, instance)
        try:
            item.function(*([instance] if instance is not None else []), **values)
        finally:
            fixtures.close("function")
            call_hook(owner, f"teardown_{kind}", item.function)
    except (unittest.SkipTest, ExpectedFailure):
        outcome.skip(item.name)
    except Exception as error:
        outcome.fail(item.name, error)
    else:
        outcome.succeed(item.name)


def parameter_sets(item: Item) -> "list[tuple[dict[str, Any], list[Mark]]]":
    """The parameters of each run of a test, and their marks: all combinations of its marks ``parametrize``."""
    # From the outermost decorator inwards; its parameters vary slowest.
    sets: list[tuple[dict[str, Any], list[Mark]]] = [({}, [])]
    for mark in reversed(item.marked("parametrize")):
        if mark.kwargs.get("indirect"):
            raise Unsupported("indirect parameters")
        stated = mark.args[0] if mark.args else mark.kwargs["argnames"]
        rows = mark.args[1] if len(mark.args) > 1 else mark.kwargs["argvalues"]
        names = [name.strip() for name in stated.split(",")] if isinstance(stated, str) else list(stated)
        choices = [parameters_of(names, row) for row in rows]
        sets = [
            ({**values, **more_values}, [*marks, *more_marks])
            for values, marks in sets
            for more_values, more_marks in choices
        ]
    return sets


def parameters_of(names: "list[str]", row: "Any") -> "tuple[dict[str, Any], list[Mark]]":
    """The parameters of one row of ``parametrize``, and its marks."""
    if not isinstance(row, Parameters):
        # A single parameter gets the row itself, even if that is a tuple.
        row = Parameters(row) if len(names) == 1 else Parameters(*tuple(row))
    values = row.values
    if len(values) != len(names):
        raise ValueError(f"parametrize has {len(names)} names but {len(values)} values")
    return dict(zip(names, values, strict=True)), row.marks


class Request:
    """The fixture ``request``."""

    def __init__(self, param: "Any", finalizers: "list[Callable[[], Any]]") -> None:
        self.param = param
        self._finalizers = finalizers

    def addfinalizer(self, function: "Callable[[], Any]") -> None:
        """Call a function after the test."""
        self._finalizers.append(function)

    def __getattr__(self, name: str) -> "Any":
        raise Unsupported(f"request.{name}")


class Fixtures:
    """The fixtures of a suite, and the values that they have made, by scope."""

    def __init__(self, module: ModuleType) -> None:
        self.module = module
        self._of_module = self._named(module)
        self._values: dict[str, dict[str, Any]] = {"function": {}, "class": {}, "module": {}}
        self._finalizers: dict[str, list[Callable[[], Any]]] = {"function": [], "class": [], "module": []}

    @staticmethod
    def _named(owner: "Any") -> "dict[str, Fixture]":
        return {value.name: value for value in vars(owner).values() if isinstance(value, Fixture)}

    def of(self, item: Item) -> "dict[str, Fixture]":
        """The fixtures that a test can use: those of its class replace those of the module."""
        fixtures = dict(self._of_module)
        for base in reversed(item.owner.__mro__ if item.owner else ()):
            fixtures |= self._named(base)
        return fixtures

    def needed(self, item: Item, parameters: "dict[str, Any]") -> "list[str]":
        """The names of the fixtures that a test needs, themselves or by other fixtures."""
        fixtures = self.of(item)
        # First what is used for all tests, then what marks name, then the parameters: the order of set-up.
        waiting = [name for name, one in fixtures.items() if one.autouse]
        waiting += [name for mark in item.marked("usefixtures") for name in mark.args]
        waiting += [name for name in parameters_named(item.function, bool(item.owner)) if name not in parameters]
        needed: dict[str, None] = {}  # a set in order
        while waiting:
            name = waiting.pop(0)
            if name in needed or name == "request":
                continue
            if name not in fixtures:
                raise Unsupported(f"the fixture {name!r}, which the tests do not define")
            needed[name] = None
            waiting += [one for one in fixture_parameters(fixtures[name]) if one not in parameters]
        return list(needed)

    def variants(self, item: Item, parameters: "dict[str, Any]") -> "list[dict[str, Any]]":
        """The combinations of parameters of the fixtures that a test needs, by the name of the fixture."""
        fixtures = self.of(item)
        # The product of the parameters of its fixtures: each multiplies the runs.
        variants: list[dict[str, Any]] = [{}]
        for name in self.needed(item, parameters):
            params = fixtures[name].params
            if params is not None:
                values = [one.values[0] if isinstance(one, Parameters) else one for one in params]
                variants = [{**before, name: value} for before in variants for value in values]
        return variants

    def arguments(
        self, item: Item, parameters: "dict[str, Any]", chosen: "dict[str, Any]", instance: "Any"
    ) -> "dict[str, Any]":
        """The arguments of a test: its parameters, and the values of its fixtures."""
        fixtures = self.of(item)
        values = {}
        for name in self.needed(item, parameters):
            values[name] = self._value(name, fixtures, parameters, chosen, instance)
        wanted = parameters_named(item.function, bool(item.owner))
        request = Request(None, self._finalizers["function"])
        return {name: {"request": request, **values, **parameters}[name] for name in wanted}

    def _value(
        self,
        name: str,
        fixtures: "dict[str, Fixture]",
        parameters: "dict[str, Any]",
        chosen: "dict[str, Any]",
        instance: "Any",
    ) -> "Any":
        """The value of a fixture, made once in its scope; again where it is chosen by another parameter."""
        if name in parameters:
            return parameters[name]
        one = fixtures[name]
        # A suite is one module, so package and session are the same.
        scope = one.scope if one.scope in self._values else "module"
        # A fixture of a class may replace one of its name, and each parameter has a value of its own.
        key = f"{name} {id(one)} {id(chosen.get(name))}"
        made = self._values[scope]
        if key not in made:
            finalizers = self._finalizers[scope]
            arguments: dict[str, Any] = {}
            for other in fixture_parameters(one):
                if other == "request":
                    arguments[other] = Request(chosen.get(name), finalizers)
                else:
                    arguments[other] = self._value(other, fixtures, parameters, chosen, instance)
            owners = [instance] if takes_self(one) else []
            made[key] = self._start(one.function(*owners, **arguments), finalizers)
        return made[key]

    @staticmethod
    def _start(value: "Any", finalizers: "list[Callable[[], Any]]") -> "Any":
        """The value of a fixture; of a generator its first one, the rest runs after the test."""
        if not inspect.isgenerator(value):
            return value
        first = next(value)
        # None instead of StopIteration where it has no second ``yield``.
        finalizers.append(lambda: next(value, None))
        return first

    def close(self, scope: str) -> None:
        """End the fixtures of a scope, last made first."""
        finalizers = self._finalizers[scope]
        while finalizers:
            finalizers.pop()()
        self._values[scope].clear()


def parameters_named(function: "Callable[..., Any]", is_method: bool) -> "list[str]":
    """The names of the parameters that a test needs a value for."""
    # Without ``self``: functions come from the class, not bound to an object.
    parameters = list(inspect.signature(function).parameters.values())[int(is_method) :]
    return [
        one.name
        for one in parameters
        if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    ]


def takes_self(one: Fixture) -> bool:
    """Whether a fixture is a method."""
    return next(iter(inspect.signature(one.function).parameters), "") == "self"


def fixture_parameters(one: Fixture) -> "list[str]":
    """The names of the fixtures that a fixture needs."""
    return parameters_named(one.function, takes_self(one))
