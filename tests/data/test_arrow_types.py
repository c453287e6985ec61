"""Arrow types of today's tools: shown as people expect, and written to Arrow files with their type."""

import json
from decimal import Decimal
from pathlib import Path

import duckdb
import numpy as np
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from calling import call_stage

from magcli.data import table
from magcli.errors import DataError

UUIDS = ["0e984725-c51c-4bf4-9960-e1c80e27aba0", None, "ffffffff-ffff-4fff-8fff-ffffffffffff"]
UUID_ARRAY = pa.array([text and bytes.fromhex(text.replace("-", "")) for text in UUIDS], pa.binary(16)).cast(pa.uuid())
INTERVALS = pa.array([pa.MonthDayNano([1, 2, 3_500_000_000]), None, pa.MonthDayNano([0, -1, 0])])
TENSOR = pa.fixed_shape_tensor(pa.float32(), [2, 3], permutation=[1, 0])
TENSORS = pa.ExtensionArray.from_storage(
    TENSOR, pa.array([[0.1, 1, 2, 3, 4, 0.9], None, [0] * 6], pa.list_(pa.float32(), 6))
)
OPAQUE = pa.opaque(pa.string(), "geometry", "postgis")
OFFSETS = pa.array([0, 1, 2, 3], pa.int32())

# What a column of three rows shows, and its type in an Arrow file of magcli if it stays the same.
KEPT = {
    "uuid": (UUID_ARRAY, UUIDS),
    "bool8": (pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, None, 0], pa.int8())), [True, None, False]),
    "interval": (INTERVALS, ["P1M2DT3.5S", None, "P-1D"]),
    "tensor": (TENSORS, [[[0.1, 3.0], [1.0, 4.0], [2.0, 0.9]], None, [[0.0, 0.0]] * 3]),
    "opaque": (pa.ExtensionArray.from_storage(OPAQUE, pa.array(["p", None, "q"])), ["p", None, "q"]),
    "uuids": (pa.ListArray.from_arrays(OFFSETS, UUID_ARRAY), [[text] for text in UUIDS]),
    "record": (pa.StructArray.from_arrays([UUID_ARRAY, INTERVALS], ["u", "t"]), None),
    "map": (pa.array([[("a", 1)], None, []], pa.map_(pa.string(), pa.int64())), [{"a": 1}, None, {}]),
    "pairs": (pa.array([[(1, 0.1)], None, []], pa.map_(pa.int64(), pa.float32())), [[[1, 0.1]], None, []]),
    "half": (pa.array(np.array([0.1, 0.9, 1e-3], np.float16)), [0.1, 0.9, 0.001]),
    "floats": (pa.array([[0.1, 0.9], None, [1e10]], pa.list_(pa.float32())), [[0.1, 0.9], None, [1e10]]),
    "wide": (pa.array([10**40, None, 1], pa.decimal256(60, 0)), [10**40, None, 1]),
    "decimal": (pa.array([Decimal("1.50"), None, Decimal("-2")], pa.decimal32(5, 2)), ["1.50", None, "-2.00"]),
    "duration": (pa.array([90_000_000_000_001, None, -1], pa.duration("ns")), None),
}
RUNS = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array(["a", None], pa.string_view()))
UNION = pa.UnionArray.from_sparse(
    pa.array([0, 1, 2], pa.int8()), [pa.array([1, 2, 3]), pa.array(["x", "y", "z"]), UUID_ARRAY]
)
DENSE = pa.UnionArray.from_dense(
    pa.array([0, 1, 0], pa.int8()),
    pa.array([0, 0, 1], pa.int32()),
    [pa.array([0.1, 0.9], pa.float32()), pa.array(["x"])],
)
ENCODED = {
    "runs": (RUNS, ["a", "a", None], pa.string()),
    "record of runs": (pa.StructArray.from_arrays([RUNS], ["r"]), [{"r": "a"}, {"r": "a"}, {"r": None}], None),
    "list view": (pa.array([["a"], None, ["b", "c"]], pa.list_view(pa.string_view())), [["a"], None, ["b", "c"]], None),
    "large list view": (pa.array([[1], None, [2]], pa.large_list_view(pa.int64())), [[1], None, [2]], None),
    "category": (pa.DictionaryArray.from_arrays(pa.array([0, None, 0]), pa.array(["a"], pa.string_view())), None, None),
    "union": (UNION, [1, "y", UUIDS[2]], pa.json_()),
    "dense union": (DENSE, [0.1, "x", 0.9], pa.json_()),
    "unions": (pa.ListArray.from_arrays(OFFSETS, DENSE), [[0.1], ["x"], [0.9]], pa.json_()),
}


def _written(folder: Path, column: pa.Array, kind: str) -> Path:
    given = pa.table({"id": ["r1", "r2", "r3"], "c": column})
    path = folder / f"given{kind}"
    if kind == ".parquet":
        pq.write_table(given, path)
        return path
    new = pa.ipc.new_stream if kind == ".arrow" else pa.ipc.new_file
    with pa.OSFile(str(path), "wb") as file, new(file, given.schema) as writer:
        writer.write_table(given)
    return path


