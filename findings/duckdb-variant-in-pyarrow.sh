#!/bin/sh
# Guess: a Parquet column of DuckDB's type VARIANT is unknown to pyarrow, or its field "value" has the value.
# Seen: pyarrow reads it as a struct without a mark of the logical type. Where the values are of one type, "value" is null
# in every row and the data are in a third field, so a reader that knows only the two fields of the encoding sees nulls.
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
duckdb.sql("copy (select v::variant as v from (values ('a'), ('b')) as t(v)) to 'alike.parquet'")
duckdb.sql("copy (select 'a'::variant as v union all select 1::variant) to 'mixed.parquet'")
tables = {name: pyarrow.parquet.read_table(f"{name}.parquet") for name in ("alike", "mixed")}
for name, table in tables.items():
    print(name, table.schema.field("v"), table["v"].to_pylist())
print(pyarrow.parquet.ParquetFile("alike.parquet").schema)
alike = tables["alike"]
assert pyarrow.types.is_struct(alike.schema.field("v").type) and not alike.schema.field("v").metadata
assert [value["value"] for value in alike["v"].to_pylist()] == [None, None]
assert sorted(value["typed_value"] for value in alike["v"].to_pylist()) == ["a", "b"]
PYTHON
