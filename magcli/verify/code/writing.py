"""Values of a test's script as text for the program's driver, which evaluates it.

Runs inside the judge's sandbox, without magcli. What the program may change has a number in the request, so that its
changes come back to the same object here. A function is known to the program by its number, and so is an object of a
class of the script, whose attributes are sent with each request that has it.
"""

import datetime
import itertools
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from types import BuiltinFunctionType, MethodDescriptorType, ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

EAGER_ITEMS = 1_000
"""Elements of an iterator that are sent at once; the program asks for each further one."""
SCRIPT = "test"
"""The script's module, and so that of its classes."""


class CannotSend(TypeError):
    """A value of the script cannot be sent to the program."""


class Passing:
    """What the current request sends.

    ``sent``: what the program may change, by number; ``numbers``: those by identity, None while one is written;
    ``things``: objects of the script's classes, by number.
    """

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.numbers: dict[int, int | None] = {}
        self.things: dict[int, Any] = {}


passing = Passing()
FUNCTIONS: "list[Callable[..., Any]]" = []
"""Functions of the script that were passed to the program."""
THINGS: "list[Any]" = []
"""Objects of the script's classes that were passed to the program."""
CLASSES: "dict[str, str]" = {}
"""The source of the script's classes."""


def begin_request() -> None:
    """Nothing is sent yet."""
    passing.sent, passing.numbers, passing.things = [], {}, {}


def written(value: "Any") -> str:
    """A value as an expression that the driver evaluates; raises CannotSend."""
    kind = type(value)
    if kind in ATOMS:
        return ATOMS[kind](value)
    if kind in CHANGEABLE:
        return written_kept(value, CHANGEABLE[kind])
    if isinstance(value, type | BuiltinFunctionType) and is_of_library(value):
        return f"N({value.__module__!r}, {value.__name__!r})"
    if isinstance(value, MethodDescriptorType) and value.__objclass__.__module__ == "builtins":
        return f"N('builtins', {value.__objclass__.__name__!r}).{value.__name__}"
    if kind.__module__ == "numpy" and hasattr(value, "tolist"):
        return written_array(value)
    if isinstance(value, Iterator):
        return written_iterator(value)
    # A named tuple of the script, or a ``Record``, which is one of the program.
    # Its class is made again where the program is, by the same names.
    fields = getattr(value, "_fields", getattr(value, "fields_", None)) if isinstance(value, tuple) else None
    if fields is not None:
        return f"N('collections','namedtuple')({kind.__name__!r},{fields!r})" + written_items("(", value, ")")
    if kind.__module__ == "zoneinfo" and getattr(value, "key", None):
        return f"N('zoneinfo', 'ZoneInfo')({value.key!r})"
    if callable(value) and not isinstance(value, ModuleType):
        FUNCTIONS.append(value)
        return f"L({len(FUNCTIONS) - 1})"
    if kind.__module__ == SCRIPT and kind.__name__ in CLASSES and hasattr(value, "__dict__"):
        return written_thing(value)
    raise CannotSend(f"a {kind.__name__} cannot be passed to the program")


def written_kept(value: "Any", write: "Callable[[Any], str]") -> str:
    """A value that the program may change, once in a request."""
    # -1: not sent yet.
    known_as = passing.numbers.get(id(value), -1)
    if known_as is None:
        raise CannotSend("a value that contains itself cannot be passed to the program")
    if known_as >= 0:
        return f"R({known_as})"
    passing.numbers[id(value)] = None
    text = write(value)
    number = passing.numbers[id(value)] = len(passing.sent)
    passing.sent.append(value)
    return f"K({number},{text})"


def is_of_library(value: "Any") -> bool:
    """Whether a class or function is one of the standard library, of which the program calls its own."""
    module = value.__module__
    if not isinstance(module, str) or module.partition(".")[0] not in sys.stdlib_module_names or "." in module:
        return False
    return getattr(sys.modules.get(module), value.__name__, None) is value


def written_array(value: "Any") -> str:
    """An array or a number of numpy."""
    kind = type(value)
    if kind.__name__ != "ndarray":
        return f"N('numpy', {kind.__name__!r})({written(value.tolist())})"
    return written_kept(value, lambda array: f"N('numpy', 'array')({written(array.tolist())}, {str(array.dtype)!r})")