def _converted(path: Path, out: Path) -> Path:
    source = table.read(str(path))
    with table.write(str(out), source.schema, "{}") as sink:
        for batch in table.rechunk(source.rows):
            sink.write(batch)
        sink.finish(())
    return out


def _json(path: Path) -> list:
    return [json.loads(line)["c"] for line in path.read_text().splitlines()]


@pytest.mark.parametrize("kind", [".arrow", ".feather", ".parquet"])
@pytest.mark.parametrize("name", KEPT)
def test_types_with_a_meaning_are_shown_by_it_and_kept(tmp_path: Path, name: str, kind: str) -> None:
    column, expected = KEPT[name]
    if kind == ".parquet" and name in ("interval", "record"):
        pytest.skip("Parquet has no such type")
    given = _written(tmp_path, column, kind)
    lines = _converted(given, tmp_path / "x.jsonl")
    if expected is not None:
        assert _json(lines) == expected
    kept = pa.ipc.open_stream(_converted(given, tmp_path / "x.arrow").read_bytes()).read_all()["c"].combine_chunks()
    assert kept.type == column.type
    assert kept.equals(column) or kept.to_pylist() == column.to_pylist()
    stored = _converted(tmp_path / "x.arrow", tmp_path / "x.parquet")
    assert _json(_converted(stored, tmp_path / "y.jsonl")) == _json(lines)


@pytest.mark.parametrize("name", ENCODED)
def test_other_ways_to_store_values_become_plain(tmp_path: Path, name: str) -> None:
    column, expected, kind = ENCODED[name]
    given = _written(tmp_path, column, ".arrow")
    assert _json(_converted(given, tmp_path / "x.jsonl")) == (expected or column.to_pylist())
    stored = pq.read_table(_converted(given, tmp_path / "x.parquet")).column("c")
    assert kind is None or stored.type == kind
    assert _json(_converted(tmp_path / "x.parquet", tmp_path / "y.jsonl")) == _json(tmp_path / "x.jsonl")


def test_text_formats_keep_the_types_that_their_text_shows(tmp_path: Path) -> None:
    given = _written(tmp_path, UUID_ARRAY, ".arrow")
    for kind in (".jsonl", ".csv"):
        text = _converted(given, tmp_path / f"x{kind}")
        assert UUIDS[0] in text.read_text()
        back = _converted(text, tmp_path / "y.arrow")
        assert pa.ipc.open_stream(back.read_bytes()).schema.field("c").type == pa.uuid()


def test_types_of_a_pipe(tmp_path: Path, magcli) -> None:
    stream = _written(tmp_path, pa.StructArray.from_arrays([TENSORS, RUNS], ["t", "r"]), ".arrow").read_bytes()
    done = magcli("convert", "-", "--format", "jsonl", input=stream)
    assert done.returncode == 0
    assert json.loads(done.stdout.splitlines()[0])["c"] == {"t": KEPT["tensor"][1][0], "r": "a"}


@pytest.mark.parametrize("kind", [".csv", ".jsonl"])
def test_bytes_are_refused_with_column_and_type(tmp_path: Path, kind: str) -> None:
    opaque = pa.opaque(pa.binary(), "geometry", "postgis")
    given = _written(tmp_path, pa.ExtensionArray.from_storage(opaque, pa.array([b"a", None, b"b"])), ".arrow")
    with pytest.raises(DataError, match=r"column c has raw bytes.*arrow\.opaque"):
        _converted(given, tmp_path / f"x{kind}")
    union = pa.UnionArray.from_sparse(pa.array([0, 1, 0], pa.int8()), [pa.array([1, 2, 3]), pa.array([b"a"] * 3)])
    with pytest.raises(DataError, match=r"column c of type sparse_union.*raw bytes"):
        table.read(str(_written(tmp_path, union, ".arrow")))


# ---- polars and DuckDB ----


@pytest.mark.parametrize("kind", [".arrow", ".feather", ".parquet"])
def test_integers_of_128_bits_of_polars_are_refused_with_advice(tmp_path: Path, kind: str) -> None:
    frame = polars.DataFrame({"n": [1], "c": polars.Series([2**127 - 1], dtype=polars.Int128)})
    path = tmp_path / f"polars{kind}"
    {".arrow": frame.write_ipc_stream, ".feather": frame.write_ipc, ".parquet": frame.write_parquet}[kind](path)
    with pytest.raises(DataError, match=rf"polars{kind} has integers of 128 bits.*cast them.*to text"):
        table.read(str(path))


def test_polars_reads_columns_of_json_as_the_docs_say(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"c": 1}\n{"c": {"a": "x"}}\n')
    frame = polars.read_parquet(_converted(tmp_path / "x.jsonl", tmp_path / "x.parquet"))
    text = polars.col("c").ext.storage()
    assert frame.select(text.str.json_path_match("$.a"))["c"].to_list() == [None, "x"]


