"""Where the rollouts of a page come from: the tables of a run's updates, or one table of completions."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from magcli.data.manifest import Chain
from magcli.report.rollouts.vocabulary import texts
from magcli.run.rundir import RunDir, read_run

MAX_BYTES = 1 << 30
"""Size of the tables from which only some groups are on the page; a browser needs about as much memory."""
TOKENIZER = "tokenizer.json"


@dataclass(frozen=True, slots=True)
class Source:
    """The tables of a page; of every ``every``-th group only; ``notes`` are for the reader.

    ``tokenizer`` is the file that has the texts of the tokens, None if there is none.
    """

    title: str
    tables: Sequence[Path]
    tokenizer: Path | None
    every: int
    notes: Sequence[str]


def of_run(folder: Path, title: str) -> Source | None:
    """The rollouts of a finished or unfinished run; None if it has none.

    Raises:
        DataError: its records are damaged.
    """
    run = RunDir(folder)
    tables = sorted(run.rollouts.glob("step-*.arrow"))
    if not tables:
        return None
    options = read_run(folder).options
    checkpoints = sorted(run.checkpoints.glob("step-*"), reverse=True)
    # The run's own model, or that which it started from: their tokens are the same.
    tokenizer, notes = _tokenizer([run.model, *checkpoints, *_models(options)])
    num_waiting = len(list(run.groups.glob("g-*.arrow")))
    if num_waiting:
        notes.append(f"{num_waiting:,} groups wait for the next update, and are not here yet.")
    return _source(title, tables, tokenizer, notes)


def of_table(path: Path, title: str, chain: Chain) -> Source:
    """The rollouts of one table."""
    # The newest stage first, which sampled the rollouts.
    models = [model for link in reversed(chain) for model in _models(link.config)]
    tokenizer, notes = _tokenizer(models)
    return _source(title, [path], tokenizer, notes)


def _models(options: Mapping[str, Any]) -> list[Path]:
    model = options.get("model")
    return [Path(model)] if isinstance(model, str) and model else []


def _source(title: str, tables: Sequence[Path], tokenizer: Path | None, notes: list[str]) -> Source:
    size = sum(path.stat().st_size for path in tables)
    every = max(1, math.ceil(size / MAX_BYTES))
    if every > 1:
        notes.append(f"The tables have {size / 1e9:.1f} GB: one in {every} groups is here.")
    return Source(title, tables, tokenizer, every, notes)


def _tokenizer(models: Sequence[Path]) -> tuple[Path | None, list[str]]:
    """The first tokenizer that can be read, and what to tell the reader if there is none."""
    for model in models:
        # Read, not only looked for: a file may be damaged, or of another kind.
        for path in _files(model):
            try:
                texts([], path)
            except ValueError:
                continue
            return path, []
    tried = ", ".join(str(model) for model in models) or "no model is recorded"
    return None, [f"No tokenizer was found ({tried}): tokens are shown by their ids."]


def _files(model: Path) -> Iterator[Path]:
    """The tokenizer of a model: a folder, or a hub id that was downloaded."""
    path = model / TOKENIZER
    if path.is_file():
        yield path
    elif not model.is_absolute() and len(model.parts) == 2:
        # Looks only into the cache: a page is made without the network.
        from huggingface_hub import try_to_load_from_cache

        cached = try_to_load_from_cache(str(model), TOKENIZER)
        if isinstance(cached, str):
            yield Path(cached)
