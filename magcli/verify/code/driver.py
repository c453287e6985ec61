"""Calls a function of a Python program inside the sandbox and hands back its value as plain data.

This runs there, without the package, on the interpreter's built-in modules alone. The request comes on stdin: a random
token, the name that the program must define, the expression. The answer goes to descriptor 3: the token, a word, and
the value in the text form of ``magcli.verify.code.plain``. A value of a class that is derived from a plain type, the
program's own or one of the library, is the number, string or collection that it holds, read by that type's own methods,
whatever the class says of itself. Arrays and numbers of numpy are lists and numbers.
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


class NotPlain(TypeError):
    """The value cannot be written as plain data."""


def text_of(value: object) -> str:
    """The value as text, by its exact type or the first plain type that this is derived from; raises NotPlain."""
    kind = type(value)
    if kind in WRITERS:
        return WRITERS[kind](value)
    plain = [base for base in type.__dict__["__mro__"].__get__(kind) if base in WRITERS]
    return WRITERS[plain[0]](value) if plain else text_of_other(value)


def text_of_none(value: object) -> str:
    """None."""
    return "null"


def text_of_bool(value: bool) -> str:
    """As JSON has it."""
    return "true" if value else "false"


def text_of_int(value: int) -> str:
    """In decimal while a float is exact, in hexadecimal beyond."""
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


def text_of_bytes(value: bytes) -> str:
    """In hexadecimal."""
    return f'{{"bytes":"{bytes.hex(value)}"}}'


def text_of_bytearray(value: bytearray) -> str:
    """In hexadecimal."""
    return f'{{"bytes":"{bytearray.hex(value)}"}}'


def text_of_items(items: object) -> str:
    """A list of the texts."""
    return f"[{','.join([text_of(item) for item in items])}]"  # type: ignore[attr-defined]


def text_of_dict(value: dict[object, object]) -> str:
    """A list of pairs, in its order."""
    pairs = [f"[{text_of(key)},{text_of(item)}]" for key, item in dict.items(value)]
    return f'{{"dict":[{",".join(pairs)}]}}'


WRITERS: "dict[type, Callable[[Any], str]]" = {
    type(None): text_of_none,
    bool: text_of_bool,
    int: text_of_int,
    float: text_of_float,
    complex: text_of_complex,
    str: encode_basestring_ascii,
    bytes: text_of_bytes,
    bytearray: text_of_bytearray,
    list: lambda value: text_of_items(list.__iter__(value)),
    tuple: lambda value: f'{{"tuple":{text_of_items(tuple.__iter__(value))}}}',
    set: lambda value: f'{{"set":{text_of_items(set.__iter__(value))}}}',
    frozenset: lambda value: f'{{"frozenset":{text_of_items(frozenset.__iter__(value))}}}',
    dict: text_of_dict,
}
"""The text of a value of each plain type."""


def text_of_other(value: object) -> str:
    """A number or array of a library, or any object: the name of its type and what iterating over it gives."""
    kind = type(value)
    for known in type.__dict__["__mro__"].__get__(kind):
        name = known.__module__, known.__name__
        if name == ("fractions", "Fraction"):
            return f'{{"fraction":[{text_of(value.numerator)},{text_of(value.denominator)}]}}'  # type: ignore[attr-defined]
        if name == ("decimal", "Decimal"):
            return f'{{"decimal":"{known.__str__(value)}"}}'
        if name in (("numpy", "ndarray"), ("numpy", "generic")):
            plain = known.tolist(value)
            return text_of(plain) if type(plain) is not kind else text_of_float(float(plain))  # type: ignore[arg-type]
    name_of_kind = encode_basestring_ascii(type.__dict__["__name__"].__get__(kind))
    items = text_of_items(first_items(value)) if hasattr(kind, "__iter__") else "null"
    return f'{{"other":[{name_of_kind},{items}]}}'


def first_items(value: object) -> list[object]:
    """What iterating gives; raises NotPlain where it does not end soon."""
    items = []
    for item in value:  # type: ignore[attr-defined]
        items.append(item)
        if len(items) > MAX_ITEMS:
            raise NotPlain(type(value).__name__)
    return items


def binds(tree: object, name: str) -> bool:
    """Whether a name is bound in the program's own words; what a star import brings along does not count."""
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
            waiting.extend(part if isinstance(part, list) else [part] if hasattr(part, "_fields") else [])
    return False


def names_in(code: object) -> set[str]:
    """The names that a piece of code mentions, in its functions too."""
    names = set(code.co_names)  # type: ignore[attr-defined]
    return names.union(*(names_in(part) for part in code.co_consts if hasattr(part, "co_names")))  # type: ignore[attr-defined]


def load(name: str, call: str) -> dict[str, object]:
    """Run the program as a module other than main; for a call of ``Solution`` with the names that LeetCode supplies.

    Raises NameError if the program does not define the name.
    """
    with open("program.py", "rb") as file, open("session.py", "rb") as script:
        source, session = file.read(), script.read()
    exec(session, SESSION)
    program = sys.modules["program"] = type(sys)("program")
    space = vars(program)
    SESSION["prepare"](space)
    if name == "Solution":
        supply(names_in(SESSION["compiled"](source)) | names_in(compile(call, "call", "eval")), space)
    SESSION["execute"](source, space)
    if name not in space or (imports_a_star(source) and not binds(compile(source, "", "exec", AST_ONLY), name)):
        raise NameError(f"the program does not define {name!r}")
    return space


def imports_a_star(source: bytes) -> bool:
    """Whether the program may have a star import; looking for one in the syntax tree costs more than most tests."""
    return b"import*" in b"".join(source.split())


def supply(names: set[str], space: dict[str, object]) -> None:
    """Bind those of the names that LeetCode supplies."""
    with open("leetcode.py", "rb") as file:
        supplier: dict[str, object] = {"__name__": "leetcode"}
        exec(file.read(), supplier)
    supplier["bind"](names, space)  # type: ignore[operator]


def answer() -> None:
    """Read the request, call, report, and end before anything that the program left behind can run."""
    token, name, call = sys.stdin.buffer.read().decode().split("\n", 2)
    space = load(name, call)
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


if __name__ == "__main__":
    answer()
