"""Print rows, statistics or the history of a table.

Prints the first rows to stdout, one line per column. Instead, --stats prints counts, --layout where prompts, answers,
tests and completions are read from and why, --manifest the table's history as JSON, and --digest one hash of the rows,
which does not depend on the file format.
"""

from __future__ import annotations

import ast
import hashlib
import json
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from magcli.config import did_you_mean, opt
from magcli.console import put
from magcli.errors import DataError, UsageError, first_line, usage
from magcli.stages.shared import forms

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc

    from magcli.data.source import Rows
    from magcli.model.thoughts import ThoughtForm
    from magcli.run.job import Job

INPUTS = "The table to show; - is stdin."
OUTPUT = ""
EXAMPLE = "magcli show examples/problems.jsonl --num 2"
COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
"""The comparisons of ``--where``."""


@dataclass(frozen=True)
class Config:
    """Options of `magcli show`."""

    num: int = opt(5, "Number of rows to show; 0 shows all.", short="-n")
    where: str = opt("", "Show only matching rows, such as 'reward < 0.5' or 'reason == \"wrong\"'.")
    columns: tuple[str, ...] = opt((), "Columns to show, or to use for --stats and --digest (default: all).")
    width: int = opt(600, "Maximum number of characters per cell; 0 shows all.")
    stats: bool = opt(False, "Counts, ranges and most frequent values of each column instead of rows.")
    layout: bool = opt(False, "What layout is recognised by which columns, and where what lies, instead of rows.")
    manifest: bool = opt(False, "The history of the table as JSON instead of rows.")
    digest: bool = opt(False, "A SHA-256 digest of all rows, instead of rows.")


def check(config: Config) -> None:
    """Refuse negative numbers, and more than one thing to print."""
    instead = [flag for flag in ("stats", "layout", "manifest", "digest") if getattr(config, flag)]
    usage(len(instead) < 2, f"show: --{' and --'.join(instead)} exclude each other")
    usage(config.num >= 0, f"show.num: {config.num} is negative; 0 shows all")
    usage(config.width >= 0, f"show.width: {config.width} is negative; 0 shows all")


def run(config: Config, rows: Rows, job: Job) -> Rows:
    """Print the rows, counts, history or digest; the table is read to its end, so damage is detected."""
    import pyarrow as pa

    from magcli.data import manifest
    from magcli.data.schema import require
    from magcli.layouts import describe

    assert job.schema is not None
    require(job.schema, config.columns, stage="show", where="the table")
    schema = job.schema
    if config.where:
        matching = parse_condition(config.where, schema)
        rows = (batch.filter(matching) for batch in rows)
    if names := config.columns:
        rows = (batch.select(names) for batch in rows)
        schema = pa.schema([schema.field(name) for name in names], schema.metadata)
    if config.manifest:
        for _ in rows:
            pass
        _print(json.dumps(manifest.to_json(job.past()), indent=2))
    elif config.layout:
        _print("\n".join(describe.description(job.schema)))
    elif config.digest:
        _print(_digest(rows))
    elif config.stats:
        _print(_stats(pa.Table.from_batches(list(rows), schema=schema)))
    else:
        _show(config, rows, forms.recorded_form(job.sources))
    return iter(())


def parse_condition(text: str, schema: pa.Schema) -> pc.Expression:
    """The filter that a condition such as ``reward < 0.5 and reason == "wrong"`` describes; it is not executed as code.

    It has comparisons of columns and constants joined by ``and``, ``or``, ``not``. A comparison with a null is false,
    also under ``not``.

    Raises:
        UsageError: it is not of this form, names an unknown column, or compares values of different types.
    """
    import pyarrow as pa

    try:
        found = _condition(ast.parse(text, mode="eval").body, schema)
        pa.RecordBatch.from_pylist([], schema=schema).filter(found)
    except (SyntaxError, ValueError, pa.ArrowException, UsageError) as error:
        raise UsageError(f"condition '{text}': {getattr(error, 'msg', None) or first_line(error)}") from None
    return found


def _condition(tree: ast.expr, schema: pa.Schema) -> Any:
    import pyarrow as pa

    match tree:
        case ast.BoolOp(op=op, values=values):
            join = operator.and_ if isinstance(op, ast.And) else operator.or_
            return reduce(join, [_condition(value, schema) for value in values])
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return ~_condition(operand, schema)
        case (
            ast.Compare(left=ast.Name() as column, ops=[op], comparators=[ast.Constant(value=None)])
            | ast.Compare(left=ast.Constant(value=None), ops=[op], comparators=[ast.Name() as column])
        ):
            if not isinstance(op, ast.Eq | ast.NotEq):
                raise UsageError("None can only be compared by == and !=")
            value = _value(column, schema)
            return value.is_null() if isinstance(op, ast.Eq) else value.is_valid()
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in COMPARE:
            if not isinstance(left, ast.Name) and not isinstance(right, ast.Name):
                raise UsageError("a comparison needs a column on one side")
            return COMPARE[type(op)](_value(left, schema), _value(right, schema))
        case ast.Name(id=name):
            value = _value(tree, schema)
            if not pa.types.is_boolean(schema.field(name).type):
                raise UsageError(f"column {name} is not true or false")
            return value
    raise UsageError("use comparisons of columns and constants joined by and, or, not")


