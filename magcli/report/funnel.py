"""The funnel of the data: rows in, kept and dropped by reason, stage by stage along the tables' histories."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from magcli.data import manifest
from magcli.data.manifest import Chain, Input, Link
from magcli.report.found import Table, rows_of
from magcli.report.wording import by_size, foreign, tail

OTHER_ROWS = ("rl", "sft", "evaluate", "landscape")
"""Stages whose rows out are of another kind than their rows in."""
EXAMPLES = 2
"""Dropped rows that are shown for each reason."""
LOOKED_AT = 20_000
"""Dropped rows among which examples are looked for."""
LONGEST_ROW = 400
"""Characters of a dropped row that are shown."""


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of one fate: the name, how many, their share of all, and some of them as (id, text)."""

    name: str
    rows: int
    share: float
    examples: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """One stage of the funnel: its table where that was found, what it read, the model it asked, and its rows.

    ``parts`` begin with the rows that came out, kept or made; those dropped follow, the largest part first.
    """

    table: str
    stage: str
    read: str
    model: str
    rows_in: int
    rows_out: int
    parts: Sequence[Part]

    @property
    def dropped(self) -> int:
        """Rows left out for any reason."""
        return sum(part.rows for part in self.parts[1:])


def steps(tables: Sequence[Table], further: Iterable[Chain] = ()) -> list[Step]:
    """Every stage that chose rows, each once, none before what it read. ``further`` are histories besides the tables',
    such as those that runs keep.
    """
    chains = [*(each.chain for each in tables), *further]
    links = [link for link in manifest.merge(chains) if link.stage not in OTHER_ROWS]
    return [_step(link, [each for each in tables if each.made_by == link]) for link in links]


def _step(link: Link, tables: Sequence[Table]) -> Step:
    names = ", ".join(dict.fromkeys(each.path.name for each in tables if not each.of_dropped_rows))
    examples = {reason: rows for each in tables if each.of_dropped_rows for reason, rows in _examples(each).items()}
    total = max(link.rows_in, link.rows_out + sum(link.dropped.values()), 1)
    grown = link.rows_out + sum(link.dropped.values()) > link.rows_in
    parts = [Part("out" if grown else "kept", link.rows_out, link.rows_out / total)]
    for reason, count in by_size(link.dropped).items():
        parts.append(Part(reason, int(count), count / total, examples.get(reason, ())))
    model = tail(str(link.config.get("model") or ""))
    return Step(names, link.stage, _names(link.inputs), model, link.rows_in, link.rows_out, parts)


def _names(inputs: Sequence[Input], most: int = 4) -> str:
    told = ", ".join(each.name for each in inputs[:most])
    return told if len(inputs) <= most else f"{told} and {len(inputs) - most} more"


def _examples(dropped: Table) -> Mapping[str, list[tuple[str, str]]]:
    """The first rows of each reason in a table of dropped rows."""
    found: dict[str, list[tuple[str, str]]] = {}
    for row in islice(rows_of(dropped), LOOKED_AT):
        held = found.setdefault(str(row["reason"]), [])
        if len(held) < EXAMPLES:
            held.append(_example(row))
    return found


def _example(row: Mapping[str, Any]) -> tuple[str, str]:
    return foreign(str(row["id"]), LONGEST_ROW), foreign(str(row["row"]), LONGEST_ROW)
