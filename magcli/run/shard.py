"""Shards of a table for several machines, and the history of the joined table.

A shard is a run of consecutive rows, so the shards' outputs in order are the output of an unsharded run.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from magcli.data.manifest import Chain, Link
from magcli.data.source import Rows, Source
from magcli.errors import DataError, UsageError
from magcli.run.settings import CHOSEN, fingerprint, unequal

KEY = "shard"
"""The key of a link's configuration for the shard that the stage processed."""


class Shard(NamedTuple):
    """Shard ``number``, from 1, of ``out_of`` shards of equal size, up to one row."""

    number: int
    out_of: int

    def __str__(self) -> str:
        return f"{self.number}/{self.out_of}"


class Part(NamedTuple):
    """A finished shard: its table, the history before its stage, and what the stage did."""

    source: Source
    past: Chain
    link: Link
    shard: Shard


def parse(text: str) -> Shard:
    """The shard that ``I/N`` names.

    Raises:
        UsageError: it is not of that form, or the number is not from 1 to the count.
    """
    number, _, count = text.partition("/")
    if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise UsageError(f"--shard: '{text}' is not I/N with 1 <= I <= N, such as 2/8")
    return Shard(int(number), int(count))


def bounds(shard: Shard, total: int) -> tuple[int, int]:
    """The shard's first row of ``total``, and the row after its last one."""
    # Whole divisions of the same products, so that a shard ends where the next one begins.
    first = total * (shard.number - 1) // shard.out_of
    end = total * shard.number // shard.out_of
    return first, end


def slice_rows(rows: Rows, start: int, stop: int) -> Rows:
    """The rows from ``start`` to before ``stop``; the others are read too, as a table's checksum is at its end."""
    offset = 0
    for batch in rows:
        first = max(start - offset, 0)
        end = min(stop - offset, batch.num_rows)
        if first < end:
            yield batch.slice(first, end - first)
        offset += batch.num_rows


def parts(sources: Sequence[Source]) -> list[Part]:
    """The finished shards of one run, all of them, in the order of their rows.

    Raises:
        DataError: a table is not a shard, belongs to another run or is given twice, or one is missing.
    """
    # By number, in which order their rows are those of the table.
    shards = sorted(map(_part, sources), key=lambda part: part.shard)
    first = shards[0]
    for part in shards[1:]:
        _check_alike(first, part)
    names: dict[int, str] = {}
    for part in shards:
        number = part.shard.number
        if number in names:
            one, other = names[number], part.source.name
            raise DataError(f"commit: {one} and {other} are both shard {part.shard}; leave one of them out")
        names[number] = part.source.name
    stage = first.link.stage
    count = first.shard.out_of
    missing = [number for number in range(1, count + 1) if number not in names]
    if missing:
        are = "is" if len(missing) == 1 else "are"
        raise DataError(
            f"commit: of {count} shards {_listed(missing)} {are} missing; name the table, or make it with the {stage} "
            f"command of the others and --shard {missing[0]}/{count}"
        )
    return shards


def _listed(numbers: Sequence[int]) -> str:
    listed = ", ".join(map(str, numbers[:8]))
    num_more = len(numbers) - 8
    return f"{listed} and {num_more} more" if num_more > 0 else listed


def _part(source: Source) -> Part:
    problem = f"commit: {source.name} is not a finished shard"
    fix = "name tables made with --shard"
    if not source.chain:
        raise DataError(f"{problem}: it has no history; {fix}")
    *past, link = source.chain
    if KEY not in link.config:
        raise DataError(f"{problem}: {link.stage} made it from a whole table; {fix}")
    return Part(source, tuple(past), link, parse(link.config[KEY]))


def _check_alike(first: Part, part: Part) -> None:
    """Refuse a shard of another run: all but its number and its results must be equal."""
    expected = _identity(first)
    identity = _identity(part)
    differ = unequal(expected, identity)
    if differ:
        differences = [f"{name} {identity.get(name)!r} (other: {expected.get(name)!r})" for name in differ]
        changes = "; ".join(differences)
        raise DataError(f"commit: {part.source.name} belongs to another run than {first.source.name}: {changes}")
    if part.past != first.past:
        raise DataError(f"commit: the input of {part.source.name} has another history than that of {first.source.name}")
    if part.source.schema.names != first.source.schema.names:
        raise DataError(
            f"commit: {part.source.name} has other columns than {first.source.name}; join kept and dropped rows by "
            "separate commands"
        )


def _identity(part: Part) -> dict[str, Any]:
    """What all shards of one run have in common, by name."""
    link = part.link
    config = {key: value for key, value in link.config.items() if key != KEY}
    inputs = [f"{table.name} {table.sha256[:8]}" for table in link.inputs]
    origin = {"stage": link.stage, "version": link.version, "shards": part.shard.out_of, "inputs": inputs}
    return {**origin, **fingerprint(config)}


def resolved_options(shards: Sequence[Part]) -> dict[str, str]:
    """What options left to ``auto`` resolved to; ``bf16, fp32`` where machines differ."""
    values: dict[str, set[str]] = {}
    for part in shards:
        for option, value in part.link.config.get(CHOSEN, {}).items():
            values.setdefault(option, set()).add(value)
    return {option: ", ".join(sorted(resolved)) for option, resolved in values.items()}


def history(shards: Sequence[Part]) -> Chain:
    """The history of the joined table: that of one run on the whole table, with the sums of the shards' counts."""
    links = [part.link for part in shards]
    # A run on the whole table would have the same settings, but no shard.
    config = {key: value for key, value in links[0].config.items() if key != KEY}
    values = resolved_options(shards)
    if values:
        config[CHOSEN] = values
    dropped: Counter[str] = Counter()
    for link in links:
        dropped.update(link.dropped)
    whole = replace(
        links[0],
        config=config,
        rows_in=sum(link.rows_in for link in links),
        rows_out=sum(link.rows_out for link in links),
        dropped=dict(sorted(dropped.items())),
    )
    return (*shards[0].past, whole)
