"""What test suites use of pytest, as a module of that name: marks, parameters, fixtures, ``raises`` and ``approx``.

Runs inside the judge's sandbox. What it lacks is named by ``Unsupported``, which makes the suite a bad test.
"""

import unittest
from types import ModuleType

from magcli.verify.code.comparing import Approx
from magcli.verify.code.proxies import state
from magcli.verify.code.reaching import Raises, fail

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, NoReturn

MARKS = "pytestmark"
"""Where pytest, too, keeps the marks of a function, class or module."""
SCOPES = ("function", "class", "module", "package", "session")


class Unsupported(BaseException):
    """The suite needs what the judge lacks. No ``Exception``, so that no test catches it; the verdict is final."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        state.final = state.final or f"broken the unit tests need {what}"


class ExpectedFailure(Exception):
    """A test says that it is expected to fail."""


class Mark:
    """A mark such as ``pytest.mark.skipif(condition)``, and the decorator that sets it."""

    def __init__(self, name: str, args: "tuple[Any, ...]" = (), kwargs: "dict[str, Any] | None" = None) -> None:
        self.name = name
        self.args = args
        self.kwargs = kwargs or {}

    def __call__(self, *args: "Any", **kwargs: "Any") -> "Any":
        # A mark is called with its arguments first, if it has any, and then with what it decorates.
        has_arguments = bool(self.args or self.kwargs)
        if len(args) == 1 and not kwargs and (has_arguments or callable(args[0])):
            target = args[0]
            setattr(target, MARKS, [*vars(target).get(MARKS, ()), self])
            return target
        return Mark(self.name, args, kwargs)


class Marks:
    """``pytest.mark``."""

    def __getattr__(self, name: str) -> Mark:
        if name in ("asyncio", "anyio", "trio"):
            raise Unsupported("asynchronous tests")
        return Mark(name)


class Parameters:
    """``pytest.param``: the values of one run of a parametrised test, its name and its marks."""

    def __init__(self, *values: "Any", id: "str | None" = None, marks: "Any" = ()) -> None:
        self.values = values
        self.id = id
        self.marks: list[Mark] = list(marks) if isinstance(marks, list | tuple) else [marks]


class Fixture:
    """A function that makes a value for tests, which name it as a parameter."""

    def __init__(
        self,
        function: "Callable[..., Any]",
        scope: str = "function",
        params: "Sequence[Any] | None" = None,
        autouse: bool = False,
        ids: "Any" = None,
        name: "str | None" = None,
    ) -> None:
        if scope not in SCOPES:
            raise Unsupported(f"a fixture of scope {scope!r}")
        self.function = function
        self.scope = scope
        self.params = None if params is None else list(params)
        self.autouse = autouse
        self.name: str = name or function.__name__


def fixture(function: "Callable[..., Any] | None" = None, **options: "Any") -> "Any":
    """``pytest.fixture``, with or without options."""
    if function is not None:
        return Fixture(function, **options)
    return lambda decorated: Fixture(decorated, **options)


def raises(*args: "Any", **options: "Any") -> "Any":
    """``pytest.raises`` as a context manager, or with the function that must raise."""
    kinds = options.pop("expected_exception", None) or args[0]
    # pytest.raises(ValueError, f, 1)
    if len(args) > 1 and callable(args[1]):
        with Raises(kinds) as raised:
            args[1](*args[2:], **options)
        return raised
    return Raises(kinds, match=options.get("match") or "")


def skip(reason: str = "", **options: "Any") -> "NoReturn":
    """``pytest.skip``."""
    raise unittest.SkipTest(reason)


def xfail(reason: str = "") -> "NoReturn":
    """``pytest.xfail``."""
    raise ExpectedFailure(reason)


def importorskip(name: str, *args: "Any", **options: "Any") -> "Any":
    """``pytest.importorskip``; a missing package is named, as the program may need it, too."""
    # __import__("a.b") returns a.
    module = __import__(name)
    for part in name.split(".")[1:]:
        module = getattr(module, part)
    return module


class Pytest(ModuleType):
    """The module; what it lacks is unsupported."""

    def __getattr__(self, name: str) -> "Any":
        if name.startswith("__"):
            raise AttributeError(name)
        raise Unsupported(f"pytest.{name}")


def made_module() -> ModuleType:
    """The stand-in for pytest."""
    module = Pytest("pytest")
    # Suites catch it by this name.
    skip.Exception = unittest.SkipTest  # type: ignore[attr-defined]
    vars(module).update(
        approx=Approx, raises=raises, fixture=fixture, mark=Marks(), param=Parameters, skip=skip, fail=fail,
        xfail=xfail, importorskip=importorskip, main=lambda *args, **options: 0,
    )  # fmt: skip
    return module
