"""Convert tables between formats; choose and rename columns; filter, sort, shuffle and sample rows.

Reads and writes .arrow, .feather, .parquet, .jsonl, .json (one array), .jsonl.gz, .json.gz, .csv, `datasets` folders
and - (stdin or stdout); reads hub ids, and what reasoning-gym and verifiers generate: reasoning-gym:maze?size=100.
Values stay the same, where a key that is absent equals null and 1 equals 1.0.

The options apply in this order: rename, explode, where, split, sort or shuffle, sample, limit, columns. A column may be
within the objects of another: reward_model.ground_truth.
"""

from __future__ import annotations

from dataclasses import dataclass

from magcli.config import opt
from magcli.errors import usage

INPUTS = "The tables to read, one after the other; - is stdin."
EXAMPLE = "magcli convert examples/problems.jsonl --rename origin=source -o problems.parquet"


@dataclass(frozen=True)
class Config:
    """Options of `magcli convert`."""

    rename: tuple[str, ...] = opt((), "Columns to rename, as NEW=OLD, comma-separated.")
    columns: tuple[str, ...] = opt((), "Columns to keep, in this order (default: all).")
    drop_columns: tuple[str, ...] = opt((), "Columns to leave out.")
    explode: str = opt("", "Column of lists; each element becomes a row.")
    where: str = opt("", 'Keep only matching rows, such as \'pass_rate < 0.9 and source in ("a", "b")\'.')
    split: float = opt(
        0.0, "Keep this share of the rows, by the value of --by; the others go to --dropped.", ge=0, lt=1
    )
    by: str = opt("prompt", "Column by which --split decides; rows with the same value stay together.")
    sort: tuple[str, ...] = opt((), "Columns to sort by; -COLUMN sorts from large to small.")
    shuffle: bool = opt(False, "Put the rows in random order.")
    sample: int = opt(0, "Number of rows to keep, chosen at random; 0 keeps all.", ge=0)
    seed: int = opt(0, "Seed of --split, --shuffle and --sample.")
    limit: int = opt(0, "Maximum number of rows to keep, from the start; 0 keeps all.", short="-n", ge=0)


def check(config: Config) -> None:
    """Refuse options that are out of range or contradict each other."""
    usage(not (config.sort and config.shuffle), "convert: --sort and --shuffle exclude each other")
    usage(not (config.columns and config.drop_columns), "convert: --columns and --drop-columns exclude each other")
    usage(len(set(config.columns)) == len(config.columns), "convert.columns: a column is named twice")
    new_names, old_names = [], []
    for pair in config.rename:
        new, _, old = pair.partition("=")
        usage(bool(new and old) and "=" not in old, f"convert.rename: '{pair}' is not NEW=OLD")
        new_names.append(new)
        old_names.append(old)
    # Two columns of one name, or one column under two.
    for names in (new_names, old_names):
        for name in names:
            is_single = names.count(name) == 1
            usage(is_single, f"convert.rename: {name} occurs twice as NEW or as OLD; each may occur once")
