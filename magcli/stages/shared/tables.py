"""Column names of other tools, traces as conversations, and digests of tables that options name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from magcli.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

ALIASES = {
    "prompt": ("problem", "question", "Problem", "Question"),
    "answer": ("Answer", "ground_truth", "gold", "reference_answer", "final_answer", "expected_answer", "target"),
}
"""Names of the columns of problems in other tools; one is read if it is the only one and the column is missing."""
CODE_ALIASES = {
    "prompt": ("problem", "question", "statement", "description", "statement_md", "statement_tex", "statement_html",
               "content", "text"),
    "id": ("task_id", "slug"),
}  # fmt: skip
"""Names of the columns of code problems in other tools."""


def code_schema(given: pa.Schema, code: pa.Schema, added: pa.Schema) -> pa.Schema:
    """The given columns, with tests and solutions in one form (``code``) in place of their source columns, and more."""
    import pyarrow as pa

    from magcli.curate.code.problems import SOLUTION_COLUMNS, TEST_COLUMNS
    from magcli.data.schema import extend_schema

    others = [field for field in given if field.name not in (*TEST_COLUMNS, *SOLUTION_COLUMNS)]
    return extend_schema(extend_schema(pa.schema(others, given.metadata), code), added)


def conversation(row: Mapping[str, Any], system: str | None) -> list[dict[str, str]]:
    """A trace as chat turns: its messages, or its prompt (after the system prompt) and completion.

    Content in parts becomes text; an assistant's turn may have its thoughts as ``reasoning_content``.

    Raises:
        DataError: it has neither, or a turn lacks its role or its text, or has tool calls.
    """
    from magcli.model.chat import to_messages
    from magcli.model.messages import normalized, thoughts_beside

    turns = row.get("messages") or []
    if not turns and row.get("prompt") and row.get("completion"):
        asked = row["prompt"] if isinstance(row["prompt"], list) else to_messages(row["prompt"], system)
        answer = row["completion"]
        said = {**thoughts_beside(row), "role": "assistant", "content": answer}
        turns = [*asked, *(answer if isinstance(answer, list) else [said])]
    if not isinstance(turns, list) or not turns:
        raise DataError("there are no messages, and no prompt with a completion")
    return [normalized(turn, number) for number, turn in enumerate(turns)]


def table_identity(name: str, path: Path | None) -> dict[str, Any]:
    """The digest of a table that an option names, which determines the rows as an input does."""
    from magcli.data import table

    if path is None:
        return {}
    source = table.read(str(path))
    for _ in source.rows:
        pass
    return {f"{name}_sha256": source.sha256}
