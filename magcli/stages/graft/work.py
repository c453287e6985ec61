"""The work of `magcli graft`, once its options are checked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from magcli import __version__
from magcli.data import durable
from magcli.errors import usage
from magcli.model.load import atomic_model_folder, fingerprint, load_config, local_folder, vocabulary
from magcli.model.settings import copy_settings
from magcli.model.weights import graft
from magcli.model.weights.tensors import copy_index, stored_tensors, weight_files
from magcli.stages.graft import Config

if TYPE_CHECKING:
    from magcli.data.source import Rows
    from magcli.model.weights.graft import Plan, Rounded
    from magcli.run.job import Job

NOTE = "graft.json"


def run(config: Config, rows: Rows, job: Job) -> Rows:
    """Check that the two models fit, then write the folder."""
    assert config.out is not None
    # Hub ids are downloaded here.
    text, vlm = local_folder(config.text), local_folder(config.into)
    with durable.locked(config.out):
        note = {
            "text": {"name": Path(config.text).name, "sha256": fingerprint(text)},
            "into": {"name": Path(config.into).name, "sha256": fingerprint(vlm)},
        }
        if not _is_there(config.out, note, job):
            planned = _planned(text, vlm)
            rounded = _write(vlm, config.out, planned, note)
            _report(rounded, planned, config.out, job)
    return iter(())


def _is_there(out: Path, note: dict[str, Any], job: Job) -> bool:
    """Whether the same graft is finished already; a different folder in its place is refused."""
    if not out.exists():
        return False
    existing = _note(out)
    usage(
        # It also has what the graft did, which is no part of what was asked.
        all(existing.get(key) == value for key, value in note.items()),
        f"graft: {out} exists already and is a different graft; remove it or name another folder",
    )
    durable.renew(out)
    job.console.say(f"graft: {out} is up to date", event="up-to-date")
    return True


def _note(out: Path) -> dict[str, Any]:
    """The record of a finished graft; empty if there is none, or a damaged one."""
    try:
        return dict(json.loads((out / NOTE).read_text(encoding="utf-8")))
    except (OSError, ValueError, RecursionError):
        return {}


def _planned(text: Path, vlm: Path) -> Plan:
    graft.check_settings(load_config(str(text)), load_config(str(vlm)))
    graft.check_tokens(vocabulary(str(text)), vocabulary(str(vlm)))
    return graft.plan(stored_tensors(text), stored_tensors(vlm))


def _write(vlm: Path, out: Path, planned: Plan, note: dict[str, Any]) -> Rounded:
    """Write all files; returns how many values were rounded."""
    with atomic_model_folder(out) as folder:
        copy_settings(vlm, folder)
        copy_index(vlm, folder)
        # File by file as in the vision-language model, so that its index stays right.
        of_files = [graft.write_shard(file, folder / file.name, planned) for file in weight_files(vlm)]
        rounded = graft.total(of_files)
        record = {
            "command": "graft",
            "version": __version__,
            **note,
            "rounded": {"values": rounded.values, "changed": rounded.changed, "types": sorted(rounded.types)},
            "tensors": {name: stored.name for name, stored in sorted(planned.items())},
        }
        (folder / NOTE).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return rounded


def _report(rounded: Rounded, planned: Plan, out: Path, job: Job) -> None:
    """Say how many tensors were taken over, whether exactly, and where the model is."""
    how = "bit by bit"
    if rounded.types:
        types = ", ".join(f"{source} to {target}" for source, target in sorted(rounded.types))
        how = f"rounded from {types}: {rounded.changed:,} of {rounded.values:,} values changed"
    text = f"graft: {len(planned)} text tensors {how}; model in {out}"
    job.console.result(text, event="grafted", tensors=len(planned), changed=rounded.changed, path=str(out))
