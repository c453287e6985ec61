"""Two or more runs or evaluations side by side, in the terminal: which options differ, and which is better.

PATHS are folders of runs, or tables of metrics or graded completions, one a model. Of runs: the options that differ,
the mean of each metric over the last tenth of the steps, and the last accuracy on held-out problems. Of tables: every
metric, and its difference to the first table, paired by problem, with 95% intervals. A sweep is a loop of the shell
over `magcli rl --run runs/lr-$lr --lr $lr`, and `magcli compare runs/lr-*` says what it found.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from magcli.config import opt
from magcli.errors import usage

INPUTS = ""
OUTPUT = ""
EXAMPLE = "magcli compare examples/shards/graded-1.arrow examples/shards/graded-2.arrow"


@dataclass(frozen=True)
class Config:
    """Options of `magcli compare`."""

    paths: tuple[str, ...] = opt((), "Folders of runs, or tables of metrics or graded completions.", positional=True)
    ks: tuple[int, ...] = opt((1,), "Values of k for pass@k and maj@k of graded completions.", gt=0)
    seed: int = opt(0, "Seed of the bootstrap and of the subsets of maj@k.")


def check(config: Config) -> None:
    """Refuse fewer than two paths, and a mixture of runs and tables."""
    usage(len(config.paths) > 1, "compare: name two runs or tables at least: magcli compare A B")
    runs = [path for path in config.paths if _is_run(path)]
    # A missing table is named when it is read.
    missing = [path for path in config.paths if runs and not Path(path).exists()]
    usage(not missing, f"compare: {', '.join(missing)}: no such run")
    text = f"compare: {', '.join(runs)} are runs and the others tables; compare runs with runs, and evaluations of both"
    # None or all.
    usage(len(runs) in (0, len(config.paths)), text)


def _is_run(path: str) -> bool:
    return (Path(path) / "run.json").is_file()
