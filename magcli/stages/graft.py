"""Put a trained text model back under the vision encoder that it came from.

The result is the vision-language model with the text model's weights: its vision encoder, configuration, tokenizer and
processor are copied byte by byte, and the text weights are rounded once to its number format. Names, shapes, settings
and vocabularies must agree; otherwise the error names the first difference. Weights are streamed, a few megabytes at a
time; the folder is written atomically.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from magcli import __version__
from magcli.config import opt
from magcli.errors import usage

if TYPE_CHECKING:
    from magcli.data.source import Rows
    from magcli.model.graft import Plan, Rounded
    from magcli.run.job import Job

INPUTS = ""
OUTPUT = ""
EXAMPLE = "magcli graft --text examples/model --into examples/model-vision -o grafted"
NOTE = "graft.json"


@dataclass(frozen=True)
class Config:
    """Options of `magcli graft`."""

    text: str = opt("", "The trained text model: a folder, such as a run's model, or a hub id.")
    into: str = opt("", "The vision-language model that it came from: a folder or a hub id.")
    out: Path | None = opt(None, "Folder for the result; it must not exist.", short="-o")


def check(config: Config) -> None:
    """Refuse a command without a model or an output."""
    usage(bool(config.text), "graft: --text is missing: the trained text model, a folder or a hub id")
    usage(bool(config.into), "graft: --into is missing: the vision-language model, a folder or a hub id")
    usage(config.out is not None, "graft: -o is missing: the folder for the result")


def run(config: Config, rows: Rows, job: Job) -> Rows:
    """Check that the two models fit, then write the folder."""
    from magcli.data import durable
    from magcli.model.load import fingerprint, local_folder

    assert config.out is not None
    text, vlm = local_folder(config.text), local_folder(config.into)
    with durable.locked(config.out):
        note = {
            "text": {"name": Path(config.text).name, "sha256": fingerprint(text)},
            "into": {"name": Path(config.into).name, "sha256": fingerprint(vlm)},
        }
        if not _is_there(config.out, note, job):
            planned = _planned(text, vlm)
            _report(_write(text, vlm, config.out, planned, note), planned, config.out, job)
    return iter(())


def _is_there(out: Path, note: dict[str, Any], job: Job) -> bool:
    """Whether the same graft is finished already; a different folder in its place is refused."""
    if not out.exists():
        return False
    existing = _note(out)
    usage(
        all(existing.get(key) == value for key, value in note.items()),
        f"graft: {out} exists already and is a different graft; remove it or name another folder",
    )
    job.console.say(f"graft: {out} is up to date", event="up-to-date")
    return True


def _note(out: Path) -> dict[str, Any]:
    """The record of a finished graft; empty if there is none, or a damaged one."""
    try:
        return dict(json.loads((out / NOTE).read_text(encoding="utf-8")))
    except (OSError, ValueError, RecursionError):
        return {}


def _planned(text: Path, vlm: Path) -> Plan:
    from magcli.model import graft
    from magcli.model.load import load_config, vocabulary
    from magcli.model.tensors import stored_tensors

    graft.check_settings(load_config(str(text)), load_config(str(vlm)))
    graft.check_tokens(vocabulary(str(text)), vocabulary(str(vlm)))
    return graft.plan(stored_tensors(text), stored_tensors(vlm))


def _write(text: Path, vlm: Path, out: Path, planned: Plan, note: dict[str, Any]) -> Rounded:
    """Write all files; returns how many values were rounded."""
    from magcli.model import graft
    from magcli.model.load import atomic_model_folder
    from magcli.model.settings import copy_settings
    from magcli.model.tensors import copy_index, weight_files

    with atomic_model_folder(out) as folder:
        copy_settings(vlm, folder)
        copy_index(vlm, folder)
        rounded = graft.total([graft.write_shard(file, folder / file.name, planned) for file in weight_files(vlm)])
        counts = {"values": rounded.values, "changed": rounded.changed, "types": sorted(rounded.types)}
        record = {"command": "graft", "version": __version__, **note, "rounded": counts}
        record["tensors"] = {name: stored.name for name, stored in sorted(planned.items())}
        (folder / NOTE).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return rounded


def _report(rounded: Rounded, planned: Plan, out: Path, job: Job) -> None:
    types = ", ".join(f"{source} to {target}" for source, target in sorted(rounded.types))
    changes = f"{rounded.changed:,} of {rounded.values:,} values changed"
    how = f"rounded from {types}: {changes}" if types else "bit by bit"
    text = f"graft: {len(planned)} text tensors {how}; model in {out}"
    job.console.result(text, event="grafted", tensors=len(planned), changed=rounded.changed, path=str(out))
