"""The program as the judge of a script sees it: names that send calls, and objects of the program as handles.

Runs inside the judge's sandbox, without magcli. A name that the problem defines is a proxy: a call sends its arguments
as text to the program, which runs in another sandbox, and gets plain data back (``magcli.verify.code.values``), read by
a decoder that executes nothing.

An object of the program that is not plain data is a handle: its attributes are asked of the program, but it equals
nothing, has no order and no hash, so a class that claims to equal everything gains nothing. The methods of plain data
(``startswith``) are asked of the program only if the test itself made the object from a class of the problem.
"""

import builtins
import datetime
import itertools
import math
import os
from collections import Counter, OrderedDict, defaultdict, deque
from decimal import Decimal
from fractions import Fraction
from types import BuiltinFunctionType, FunctionType, GeneratorType, MethodDescriptorType, MethodType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

    from magcli.verify.code.values import DECODERS, NotPlain, decode
else:
    from values import DECODERS, NotPlain, decode

CHANNEL = 4
"""The socket to the program; a frame is 8 bytes of length and text."""
MAX_VALUE = 4 << 20
"""Bytes of text of a value."""
MAX_ITEMS = 1_000_000
"""Elements of an iterator that are sent to the program."""
MAX_NAME = 60

READ_ONLY = frozenset(
    name
    for kind in (str, bytes, tuple, frozenset, int, float, complex)
    for name in dir(kind)
    if not name.startswith("_")
) | {"get", "items", "keys", "values"}
PLAIN_ATTRIBUTES = READ_ONLY | {name for kind in (list, dict, set) for name in dir(kind) if not name.startswith("_")}
"""What only plain data can answer, without and with what changes a list, dict or set."""

SEQUENCES = ("range", "deque", "dict_keys", "dict_values", "dict_items")
"""Types of objects whose elements have a length."""


class State:
    """What happened so far in this process."""

    calls = 0
    raised: "BaseException | None" = None
    returned: "Any" = None
    final = ""
    unsendable = ""


state = State()


class Refused(BaseException):
    """The program cannot pass: it ended, or what it gave is not plain data.

    No ``Exception``, so that a test that expects one does not catch it; ``state`` keeps it in any case.
    """


class CannotSend(TypeError):
    """A value of the script cannot be sent to the program; ``state`` keeps it, as a test may expect a TypeError."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        state.unsendable = state.unsendable or detail


class ProgramRaised(Exception):
    """The program raised an exception that is not a builtin one."""


def refused(detail: str, word: str = "failed") -> Refused:
    """The exception, whose verdict is final once it is made."""
    said = f"failed is {detail}" if word == "failed" else word
    state.final = state.final or said
    return Refused(detail)


def refused_object(kind: str) -> Refused:
    """The exception for an object of the program where plain data is needed."""
    return refused(f"a {kind}, which is not plain data")


# ---- the channel ----


def write_all(file: int, content: bytes) -> None:
    """Write to a socket or file."""
    left = memoryview(content)
    while left:
        left = left[os.write(file, left) :]


def read_exactly(size: int) -> bytes:
    """So many bytes of the channel; raises Refused."""
    body = bytearray()
    while len(body) < size:
        try:
            part = os.read(CHANNEL, min(size - len(body), 1 << 20))
        except OSError:
            part = b""
        if not part:
            raise refused("", "ended")
        body += part
    return bytes(body)


def send(text: str) -> None:
    """Send a frame to the program; raises Refused."""
    body = text.encode("utf-8", "surrogatepass")
    try:
        write_all(CHANNEL, len(body).to_bytes(8, "little") + body)
    except OSError as error:
        raise refused("", "ended") from error


def receive() -> "tuple[str, bytes]":
    """The word and the text of the program's next frame; raises Refused."""
    size = int.from_bytes(read_exactly(8), "little")
    if size > MAX_VALUE:
        raise refused("", "too-large")
    word, _, text = read_exactly(size).partition(b" ")
    return word.decode(errors="replace"), text


# ---- objects of the program ----