def written_iterator(value: "Iterator[Any]") -> str:
    """The elements that an iterator has left; those of a long one on demand."""
    items = list(itertools.islice(value, EAGER_ITEMS))
    text = written_items("[", items, "]")
    if len(items) < EAGER_ITEMS:
        return f"N('builtins', 'iter')({text})"
    # One element in a tuple, or none at the end: see ``driver.iterator``.
    FUNCTIONS.append(lambda: tuple(itertools.islice(value, 1)))
    return f"N('itertools', 'chain')({text},I({len(FUNCTIONS) - 1}))"


def written_thing(value: "Any") -> str:
    """An object of a class of the script."""
    number = next((number for number, made in enumerate(THINGS) if made is value), len(THINGS))
    if number == len(THINGS):
        THINGS.append(value)
    passing.things[number] = value
    name = type(value).__name__
    return f"O({number},{name!r},{CLASSES[name]!r})"


def with_things(request: str) -> str:
    """A request that first gives the attributes of the script's objects that it sends."""
    if not passing.things:
        return request
    texts: dict[int, str] = {}
    # Attributes may be further objects, which are then sent, too.
    while waiting := passing.things.keys() - texts:
        for number in sorted(waiting):
            value = passing.things[number]
            texts[number] = f"({written(value)},{written_dict(vars(value))})"
    return f"with_things([{','.join(texts.values())}],lambda:{request})"


def written_float(value: float) -> str:
    """Exactly."""
    text = repr(value)
    return text if text[-1].isdigit() else f"F({text!r})"


def written_items(opening: str, items: "Iterable[Any]", closing: str) -> str:
    """Elements between brackets."""
    return opening + "".join([f"{written(item)}," for item in items]) + closing


def written_dict(value: "dict[Any, Any]") -> str:
    """In its order."""
    return "{" + "".join([f"{written(key)}:{written(item)}," for key, item in value.items()]) + "}"


def written_reduced(value: "Any") -> str:
    """A date or time, by the call that makes it."""
    # As for pickling: the class and its arguments.
    maker, args = value.__reduce__()[:2]
    return f"N({maker.__module__!r}, {maker.__qualname__!r}){written_items('(', args, ')')}"


def written_timezone(value: "Any") -> str:
    """A fixed offset, with its name if it has one."""
    return "N('datetime', 'timezone')" + written_items("(", value.__getinitargs__(), ")")


VIEWS: "tuple[type, ...]" = (type({}.keys()), type({}.values()), type({}.items()))
ATOMS: "dict[type, Callable[[Any], str]]" = {
    type(None): repr, bool: repr, str: repr, bytes: repr, float: written_float, type(...): repr,
    int: lambda value: str(value) if -(1 << 53) < value < 1 << 53 else hex(value),
    complex: lambda value: f"C({written_float(value.real)},{written_float(value.imag)})",
    tuple: lambda value: written_items("(", value, ")"),
    frozenset: lambda value: written_items("Z((", value, "))"), range: repr,
    slice: lambda value: f"N('builtins', 'slice'){written_items('(', (value.start, value.stop, value.step), ')')}",
    Fraction: lambda value: f"N('fractions', 'Fraction')({value.numerator},{value.denominator})",
    Decimal: lambda value: f"N('decimal', 'Decimal')({str(value)!r})",
    # The views of keys and of items compare as sets; that of values, which equals no other, is sent as a list.
    **dict.fromkeys(VIEWS, lambda value: f"{written_dict(dict.fromkeys(value))}.keys()"),
    VIEWS[1]: lambda value: written_items("[", value, "]"),
    **dict.fromkeys((datetime.date, datetime.datetime, datetime.time, datetime.timedelta), written_reduced),
    datetime.timezone: written_timezone,
}  # fmt: skip
"""Writers of what the program cannot change."""
CHANGEABLE: "dict[type, Callable[[Any], str]]" = {
    list: lambda value: written_items("[", value, "]"), set: lambda value: written_items("S((", value, "))"),
    dict: written_dict, bytearray: lambda value: f"N('builtins', 'bytearray')({bytes(value)!r})",
    deque: lambda value: f"N('collections', 'deque')({written_items('[', value, ']')},{value.maxlen})",
    Counter: lambda value: f"N('collections', 'Counter')({written_dict(value)})",
    OrderedDict: lambda value: f"N('collections', 'OrderedDict')({written_dict(value)})",
    defaultdict: lambda value: (
        f"N('collections', 'defaultdict')({written(value.default_factory)},{written_dict(value)})"
    ),
}  # fmt: skip
"""Writers of what it can change."""
