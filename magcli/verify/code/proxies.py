"""Requests of a script's judge to the program, which runs in another sandbox.

Runs inside the judge's sandbox, without magcli. A request is an expression that the program's driver evaluates; the
values in it are written as text (``magcli.verify.code.writing``), and its value is plain data, read by a decoder that
executes nothing (``magcli.verify.code.values``). Arguments that the program changes are changed here, functions of the
script that it calls are called here, and streams that the script has replaced are those of the program meanwhile.
"""

import builtins
import os
import sys

from magcli.verify.code.values import DECODERS, NotPlain, decode
from magcli.verify.code.writing import (
    FUNCTIONS,
    THINGS,
    CannotSend,
    begin_request,
    passing,
    with_things,
    written,
    written_dict,
    written_items,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

CHANNEL = 4
"""The socket to the program; a frame is 8 bytes of length and text."""
MAX_VALUE = 4 << 20
"""Bytes of text of a value."""
MAX_NAME = 60


class State:
    """What happened so far in this process.

    ``calls``: requests; ``raised``: the last exception of the program; ``returned``: what its last call returned;
    ``final``: the verdict, once nothing can change it; ``sent``: what the request sent whose reply is read;
    ``unsendable``: why a value of the script could not be sent.
    """

    def __init__(self) -> None:
        self.calls = 0
        self.raised: BaseException | None = None
        self.returned: Any = None
        self.final = ""
        self.sent: list[Any] = []
        self.unsendable = ""


state = State()


class Refused(BaseException):
    """The program cannot pass: it ended, or what it gave is not plain data.

    No ``Exception``, so that a test that expects one does not catch it; ``state`` keeps it in any case.
    """


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


# ---- requests ----


class Record(tuple[object, ...]):
    """A named tuple of the program."""

    fields_: "tuple[str, ...]" = ()

    def __getattr__(self, name: str) -> "Any":
        if name not in self.fields_:
            raise AttributeError(f"a named tuple has no {name!r}")
        return self[self.fields_.index(name)]


def record(parts: "list[Any]") -> Record:
    """Read a named tuple; raises NotPlain."""
    fields, items = parts
    if not isinstance(fields, tuple) or not all(type(name) is str for name in fields) or len(fields) != len(items):
        raise NotPlain("malformed tuple")
    made = Record(items)
    made.fields_ = fields
    return made


READERS: "dict[str, Callable[[Any], Any]]" = {
    **DECODERS, "set": set, "record": record,
    "sent": lambda number: state.sent[number], "thing": lambda number: THINGS[number],
}  # fmt: skip
"""Readers of values; of ``sent`` and ``thing`` the script has the objects already."""


def read_value(text: bytes) -> "Any":
    """The value of a text of the program; raises Refused."""
    try:
        return decode(text, READERS)
    except (NotPlain, IndexError) as error:
        raise refused(f"unreadable: {error}") from error


def parts_of(reply: "Any", *kinds: type) -> "tuple[Any, ...]":
    """The parts of a tuple of the program, each of exactly a type, or any where that is ``object``; raises Refused."""
    if type(reply) is not tuple or len(reply) != len(kinds):
        raise refused("a malformed reply")
    if not all(kind in (object, type(part)) for kind, part in zip(kinds, reply, strict=True)):
        raise refused("a malformed reply")
    return reply


BEFORE_REQUEST: "list[Callable[[], None]]" = []
"""What is done before each request."""


def ask(request: str) -> "Any":
    """The value of an expression in the program's process."""
    state.calls += 1
    # Kept here: a function of the script that is called meanwhile sends requests of its own.
    sent = passing.sent
    for prepare in BEFORE_REQUEST:
        prepare()
    send(f"?{with_streams(request)}")
    word, text = receive()
    while word in ("call", "printed"):
        answer_call(text) if word == "call" else write_captured(text)
        word, text = receive()
    state.sent = sent
    if word == "value":
        return read_value(text)
    if word == "no":
        raise refused_object(text[:MAX_NAME].decode(errors="replace"))
    if word == "raised":
        state.raised = exception_of(read_value(text))
        raise state.raised
    raise refused("a malformed reply")


def prepared(write: "Callable[[], str]") -> str:
    """A request as it is sent, by what writes its text; raises CannotSend, which the verdict then names."""
    try:
        begin_request()
        return with_things(write())
    except CannotSend as error:
        state.unsendable = state.unsendable or str(error)
        raise


def asked(request: str, *values: "Any") -> "Any":
    """The value of a request that has the values in place of ``{}``."""
    return ask(prepared(lambda: request.format(*[written(value) for value in values])))


def call(target: str, args: "tuple[Any, ...]", kwargs: "dict[str, Any]") -> "Any":
    """The value of a call in the program's process; arguments that it changes are changed here."""
    request = prepared(lambda: f"call({target},{written_items('[', args, ']')},{written_dict(kwargs)})")
    sent = passing.sent
    # The value, and by their number the contents of what the call has changed.
    value, changed = parts_of(ask(request), object, dict)
    for number, content in changed.items():
        change(sent, number, content)
    state.returned = value
    return value


def change(sent: "list[Any]", number: "Any", content: "Any") -> None:
    """Give what was sent the content that the program left in it; objects have negative numbers."""
    if type(number) is not int or number not in range(-len(THINGS), len(sent)):
        raise refused("a malformed reply")
    value = sent[number] if number >= 0 else vars(THINGS[-1 - number])
    if isinstance(value, dict | set) and isinstance(content, dict if isinstance(value, dict) else set):
        value.clear()
        value.update(content)
    elif isinstance(value, bytearray) and isinstance(content, bytes):
        value[:] = content
    elif type(value).__module__ == "numpy" and isinstance(content, list):
        value[...] = content  # in place, as its shape cannot change
    elif isinstance(value, dict | set | bytearray) or not isinstance(content, list):
        raise refused("a malformed reply")
    else:
        value.clear()
        value.extend(content)


# ---- functions of the script ----

RAISED_HERE: "list[Exception]" = []
"""Exceptions of functions of the script that the program called."""


def answer_call(text: bytes) -> None:
    """Call a function of the script for the program."""
    number, args, kwargs = parts_of(read_value(text), int, object, object)
    if number not in range(len(FUNCTIONS)):
        raise refused("a malformed reply")
    try:
        value = FUNCTIONS[number](*args, **kwargs)
    except CannotSend:
        raise
    except Exception as error:
        # It is the program's own exception that passes through; the program may yet catch it.
        if error is state.raised:
            state.raised = None
        send(f"^{written_exception(error)}")
        return
    try:
        begin_request()
        text_of_value = written(value)
        # Their attributes come only with requests.
        if passing.things:
            raise CannotSend("an object of the script cannot be returned to the program")
        send(f"={text_of_value}")
    except CannotSend as error:
        raise refused(f"unusable: {error}") from error


def written_exception(error: Exception) -> str:
    """Its number here, the name of its type, and its arguments."""
    RAISED_HERE.append(error)
    name = type(error).__name__
    try:
        begin_request()
        return written((len(RAISED_HERE) - 1, name, error.args))
    except CannotSend:
        return written((len(RAISED_HERE) - 1, name, ()))


# ---- exceptions of the program ----

STANDINS: "dict[str, type[Exception]]" = {}
"""Exceptions of the program that the script names."""


def exception_of(said: "Any") -> Exception:
    """The exception of a program: of the first builtin type among its own, and of those that the script names."""
    if type(said) is int and said in range(len(RAISED_HERE)):
        return RAISED_HERE[said]
    if type(said) is not tuple or len(said) != 4 or type(said[0]) is not tuple:
        return ProgramRaised("a malformed exception")
    # names: those of its class and of its bases, the class first.
    names, args, text, attributes = said  # as ``driver.text_of_exception`` writes them
    own_name = str(names[0])[:MAX_NAME]
    kinds = [getattr(builtins, name, None) for name in names if type(name) is str]
    builtin = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseException)]
    named = [STANDINS[name] for name in names if name in STANDINS]
    if not builtin:
        return ProgramRaised(own_name)
    base = builtin[0]
    # The program can claim any name: SystemExit would end the judge, and StopIteration become an error of a generator.
    if not issubclass(base, Exception) or base in (StopIteration, StopAsyncIteration):
        return ProgramRaised(own_name)
    if named or names[0] != base.__name__:
        return exception_with(own_name, (*named, base), args, text, attributes)
    # Some, such as UnicodeDecodeError, take arguments of certain types only.
    try:
        error: Exception = base(*args)
        return error
    except Exception:
        return ProgramRaised(names[0])


