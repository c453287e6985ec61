"""The work of `magcli export`, once its options are checked."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from magcli import __version__
from magcli.data import durable, manifest, table
from magcli.data.manifest import Input
from magcli.data.schema import require
from magcli.data.values import all_rows
from magcli.errors import DataError, EnvironmentFault, usage
from magcli.model.hub import Card, Figure, Training, push, render
from magcli.model.load import atomic_model_folder, fingerprint
from magcli.model.model import Model
from magcli.model.settings import copy_settings
from magcli.model.weights.peft import copy_adapter
from magcli.model.weights.tensors import copy_weights
from magcli.run.rundir import lineage
from magcli.stages.export import Config
from magcli.stages.export.local import write_gguf

if TYPE_CHECKING:
    from magcli.console import Console
    from magcli.data.manifest import Chain
    from magcli.data.source import Rows
    from magcli.run.job import Job
    from magcli.run.rundir import Trained

NOTE = "export.json"
ADAPTER_FOLDER = "adapter"
"""Where a run with LoRA and its export have the adapter."""


def run(config: Config, rows: Rows, job: Job) -> Rows:
    """Write the folder, push it with --push, and convert it with --gguf."""
    assert config.run is not None
    assert config.out is not None
    # Two exports to one folder would write over each other.
    with durable.locked(config.out):
        note, card = _described(config, job.console)
        if _is_there(config.out, note):
            durable.renew(config.out)
            job.console.say(f"export: {config.out} is up to date", event="up-to-date")
        else:
            _write(config, note, card)
            job.console.result(f"export: model and card in {config.out}", event="exported", path=str(config.out))
    if config.push:
        where = push(config.out, config.push, public=config.public)
        job.console.result(f"export: pushed to {where}", event="pushed", url=where)
    if config.gguf is not None:
        write_gguf(config.run, config.out, config.gguf, job.console)
    return iter(())


def _described(config: Config, console: Console) -> tuple[dict[str, Any], Card]:
    """The contents of the folder, as JSON values, by which an existing export is recognized, and as the card.

    Raises:
        DataError: the run is not finished or damaged, or a table holds no metrics.
    """
    assert config.run is not None
    assert config.out is not None
    # All runs that led to the model, the first one first.
    runs = lineage(config.run, _digest, console)
    folder = config.run / "model"
    if not (folder / "config.json").is_file():
        raise DataError(f"{config.run} has no model yet: its training is not finished; the same command resumes it")
    model = Model.open(folder)
    _ = model.tokenizer  # one that cannot be used is refused
    hub_id = "" if "model_sha256" in runs[0].options else runs[0].started_from  # only a folder has a digest
    # The last one is the model itself.
    origins = list(_origins(runs, model.digest))
    models = _models(runs, origins[-1][1])
    figures = [figure for path in config.evaluations for figure in _figures(path, models)]
    card = Card(
        config.name or config.push.rpartition("/")[2] or config.out.resolve().name,
        config.license,
        config.base or hub_id,
        __version__,
        [Training(run.stage, run.steps, _start(run), _public(run.options)) for run in runs],
        _history(runs),
        figures,
        origins,
        reads_images=model.is_nested,
    )
    # As it will be read back, with lists for tuples and strings for paths.
    about = {"command": "export", "dtype": config.save_dtype, **asdict(card)}
    if (config.run / ADAPTER_FOLDER).is_dir():
        about["adapter_base"] = _adapter_base(runs, config)
    return json.loads(json.dumps(about, default=str)), card


def _adapter_base(runs: Sequence[Trained], config: Config) -> str:
    """The model under a run's adapter, as peft finds it anywhere: a hub id, or else an absolute path."""
    last = runs[-1]
    # A hub id has no digest.
    if "model_sha256" not in last.options:
        return last.started_from
    # --base is where the first run started, which is this one only if it is alone.
    return config.base if config.base and len(runs) == 1 else str(Path(last.started_from).resolve())


