"""The option --cluster of stages whose shards can run on a cluster, and the options that exclude it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from magcli.config import opt
from magcli.errors import usage
from magcli.stages.shared.options import CLUSTER


@dataclass(frozen=True)
class ClusterOptions:
    """Where the shards of a stage run."""

    cluster: str = opt(
        "",
        "Run the rows in shards as tasks of Ray: local starts a Ray on this machine, auto or HOST:PORT joins a running "
        "one. The output must be a file on storage that all nodes share.",
        panel=CLUSTER,
        affects_rows=False,
    )


@dataclass(frozen=True)
class ClusterEngineOptions:
    """Where the engines of a stage run that does everything else in one process."""

    cluster: str = opt(
        "",
        "Sample with engines on Ray, one on each of its GPUs or, on CPUs, nodes: local starts a Ray on this machine, "
        "auto or HOST:PORT joins a running one.",
        panel=CLUSTER,
        affects_rows=False,
    )


def check_cluster_engines(stage: str, cluster: str, model: str) -> None:
    """Refuse engines on a cluster without a model whose weights they could load."""
    usage(not cluster or bool(model), f"{stage}: --cluster {cluster} places engines, so it needs --model; omit it")
    is_url = model.startswith(("http://", "https://"))
    usage(not cluster or not is_url, f"{stage}: --cluster {cluster} places engines, and --model is a server; omit it")


def check_tables(
    stage: str, config: Any, inputs: Sequence[str], output: str | None, shard: object, sides: Sequence[Path]
) -> None:
    """Refuse a command on a cluster whose tables are not files, or that writes more than its table.

    ``sides`` are the files that it writes besides; ``shard`` is the value of --shard.
    """
    flag = f"{stage}: --cluster {config.cluster}"
    usage(shard is None, f"{flag} makes the shards itself; omit --shard")
    usage("-" not in inputs, f"{flag} needs the input as files that all nodes can read, not stdin")
    text = f"{flag} needs a file as --output, on storage that all nodes share; its shards are kept next to it"
    usage(output is not None and output != "-", text)
    names = ", ".join(map(str, sides))
    usage(not sides, f"{flag} cannot write {names}; omit the option, or use --shard by hand")
