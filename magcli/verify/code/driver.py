"""Calls functions of a Python program inside the sandbox and returns their values as plain data.

Runs inside, without magcli, on built-in modules only. With the argument ``serve`` it answers the judge of a test's
script, in another sandbox, for as long as the script runs. Otherwise it evaluates one expression, for curation: the
request comes on stdin, a random token, the name that the program must define, the expression; the reply goes to
descriptor 3, the token, a word, and the value. Values are in the text form of ``magcli.verify.code.values``. A value
of a class derived from a plain type is the number, string or collection that it contains, read by that type's own
methods, whatever the class overrides. numpy arrays and scalars are lists and numbers.
"""

import posix
import sys
from _collections import deque  # type: ignore[import-not-found]
from _json import encode_basestring_ascii

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

REPORT = 3
SAFE_INTEGER = 1 << 53
MAX_ITEMS = 1_000_000
AST_ONLY = 0x400  # ast.PyCF_ONLY_AST, without importing ast
SESSION: "dict[str, Any]" = {"__name__": "session"}
"""The names of ``session.py``."""
OBJECT_TOOLS: "dict[str, Any]" = {}
"""The names of ``objects.py``, once it is loaded."""
OBJECTS: "list[Any]" = []
"""Objects that are not plain data, which the judge of a script knows by their number here."""
SERVING: "list[bool]" = []
"""Not empty if a script's judge asks: True if it may get objects, too."""


class NotPlain(TypeError):
    """The value is not plain data."""


def text_of(value: object) -> str:
    """The value as text, by its type or the first plain base class; raises NotPlain."""
    kind = type(value)
    if kind in WRITERS:
        return WRITERS[kind](value)
    for write in LIBRARY:
        if (text := write(value)) is not None:
            return text
    # By the descriptors of type itself, as a metaclass of the program may answer for ``__mro__`` and ``__dict__``.
    plain = [base for base in type.__dict__["__mro__"].__get__(kind) if base in WRITERS]
    if SERVING and plain == [tuple] and "_fields" in type.__dict__["__dict__"].__get__(kind):
        return f'{{"record":{text_of([kind._fields, [*tuple.__iter__(value)]])}}}'  # type: ignore[attr-defined,arg-type]
    return WRITERS[plain[0]](value) if plain else text_of_other(value)


def text_of_int(value: int) -> str:
    """Decimal up to 53 bits, hexadecimal beyond."""
    number = int.__pos__(value)  # a plain int, also of a derived class
    # Beyond, Python limits the digits of decimal numbers, and takes quadratic time for them.
    return str(number) if -SAFE_INTEGER < number < SAFE_INTEGER else f'{{"int":"{number:x}"}}'


def text_of_float(value: float) -> str:
    """The shortest text that represents it."""
    text = float.__repr__(value)
    # ``inf`` and ``nan`` end with a letter, and are no JSON.
    return text if text[-1].isdigit() else f'{{"float":"{text}"}}'


def text_of_complex(value: complex) -> str:
    """Both parts."""
    number = complex.__pos__(value)
    return f'{{"complex":{text_of([number.real, number.imag])}}}'


def text_of_items(items: object) -> str:
    """A list of their texts."""
    return f"[{','.join([text_of(item) for item in items])}]"  # type: ignore[attr-defined]


def text_of_dict(value: dict[object, object]) -> str:
    """A list of pairs, in its order."""
    pairs = [f"[{text_of(key)},{text_of(item)}]" for key, item in dict.items(value)]
    return f'{{"dict":[{",".join(pairs)}]}}'


