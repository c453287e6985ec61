"""Layouts of other tools, traces as conversations, and digests of tables that options name."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from magcli.data import table
from magcli.data.schema import extend_schema
from magcli.errors import DataError
from magcli.layouts import names
from magcli.layouts.convert import converted
from magcli.layouts.describe import could_be, what_is_missing
from magcli.model.chat.messages import normalized, thoughts_beside
from magcli.model.chat.prompts import to_messages
from magcli.run import layout

if TYPE_CHECKING:
    from magcli.data.source import Source
    from magcli.run.layout import Converted

    Layouts = Callable[[Any, Sequence[pa.Schema]], list[Converted | DataError | None] | None]

ALIASES = names.PROBLEM
CODE_ALIASES = names.CODE
COMPLETION_ALIASES = names.COMPLETION
CODE_ROLES = ("prompt", "system", "tests", "solutions", "time_limit", "memory_limit")
"""What belongs to a code problem, in a layout."""
PROBLEM_ROLES = (*CODE_ROLES, "answer", "choices")
"""What belongs to a problem; stages that read problems pass it on."""
COMPLETION_ROLES = ("completion", "thoughts")
ROLLOUT_ROLES = ("verdict", "trainer_reward", "finish", "num_tokens", "logprobs", "trainer_logprobs")
"""What trainers store beside a completion."""
TRACE_ROLES = ("prompt", "system", "messages", "completion", "thoughts", "verdict")


def problem_layouts(
    reads: Callable[[Any], Sequence[str] | None],
    *,
    aliases: Mapping[str, Sequence[str]] = ALIASES,
    natively: bool = False,
    more: Sequence[str] = (),
) -> Layouts:
    """The hook ``layouts`` of a stage that reads problems, and completions if ``reads`` requires them.

    ``aliases`` are the stage's own. ``natively``: it reads the tests and programs of code data sets itself.
    ``more`` are other roles that it reads where a table has them.
    """

    def layouts(config: Any, input_schemas: Sequence[pa.Schema]) -> list[Converted | DataError | None] | None:
        required = reads(config) or ()
        wanted: list[str] = []
        if "prompt" in required:
            wanted += CODE_ROLES if natively else PROBLEM_ROLES
        if "completion" in required:
            wanted += COMPLETION_ROLES
        if not wanted:
            return None
        wanted += more
        converted = [layout_of(table, wanted, natively=natively) for table in input_schemas]
        columns = [_columns(table, layout) for table, layout in zip(input_schemas, converted, strict=True)]
        # A column that one table has is there, if empty, for the rows of all others.
        anywhere = set(chain.from_iterable(columns))
        results: list[Converted | DataError | None] = []
        for schema, present, as_converted in zip(input_schemas, columns, converted, strict=True):
            # What is missing is only known of a table whose layout is.
            is_ambiguous = isinstance(as_converted, DataError)
            error = None if is_ambiguous else _lacking(schema, present, anywhere, required, aliases)
            results.append(error or as_converted)
        return results

    return layouts


def _columns(table: pa.Schema, layout: Converted | DataError | None) -> list[str]:
    """The columns of a table in its layout."""
    schema = table if layout is None or isinstance(layout, DataError) else layout.schema
    return list(schema.names)


def _lacking(
    table: pa.Schema,
    present: Collection[str],
    anywhere: Collection[str],
    required: Sequence[str],
    aliases: Mapping[str, Sequence[str]],
) -> DataError | None:
    """The error for a required column that a table does not have (``present``), if others could be meant, or if another
    table has it (``anywhere``) and its rows would be empty.

    Without either, the harness says what is missing.
    """
    for requirement in required:
        # A requirement may have alternatives, such as answer|tests.
        role, *others = requirement.split("|")
        accepted = {role, *others, *aliases.get(role, ()), *names.COMPLETION.get(role, ())}
        # Rows without an id get one.
        if role == "id" or not accepted.isdisjoint(present):
            continue
        if missing := what_is_missing(table):
            return DataError(f"lacks column {' or '.join((role, *others))}: {missing}")
        hint = could_be(table.names, role)
        # A row without an answer is dropped for that; one without a prompt or completion is nothing at all.
        is_empty = role in ("prompt", "completion") and not accepted.isdisjoint(anywhere)
        if hint or is_empty:
            fix = f"; rename it: magcli convert INPUT --rename {role}=COLUMN -o OUTPUT" if hint else ""
            return DataError(f"lacks column {role}{hint}; it has: {', '.join(table.names)}{fix}")
    return None


def layout_of(table: pa.Schema, wanted: Sequence[str], *, natively: bool = False) -> Converted | DataError | None:
    """How a table of these columns is converted; None if it is as it should be, an error if that is ambiguous."""
    try:
        return converted(table, wanted, natively=natively)
    except DataError as error:
        return error


def read_table(path: str, wanted: Sequence[str]) -> Source:
    """Open a table that an option names, in its layout.

    Raises:
        DataError: it cannot be read, or its layout is ambiguous.
    """
    source = table.read(path)
    converted = layout_of(source.schema, wanted)
    if isinstance(converted, DataError):
        raise DataError(f"{path}: {converted}")
    if converted is not None:
        layout.convert(source, converted)
    return source


def code_schema(input_schema: pa.Schema, code: pa.Schema, added: pa.Schema) -> pa.Schema:
    """The given columns, with tests and solutions in one form (``code``) in place of their source columns, and more."""
    sources = (*names.TESTS, *names.SETUP, *names.SOLUTIONS)
    others = [field for field in input_schema if field.name not in sources]
    return extend_schema(extend_schema(pa.schema(others, input_schema.metadata), code), added)


def conversation(row: Mapping[str, Any], system: str | None) -> list[dict[str, str]]:
    """A trace as chat turns: its messages, or its prompt (after the system prompt) and completion.

    Content in parts becomes text; an assistant's turn may have its thoughts as ``reasoning_content``.

    Raises:
        DataError: it has neither, or a turn lacks its role or its text, or has tool calls.
    """
    turns = row.get("messages") or []
    if not turns and row.get("prompt") and row.get("completion"):
        # A prompt may be a conversation itself.
        question = row["prompt"]
        if not isinstance(question, list):
            question = to_messages(question, system)
        answer = row["completion"]
        if not isinstance(answer, list):
            answer = [{**thoughts_beside(row), "role": "assistant", "content": answer}]
        turns = [*question, *answer]
    if not isinstance(turns, list) or not turns:
        raise DataError("there are no messages, and no prompt with a completion")
    return [normalized(turn, number) for number, turn in enumerate(turns)]


GRADED_BY = ("prompt", "answer", "tests")
"""The columns of a problem that decide a verdict of the recipe's reward."""
PASS_RATE = "pass_rate"
"""A column that is measured anew, so it may differ between tables."""


def table_identity(name: str, path: Path | None) -> dict[str, Any]:
    """The digest of a table that an option names, which determines the rows as an input does."""
    if path is None:
        return {}
    source = table.read(str(path))
    for _ in source.rows:  # a pipe has its digest only at its end
        pass
    return {f"{name}_sha256": source.sha256}


def check_ids(stage: str, problems: Iterable[Mapping[str, Any]], *, custom_reward: bool = False) -> None:
    """Refuse an id of several problems, because what is counted by problem is counted by id.

    Repeated rows, and rows of several tables, are one problem if prompt and ground truth are equal. A custom reward may
    read any column, so all that both rows have must be equal.

    Raises:
        DataError: two different problems have the same id.
    """
    first_rows: dict[str, Mapping[str, Any]] = {}
    for row in problems:
        # Rows of one problem are compared with its first.
        first = first_rows.setdefault(row["id"], row)
        if first is row:
            continue
        columns: Collection[str] = GRADED_BY
        if custom_reward:
            # Rows of several tables may have different columns.
            columns = (first.keys() & row.keys()) - {PASS_RATE}
        if any(first.get(name) != row.get(name) for name in columns):
            raise DataError(f"{stage}: id {row['id']!r} belongs to two different problems; make the ids unique")
