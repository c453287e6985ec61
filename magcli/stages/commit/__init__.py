"""Join the finished shards of a stage into one table.

A stage with --shard 3/8 takes the third eighth of its rows, so that eight machines share them. The joined table has the
rows, order and history of one run on the whole table. A missing or duplicate shard, or one of another command or input,
is an error. Tables of dropped rows are joined by a separate command.
"""

from __future__ import annotations

from dataclasses import dataclass

INPUTS = "The shards, in any order."
NEEDS_ALL = True
EXAMPLE = "magcli commit examples/shards/graded-1.arrow examples/shards/graded-2.arrow -o all-graded.arrow"


@dataclass(frozen=True)
class Config:
    """`magcli commit` has no options: the shards' histories say all."""