WRITERS: "dict[type, Callable[[Any], str]]" = {
    type(None): lambda value: "null",
    bool: lambda value: "true" if value else "false",
    int: text_of_int,
    float: text_of_float,
    complex: text_of_complex,
    str: encode_basestring_ascii,
    bytes: lambda value: f'{{"bytes":"{bytes.hex(value)}"}}',
    bytearray: lambda value: f'{{"bytes":"{bytearray.hex(value)}"}}',
    list: lambda value: text_of_items(list.__iter__(value)),
    tuple: lambda value: f'{{"tuple":{text_of_items(tuple.__iter__(value))}}}',
    set: lambda value: f'{{"set":{text_of_items(set.__iter__(value))}}}',
    frozenset: lambda value: f'{{"frozenset":{text_of_items(frozenset.__iter__(value))}}}',
    dict: text_of_dict,
}
"""Converters of plain types to text."""
LIBRARY: "list[Callable[[Any], str | None]]" = []
"""Converters of values of libraries, for a judge that can read them (``library_values.py``)."""
DATES: "dict[str, Callable[[Any], str]]" = {
    **dict.fromkeys(("date", "datetime", "time"), lambda value: encode_basestring_ascii(value.isoformat())),
    "timedelta": lambda value: f"[{value.days},{value.seconds},{value.microseconds}]",
}
"""Converters of the types of datetime, which is not imported here; values of derived types are objects."""


def text_of_other(value: object) -> str:
    """A date, a number or array of a library, or any object: the name of its type and its elements."""
    kind = type(value)
    if kind.__module__ == "datetime" and kind.__name__ in DATES:
        return f'{{"{kind.__name__}":{DATES[kind.__name__](value)}}}'
    for base in type.__dict__["__mro__"].__get__(kind):
        name = base.__module__, base.__name__
        if name == ("fractions", "Fraction"):
            return f'{{"fraction":{text_of([value.numerator, value.denominator])}}}'  # type: ignore[attr-defined]
        if name == ("decimal", "Decimal"):
            return f'{{"decimal":"{base.__str__(value)}"}}'
        if name in (("numpy", "ndarray"), ("numpy", "generic")):
            # A long double stays one.
            plain = base.tolist(value)
            return text_of(plain) if type(plain) is not kind else text_of_float(float(plain))  # type: ignore[arg-type]
    if SERVING == [False]:
        raise NotPlain(kind.__name__)
    name_of_kind = encode_basestring_ascii(type.__dict__["__name__"].__get__(kind))
    if not SERVING:
        items = text_of_items(first_items(value)) if hasattr(kind, "__iter__") else "null"
        return f'{{"other":[{name_of_kind},{items}]}}'
    return text_of_object(value, name_of_kind)


def text_of_object(value: object, name_of_kind: str) -> str:
    """An object for the judge of a script: the name of its type, its elements or null, its number, what it can do."""
    # An object of the script comes back as the script's own.
    thing = NUMBERS.get(id(value))
    if thing is not None:
        return f'{{"thing":{thing}}}'
    kind = type(value)
    items = text_of_items(first_items(value)) if kind in SEQUENCES else "null"
    abilities = "".join([letter for letter, method in ABILITIES if hasattr(kind, method)])
    if any(base in WRITERS for base in kind.__mro__):
        abilities += "p"
    OBJECTS.append(value)
    return f'{{"other":[{name_of_kind},{items},{len(OBJECTS) - 1},"{abilities}"]}}'


SEQUENCES: "tuple[type, ...]" = (range, deque, type({}.keys()), type({}.values()), type({}.items()))
"""Types of objects whose elements are sent with them."""
ABILITIES = (("i", "__iter__"), ("n", "__next__"), ("c", "__contains__"))
"""What an object can do, as the judge abbreviates it; ``p`` is a value of a class derived from a plain type."""
THINGS: "dict[int, Any]" = {}
"""Objects of the script's own classes, by their number there."""
NUMBERS: "dict[int, int]" = {}
"""Their numbers by their identity here."""


def first_items(value: object) -> list[object]:
    """The elements of an iterable; raises NotPlain beyond ``MAX_ITEMS``."""
    items = []
    for item in value:  # type: ignore[attr-defined]
        items.append(item)
        if len(items) > MAX_ITEMS:
            raise NotPlain(type(value).__name__)
    return items


def names_in(code: object) -> set[str]:
    """The names that code and its functions mention."""
    names = set(code.co_names)  # type: ignore[attr-defined]
    return names.union(*(names_in(part) for part in code.co_consts if hasattr(part, "co_names")))  # type: ignore[attr-defined]


