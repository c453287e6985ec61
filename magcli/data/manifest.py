"""The history of a table: one link per stage, stored with the data in files and pipes.

A link has the stage, its settings, inputs and counts, but no times or hosts, so that equal outputs have equal bytes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Input:
    """A table that a stage read: its name without folder, digest and number of rows."""

    name: str
    sha256: str
    rows: int


@dataclass(frozen=True, slots=True)
class Link:
    """One stage's part of a table's history."""

    stage: str
    version: str
    config: Mapping[str, Any]
    inputs: Sequence[Input] = ()
    rows_in: int = 0
    rows_out: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)


Chain = tuple[Link, ...]
"""The history of a table, oldest stage first."""


def to_json(chain: Chain) -> list[dict[str, Any]]:
    """A chain as JSON values."""
    return [asdict(link) for link in chain]


def from_json(values: Sequence[Mapping[str, Any]]) -> Chain:
    """A chain from what ``to_json`` returns."""
    return tuple(
        Link(**{**value, "inputs": tuple(Input(**given) for given in value.get("inputs", ()))}) for value in values
    )


def merge(chains: Sequence[Chain]) -> Chain:
    """The histories of several inputs, one after the other, each link once."""
    seen: list[Link] = []
    for chain in chains:
        seen.extend(link for link in chain if link not in seen)
    return tuple(seen)
