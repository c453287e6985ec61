"""Runs a stage whose options are resolved and checked: on its tables, or for --dry-run as far as it can be tried."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from magcli.console import Console
from magcli.data import stream, table
from magcli.errors import UsageError
from magcli.run import dry_run, harness, shard
from magcli.run.stage import Stage


def require_models(config: Any, options: Sequence[str], made: Sequence[Path]) -> None:
    """Refuse a dry run with a model that is not there, by the options that name one, unless the recipe makes it.

    Raises:
        EnvironmentFault: which model.
    """
    from magcli.stages.shared.preview import check_model

    for option in options:
        name = getattr(config, option, "")
        if name and Path(name) not in made:
            check_model(name)


def try_command(stage: Stage, config: Any, tables: Mapping[str, Any], console: Console) -> None:
    """For --dry-run: forecast the command, or preview it on its tables."""
    inputs = tables["inputs"] or ()
    reads_table = _reads_table(stage, config, inputs)
    # Stages with a table forecast in their preview, which knows its rows.
    if stage.INPUTS and not reads_table and stage.forecast is not None:
        stage.forecast(config, console)
    if reads_table:
        named = harness.Tables(inputs, shard=_shard(tables), limit=tables.get("limit"))
        dry_run.try_command(stage, config, named, console)


def _reads_table(stage: Stage, config: Any, inputs: Sequence[str]) -> bool:
    """Whether the stage reads tables with these options; one that it would not read is refused."""
    reads_table = bool(stage.INPUTS) and stage.reads(config) is not None
    if inputs and not reads_table:
        raise UsageError(f"{stage.name} reads no table with these options; leave {inputs[0]} out")
    return reads_table


def check_shard(stage: Stage, config: Any, text: str) -> None:
    """Refuse a value of --shard that is wrong, or for options with which rows cannot be split."""
    shard.parse(text)
    if reason := stage.unshardable_reason and stage.unshardable_reason(config):
        raise UsageError(f"{stage.name}: --shard splits the rows, but {reason}")


def _shard(tables: Mapping[str, Any]) -> shard.Shard | None:
    return None if tables["shard"] is None else shard.parse(tables["shard"])


def execute(stage: Stage, config: Any, tables: Mapping[str, Any], console: Console) -> None:
    """Run the stage on its tables."""
    reads_table = _reads_table(stage, config, tables["inputs"] or ())
    inputs = table.expand(tables["inputs"] or ["-"]) if reads_table else []
    output = tables["output"] or (stage.default_output if stage.writes(config) else None)
    dropped = tables["dropped"]
    # Events with results may go to stdout unless the table does.
    console.results_on_stdout = output is None or not stream.is_stream(stream.target(output))
    named = harness.Tables(
        inputs,
        output=stream.target(output) if output else None,
        dropped=stream.target(dropped) if dropped else None,
        restart=bool(tables["restart"]),
        shard=_shard(tables),
        overwrite=bool(tables["overwrite"]),
        format=tables["format"] or "",
        allow_empty=bool(tables["allow_empty"]),
        limit=tables.get("limit"),
    )
    # Other stages with --cluster start their engines or ranks there themselves.
    if not getattr(config, "cluster", "") or not stage.shardable:
        harness.execute(stage, config, named, console)
        return
    from magcli.stages.shared import cluster_shards

    cluster_shards.execute(stage, config, named, console)