def load(name: str, mentioned: set[str]) -> dict[str, object]:
    """Run the program as a module other than main; for a test of ``Solution`` with the names that LeetCode supplies,
    those that the program or the test mentions.

    Raises NameError if the program does not define the name.
    """
    with open("program.py", "rb") as file, open("session.py", "rb") as script:
        source, session = file.read(), script.read()
    exec(session, SESSION)
    # dataclasses and pickle look up the module of a class by its name.
    program = sys.modules["program"] = type(sys)("program")
    space = vars(program)
    SESSION["prepare"](space)
    if name == "Solution":
        supply(names_in(SESSION["compiled"](source)) | mentioned, space)
    SESSION["execute"](source, space)
    # A star import may bind the name to something of a library, which the program did not write.
    if name not in space or (
        imports_a_star(source) and not SESSION["binds"](compile(source, "", "exec", AST_ONLY), name)
    ):
        raise NameError(f"the program does not define {name!r}")
    return space


def imports_a_star(source: bytes) -> bool:
    """Whether the program may have a star import; parsing it to find out costs more than most tests."""
    return b"import*" in b"".join(source.split())


def supply(names: set[str], space: dict[str, object]) -> None:
    """Bind those of the names that LeetCode supplies."""
    with open("leetcode.py", "rb") as file:
        supplier: dict[str, object] = {"__name__": "leetcode"}
        exec(file.read(), supplier)
    supplier["bind"](names, space)  # type: ignore[operator]


def answer() -> None:
    """Read the request, call, report, and exit before anything that the program left behind can run."""
    token, name, call = sys.stdin.buffer.read().decode().split("\n", 2)
    space = load(name, names_in(compile(call, "call", "eval")))
    try:
        value = eval(call, space)
    except OSError as error:
        SESSION["name_refusal"](error, space)
        raise
    try:
        report = f"{token} value {text_of(value)}"
    except NotPlain as error:
        report = f"{token} no {error}"
    sys.stdout.flush()
    write_all(REPORT, report.encode("ascii", "replace"))
    posix._exit(posix.EX_OK)


# ---- serving a script ----

CHANNEL = 4
"""The socket to the judge of a script, which is in another sandbox; a frame is 8 bytes of length and text.

The judge sends ``?`` and an expression to evaluate, ``=`` and the value of a function of the script that was called
here, ``^`` and the exception that it raised, or ``!`` to have the last exception raised."""
TOOLS: "dict[str, Any]" = {}
"""The names in requests: ``P`` the program's names, ``H`` its objects, ``call`` and the constructors of values."""
RAISED: "list[BaseException]" = []
"""The last exception of the program."""
OF_SCRIPT: "dict[int, tuple[int, BaseException]]" = {}
"""Exceptions that functions of the script raised, with their number there, by their identity."""
SENT: "dict[int, Any]" = {}
"""Arguments that can change, and what they contain, by their number in the request."""
TOUCHED: "list[Any]" = []
"""Objects of the script in the request."""


def serve() -> None:
    """Load the program, answer the judge's requests until it closes the channel, and exit."""
    name, mentioned, library = sys.stdin.buffer.read().decode().split("\n", 2)
    SERVING.append(True)
    channel = open(CHANNEL, "rb", closefd=False)  # noqa: SIM115, open until the process ends
    READER.append(channel.read)
    # ``mentioned`` are the names of LeetCode in the script, ``library`` the source of ``library_values.py`` or nothing.
    space = load(name, set(mentioned.split()))
    if library:
        exec(library, {"WRITERS": WRITERS, "LIBRARY": LIBRARY, "text_of": text_of})
    TOOLS.update(P=space, H=OBJECTS, F=float, C=complex, S=set, Z=frozenset, N=library_name, L=callback, call=call)
    TOOLS.update(plain=plain, K=keep, R=SENT.__getitem__, I=iterator, O=thing, X=tool, with_things=with_things)
    while (request := receive()) is not None:
        # The program ends by its exception, whose traceback is then on stderr.
        if request == "!" and RAISED:
            raise RAISED[-1]
        send(reply_to(request[1:]))
    sys.stdout.flush()
    posix._exit(posix.EX_OK)


