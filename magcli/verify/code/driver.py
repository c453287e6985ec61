"""Calls a function of a Python program inside the sandbox and hands back its value as plain data.

This runs there, without the package, on the interpreter's built-in modules alone. The request comes on stdin: a random
token, the name that the program must define, the expression. The answer goes to descriptor 3: the token, a word, and
the value in the text form of ``magcli.verify.code.plain``, or the name of a type that has none. A value of a class of
the program's is the number, string or collection that it holds, whatever the class says of equality.
"""

import posix
import sys
from _json import encode_basestring_ascii

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

REPORT = 3
NOT_PYTHON = b"not python"
SAFE_INTEGER = 1 << 53
AST_ONLY = 0x400
SESSION: "dict[str, Any]" = {"__name__": "session"}
"""The names of ``session.py``."""


class NotPlain(TypeError):
    """The value is no plain data."""


def text_of(value: object) -> str:
    """The value as text; raises NotPlain."""
    if value is None:
        return "null"
    if value is True or value is False:
        return "true" if value else "false"
    if isinstance(value, str):
        return encode_basestring_ascii(value)
    if isinstance(value, int | float | complex):
        return text_of_number(value)
    if isinstance(value, bytes | bytearray):
        return f'{{"bytes":"{value.hex()}"}}'
    return text_of_collection(value)


def text_of_number(value: complex) -> str:
    """An integer in decimal while a float is exact, in hexadecimal beyond; a float by its shortest text."""
    if isinstance(value, int):
        number = int.__pos__(value)
        return str(number) if abs(number) < SAFE_INTEGER else f'{{"int":"{number:x}"}}'
    if isinstance(value, float):
        text = float.__repr__(value)
        return text if text[-1].isdigit() else f'{{"float":"{text}"}}'
    return f'{{"complex":[{text_of_number(value.real)},{text_of_number(value.imag)}]}}'


def text_of_collection(value: object) -> str:
    """A list, tuple, set, frozenset or dict."""
    if isinstance(value, dict):
        pairs = [f"[{text_of(key)},{text_of(item)}]" for key, item in dict.items(value)]
        return f'{{"dict":[{",".join(pairs)}]}}'
    for kind in (list, tuple, set, frozenset):
        if isinstance(value, kind):
            items = f"[{','.join([text_of(item) for item in value])}]"
            return items if kind is list else f'{{"{kind.__name__}":{items}}}'
    raise NotPlain(type(value).__name__)


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
    """Run the program, as a module that is not main; on a call of ``Solution`` with the names that LeetCode supplies.

    Raises:
        NameError: the program does not define the name.
    """
    with open("program.py", "rb") as file, open("session.py", "rb") as script:
        source, session = file.read(), script.read()
    exec(session, SESSION)
    program = sys.modules["program"] = type(sys)("program")
    space = vars(program)
    SESSION["furnish"](space)
    try:
        if name == "Solution":
            supply(names_in(compile(source, "program.py", "exec")) | names_in(compile(call, "call", "eval")), space)
        exec(source, space)
    except BaseException as error:
        if error.__traceback__ is None or error.__traceback__.tb_next is None:
            posix.write(REPORT, NOT_PYTHON)
        SESSION["name_refusal"](error, space)
        raise
    if name not in space or (imports_a_star(source) and not binds(compile(source, "", "exec", AST_ONLY), name)):
        raise NameError(f"the program defines no {name!r}")
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
