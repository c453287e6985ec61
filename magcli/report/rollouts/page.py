"""Write the page of rollouts: its index first, so that it shows while the rest is read, then the chunks."""

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
from markupsafe import Markup

from magcli import __version__
from magcli.data.durable import atomic_file, disk_errors
from magcli.data.html import CONTENT_POLICY, script_json
from magcli.report import html
from magcli.report.rollouts.index import Index
from magcli.report.rollouts.packing import element, text_parts, token_parts
from magcli.report.rollouts.rows import CHUNK_BYTES, TEXTS, TOKEN_VALUES, chunks
from magcli.report.rollouts.source import Source
from magcli.report.rollouts.vocabulary import Vocabulary, texts

SCRIPTS = ("data.js", "filter.js", "tokens.js", "charts.js", "views.js", "list.js", "app.js")
"""Parts of the page's script, in ``templates/rollouts``."""


@dataclass(frozen=True, slots=True)
class Written:
    """A page: how many rollouts it has, and its size in bytes."""

    rows: int
    size: int


@dataclass(slots=True)
class _Packed:
    """What the head of a page says about the chunks behind it: rows of each, problems of each, columns of tokens."""

    rows: list[int]
    problems: list[int]
    values: set[str]
    has_tokens: bool


def write(path: Path, source: Source) -> Written:
    """Write the page of a source.

    Raises:
        DataError: a table is truncated or damaged.
        EnvironmentFault: the folder cannot be written.
    """
    index, vocabulary = Index(), Vocabulary()
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        # The head has the index and the texts of tokens, which are complete only after the chunks behind it.
        with tempfile.TemporaryFile(dir=path.parent, prefix=f".{path.name}.") as body:
            packed = _write_chunks(body, source, index, vocabulary)
            body.seek(0)
            with atomic_file(path) as file:
                file.write(_head(source, index, vocabulary, packed))
                shutil.copyfileobj(body, file, 1 << 20)
                file.write(b"</body>\n</html>\n")
                size = file.tell()
    return Written(index.rows, size)


def _write_chunks(body: IO[bytes], source: Source, index: Index, vocabulary: Vocabulary) -> _Packed:
    packed = _Packed([], [], set(), has_tokens=False)
    for batch in chunks(source.tables, source.every):
        number = len(packed.rows)
        # In one pass over the tables, which may be larger than memory.
        index.add(batch)
        packed.rows.append(batch.num_rows)
        body.write(element(f"texts-{number}", _texts_of(batch)))
        tokens = batch.column("tokens")
        if _has_values(tokens):
            codes = vocabulary.codes(tokens.flatten().fill_null(0).to_numpy())
            body.write(element(f"tokens-{number}", token_parts(batch, codes)))
            packed.has_tokens = True
            packed.values |= {name for name in TOKEN_VALUES if _has_values(batch.column(name))}
    # Problems come last, when all rows have been read.
    for number, (count, parts) in enumerate(index.problem_chunks(CHUNK_BYTES)):
        packed.problems.append(count)
        body.write(element(f"problems-{number}", parts))
    return packed


def _has_values(column: pa.Array) -> bool:
    return bool(column.null_count < len(column))


def _texts_of(batch: pa.RecordBatch) -> list[bytes]:
    parts: list[bytes] = []
    for name in TEXTS:
        parts += text_parts(batch.column(name))
    return parts


def _head(source: Source, index: Index, vocabulary: Vocabulary, packed: _Packed) -> bytes:
    """The page up to the chunks: styles, index and script."""
    columns, parts = index.columns()
    described: dict[str, Any] = {
        "title": source.title,
        "rows": index.rows,
        "chunks": packed.rows,
        "problemChunks": packed.problems,
        "problems": index.problem_names(),
        "columns": columns,
        "texts": TEXTS,
        "tokenValues": TOKEN_VALUES,
        "hasTokens": packed.has_tokens,
        "hasValues": sorted(packed.values),
    }
    packed_index = element("index", [index.problem_column(), *parts])
    pieces = texts(vocabulary.ids, source.tokenizer)
    packed_pieces = element("pieces", text_parts(pa.array(pieces, pa.binary())))
    page = html.environment().get_template("rollouts.html.jinja").render(
        title=source.title,
        notes=source.notes,
        version=__version__,
        policy=Markup(CONTENT_POLICY),
        style=html.part("style.css") + html.part("rollouts/style.css"),
        head=Markup(script_json(described)),
        packed=Markup((packed_index + packed_pieces).decode()),
        script=Markup("").join(map(html.part, (f"rollouts/{name}" for name in SCRIPTS))),
    )  # fmt: skip
    # A title may have bytes of a file name that are not UTF-8, as surrogates.
    return page.encode(errors="backslashreplace")