def reply_to(request: str) -> str:
    """The value of an expression, or the exception of the program, as text."""
    SENT.clear()
    TOUCHED.clear()
    try:
        return f"value {text_of(eval(request, TOOLS))}"
    except MemoryError:
        raise  # ends the process, which is then judged by its limit
    except NotPlain as refused:
        return f"no {refused}"
    except Exception as raised:
        SESSION["name_refusal"](raised, TOOLS["P"])
        RAISED.append(raised)
        return f"raised {text_of_exception(raised)}"


def tool(name: str) -> "Any":
    """A function of ``objects.py``, which is loaded when it is first needed."""
    if "equal" not in OBJECT_TOOLS:
        OBJECT_TOOLS["__name__"] = "objects"
        with open("objects.py", "rb") as file:
            exec(file.read(), OBJECT_TOOLS)
        OBJECT_TOOLS.update(OBJECTS=OBJECTS)
        OBJECT_TOOLS["DRIVER"].update(text_of=text_of, send=send)
    return OBJECT_TOOLS[name]


def text_of_exception(error: BaseException) -> str:
    """The names of its type and base classes, and its arguments, text and attributes if they are plain data.

    Of an exception of the script only its number.
    """
    if id(error) in OF_SCRIPT:
        return text_of(OF_SCRIPT[id(error)][0])
    names = tuple([kind.__name__ for kind in type(error).__mro__])
    args = plain_or((), lambda: error.args)
    said = plain_or("", lambda: str(error))
    return text_of((names, args, said, plain_or({}, lambda: vars(error))))


def plain_or(otherwise: object, read: "Callable[[], object]") -> object:
    """What can be read of an exception, if it is plain data."""
    try:
        value = read()
        plain_text(value)
    except Exception:
        return otherwise
    return value


def plain_text(value: object) -> str:
    """The text of plain data; raises NotPlain for objects, without looking at their elements."""
    # ``[False]`` makes ``text_of_other`` refuse what is an object.
    was_serving = SERVING.copy()
    SERVING[:] = [False]
    try:
        return text_of(value)
    finally:
        SERVING[:] = was_serving


def plain(value: object) -> "Text":
    """The plain data that a value of a derived class is."""
    return Text(text_of(value))


# ---- arguments that the program changes ----