def _value(tree: ast.expr, schema: pa.Schema) -> Any:
    import pyarrow.compute as pc

    match tree:
        case ast.Name(id=name) if name in schema.names:
            return pc.field(name)
        case ast.Name(id=name):
            raise UsageError(f"no column '{name}'{did_you_mean(name, schema.names)}")
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return _constant(-number)
        case ast.Constant(value=str() | bytes() | int() | float() as constant):
            return _constant(constant)
    raise UsageError("use columns and constants on both sides of a comparison")


def _constant(value: str | bytes | float) -> Any:
    import pyarrow.compute as pc

    try:
        return pc.scalar(value)
    except (OverflowError, UnicodeEncodeError):
        raise UsageError(f"{value!a} cannot be the value of a column") from None


def _print(text: str) -> None:
    put(text + "\n")


def _digest(rows: Rows) -> str:
    from magcli.data.jsonl import Style, to_lines

    digest = hashlib.sha256()
    for batch in rows:
        for line in to_lines(batch, Style()):
            digest.update(line.encode() + b"\n")
    return digest.hexdigest()


def _show(config: Config, rows: Rows, thoughts: ThoughtForm) -> None:
    from magcli.data.values import to_rows

    shown, more = 0, 0
    for batch in rows:
        for row in to_rows(batch):
            if config.num and shown >= config.num:
                more += 1
                continue
            shown += 1
            _print(_row(row, shown, config, thoughts))
    _print(f"-- {shown} of {shown + more} rows" if more else f"-- {shown} rows")


def _row(row: dict[str, Any], number: int, config: Config, thoughts: ThoughtForm) -> str:
    lines = [f"-- row {number}"]
    for name, value in row.items():
        text = _cell(value, thoughts)
        if config.width and len(text) > config.width:
            text = f"{text[: config.width]}... ({len(text)} characters)"
        lines.append(f"{name}: " + text.replace("\n", "\n" + " " * (len(name) + 2)))
    return "\n".join(lines)


def _cell(value: Any, thoughts: ThoughtForm) -> str:
    if isinstance(value, list) and any(map(_is_turn, value)):
        return "\n".join(_turn(each, thoughts) if _is_turn(each) else str(each) for each in value)
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _is_turn(value: Any) -> bool:
    return isinstance(value, dict) and "role" in value


def _turn(turn: dict[str, Any], form: ThoughtForm) -> str:
    """A turn of a conversation, with thoughts beside its text in front of it, in the table's form.

    One without text, such as a tool call, shows its other fields.
    """
    if thoughtful := _with_thoughts(turn, form):
        return f"[{turn['role']}] {thoughtful}"
    if (text := turn.get("content")) is not None:
        return f"[{turn['role']}] {text}"
    others = {key: value for key, value in turn.items() if key not in ("role", "content") and value is not None}
    return f"[{turn['role']}] {others}" if others else f"[{turn['role']}]"


def _with_thoughts(turn: dict[str, Any], form: ThoughtForm) -> str:
    """The thoughts beside a turn's text, and the text; empty if there are none, or if they are no text."""
    from magcli.model.messages import text_of, thoughts_of, without_thoughts

    try:
        thoughts = thoughts_of(turn)
        answer = text_of(without_thoughts(turn.get("content")))
        return form.join(thoughts, str(answer or "")) if thoughts else ""
    except DataError:
        return ""


def _stats(table: pa.Table) -> str:
    width = max(map(len, table.column_names), default=0)
    lines = [f"{name:<{width}}  {_column_stats(table.column(name))}" for name in table.column_names]
    return "\n".join([f"{table.num_rows:,} rows", *lines])


def _column_stats(column: pa.ChunkedArray) -> str:
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    nulls = f", {column.null_count} null" if column.null_count else ""
    if column.null_count == len(column):
        return f"{kind}{nulls}"
    if pa.types.is_boolean(kind):
        return f"{100 * pc.mean(column).as_py():.1f}% true{nulls}"
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        low, high = pc.min_max(column).as_py().values()
        return f"{low:g} to {high:g}, mean {pc.mean(column).as_py():.4g}{nulls}"
    if pa.types.is_list(kind):
        return f"{kind}, mean length {pc.mean(pc.list_value_length(column)).as_py():.1f}{nulls}"
    if pa.types.is_string(kind):
        return f"{_frequent(pc.value_counts(column).to_pylist())}{nulls}"
    return f"{kind}{nulls}"


def _frequent(counts: Iterable[dict[str, Any]]) -> str:
    ranked = sorted(counts, key=lambda entry: (-entry["counts"], str(entry["values"])))
    if len(ranked) > 12:
        return f"{len(ranked):,} different texts"
    return ", ".join(f"{str(entry['values'])[:30]} {entry['counts']:,}" for entry in ranked)
