"""How a Python program is started in the sandbox: isolated, with the standard library and the sandbox's packages."""

from functools import cache
from pathlib import Path

from magcli.verify.sandbox import Sandbox

_OPTIONS = ("-I", "-S", "-E", "-X", "utf8")


def command(box: Sandbox, script: str = "boot.py") -> list[str]:
    """The command that starts ``boot.py`` (a program with stdin and stdout) or ``driver.py`` (a function's)."""
    return [box.python, *_OPTIONS, script]


def sources(program: str, *, called: bool = False) -> dict[str, bytes | Path]:
    """The files that it needs: the program, and what starts or calls it."""
    starters = ("session.py", *(("driver.py", "leetcode.py") if called else ("boot.py",)))
    return {"program.py": program.encode(errors="surrogatepass"), **{name: _source(name) for name in starters}}


@cache
def _source(name: str) -> bytes:
    return Path(__file__).with_name(name).read_bytes()