def test_uuid_and_interval_of_duckdb(tmp_path: Path) -> None:
    query = f"select '{UUIDS[0]}'::uuid as u, interval '14 months 3 days 1.5 seconds' as c, map{{'k': 0.5::float}} as m"
    duckdb.sql(f"copy ({query} union all select null, null, null) to '{tmp_path / 'duck.parquet'}'")
    lines = _converted(tmp_path / "duck.parquet", tmp_path / "x.jsonl").read_text().splitlines()
    first, last = map(json.loads, lines)
    assert first == {"u": UUIDS[0], "c": "P1Y2M3DT1.5S", "m": {"k": 0.5}}
    assert set(last.values()) == {None}
    stored = _converted(tmp_path / "duck.parquet", tmp_path / "x.arrow")
    assert pa.ipc.open_stream(stored.read_bytes()).schema.field("c").type == pa.month_day_nano_interval()


@pytest.mark.parametrize("value", ["[1, 2]::variant", "'x'::variant"])
def test_a_variant_of_duckdb_is_refused_by_its_column(tmp_path: Path, value: str) -> None:
    duckdb.sql(f"copy (select 1 as id, {value} as v) to '{tmp_path / 'duck.parquet'}'")
    with pytest.raises(DataError, match=r"duck\.parquet: column v has Parquet's type Variant.*AS JSON"):
        table.read(str(tmp_path / "duck.parquet"))


def test_a_variant_within_a_column_is_refused(tmp_path: Path) -> None:
    variant = pa.struct([("metadata", pa.binary()), ("value", pa.binary())])
    pq.write_table(pa.table({"v": pa.array([[None]], pa.list_(variant))}), tmp_path / "x.parquet")
    with pytest.raises(DataError, match="column v has Parquet's type Variant"):
        table.read(str(tmp_path / "x.parquet"))


# ---- numbers ----


SHORT = [0.1, 0.9, 1 / 3, 1e-45, 3.4028235e38, 16777216.0, None]


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("kind", [".jsonl", ".csv"])
def test_short_floats_are_written_with_as_many_digits_as_they_need(tmp_path: Path, dtype, kind: str) -> None:
    largest = float(np.finfo(dtype).max)
    values = [None if value is None or value > largest else dtype(value) for value in SHORT]
    column = pa.array(values, pa.from_numpy_dtype(dtype))
    given = pa.table({"c": column, "inner": [[{"x": value}] for value in values]})
    schema = pa.schema([("c", column.type), ("inner", pa.list_(pa.struct([("x", column.type)])))])
    given = pa.table({"c": column, "inner": pa.array(given["inner"].to_pylist(), schema.field("inner").type)})
    pq.write_table(given, tmp_path / "x.parquet")
    text = _converted(tmp_path / "x.parquet", tmp_path / f"x{kind}")
    assert "0.1" in text.read_text()
    assert "0.10000000149" not in text.read_text()
    assert "0.0999" not in text.read_text()
    (batch,) = table.read(str(text)).rows
    assert batch.column("c").equals(column)
    assert batch.column("inner").equals(given["inner"].combine_chunks())
    (tmp_path / f".x{kind}.manifest.json").unlink()  # as numbers alone they read back too
    (batch,) = table.read(str(text)).rows
    assert [None if x is None else dtype(x) for x in batch.column("c").to_pylist()] == values


def test_doubles_keep_all_their_digits(tmp_path: Path) -> None:
    pq.write_table(pa.table({"c": [0.1 + 0.2, float(np.float32(0.1))]}), tmp_path / "x.parquet")
    assert _json(_converted(tmp_path / "x.parquet", tmp_path / "x.jsonl")) == [0.1 + 0.2, float(np.float32(0.1))]


def test_short_floats_are_shown_and_compared_alike(tmp_path: Path, capsys) -> None:
    pq.write_table(
        pa.table({"c": pa.array([0.1, 0.9], pa.float32()), "d": pa.array([[0.1], [0.9]], pa.list_(pa.float32()))}),
        tmp_path / "x.parquet",
    )
    for condition in ("c == 0.1", "c in (0.1, 2)", "0.1 in d", "c <= 0.1"):
        call_stage("show", tmp_path / "x.parquet", where=condition)
        shown = capsys.readouterr().out
        assert "c: 0.1\nd: [0.1]\n-- 1 rows" in shown, condition
    call_stage("show", tmp_path / "x.parquet", stats=True)
    assert "0.1 to 0.9" in capsys.readouterr().out


@pytest.mark.parametrize("value", ["[INTERVAL 1 MONTH]", "{'inner': INTERVAL 1 MONTH}"])
def test_intervals_of_parquet_inside_of_other_values_are_named(tmp_path: Path, value: str) -> None:
    path = tmp_path / "t.parquet"
    duckdb.sql(f"COPY (SELECT 'a' AS id, {value} AS waits) TO '{path}' (FORMAT parquet)")
    with pytest.raises(DataError, match=r"t\.parquet: column waits\.\S+ is of type INTERVAL inside of a list or str"):
        table.read(str(path))
