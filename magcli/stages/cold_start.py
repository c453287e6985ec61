"""Choose traces for the SFT cold start: correct rollouts, worked solutions, and some general instructions.

Tables may be rollouts or graded completions (column correct), worked solutions (prompt, completion) or conversations
(messages). Of rollouts only correct ones count, not those of early steps or the shortest ones, a bounded number of
each problem, harder problems more often.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from magcli.config import opt
from magcli.run import options
from magcli.stages import setup

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pyarrow as pa

    from magcli.curate.traces import Candidate
    from magcli.data.source import Rows
    from magcli.run.job import Job

INPUTS = "Rollouts, worked solutions or conversations; - is stdin."
OUTPUT = "file, folder or -."
DEFAULT_OUTPUT = "-"
EXAMPLE = "magcli cold-start examples/traces.jsonl --instructions examples/instructions.jsonl -o cold-start.arrow"


@dataclass(frozen=True)
class Config:
    """Options of `magcli cold-start`."""

    from_step: int = opt(0, "Rollouts of earlier updates are left out: their chains of thought are short.")
    shortest: float = opt(0.0, "Share of the correct rollouts, the shortest ones, to leave out.")
    per_problem: int = opt(4, "At most so many traces of a problem.")
    hardest: float = opt(1.0, "How often, on average, a trace of the hardest problems is used.")
    instructions: Path | None = opt(None, "General conversations to mix in.")
    fraction: float = opt(0.1, "Their share of the mix.")
    system: Path | None = options.system()
    seed: int = opt(0, "Other seeds choose other traces.")


def reads(config: Config) -> tuple[str, ...]:
    """Nothing by name: any of three sets of columns will do, which ``run`` checks."""
    return ()


def check(config: Config) -> None:
    """Refuse options that make no sense."""
    from magcli.run.job import usage

    usage(0 <= config.shortest < 1, f"cold-start.shortest: {config.shortest} is not in [0, 1)")
    usage(0 <= config.fraction < 1, f"cold-start.fraction: {config.fraction} is not in [0, 1)")
    usage(config.per_problem > 0, f"cold-start.per_problem: {config.per_problem} is not positive")
    usage(config.hardest >= 1, f"cold-start.hardest: {config.hardest} is below 1")


def settings(config: Config) -> dict[str, Any]:
    """What else decides the rows: the instructions, and the system prompt that traces are put behind."""
    return setup.model_bits("", config.system) | setup.table_bits("instructions", config.instructions)


def schema(config: Config, given: pa.Schema) -> pa.Schema:
    """Traces."""
    from magcli.data.schema import TRACE

    return TRACE


def run(config: Config, rows: Rows, job: Job) -> Rows:
    """Choose, mix and give out, each trace as a conversation; reports the mix by source."""
    import pyarrow as pa

    from magcli.curate import traces
    from magcli.data.schema import TRACE

    _check_columns(job)
    system = setup.system_text(config.system)
    given = list(_usable((row for batch in rows for row in batch.to_pylist()), system, job))
    chosen = _chosen(config, given, job)
    general = list(_usable(_instructions(config), system, job))
    wanted = traces.num_instructions(sum(chosen.values()), config.fraction) if general else 0
    tables = {"traces": chosen, "instructions": traces.sample((_key(row) for row in general), wanted, seed=config.seed)}
    source = {"traces": given, "instructions": general}
    counts: dict[str, int] = {}
    for pick in traces.mix(tables, seed=config.seed):
        row = source[pick.source][pick.row]
        kind = str(row.get("source") or pick.source)
        counts[kind] = counts.get(kind, 0) + 1
        trace = {"id": _key(row), "messages": setup.conversation(row, system), "source": kind, "weight": 1.0}
        yield pa.RecordBatch.from_pylist([trace], TRACE)
    told = ", ".join(f"{kind} {count:,}" for kind, count in sorted(counts.items()))
    job.console.say(f"cold-start: {told or 'nothing chosen'}", event="mix", mix=counts)


def _check_columns(job: Job) -> None:
    from magcli.data.schema import require

    assert job.schema is not None
    if "messages" not in job.schema.names:
        where = ", ".join(source.name for source in job.sources)
        require(job.schema, ("prompt", "completion"), stage="cold-start", where=where)


def _usable(rows: Iterable[dict[str, Any]], system: str | None, job: Job) -> Iterator[dict[str, Any]]:
    """The rows that are conversations; the others are dropped."""
    from magcli.errors import DataError

    for row in rows:
        try:
            setup.conversation(row, system)
        except DataError as error:
            job.drops.row(_key(row), "unusable-trace", {**row, "error": str(error)})
        else:
            yield row


def _key(row: Mapping[str, Any]) -> str:
    """A name of a row that does not depend on where it stands."""
    import hashlib
    import json

    parts = [str(row[name]) if row.get(name) is not None else "" for name in ("id", "group", "sample")]
    if not parts[0]:
        content = json.dumps([row.get("messages"), row.get("prompt"), row.get("completion")])
        parts[0] = hashlib.sha256(content.encode()).hexdigest()[:16]
    return "/".join(part for part in parts if part)


def _chosen(config: Config, given: list[dict[str, Any]], job: Job) -> dict[int, int]:
    """Copies of each row that goes into the mix: rollouts by the recipe's rules, everything else once."""
    from magcli.curate import traces

    selection = traces.select(
        _candidates(given),
        seed=config.seed,
        from_step=config.from_step,
        shortest=config.shortest,
        per_problem=config.per_problem,
        hardest=config.hardest,
    )
    for number, reason in selection.left_out.items():
        row = given[number]
        job.drops.row(_key(row), reason, {name: row.get(name) for name in ("id", "prompt", "completion", "step")})
    ungraded = {number: 1 for number, row in enumerate(given) if row.get("correct") is None}
    return {**selection.copies, **ungraded}


def _candidates(given: list[dict[str, Any]]) -> Iterator[Candidate]:
    from magcli.curate.traces import Candidate

    for number, row in enumerate(given):
        if row.get("correct") is not None:
            length = row.get("num_tokens") or len(row["completion"] or "")
            yield Candidate(number, str(row.get("id")), _key(row), length, bool(row["correct"]), row.get("step") or 0)


def _instructions(config: Config) -> list[dict[str, Any]]:
    from magcli.data import table
    from magcli.data.schema import require

    if config.instructions is None:
        return []
    source = table.read(str(config.instructions))
    if "messages" not in source.schema.names:
        require(source.schema, ("prompt", "completion"), stage="cold-start", where=source.name)
    return [row for batch in source.rows for row in batch.to_pylist()]
