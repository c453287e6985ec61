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
from _json import encode_basestring_ascii

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

REPORT = 3
SAFE_INTEGER = 1 << 53
MAX_ITEMS = 1_000_000
AST_ONLY = 0x400
SESSION: "dict[str, Any]" = {"__name__": "session"}
"""The names of ``session.py``."""


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
    plain = [base for base in type.__dict__["__mro__"].__get__(kind) if base in WRITERS]
    return WRITERS[plain[0]](value) if plain else text_of_other(value)


def text_of_int(value: int) -> str:
    """Decimal up to 53 bits, hexadecimal beyond."""
    number = int.__pos__(value)
    return str(number) if -SAFE_INTEGER < number < SAFE_INTEGER else f'{{"int":"{number:x}"}}'


def text_of_float(value: float) -> str:
    """The shortest text that represents it."""
    text = float.__repr__(value)
    return text if text[-1].isdigit() else f'{{"float":"{text}"}}'


def text_of_complex(value: complex) -> str:
    """Both parts."""
    number = complex.__pos__(value)
    return f'{{"complex":[{text_of_float(number.real)},{text_of_float(number.imag)}]}}'


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


def text_of_other(value: object) -> str:
    """A number or array of a library, or any object: the name of its type and its elements."""
    kind = type(value)
    for base in type.__dict__["__mro__"].__get__(kind):
        name = base.__module__, base.__name__
        if name == ("fractions", "Fraction"):
            return f'{{"fraction":[{text_of(value.numerator)},{text_of(value.denominator)}]}}'  # type: ignore[attr-defined]
        if name == ("decimal", "Decimal"):
            return f'{{"decimal":"{base.__str__(value)}"}}'
        if name in (("numpy", "ndarray"), ("numpy", "generic")):
            plain = base.tolist(value)
            return text_of(plain) if type(plain) is not kind else text_of_float(float(plain))  # type: ignore[arg-type]
    if SERVING == [False]:
        raise NotPlain(kind.__name__)
    name_of_kind = encode_basestring_ascii(type.__dict__["__name__"].__get__(kind))
    items = text_of_items(first_items(value)) if hasattr(kind, "__iter__") else "null"
    if not SERVING:
        return f'{{"other":[{name_of_kind},{items}]}}'
    OBJECTS.append(value)
    return f'{{"other":[{name_of_kind},{items},{len(OBJECTS) - 1}]}}'


def first_items(value: object) -> list[object]:
    """The elements of an iterable; raises NotPlain beyond ``MAX_ITEMS``."""
    items = []
    for item in value:  # type: ignore[attr-defined]
        items.append(item)
        if len(items) > MAX_ITEMS:
            raise NotPlain(type(value).__name__)
    return items


def binds(tree: object, name: str) -> bool:
    """Whether the source itself binds a name; star imports do not count."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        kind = type(node).__name__
        if kind in ("FunctionDef", "ClassDef", "AsyncFunctionDef") and node.name == name:  # type: ignore[attr-defined]
            return True
        if kind == "alias" and (node.asname or node.name) == name:  # type: ignore[attr-defined]
            return True
        if kind == "Name" and node.id == name and type(node.ctx).__name__ == "Store":  # type: ignore[attr-defined]
            return True
        for field in getattr(node, "_fields", ()):
            part = getattr(node, field, None)
            if isinstance(part, list):
                waiting.extend(part)
            elif hasattr(part, "_fields"):
                waiting.append(part)
    return False


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
    program = sys.modules["program"] = type(sys)("program")
    space = vars(program)
    SESSION["prepare"](space)
    if name == "Solution":
        supply(names_in(SESSION["compiled"](source)) | mentioned, space)
    SESSION["execute"](source, space)
    if name not in space or (imports_a_star(source) and not binds(compile(source, "", "exec", AST_ONLY), name)):
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
    left = memoryview(report.encode("ascii", "replace"))
    while left:
        left = left[posix.write(REPORT, left) :]
    posix._exit(posix.EX_OK)


# ---- serving a script ----

CHANNEL = 4
"""The socket to the judge of a script, which is in another sandbox; a frame is 8 bytes of length and text.

The judge sends ``?`` and an expression to evaluate, ``=`` and the value of a function of the script that was called
here, or ``!`` to have the last exception raised."""
TOOLS: "dict[str, Any]" = {}
"""The names in requests: ``P`` the program's names, ``H`` its objects, ``call`` and the constructors of values."""
RAISED: "list[BaseException]" = []
"""The last exception of the program."""


def serve() -> None:
    """Load the program, answer the judge's requests until it closes the channel, and exit."""
    name, mentioned, library = sys.stdin.buffer.read().decode().split("\n", 2)
    SERVING.append(True)
    channel = open(CHANNEL, "rb", closefd=False)  # noqa: SIM115, open until the process ends
    READER.append(channel.read)
    space = load(name, set(mentioned.split()))
    if library:
        exec(library, {"WRITERS": WRITERS, "LIBRARY": LIBRARY, "text_of": text_of})
    TOOLS.update(P=space, H=OBJECTS, F=float, C=complex, S=set, Z=frozenset, N=library_name, L=callback, call=call)
    while (request := receive()) is not None:
        if request == "!" and RAISED:
            raise RAISED[-1]
        send(reply_to(request[1:]))
    sys.stdout.flush()
    posix._exit(posix.EX_OK)


def reply_to(request: str) -> str:
    """The value of an expression, or the exception of the program, as text."""
    try:
        return f"value {text_of(eval(request, TOOLS))}"
    except MemoryError:
        raise
    except NotPlain as refused:
        return f"no {refused}"
    except Exception as raised:
        SESSION["name_refusal"](raised, TOOLS["P"])
        RAISED.append(raised)
        return f"raised {text_of_exception(raised)}"


def text_of_exception(error: BaseException) -> str:
    """The name of its type and its arguments, if they are plain data."""
    name = type(error).__name__
    try:
        return plain_text((name, error.args))
    except Exception:
        return text_of((name, ()))


def plain_text(value: object) -> str:
    """The text of plain data; raises NotPlain for objects, without looking at their elements."""
    was_serving = SERVING.copy()
    SERVING[:] = [False]
    try:
        return text_of(value)
    finally:
        SERVING[:] = was_serving


def call(function: "Any", args: "list[Any]", kwargs: "dict[str, Any]") -> "tuple[Any, dict[int, Any]]":
    """The value of a call, and those of its arguments that the call changed, by their position."""
    mutable = [position for position, value in enumerate(args) if type(value) in (list, dict, set)]
    before = {position: text_before(args[position]) for position in mutable}
    value = function(*args, **kwargs)
    changed = [position for position, text in before.items() if text_before(args[position]) != text]
    return value, {position: args[position] for position in changed}


def text_before(value: object) -> "str | None":
    """The text by which a change of an argument is seen; None if it contains objects."""
    try:
        return plain_text(value)
    except NotPlain:
        return None


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
            send(reply_to(answer[1:]))  # the function calls the program in turn
        posix._exit(posix.EX_OK)

    return function


def send(text: str) -> None:
    """Send a frame."""
    body = text.encode("ascii", "replace")
    left = memoryview(len(body).to_bytes(8, "little") + body)
    while left:
        left = left[posix.write(CHANNEL, left) :]


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