class Handle:
    """An object of the program.

    Args:
        kind: The name of its type, as the program says.
        items: Its elements if it is iterable.
        number: By which the program knows it.
    """

    __slots__ = ("_left", "_origin", "items_", "kind_", "number_")

    def __init__(self, kind: str, items: "tuple[Any, ...] | None", number: int) -> None:
        self.kind_ = kind
        self.items_ = items
        self.number_ = number
        self._left: Iterator[Any] = iter(items or ())
        self._origin = "value"

    def __getattr__(self, name: str) -> "Any":
        if name.startswith("_") or name in PLAIN_OF_ORIGIN[self._origin]:
            raise AttributeError(f"a {self.kind_} has no {name!r}")
        return of_origin(ask(f"H[{self.number_}].{name}"), METHOD_OF_ORIGIN[self._origin])

    def __call__(self, *args: "Any", **kwargs: "Any") -> "Any":
        if self._origin not in RESULT_OF_ORIGIN:
            raise TypeError(f"a {self.kind_} cannot be called")
        return of_origin(call(f"H[{self.number_}]", args, kwargs), RESULT_OF_ORIGIN[self._origin])

    def __iter__(self) -> "Iterator[Any]":
        if self.items_ is None:
            raise TypeError(f"a {self.kind_} has no elements")
        return iter(self.items_)

    def __next__(self) -> "Any":
        if self.items_ is None or self.kind_ in SEQUENCES:
            raise TypeError(f"a {self.kind_} is not an iterator")
        return next(self._left)

    def __contains__(self, value: object) -> bool:
        return value in list(self)

    def __len__(self) -> int:
        return len(self._sequence())

    def __getitem__(self, index: "Any") -> "Any":
        return self._sequence()[index]

    def _sequence(self) -> "tuple[Any, ...]":
        if self.items_ is None or self.kind_ not in SEQUENCES:
            raise TypeError(f"a {self.kind_} has no length")
        return self.items_

    def __bool__(self) -> bool:
        if self.kind_ == "Match":
            return True
        if self.items_ is None:
            raise refused_object(self.kind_)
        return bool(self.items_)

    def _refuse(self, *args: object) -> "Any":
        raise refused_object(self.kind_)

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __repr__ = __str__ = __format__ = _refuse
    __hash__ = None  # type: ignore[assignment]


PLAIN_OF_ORIGIN: "dict[str, frozenset[str]]" = {
    "value": PLAIN_ATTRIBUTES, "solution": frozenset(), "made": frozenset(), "returned": READ_ONLY,
}  # fmt: skip
"""The attributes that are not asked of the program, by where the script has an object from.

``made``: from a class of the problem. ``solution``: the same, but what its methods return are values. ``returned``:
from a method of a made object, such as the object itself. ``value``: from a function.
"""
METHOD_OF_ORIGIN = {"value": "value", "solution": "method of a solution", "made": "method", "returned": "method"}
RESULT_OF_ORIGIN = {"method": "returned", "method of a solution": "value", "name": "value"}
"""What may be called, and the origin of what it returns."""
for called in ("method", "method of a solution", "name"):
    PLAIN_OF_ORIGIN[called] = PLAIN_ATTRIBUTES
    METHOD_OF_ORIGIN[called] = "value"


def handle(parts: "list[Any]") -> Handle:
    """Read a handle; raises NotPlain."""
    kind, items, number = parts
    if type(kind) is not str or not isinstance(items, list | None) or type(number) is not int:
        raise NotPlain("malformed object")
    return Handle(kind[:MAX_NAME], None if items is None else tuple(items), number)


READERS = {**DECODERS, "set": set, "other": handle}


def of_origin(value: "Any", origin: str) -> "Any":
    """A value of the program; a handle that knows where the script has it from."""
    if type(value) is Handle:
        value._origin = origin
    return value


class Named:
    """A name that the problem defines."""

    def __init__(self, name: str) -> None:
        self._name, self.path_ = name, f"P[{name!r}]"

    def __call__(self, *args: "Any", **kwargs: "Any") -> "Any":
        return of_origin(call(self.path_, args, kwargs), self._result())

    def __getattr__(self, name: str) -> "Any":
        if name.startswith("__"):
            raise AttributeError(name)
        return of_origin(ask(f"{self.path_}.{name}"), "name")

    def _result(self) -> str:
        """The origin of what it returns: a class is known by its capital letter."""
        if self._name == "Solution":
            return "solution"
        is_class = self._name[:1].isupper() and "_" not in self._name
        return "made" if is_class else "value"


