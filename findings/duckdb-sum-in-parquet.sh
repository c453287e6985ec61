#!/bin/sh
# Guess: a sum of integers that DuckDB shows exactly is an integer, or at least exact, in the Parquet file that it writes.
# Seen: sum() of BIGINT is HUGEINT. As an Arrow table it is an exact decimal; COPY TO Parquet makes it DOUBLE without a
# word, so 2^53 + 1 loses its last digit. sum(x)::BIGINT keeps it.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check duckdb==2.0.1 pyarrow==26.0.1
cd "$folder" && venv/bin/python - <<'PYTHON'
import duckdb
import pyarrow
import pyarrow.parquet

print("duckdb", duckdb.__version__, "pyarrow", pyarrow.__version__)
exact = 2**53 + 1
query = f"select sum(seed) as total, sum(seed)::bigint as cast_total from (values ({exact}::bigint)) as t(seed)"
shown_type, shown = duckdb.sql(f"select typeof(total), total from ({query})").fetchall()[0]
in_arrow = duckdb.sql(query).to_arrow_table()
duckdb.sql(f"copy ({query}) to 'sums.parquet'")
in_parquet = pyarrow.parquet.read_table("sums.parquet")
print("DuckDB: ", shown_type, shown)
for name, table in (("Arrow:  ", in_arrow), ("Parquet:", in_parquet)):
    print(name, {field.name: str(field.type) for field in table.schema}, table.to_pylist())
(row,) = in_parquet.to_pylist()
assert (shown_type, shown) == ("HUGEINT", exact)
assert in_arrow.to_pylist()[0]["total"] == exact
assert in_parquet.schema.field("total").type == pyarrow.float64() and row["total"] == exact - 1
assert row["cast_total"] == exact
PYTHON
