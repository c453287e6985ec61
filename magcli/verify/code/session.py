"""What a Python program finds in its namespace, as from an interpreter with its site module: ``exit``, ``quit``,
``help``, ``__file__`` and the packages of the sandbox. This runs inside, without the package.

It also names what the sandbox refused to a program that died of it: the system's own words do not say.
"""

import builtins
import posix
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType

EPERM = 1
STARTS_PROCESSES = ("subprocess", "multiprocessing", "concurrent.futures.process")
"""Modules whose failures in the system come from processes that cannot be started."""
PROCESS_CALLS = ("fork", "forkpty", "posix_spawn", "posix_spawnp")


def prepare(space: "dict[str, object]") -> None:
    """Add what a program that runs in ``space`` may expect."""
    folder = posix.getcwd()
    space["__file__"] = f"{folder}/program.py"
    sys.path.append(f"{folder.rpartition('/')[0]}/packages")
    vars(builtins).update(exit=leave, quit=leave, help=explain)


def leave(code: object = None) -> None:
    """``exit`` and ``quit``, whose argument may be named."""
    raise SystemExit(code)


def explain(*asked: object) -> None:
    """``help``; the module that it comes from takes longer to import than most programs run."""
    import pydoc

    pydoc.help(*asked)


def name_refusal(error: BaseException, space: "dict[str, object]") -> None:
    """Note on an error of a program run in ``space`` which call it was that the sandbox refused, where that is so."""
    if isinstance(error, OSError) and hasattr(error, "add_note"):
        try:
            call, modules = refused_call(error, space)
        except Exception:  # the program may have changed whatever this looks at
            return
        processes = any(module.startswith(STARTS_PROCESSES) for module in modules)
        if call and (processes or call.rpartition(".")[2] in PROCESS_CALLS):
            error.add_note(f"processes are not allowed: {call}")
        elif call and error.errno == EPERM:
            error.add_note(f"not allowed: {call}")


def refused_call(error: OSError, space: "dict[str, object]") -> "tuple[str, list[str]]":
    """The last call of the program's own that led to an error, and the modules that it went through."""
    with open("program.py", "rb") as file:
        source = file.read()
    place, call = error.__traceback__, None
    modules: list[str] = []
    while place:
        inside, code = place.tb_frame.f_globals, place.tb_frame.f_code
        if inside is space:
            call, modules = text_at(code, place.tb_lasti, source), []
        elif call is not None:
            module = str(inside.get("__name__"))
            call = call if modules else f"{module}.{code.co_qualname.removesuffix('.__init__')}"
            modules.append(module)
        place = place.tb_next
    return call or "", modules


def text_at(code: "CodeType", instruction: int, source: bytes) -> str:
    """The name of what is called at an instruction, as the source has it; empty where it has none."""
    line, _, start, end = list(code.co_positions())[instruction // 2]
    lines = source.split(b"\n")
    text = lines[line - 1][start:end].partition(b"(")[0].decode(errors="replace").strip() if line else ""
    return text if all(part.isidentifier() for part in text.split(".")) else ""
