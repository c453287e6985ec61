"""Starts a Python program in the sandbox with what the site module supplies (``exit``, ``quit``, ``help``),
``__file__`` and the packages of the sandbox. Runs inside, without magcli.

As a script it runs ``program.py`` as ``__main__``; ``driver.py`` uses its functions. A syntax error is reported on
descriptor 3, to distinguish it from an error at run time, and an error names the call that the sandbox refused.
"""

import builtins
import posix
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType

EPERM = 1
REPORT = 3
NOT_PYTHON = b"not python"
PROCESS_MODULES = ("subprocess", "multiprocessing", "concurrent.futures.process")
"""Modules whose OSErrors come from processes that cannot be started."""
PROCESS_CALLS = ("fork", "forkpty", "posix_spawn", "posix_spawnp")


def start() -> None:
    """Run the program as ``__main__``; its exceptions end the process as usual."""
    with open("program.py", "rb") as file:
        source = file.read()
    program = sys.modules["__main__"] = type(sys)("__main__")
    prepare(vars(program))
    sys.argv[0] = "program.py"
    execute(source, vars(program))


def prepare(space: "dict[str, object]") -> None:
    """Add what a program that runs in ``space`` may expect."""
    folder = posix.getcwd()
    # Absolute, as usual since Python 3.9; the packages lie beside the program's folder.
    space["__file__"] = f"{folder}/program.py"
    sys.path.append(f"{folder.rpartition('/')[0]}/packages")
    vars(builtins).update(exit=leave, quit=leave, help=explain)


def binds(tree: object, name: str) -> bool:
    """Whether the source itself binds a name; star imports do not count."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        kind = type(node).__name__
        # By the names of its types, without importing ``ast``.
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


def execute(source: bytes, space: "dict[str, object]") -> None:
    """Run a program in ``space``."""
    try:
        exec(source, space)  # not by compile(), which would first create the types of the syntax tree: 1.3 ms
    except BaseException as error:
        # Nothing of the program is in the traceback: it did not compile.
        if error.__traceback__ is None or error.__traceback__.tb_next is None:
            posix.write(REPORT, NOT_PYTHON)
        name_refusal(error, space)
        raise


def compiled(source: bytes) -> "CodeType":
    """A program's code."""
    try:
        return compile(source, "program.py", "exec")
    except BaseException:
        posix.write(REPORT, NOT_PYTHON)
        raise


def leave(code: object = None) -> None:
    """``exit`` and ``quit``, which accept a keyword argument."""
    raise SystemExit(code)


def explain(*asked: object) -> None:
    """``help``; its module takes longer to import than most programs run."""
    import pydoc

    pydoc.help(*asked)


def name_refusal(error: BaseException, space: "dict[str, object]") -> None:
    """Add a note to an OSError of a program run in ``space`` that names the call that the sandbox refused, if any."""
    if isinstance(error, OSError) and hasattr(error, "add_note"):
        try:
            call, modules = refused_call(error, space)
        except Exception:  # the program may have changed anything that this reads
            return
        # Such a module fails with other numbers than EPERM, too.
        processes = any(module.startswith(PROCESS_MODULES) for module in modules)
        if call and (processes or call.rpartition(".")[2] in PROCESS_CALLS):
            error.add_note(f"processes are not allowed: {call}")
        elif call and error.errno == EPERM:
            error.add_note(f"not allowed: {call}")


def refused_call(error: OSError, space: "dict[str, object]") -> "tuple[str, list[str]]":
    """The program's last call that led to an error, and the modules on the way."""
    with open("program.py", "rb") as file:
        source = file.read()
    trace = error.__traceback__
    call = None
    modules: list[str] = []
    while trace:
        code, module_globals = trace.tb_frame.f_code, trace.tb_frame.f_globals
        # The program's own frame starts over: only what it called last counts.
        if module_globals is space:
            call, modules = text_at(code, trace.tb_lasti, source), []
        elif call is not None:
            module = str(module_globals.get("__name__"))
            call = call if modules else f"{module}.{code.co_qualname.removesuffix('.__init__')}"
            modules.append(module)
        trace = trace.tb_next
    return call or "", modules


def text_at(code: "CodeType", instruction: int, source: bytes) -> str:
    """The name of the callee at an instruction, as written in the source; empty if it has none."""
    # An instruction takes two bytes.
    line, _, start, end = list(code.co_positions())[instruction // 2]
    lines = source.split(b"\n")
    text = lines[line - 1][start:end].partition(b"(")[0].decode(errors="replace").strip() if line else ""
    return text if all(part.isidentifier() for part in text.split(".")) else ""


if __name__ == "__main__":
    start()