class Nodes:
    """A linked list or tree that the script makes, which the program gets as ``ListNode`` or ``TreeNode``."""

    def __init__(self, kind: str, values: "Iterable[Any]") -> None:
        self.kind = kind
        self.values = list(values)
        while kind == "tree" and self.values and self.values[-1] is None:
            self.values.pop()


def values_of_nodes(kind: str, nodes: "Any") -> "list[Any]":
    """The values of a linked list or tree, of the script or of the program."""
    if nodes is None:
        return []
    if isinstance(nodes, Nodes):
        return nodes.values
    if not isinstance(nodes, Handle):
        raise refused(f"a {type(nodes).__name__}, which is no {kind} of nodes")
    values = call(f"P['{kind}_values']", (nodes,), {})
    if not isinstance(values, list):
        raise refused(f"no {kind} of nodes")
    return values


# ---- values for the program ----

FUNCTIONS: "list[Callable[..., Any]]" = []
"""Functions of the script that were passed to the program."""
LIBRARY_MODULES = frozenset(("builtins", "math", "operator", "_operator", "_functools", "functools", "itertools"))
"""Modules whose functions are sent by name, so that the program calls its own."""
VIEWS: "tuple[type, ...]" = (type({}.keys()), type({}.values()), type({}.items()))
EMPTY: "tuple[Iterable[Any], ...]" = ([], (), "", b"", {}, {}.values(), {}.items(), set(), range(0), deque())
ITERATORS: "frozenset[type]" = frozenset((
    GeneratorType, map, filter, zip, enumerate, reversed, itertools.chain, itertools.islice,
    *(type(iter(value)) for value in EMPTY),
))  # fmt: skip


def written(value: "Any") -> str:
    """A value as an expression that the driver evaluates; raises CannotSend."""
    kind = type(value)
    if kind in WRITERS:
        return WRITERS[kind](value)
    if isinstance(value, Named):
        return value.path_
    if isinstance(value, type | BuiltinFunctionType) and value.__module__ in LIBRARY_MODULES:
        return f"N({value.__module__!r}, {value.__name__!r})"
    if isinstance(value, MethodDescriptorType) and value.__objclass__.__module__ == "builtins":
        return f"N('builtins', {value.__objclass__.__name__!r}).{value.__name__}"
    if isinstance(value, FunctionType | MethodType):
        FUNCTIONS.append(value)
        return f"L({len(FUNCTIONS) - 1})"
    if kind in ITERATORS:
        return f"N('builtins', 'iter')({written_iterator(value)})"
    if kind.__module__ == "numpy" and hasattr(value, "tolist"):
        name = "array" if kind.__name__ == "ndarray" else kind.__name__
        dtype = f", {str(value.dtype)!r}" if name == "array" else ""
        return f"N('numpy', {name!r})({written(value.tolist())}{dtype})"
    raise CannotSend(f"a {kind.__name__} cannot be passed to the program")


def written_iterator(value: "Iterable[Any]") -> str:
    """The elements that an iterator has left."""
    items = list(itertools.islice(value, MAX_ITEMS + 1))
    if len(items) > MAX_ITEMS:
        raise CannotSend(f"an iterator with more than {MAX_ITEMS:,} elements cannot be passed to the program")
    return written(items)


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
    maker, args = value.__reduce__()[:2]
    return f"N({maker.__module__!r}, {maker.__qualname__!r}){written_items('(', args, ')')}"


WRITERS: "dict[type, Callable[[Any], str]]" = {
    type(None): repr, bool: repr, str: repr, bytes: repr, float: written_float,
    int: lambda value: str(value) if -(1 << 53) < value < 1 << 53 else hex(value),
    complex: lambda value: f"C({written_float(value.real)},{written_float(value.imag)})",
    list: lambda value: written_items("[", value, "]"), tuple: lambda value: written_items("(", value, ")"),
    set: lambda value: written_items("S((", value, "))"),
    frozenset: lambda value: written_items("Z((", value, "))"), dict: written_dict,
    range: repr, bytearray: lambda value: f"N('builtins', 'bytearray')({bytes(value)!r})",
    Fraction: lambda value: f"N('fractions', 'Fraction')({value.numerator},{value.denominator})",
    Decimal: lambda value: f"N('decimal', 'Decimal')({str(value)!r})",
    deque: lambda value: f"N('collections', 'deque')({written_items('[', value, ']')},{value.maxlen})",
    Counter: lambda value: f"N('collections', 'Counter')({written_dict(value)})",
    OrderedDict: lambda value: f"N('collections', 'OrderedDict')({written_dict(value)})",
    defaultdict: lambda value: (
        f"N('collections', 'defaultdict')({written(value.default_factory)},{written_dict(value)})"
    ),
    **dict.fromkeys(VIEWS, lambda value: f"{written_dict(dict.fromkeys(value))}.keys()"),
    VIEWS[1]: lambda value: written(list(value)),
    **dict.fromkeys((datetime.date, datetime.datetime, datetime.time, datetime.timedelta), written_reduced),
    Handle: lambda value: f"H[{value.number_}]",
    Nodes: lambda value: f"P['{value.kind}_node']({written(value.values)})",
}  # fmt: skip