class Text:
    """A value that is text already."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


WRITERS[Text] = lambda value: value.text


def keep(number: int, value: "Any") -> "Any":
    """An argument that can change, or what it contains."""
    SENT[number] = value
    return value


def call(function: "Any", args: "list[Any]", kwargs: "dict[str, Any]") -> Text:
    """The value of a call, and the content of what it changed of its arguments, by their number in the request.

    Objects of the script have negative numbers.
    """
    if not SENT and not TOUCHED:
        return Text(text_of((value_of_call(function, args, kwargs), {})))
    # What may change, with its content before the call.
    kept = {number: (value, content_of(value)) for number, value in SENT.items()}
    for thing in TOUCHED:
        attributes = vars(thing)
        kept[-1 - NUMBERS[id(thing)]] = (attributes, content_of(attributes))
    numbers = {id(value): number for number, (value, _) in kept.items() if number >= 0}
    value = value_of_call(function, args, kwargs)
    changed = []
    for number, (argument, before) in kept.items():
        if has_changed(before, content_of(argument)):
            changed.append(f"[{number},{tool('text_with_references')(argument, numbers)}]")
    return Text(f'{{"tuple":[{text_of(value)},{{"dict":[{",".join(changed)}]}}]}}')


def value_of_call(function: "Any", args: "list[Any]", kwargs: "dict[str, Any]") -> object:
    """The value of a call; an object with methods of its own stays one if it is made from a class of the program."""
    value = function(*args, **kwargs)
    if type(value) is function and type(value) not in WRITERS and function.__module__ == "program":
        own = vars(function)
        if any(callable(own[name]) for name in own if name == "__missing__" or name[0] != "_"):
            name = encode_basestring_ascii(function.__name__)
            return Text(text_of_object(value, name)) if not isinstance(value, BaseException) else value
    return value


def content_of(value: "Any") -> "list[Any] | bytes":
    """What a container contains, in its order; of an array the bytes."""
    if isinstance(value, dict):
        return [*dict.keys(value), *dict.values(value)]  # by dict itself, whatever a derived class overrides
    if isinstance(value, list | deque | set):
        return list(value)
    return bytes(value) if type(value) is bytearray else value.tobytes()


def has_changed(before: "list[Any] | bytes", after: "list[Any] | bytes") -> bool:
    """Whether a content has other objects; sets may have another order."""
    if isinstance(before, bytes) or isinstance(after, bytes):
        return before != after
    # By identity: equality could be the program's own. ``before`` keeps its objects alive, so no id is used again.
    return len(before) != len(after) or list(map(id, before)) != list(map(id, after))


def with_things(things: "list[tuple[Any, dict[str, Any]]]", run: "Callable[[], Any]") -> "Any":
    """The value of a request after objects of the script have got their attributes."""
    # The script's attributes replace those of the last request, as the script may have deleted some since.
    for one, attributes in things:
        vars(one).clear()
        vars(one).update(attributes)
    TOUCHED.extend([one for one, _ in things])
    return run()


def thing(number: int, name: str = "", source: str = "") -> "Any":
    """An object of a class of the script: of the program's class of that name, else as the script defines it."""
    if number not in THINGS:
        space = TOOLS["P"]
        if not isinstance(space.get(name), type):
            exec(source, space)
        # Without __init__, which has run in the script.
        made = THINGS[number] = object.__new__(space[name])
        NUMBERS[id(made)] = number
    return THINGS[number]


def library_name(module: str, name: str) -> "Any":
    """A member of the standard library or numpy, with which the judge writes a value."""
    return getattr(__import__(module), name)


def callback(number: int) -> "Callable[..., Any]":
    """A function of the script that the program can call."""

    def function(*args: object, **kwargs: object) -> object:
        send(f"call {text_of((number, args, kwargs))}")
        while (answer := receive()) is not None:
            if answer[0] == "=":
                return eval(answer[1:], TOOLS)
            if answer[0] == "^":
                raise exception_of_script(*eval(answer[1:], TOOLS))
            send(reply_to(answer[1:]))  # the function calls the program in turn
        posix._exit(posix.EX_OK)

    return function


def exception_of_script(number: int, name: str, args: "tuple[Any, ...]") -> BaseException:
    """An exception like the one that a function of the script raised."""
    kind = TOOLS["__builtins__"].get(name)
    if not isinstance(kind, type) or not issubclass(kind, Exception):
        kind = type(name, (Exception,), {})
    try:
        error = kind(*args)
    except Exception:
        error = Exception(*args)
    OF_SCRIPT[id(error)] = number, error
    return error  # type: ignore[no-any-return]


def iterator(number: int) -> "Any":
    """An iterator of the script, of which the program gets one element after the other."""
    # The script answers with a tuple of one element, an empty one at the end.
    following = callback(number)
    while element := following():
        yield element[0]


def send(text: str) -> None:
    """Send a frame."""
    body = text.encode("ascii", "replace")
    write_all(CHANNEL, len(body).to_bytes(8, "little") + body)


def write_all(file: int, content: bytes) -> None:
    """Write to a file or socket, which may take only a part at once."""
    left = memoryview(content)
    while left:
        left = left[posix.write(file, left) :]


def receive() -> "str | None":
    """The next frame; None if the judge has closed the channel. Uses no builtin that the program may have changed."""
    header = READER[0](8)
    return READER[0](from_bytes(header, "little")).decode("utf-8", "surrogatepass") if header else None


READER: "list[Callable[[int], bytes]]" = []
"""Reads bytes of the channel."""
from_bytes = int.from_bytes


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        del sys.argv[1:]
        serve()
    else:
        answer()
