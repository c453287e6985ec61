"""A second table that a stage writes while its rows pass."""

from itertools import chain
from pathlib import Path

from magcli.data import seal, table
from magcli.data.source import Rows
from magcli.errors import DataError
from magcli.run.job import Job


def tee(rows: Rows, path: Path, job: Job) -> Rows:
    """Pass rows on and write them to ``path``, which appears when the last one has passed.

    Raises:
        DataError: there are no rows, so the columns are unknown.
    """
    first = next(rows, None)
    if first is None:
        raise DataError(f"{job.stage}: no rows for {path}")
    count = 0
    with table.write(str(path), first.schema, seal.pack({"stage": job.stage})) as sink:
        for batch in table.rechunk(chain([first], rows)):
            sink.write(batch)
            count += batch.num_rows
            yield batch
        sink.finish(job.history(count))
