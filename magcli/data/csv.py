"""CSV files. Columns that the project knows as text stay text; nested columns are written as JSON."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from magcli.data import jsonl, manifest
from magcli.data.schema import COMPLETION, DROPPED, PROBLEM, REWARD
from magcli.data.source import Rows, Source
from magcli.errors import DataError

TEXT = {f.name: f.type for s in (PROBLEM, COMPLETION, REWARD, DROPPED) for f in s if pa.types.is_string(f.type)}


def open_file(path: Path) -> Source:
    """Read a CSV file with a header line.

    Raises:
        DataError: it is empty, ragged, or not what its manifest says.
    """
    from pyarrow import csv

    digest, chain = jsonl._check_manifest(path)
    options = csv.ConvertOptions(column_types=TEXT, strings_can_be_null=False)
    try:
        reader = csv.open_csv(path, convert_options=options, parse_options=csv.ParseOptions(newlines_in_values=True))
    except pa.ArrowException as error:
        raise DataError(f"{path} is not readable as CSV: {str(error).splitlines()[0]}") from None
    return Source(str(path), reader.schema, _rows(reader, path), chain, digest)


def _rows(reader: Iterator[pa.RecordBatch], path: Path) -> Rows:
    try:
        yield from reader
    except pa.ArrowException as error:
        raise DataError(f"{path} is not readable as CSV: {str(error).splitlines()[0]}") from None


class CsvSink:
    """A CSV file being written."""

    def __init__(self, file: BinaryIO, schema: pa.Schema) -> None:
        from pyarrow import csv

        fields = [pa.field(f.name, pa.string() if pa.types.is_nested(f.type) else f.type) for f in schema]
        self.schema = pa.schema(fields)
        self.writer = csv.CSVWriter(file, self.schema)
        self.rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows."""
        self.rows += batch.num_rows
        columns = [
            pa.array(
                [None if v is None else json.dumps(v, ensure_ascii=False) for v in column.to_pylist()], pa.string()
            )
            if pa.types.is_nested(column.type)
            else column
            for column in batch.columns
        ]
        self.writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=self.schema))

    def finish(self, chain: manifest.Chain) -> str:
        """Close the table."""
        self.writer.close()
        return ""


@contextlib.contextmanager
def file_sink(path: Path, schema: pa.Schema, head: str) -> Iterator[jsonl.NotedSink]:
    """A CSV file that takes its place when it is finished, with its manifest beside it."""
    with jsonl.noted(path, lambda file: CsvSink(file, schema)) as sink:
        yield sink
