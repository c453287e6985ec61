"""The files with which an exported model runs on one's own computer: a GGUF file, and a Modelfile for Ollama."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from magcli import __version__
from magcli.data import durable
from magcli.errors import usage
from magcli.model.model import Model
from magcli.model.ollama import go_template, modelfile
from magcli.model.weights.gguf import convert
from magcli.run.rundir import read_run
from magcli.stages.shared.engines import system_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from magcli.console import Console


def write_gguf(run: Path, exported: Path, file: Path, console: Console) -> None:
    """Write a Modelfile and convert the exported model; a finished conversion of it is kept.

    Raises:
        UsageError: the file exists and is of another model.
        EnvironmentFault: there is no converter, or it fails.
    """
    model = Model.open(exported)
    # A line break in the name would end the comment.
    name = " ".join(exported.resolve().name.split())
    note = f"{name}, exported by magcli {__version__}; SHA-256 of the model: {model.digest}"
    beside = file.with_suffix(".Modelfile")
    # The first line of a Modelfile says which model its GGUF file is of.
    is_of_model = beside.is_file() and beside.read_text(encoding="utf-8").startswith(f"# {note}\n")
    usage(is_of_model or not file.exists(), f"export: {file} exists already and is of another model; remove it")
    with durable.locked(file):
        _write_modelfile(model, beside, file.name, note, read_run(run).options, console)
        if file.exists():
            durable.renew(file)
            console.say(f"export: {file} is up to date", event="up-to-date")
            return
        console.say(f"export: converting {exported} to {file}", event="converting")
        convert(exported, file)
    text = f"export: {file}, and for Ollama: ollama create {file.stem} -f {beside}"
    console.result(text, event="converted", path=str(file), modelfile=str(beside))


def _write_modelfile(
    model: Model, path: Path, gguf: str, note: str, options: Mapping[str, Any], console: Console
) -> None:
    """Write a Modelfile, and say so if it has no chat template."""
    tokenizer = model.tokenizer
    template = go_template(tokenizer)
    if not template:
        console.say(
            f"export: {path} has no TEMPLATE: no Go template is known that gives the prompts of this model's chat "
            "template, which the GGUF file has",
            event="no-template",
        )
    # Ollama stops at texts, not at ids.
    stops = [str(tokenizer.convert_ids_to_tokens(token)) for token in sorted(model.ends)]
    text = modelfile(
        gguf,
        note,
        template=template,
        stops=stops,
        temperature=options.get("temperature"),
        system=_system(model, options.get("system")),
    )
    with durable.atomic_file(path) as file:
        file.write(text.encode())


def _system(model: Model, named: str | None) -> str | None:
    """The system prompt that a run trained with; None without one, or if its file is gone."""
    path = None if named is None else Path(named)
    # None is magcli's own prompt, which is no file.
    is_there = path is None or str(path) == "none" or path.is_file()
    return system_text(path, model.thoughts) if is_there else None