def exception_with(name: str, bases: "tuple[type, ...]", args: "Any", text: "Any", attributes: "Any") -> Exception:
    """An exception of a class of the program, with its text and attributes."""
    # Without bases from which others derive, as Python may refuse their order.
    distinct = []
    for base in bases:
        derived = [one for one in bases if one is not base and issubclass(one, base)]
        if not derived:
            distinct.append(base)
    # Without the __init__ of its bases, which may not take these arguments.
    methods = {"__init__": lambda self, *args: None, "__str__": lambda self: str(text)}
    error: Exception = type(name, tuple(distinct), methods)(*args)
    error.args = args
    if isinstance(attributes, dict):
        vars(error).update({str(key): value for key, value in attributes.items()})
    return error


# ---- streams ----

STREAMS = {"stdout": sys.stdout, "stderr": sys.stderr, "stdin": sys.stdin}
INPUT, PRINT = builtins.input, builtins.print


def with_streams(request: str) -> str:
    """A request during which the streams that the script has replaced are those of the program."""
    replaced = [name for name, stream in STREAMS.items() if getattr(sys, name) is not stream]
    functions = {}
    for name, original in (("input", INPUT), ("print", PRINT)):
        function = getattr(builtins, name)
        if function is not original:
            functions[name] = function
    if not replaced and not functions:
        return request
    captured = [name for name in replaced if name != "stdin"]
    # As the text of a dict: the callbacks of the program by their names.
    words = [f"{name!r}:{written_callback(function)}" for name, function in functions.items()]
    readers = "None"
    if "stdin" in replaced:
        readers = f"({written_callback(sys.stdin.read)},{written_callback(sys.stdin.readline)})"
    return f"X('redirected')({captured!r},{{{','.join(words)}}},{readers},lambda:{request})"


def written_callback(function: "Callable[..., Any]") -> str:
    """A function of the script, also if it is one of the standard library."""
    FUNCTIONS.append(function)
    return f"L({len(FUNCTIONS) - 1})"


def write_captured(text: bytes) -> None:
    """Write what the program printed to the script's stream; raises Refused if it has not replaced it."""
    name, printed = parts_of(read_value(text), str, str)
    stream = getattr(sys, name) if name in ("stdout", "stderr") else None
    # Nothing else was asked for, and it would be the judge's own output.
    if stream is None or stream is STREAMS[name]:
        raise refused("a malformed reply")
    stream.write(printed)
