"""What the driver needs for objects of a program and replaced streams: loaded by ``driver.py`` when a script asks.

Runs inside the program's sandbox, without magcli.
"""

import builtins
import io
import sys
from collections import deque
from functools import partial

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

OBJECTS: "list[Any]" = []
"""The program's objects that the judge has; the driver's own list."""
DRIVER: "dict[str, Callable[..., Any]]" = {}
"""The driver's ``text_of`` and ``send``."""

MAX_COMPARED = 50
"""Objects with which one is compared to find out whether its equality tells any apart."""


# ---- equality and order ----


class Stranger:
    """An object that no object of a program equals."""


def equal(one: "Any", other: "Any") -> "bool | None":
    """Whether two objects are equal as the program says; None if its equality tells no objects apart."""
    # Python's own equality is identity, which tells all objects apart.
    if all(type(value).__dict__.get("__eq__", type(value).__eq__) is object.__eq__ for value in (one, other)):
        return one is other
    is_equal = one == other  # not by !=, which may say something else
    if not is_equal:
        return False
    return True if tells_apart(one) else None


def tells_apart(value: "Any") -> bool:
    """Whether the equality of an object tells it from a stranger, and from a similar object of its class."""
    if holds(lambda: value == Stranger()):
        return False
    # Objects without attributes, or that cannot be copied, have no variants: others of their class must do.
    similar = [made for made in OBJECTS[-MAX_COMPARED:] if type(made) is type(value)]
    return any(not holds(partial(is_same, value, made)) for made in (*variants(value), *similar))


def is_same(one: "Any", other: "Any") -> "Any":
    """What the program says of two objects."""
    return one == other


def holds(condition: "Callable[[], object]") -> bool:
    """Whether a condition holds; not if it raises an exception."""
    try:
        return bool(condition())
    except Exception:
        return False


def variants(value: "Any") -> "list[Any]":
    """Copies of an object of which one attribute has another value."""
    names = [*getattr(value, "__dict__", ())]
    # ``__slots__`` may be a single name.
    for base in type(value).__mro__:
        slots = base.__dict__.get("__slots__", ())
        names.extend([slots] if isinstance(slots, str) else slots)
    return [changed for name in names if (changed := variant(value, name)) is not None]


def variant(value: "Any", name: str) -> "Any":
    """A copy of an object with another value of an attribute; None if there is none."""
    import copy

    try:
        made = copy.copy(value)
        # Past a __setattr__ of the class, as of a frozen dataclass.
        object.__setattr__(made, name, other_value(getattr(value, name)))
    except Exception:
        return None
    return made


def other_value(value: "Any") -> "Any":
    """A value of the same type that differs; a stranger for objects."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float | complex):
        return value + 1
    if isinstance(value, str):
        return value + "x"
    if isinstance(value, list | tuple):
        return type(value)([*value, 0])
    if isinstance(value, dict):
        return {**value, "another": 0}
    if isinstance(value, set | frozenset):
        return value | {"another"}
    return Stranger()


ORDERS: "dict[str, Callable[[Any, Any], Any]]" = {
    "<": lambda one, other: one < other,
    "<=": lambda one, other: one <= other,
    ">": lambda one, other: one > other,
    ">=": lambda one, other: one >= other,
}


def in_order(sign: str, one: "Any", other: "Any") -> "bool | None":
    """Whether two objects are in an order as the program says; None if they would be in the opposite one, too."""
    order = ORDERS[sign]
    if not order(one, other):
        return False
    if not holds(lambda: order(other, one)):
        return True
    # Both orders hold of equal objects, for signs with "=".
    return True if sign.endswith("=") and equal(one, other) else None


def contains(container: "Any", value: "Any") -> "bool | None":
    """Whether an object contains a value as the program says; None if it contains a stranger, too."""
    if value not in container:
        return False
    return None if holds(lambda: Stranger() in container) else True


# ---- contexts ----


def leave_context(manager: "Any", name: str, args: "tuple[Any, ...]") -> bool:
    """Leave a context manager with an exception of the script; whether it suppresses it."""
    kind = getattr(builtins, name, None)
    if not isinstance(kind, type) or not issubclass(kind, BaseException):
        kind = type(name, (Exception,), {})
    error = kind(*args)
    return bool(manager.__exit__(kind, error, None))


# ---- iterators and changed arguments ----


def some(source: "Any", most: int) -> "tuple[list[Any], bool]":
    """The next elements of an iterator, and whether it has ended."""
    items: list[Any] = []
    while len(items) < most:
        try:
            items.append(next(source))
        except StopIteration:
            return items, True
    return items, False


def text_with_references(value: "Any", numbers: "dict[int, int]") -> str:
    """The content of a changed container, in which others that the judge has are numbers of theirs."""
    if isinstance(value, dict):
        pairs = [f"[{DRIVER['text_of'](key)},{text_or_reference(item, numbers)}]" for key, item in dict.items(value)]
        return f'{{"dict":[{",".join(pairs)}]}}'
    if type(value) is set or type(value) is bytearray:
        return str(DRIVER["text_of"](value))
    items = value if isinstance(value, list | tuple | deque) else value.tolist()
    return f"[{','.join([text_or_reference(item, numbers) for item in items])}]"


def text_or_reference(value: "Any", numbers: "dict[int, int]") -> str:
    """A value in a changed container."""
    # The judge keeps the identity of what it has sent.
    if id(value) in numbers:
        return f'{{"sent":{numbers[id(value)]}}}'
    if type(value) is tuple:
        return f'{{"tuple":{text_with_references(value, numbers)}}}'
    return text_with_references(value, numbers) if type(value) in (list, dict) else DRIVER["text_of"](value)


# ---- streams ----


class Lines(io.TextIOBase):
    """A stdin whose lines come from the script."""

    def __init__(self, read: "Callable[..., str]", readline: "Callable[..., str]") -> None:
        self._read, self._readline = read, readline

    def readable(self) -> bool:
        """It can be read."""
        return True

    def read(self, size: "int | None" = -1) -> str:
        """What is left, or so many characters."""
        return self._read(-1 if size is None else size)

    def readline(self, size: int = -1) -> str:  # type: ignore[override]
        """The next line."""
        return self._readline(size)


def redirected(
    captured: "list[str]", functions: "dict[str, Any]", stdin: "tuple[Any, Any] | None", run: "Callable[[], Any]"
) -> "Any":
    """The value of a call while streams are those of the script.

    Args:
        captured: ``stdout`` or ``stderr``; what the program writes there is sent to the script.
        functions: Builtin functions that the script has replaced.
        stdin: How the script's stdin is read, if it has replaced it.
        run: Makes the call.
    """
    # With ``newline=""`` line ends arrive as they were written.
    streams: dict[str, Any] = {name: io.TextIOWrapper(io.BytesIO(), "utf-8", newline="") for name in captured}
    if stdin is not None:
        streams["stdin"] = Lines(*stdin)
    streams_before = {name: getattr(sys, name) for name in streams}
    functions_before = {name: getattr(builtins, name) for name in functions}
    vars(sys).update(streams)
    vars(builtins).update(functions)
    try:
        return run()
    finally:
        vars(sys).update(streams_before)
        vars(builtins).update(functions_before)
        for name in captured:
            streams[name].flush()
            written = streams[name].buffer.getvalue().decode("utf-8", "replace")
            if written:
                DRIVER["send"](f"printed {DRIVER['text_of']((name, written))}")