def _digest(model: Path, weights: bool) -> str:
    """The digest of a model folder; empty if it no longer holds the model, or a damaged one."""
    try:
        return fingerprint(model, weights=weights)
    except (DataError, EnvironmentFault):
        return ""


def _start(run: Trained) -> str:
    """The model that a run started from, without paths of the run's machine."""
    folder = Path(run.started_from)
    # Such as sft/model: "model" alone says nothing.
    return "/".join(folder.parts[-2:]) if "model_sha256" in run.options else run.started_from


def _public(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options without paths of the run's machine."""
    return {key: _named(value) for key, value in options.items() if key != "model"}


def _named(value: Any) -> Any:
    if isinstance(value, str) and Path(value).is_absolute():
        return Path(value).name
    return [_named(part) for part in value] if isinstance(value, list) else value


def _history(runs: Sequence[Trained]) -> Chain:
    """The stages behind all runs' inputs, each once, without paths of their machines."""
    chain = manifest.merge([run.history for run in runs])
    return tuple(replace(link, config=_public(link.config)) for link in chain)


def _origins(runs: Sequence[Trained], model: str) -> Iterator[tuple[str, Input]]:
    """Every file behind the model that has a digest, oldest first, and the model itself last."""
    first = runs[0].options.get("model_sha256")
    if first:
        yield "model at the start", Input(_start(runs[0]), first, 0)
    for link in _history(runs):
        for source in link.inputs:
            yield f"input of {link.stage}", source
    for run in runs:
        for source in run.inputs:
            yield f"input of {run.stage}, trained on", source
    yield "this model, as trained", Input("", model, 0)


def _models(runs: Sequence[Trained], model: Input) -> dict[str, str]:
    """The names of models in the evaluation table, by their digests."""
    names = {}
    for run in runs:
        if "model_sha256" in run.options:  # not if it started from random weights
            names[run.options["model_sha256"]] = f"before {run.stage}"
    names[model.sha256] = "this model"
    return names


def _figures(path: Path, models: Mapping[str, str]) -> Iterator[Figure]:
    """The metrics of one evaluation table; a comparison names the model of each itself.

    Raises:
        DataError: it is not a table of metrics.
    """
    source = table.read(str(path))
    require(source.schema, ("metric", "value", "low", "high"), stage="export", where=str(path))
    rows = all_rows(source.rows)
    evaluation = source.chain[-1].config if source.chain else {}  # known once the rows are read: a pipe has it last
    evaluated = models.get(str(evaluation.get("model_sha256")), path.stem)
    for row in rows:
        model = row.get("model") or evaluated
        suite = row.get("suite")
        yield Figure(
            model,
            f"{suite}: {row['metric']}" if suite else row["metric"],
            row["value"],
            row["low"],
            row["high"],
            row.get("num_problems") or 0,
            row.get("num_samples") or 0,
        )


def _is_there(out: Path, note: Mapping[str, Any]) -> bool:
    """Whether the same export is finished already; a different folder in its place is refused."""
    if not out.exists():
        return False
    try:
        existing = json.loads((out / NOTE).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        existing = None
    usage(existing == note, f"export: {out} exists already and is a different export; remove it or name another folder")
    return True


def _write(config: Config, note: Mapping[str, Any], card: Card) -> None:
    assert config.run is not None
    assert config.out is not None
    model = config.run / "model"
    # The names of safetensors; None copies the weights.
    kind = {"source": None, "bf16": "BF16", "fp32": "F32"}[config.save_dtype]
    base = note.get("adapter_base")
    # It appears complete or not at all.
    with atomic_model_folder(config.out) as folder:
        copy_settings(model, folder)
        copy_weights(model, folder, kind)
        if base:
            copy_adapter(config.run / ADAPTER_FOLDER, folder / ADAPTER_FOLDER, base)
        (folder / "README.md").write_text(render(card), encoding="utf-8")
        (folder / NOTE).write_text(json.dumps(note, indent=1) + "\n", encoding="utf-8")