# ---- requests ----

BEFORE_REQUEST: "list[Callable[[], None]]" = []
"""What is done before each request."""


def read_value(text: bytes) -> "Any":
    """The value of a text of the program; raises Refused."""
    try:
        return decode(text, READERS)
    except NotPlain as error:
        raise refused(f"unreadable: {error}") from error


def ask(request: str) -> "Any":
    """The value of an expression in the program's process."""
    state.calls += 1
    for prepare in BEFORE_REQUEST:
        prepare()
    send(f"?{request}")
    word, text = receive()
    while word == "call":
        answer_call(text)
        word, text = receive()
    if word == "value":
        return read_value(text)
    if word == "no":
        raise refused_object(text[:MAX_NAME].decode(errors="replace"))
    if word == "raised":
        state.raised = exception_of(read_value(text))
        raise state.raised
    raise refused("a malformed reply")


def answer_call(text: bytes) -> None:
    """Call a function of the script for the program."""
    asked = read_value(text)
    if (
        type(asked) is not tuple
        or len(asked) != 3
        or type(asked[0]) is not int
        or asked[0] not in range(len(FUNCTIONS))
    ):
        raise refused("a malformed reply")
    number, args, kwargs = asked
    try:
        send(f"={written(FUNCTIONS[number](*args, **kwargs))}")
    except CannotSend as error:
        raise refused(f"unusable: {error}") from error


def exception_of(said: "Any") -> Exception:
    """The exception of a program by the name of its type and its arguments."""
    name, args = said if type(said) is tuple and len(said) == 2 else (None, None)
    kind = (KINDS.get(name) or getattr(builtins, name, None)) if type(name) is str else None
    ends_loops = kind in (StopIteration, StopAsyncIteration)
    if not isinstance(kind, type) or not issubclass(kind, Exception) or ends_loops:
        return ProgramRaised(str(name)[:MAX_NAME])
    try:
        error: Exception = kind(*args)  # type: ignore[misc]
        return error
    except Exception:
        return of_kind(KINDS[name], args) if name in KINDS else ProgramRaised(name)


KINDS: "dict[str, type[Exception]]" = {}
"""Exceptions that are not builtin ones and that a suite expects, by name."""


def of_kind(kind: "type[Exception]", args: "Any") -> Exception:
    """An exception whose constructor takes other arguments than it keeps."""
    error = kind.__new__(kind)
    error.args = args
    return error


def call(target: str, args: "tuple[Any, ...]", kwargs: "dict[str, Any]") -> "Any":
    """The value of a call in the program's process; arguments that it changes are changed here."""
    arguments = written_items("[", args, "]")
    words = written_dict(kwargs)
    reply = ask(f"call({target},{arguments},{words})")
    if type(reply) is not tuple or len(reply) != 2 or type(reply[1]) is not dict:
        raise refused("a malformed reply")
    value, changed = reply
    for position, content in changed.items():
        change(args, position, content)
    state.returned = value
    return value


def change(args: "tuple[Any, ...]", position: "Any", content: "Any") -> None:
    """Give an argument the content that the program left in it."""
    if type(position) is not int or position not in range(len(args)):
        raise refused("a malformed reply")
    argument = args[position]
    if type(argument) is not type(content) or type(argument) not in (list, dict, set):
        raise refused("a malformed reply")
    argument.clear()
    argument.extend(content) if type(argument) is list else argument.update(content)


def is_unordered(value: object) -> bool:
    """Whether a value is NaN."""
    return isinstance(value, float) and math.isnan(value)
