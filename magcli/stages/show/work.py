"""The work of `magcli show`, once its options are checked."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from magcli.console import put
from magcli.data import condition, manifest, selection
from magcli.data.jsonl import Style, to_lines
from magcli.data.statistics import ColumnStatistics
from magcli.data.values import readable_rows
from magcli.errors import DataError
from magcli.layouts import describe, responses
from magcli.model.chat.messages import text_of, thoughts_of, without_thoughts
from magcli.stages.shared import forms
from magcli.stages.show import Config

if TYPE_CHECKING:
    import pyarrow as pa

    from magcli.data.source import Rows
    from magcli.model.chat.thoughts import ThoughtForm
    from magcli.run.job import Job


def head(config: Config) -> int:
    """The number of rows that are read: those to show, and one more, which tells whether there are others."""
    shows_all = config.where or config.stats or config.manifest or config.digest or not config.limit
    return 0 if shows_all else config.limit + 1


def run(config: Config, rows: Rows, job: Job) -> Rows:
    """Print the rows, counts, history or digest; only to show the first rows, the table is not read to its end."""
    schema = job.schema
    if num_read := head(config):
        # Read to its end, as what writes it would fail on a closed pipe.
        is_pipe = any(source.total is None and not Path(source.name).is_file() for source in job.sources)
        rows = selection.first(rows, num_read, to_end=is_pipe)
    if config.where:
        rows = selection.matching(rows, condition.parse(config.where, schema))
    if config.columns:
        schema = selection.columns_schema(schema, config.columns)
        rows = selection.columns(rows, config.columns, schema)
    if config.manifest:
        for _ in rows:
            pass
        history = manifest.to_json(job.past())
        job.console.print(json.dumps(history, indent=2), event="manifest", history=history)
    elif config.layout:
        lines = describe.description(job.schema)
        job.console.print("\n".join(lines), event="layout", layout=lines)
    elif config.digest:
        digest = _digest(rows)
        job.console.print(digest, event="digest", sha256=digest)
    elif config.stats:
        _show_statistics(rows, schema, job)
    elif job.console.as_json:
        _print_lines(config, rows)
    else:
        _show(config, rows, job)
    return iter(())


def _digest(rows: Rows) -> str:
    digest = hashlib.sha256()
    for batch in rows:
        for line in to_lines(batch, Style()):
            # Rows as JSON lines, which are the same for all formats of tables.
            digest.update(line.encode() + b"\n")
    return digest.hexdigest()


def _show_statistics(rows: Rows, schema: pa.Schema, job: Job) -> None:
    columns = {field.name: ColumnStatistics(field.type) for field in schema}
    num_rows = 0
    for batch in rows:
        num_rows += batch.num_rows
        for name, statistics in columns.items():
            statistics.add(batch.column(name))
    width = max(map(len, columns), default=0)
    lines = [f"{num_rows:,} rows"]
    as_json = {}
    for name, statistics in columns.items():
        lines.append(f"{name:<{width}}  {statistics.text()}")
        as_json[name] = statistics.as_json()
    job.console.print("\n".join(lines), event="stats", rows=num_rows, columns=as_json)


def _print_lines(config: Config, rows: Rows) -> None:
    """Print the rows as JSON lines."""
    shown = selection.first(rows, config.limit, to_end=True) if config.limit else rows
    for batch in shown:
        for line in to_lines(batch, Style()):
            put(line + "\n")


def _show(config: Config, rows: Rows, job: Job) -> None:
    thoughts = forms.recorded_form(job.sources)
    shown = more = 0
    for batch in rows:
        for row in readable_rows(batch):
            # Only counted, for the last line.
            if config.limit and shown >= config.limit:
                more += 1
                continue
            shown += 1
            put(_row(row, shown, config, thoughts) + "\n")
    put(_count(shown, more, job, is_head=bool(head(config))) + "\n")


def _count(shown: int, more: int, job: Job, *, is_head: bool) -> str:
    """The last line: how many rows of how many were shown."""
    if not more:
        return f"-- {shown} rows"
    if not is_head:
        return f"-- {shown} of {shown + more} rows"
    totals = [source.total for source in job.sources]
    if None in totals:
        return f"-- the first {shown} rows"
    return f"-- {shown} of {sum(count or 0 for count in totals)} rows"


def _row(row: dict[str, Any], number: int, config: Config, thoughts: ThoughtForm) -> str:
    lines = [f"-- row {number}"]
    for name, value in row.items():
        text = _cell(value, thoughts)
        if config.width and len(text) > config.width:
            # Cut before it is indented, so that the indentation does not count.
            text = f"{text[: config.width]}... ({len(text)} characters)"
        label = f"{name}: "
        next_line = "\n" + " " * len(label)  # aligned with the first one
        lines.append(label + text.replace("\n", next_line))
    return "\n".join(lines)


def _cell(value: Any, thoughts: ThoughtForm) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list) and value:
        if all(map(responses.is_trace, value)):
            return "\n".join(_trace(part, thoughts) for part in value)
        # A conversation may have parts of other kinds.
        if any(map(_is_turn, value)):
            return "\n".join(_turn(part, thoughts) if _is_turn(part) else str(part) for part in value)
    return str(value)


def _trace(trace: dict[str, Any], form: ThoughtForm) -> str:
    """The rewards of a trace of verifiers, as score times weight, and its turns."""
    rewards = trace.get("rewards") or {}
    weighted = []
    for name, reward in rewards.items():
        if isinstance(reward, dict):
            weighted.append(f"{name} {reward['score']:.6g} x {reward['weight']:.6g}")
    lines = ["rewards: " + (", ".join(weighted) or "none")]
    for node in trace["nodes"]:
        lines.append(_turn(node["message"], form))
    return "\n".join(lines)


def _is_turn(value: Any) -> bool:
    return isinstance(value, dict) and "role" in value


def _turn(turn: dict[str, Any], form: ThoughtForm) -> str:
    """A turn of a conversation, with thoughts beside its text in front of it, in the table's form.

    One without text, such as a tool call, shows its other fields.
    """
    role = f"[{turn['role']}]"
    full_text = _with_thoughts(turn, form)
    if full_text:
        return f"{role} {full_text}"
    text = turn.get("content")
    if text is not None:
        return f"{role} {text}"
    # Columns of turns have all keys, most of them null.
    others = {key: value for key, value in turn.items() if key not in ("role", "content") and value is not None}
    return f"{role} {others}" if others else role


def _with_thoughts(turn: dict[str, Any], form: ThoughtForm) -> str:
    """The thoughts beside a turn's text, and the text; empty if there are none, or if they are no text."""
    try:
        thoughts = thoughts_of(turn)
        answer = text_of(without_thoughts(turn.get("content")))
        return form.join(thoughts, str(answer or "")) if thoughts else ""
    except DataError:
        return ""
