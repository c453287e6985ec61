"""The values of a table are the same for every other reader, and those of other writers are read."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from calling import call_stage
from pyarrow import feather

from magcli.data import table
from magcli.data.json_columns import is_json_text
from magcli.data.values import from_rows, to_rows
from magcli.errors import DataError

CALLS = [{"id": "1", "function": {"name": "f", "arguments": "{}"}}]
GIVEN = [
    {
        "topic": "web",
        "rate": 0.5,
        "m": {"a": 1, "b": None},
        "turns": [{"role": "user", "content": "é"}, {"role": "assistant", "content": None, "tool_calls": CALLS}],
        "mixed": "a",
    },
    {"topic": None, "rate": 1, "m": {"a": 2, "b": "x"}, "turns": [{"role": "user", "content": "yo"}], "mixed": 3},
    {"rate": 2, "m": None, "turns": [], "mixed": [{"k": "1"}]},
]
USER = {"role": "user", "content": "é", "tool_calls": None}
EXPECTED = [
    {**GIVEN[0], "turns": [USER, GIVEN[0]["turns"][1]]},
    {**GIVEN[1], "turns": [{"role": "user", "content": "yo", "tool_calls": None}]},
    {**GIVEN[2], "topic": None},
]
"""The rows as other tools read them: what is absent is null."""


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [row for batch in table.read(str(path)).rows for row in to_rows(batch)]


KINDS = (".parquet", ".arrow", ".feather", ".jsonl", ".json", ".jsonl.gz", "")


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the rows in every format, as ``rows.parquet`` and so on; the `datasets` folder is ``rows``."""
    folder = tmp_path_factory.mktemp("converted")
    (folder / "given.jsonl").write_text("".join(json.dumps(row) + "\n" for row in GIVEN))
    for kind in (*KINDS, ".csv"):
        call_stage("convert", folder / "given.jsonl", output=folder / f"rows{kind}")
    return folder


def by_datasets(folder: Path, kind: str, cache: Path) -> list[dict[str, Any]]:
    import datasets

    datasets.disable_progress_bars()
    if not kind:
        return list(datasets.load_from_disk(str(folder / "rows")))
    builder = {".parquet": "parquet", ".arrow": "arrow", ".feather": "arrow"}.get(kind, "json")
    files = str(folder / f"rows{kind}")
    return list(datasets.load_dataset(builder, data_files=files, split="train", cache_dir=str(cache)))


@pytest.mark.parametrize("kind", KINDS)
def test_datasets_reads_the_same_values(converted: Path, tmp_path: Path, kind: str) -> None:
    expected = EXPECTED
    if ".json" in kind:  # `datasets` itself reads objects of different keys as Json(), without the absent ones
        expected = [{**row, "turns": given["turns"]} for row, given in zip(EXPECTED, GIVEN, strict=True)]
    found = by_datasets(converted, kind, tmp_path)
    assert [without_nulls(row) for row in found] == [without_nulls(row) for row in expected]


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_nulls(part) for key, part in value.items() if part is not None}
    return [without_nulls(part) for part in value] if isinstance(value, list) else value


@pytest.mark.parametrize("kind", [".parquet", ".arrow", ""])
def test_the_types_are_those_that_hold_all_values(converted: Path, kind: str) -> None:
    import datasets

    schema = {
        ".parquet": lambda: pq.read_schema(converted / "rows.parquet"),
        ".arrow": lambda: pa.ipc.open_stream(converted / "rows.arrow").schema,
        "": lambda: datasets.load_from_disk(str(converted / "rows")).data.table.schema,
    }[kind]()
    call = pa.struct({"id": pa.string(), "function": pa.struct({"name": pa.string(), "arguments": pa.string()})})
    turn = pa.struct({"role": pa.string(), "content": pa.string(), "tool_calls": pa.list_(call)})
    expected = {
        "topic": pa.string(),
        "rate": pa.float64(),
        "m": pa.struct({"a": pa.int64(), "b": pa.string()}),
        "turns": pa.list_(turn),
        "mixed": pa.json_(),
    }
    assert dict(zip(schema.names, schema.types, strict=True)) == expected


def text_of(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "mixed": json.dumps(row["mixed"])}


def by_duckdb(source: str) -> list[dict[str, Any]]:
    return duckdb.sql(f"from {source}").to_arrow_table().to_pylist()


def by_duckdb_through_pyarrow(arrow_table: pa.Table) -> list[dict[str, Any]]:
    return duckdb.from_arrow(arrow_table).to_arrow_table().to_pylist()


READERS: dict[str, Callable[[Path], list[dict[str, Any]]]] = {
    "pyarrow, parquet": lambda folder: pq.read_table(folder / "rows.parquet").to_pylist(),
    "pyarrow, arrow": lambda folder: pa.ipc.open_stream(folder / "rows.arrow").read_all().to_pylist(),
    "pyarrow, feather": lambda folder: feather.read_table(folder / "rows.feather").to_pylist(),
    "polars, feather": lambda folder: polars.read_ipc(folder / "rows.feather").to_dicts(),
    "polars, parquet": lambda folder: polars.read_parquet(folder / "rows.parquet").to_dicts(),
    "polars, arrow": lambda folder: polars.read_ipc_stream(folder / "rows.arrow").to_dicts(),
    "duckdb, parquet": lambda folder: by_duckdb(f"'{folder}/rows.parquet'"),
    "duckdb, arrow": lambda folder: by_duckdb_through_pyarrow(pa.ipc.open_stream(folder / "rows.arrow").read_all()),
    "duckdb, feather": lambda folder: by_duckdb_through_pyarrow(feather.read_table(folder / "rows.feather")),
}


@pytest.mark.parametrize("reader", READERS)
def test_readers_of_arrow_and_parquet_have_the_same_values(converted: Path, reader: str) -> None:
    found = READERS[reader](converted)
    assert [{**row, "mixed": json.loads(row["mixed"])} for row in found] == EXPECTED


@pytest.mark.parametrize(
    "name", ["rows.parquet", "rows.feather", "rows.jsonl", "rows.json", "rows.jsonl.gz", "rows.csv"]
)
def test_pandas_reads_the_same_values(converted: Path, name: str) -> None:
    path = converted / name
    if name.endswith(".parquet"):
        frame = pd.read_parquet(path)
    elif name.endswith(".feather"):
        frame = pd.read_feather(path)
    else:
        frame = pd.read_csv(path) if name.endswith(".csv") else pd.read_json(path, lines=".jsonl" in name)
    assert frame["rate"].tolist() == [0.5, 1.0, 2.0]
    assert frame["topic"].tolist()[0] == "web"
    assert frame["topic"].isna().tolist() == [False, True, True]


TEXT_READERS: dict[str, Callable[[Path], list[dict[str, Any]]]] = {
    "polars, jsonl": lambda folder: polars.read_ndjson(folder / "rows.jsonl").to_dicts(),
    "polars, jsonl.gz": lambda folder: polars.read_ndjson(folder / "rows.jsonl.gz").to_dicts(),
    "polars, csv": lambda folder: polars.read_csv(folder / "rows.csv").to_dicts(),
    "duckdb, jsonl": lambda folder: by_duckdb(f"'{folder}/rows.jsonl'"),
    "duckdb, jsonl.gz": lambda folder: by_duckdb(f"'{folder}/rows.jsonl.gz'"),
    "duckdb, json": lambda folder: by_duckdb(f"'{folder}/rows.json'"),
    "duckdb, csv": lambda folder: by_duckdb(f"'{folder}/rows.csv'"),
}


@pytest.mark.parametrize("reader", TEXT_READERS)
def test_polars_and_duckdb_read_the_same_values_of_text_formats(converted: Path, reader: str) -> None:
    rows = TEXT_READERS[reader](converted)
    assert [row["rate"] for row in rows] == [0.5, 1.0, 2.0]
    assert [row["topic"] for row in rows] == ["web", None, None]


def test_polars_reads_a_json_array_whose_columns_have_one_type(tmp_path: Path) -> None:
    rows = [{name: value for name, value in row.items() if name != "mixed"} for row in GIVEN]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    call_stage("convert", tmp_path / "in.jsonl", output=tmp_path / "out.json")
    found = polars.read_json(tmp_path / "out.json").to_dicts()
    assert [(row["rate"], row["topic"]) for row in found] == [(0.5, "web"), (1.0, None), (2.0, None)]


def test_a_csv_of_values_of_several_types_has_texts_as_they_are(converted: Path) -> None:
    assert pd.read_csv(converted / "rows.csv")["mixed"].tolist() == ["a", "3", '[{"k": "1"}]']
    back = rows_of(converted / "rows.csv")
    assert [row["mixed"] for row in back] == ["a", 3, [{"k": "1"}]]


def test_a_text_that_looks_like_json_stays_a_text_in_a_csv(tmp_path: Path) -> None:
    values = ["3", 3, "null", None, '{"a": 1}', "", "x", '"x"', True]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"a": value, "b": 1}) + "\n" for value in values))
    call_stage("convert", tmp_path / "in.jsonl", output=tmp_path / "out.csv")
    assert [row["a"] for row in rows_of(tmp_path / "out.csv")] == values


# ---- tables of datasets ----


def json_dataset() -> Any:
    import datasets

    rows = [{"turns": row["turns"], "mixed": row["mixed"]} for row in GIVEN]
    return datasets.Dataset.from_list(rows, on_mixed_types="use_json")


@pytest.mark.parametrize("kind", [".parquet", ""])
def test_json_columns_that_datasets_wrote_have_their_values(tmp_path: Path, kind: str) -> None:
    data = json_dataset()
    place = tmp_path / f"given{kind}"
    data.to_parquet(place) if kind else data.save_to_disk(str(place))
    assert rows_of(place) == list(data)
    call_stage("convert", place, output=tmp_path / "out.jsonl")
    lines = (tmp_path / "out.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == list(data)
    call_stage("convert", place, output=tmp_path / "out.parquet")
    import datasets

    assert list(datasets.Dataset.from_parquet(str(tmp_path / "out.parquet"), cache_dir=str(tmp_path))) == list(data)


def test_traces_in_json_columns_are_read(tmp_path: Path) -> None:
    import datasets

    turns = [{"role": "user", "content": "1+1?"}, {"role": "assistant", "content": "2", "extra": {"k": 1}}]
    rows = [{"messages": turns}, {"messages": [{**turns[0], "content": "2+1?"}, {**turns[1], "extra": {"other": "t"}}]}]
    data = datasets.Dataset.from_list(rows, on_mixed_types="use_json")
    data.to_parquet(tmp_path / "traces.parquet")
    call_stage("cold-start", tmp_path / "traces.parquet", any_format=True, output=tmp_path / "out.jsonl")
    assert {row["messages"][-1]["content"] for row in rows_of(tmp_path / "out.jsonl")} == {"2"}
    assert len(rows_of(tmp_path / "out.jsonl")) == 2


def test_a_text_that_is_not_json_is_refused_with_its_column(tmp_path: Path) -> None:
    texts = pa.ExtensionArray.from_storage(pa.json_(), pa.array(["1", "{oops"]))
    pq.write_table(pa.table({"a": texts}), tmp_path / "x.parquet")
    with pytest.raises(DataError, match="column a has a text that is not JSON"):
        rows_of(tmp_path / "x.parquet")


@pytest.mark.parametrize("kind", [".parquet", ".arrow", ""])
def test_features_of_datasets_survive_with_their_column(tmp_path: Path, kind: str) -> None:
    import datasets
    from datasets import Array2D, ClassLabel, Features, Image, List, Value

    features = Features(
        {
            "label": ClassLabel(names=["easy", "hard"]),
            "labels": List(ClassLabel(names=["x", "y"])),
            "image": Image(),
            "grid": Array2D((2, 2), "int32"),
            "n": Value("int32"),
        }
    )
    values = {"label": 1, "labels": [0, 1], "image": {"bytes": PIXEL, "path": None}, "grid": [[1, 2], [3, 4]], "n": 7}
    data = datasets.Dataset.from_list([values], features=features)
    data.to_parquet(tmp_path / "given.parquet")
    out = tmp_path / f"out{kind}"
    call_stage("convert", tmp_path / "given.parquet", output=out, rename="level=label")
    loaded = {
        ".parquet": lambda: datasets.Dataset.from_parquet(str(out), cache_dir=str(tmp_path)),
        ".arrow": lambda: datasets.Dataset.from_file(str(out)),
        "": lambda: datasets.load_from_disk(str(out)),
    }[kind]()
    assert loaded.features == Features({"level": features["label"], **{k: features[k] for k in list(features)[1:]}})
    assert loaded[0]["image"].size == (1, 1)


PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c49444154789c63f8ffff3f0005fe02fe0def46b8"
    "0000000049454e44ae426082"
)
"""A PNG of one white pixel."""


# ---- times ----


TIMES = pa.table(
    {
        "id": ["a", "b"],
        "prompt": ["1+1?", "2+1?"],
        "answer": ["2", "3"],
        "at": pa.array([1, None], pa.timestamp("ns")),
        "zone": pa.array([1_700_000_000_123_456_789, None], pa.timestamp("ns", "UTC")),
        "parts": pa.array([[{"at": 5}], None], pa.list_(pa.struct({"at": pa.timestamp("ns")}))),
        "far": pa.array([2**62, None], pa.timestamp("us")),
    }
)


@pytest.mark.parametrize("stage", ["show", "convert"])
def test_times_in_nanoseconds_are_shown_and_written_as_text(tmp_path: Path, stage: str, capsys) -> None:
    pq.write_table(TIMES, tmp_path / "times.parquet")
    if stage == "show":
        call_stage("show", tmp_path / "times.parquet")
        shown = capsys.readouterr().out
        assert "1970-01-01 00:00:00.000000001" in shown
        assert "2023-11-14 22:13:20.123456789Z" in shown
        return
    call_stage("convert", tmp_path / "times.parquet", output=tmp_path / "out.jsonl")
    first, last = (json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines())
    assert first["at"] == "1970-01-01 00:00:00.000000001"
    assert first["parts"] == [{"at": "1970-01-01 00:00:00.000000005"}]
    assert last["at"] is last["parts"] is last["zone"] is None


def test_a_stage_passes_times_in_nanoseconds_on(tmp_path: Path) -> None:
    pq.write_table(TIMES.drop_columns(["far"]), tmp_path / "times.parquet")
    call_stage("clean-math", tmp_path / "times.parquet", output=tmp_path / "out.parquet")
    found = pq.read_table(tmp_path / "out.parquet")
    assert found.column("at").combine_chunks().equals(TIMES.column("at").combine_chunks())
    assert found.column("zone").combine_chunks().equals(TIMES.column("zone").combine_chunks())


def test_times_that_cannot_be_passed_on_are_refused_with_their_column(tmp_path: Path) -> None:
    pq.write_table(TIMES, tmp_path / "times.parquet")
    with pytest.raises(DataError, match=r"column far: .*convert it to text or drop it"):
        call_stage("clean-math", tmp_path / "times.parquet", output=tmp_path / "out.parquet")


def test_rows_become_a_batch_again() -> None:
    fields = [
        pa.field("a", pa.string(), metadata={b"magcli.json_text": b"1"}),
        pa.field("at", pa.timestamp("ns", "UTC")),
    ]
    batch = pa.RecordBatch.from_arrays(
        [pa.array(['{"k": [1, "x"]}', None]), pa.array([1, None], fields[1].type)], schema=pa.schema(fields)
    )
    rows = to_rows(batch)
    assert rows[0]["a"] == {"k": [1, "x"]}
    assert from_rows(rows, batch.schema).equals(batch)


# ---- side files ----


@pytest.mark.parametrize("kind", [".parquet", ".jsonl", ".csv"])
def test_datasets_loads_a_folder_of_tables(tmp_path: Path, kind: str) -> None:
    import datasets

    datasets.disable_progress_bars()
    (tmp_path / "given.jsonl").write_text('{"n": 1, "t": "x"}\n{"n": 2, "t": "y"}\n')
    (tmp_path / "tables").mkdir()
    call_stage("convert", tmp_path / "given.jsonl", output=tmp_path / "tables" / f"train{kind}")
    data = datasets.load_dataset(str(tmp_path / "tables"), split="train", cache_dir=str(tmp_path / "cache"))
    assert data.to_list() == [{"n": 1, "t": "x"}, {"n": 2, "t": "y"}]


@pytest.mark.parametrize("kind", [".jsonl", ".csv"])
def test_the_manifest_of_an_earlier_version_is_read_and_replaced(tmp_path: Path, kind: str) -> None:
    (tmp_path / "given.jsonl").write_text('{"n": 1}\n')
    out = tmp_path / f"out{kind}"
    call_stage("convert", tmp_path / "given.jsonl", output=out)
    for ending in (".manifest.json", ".run.json"):
        (tmp_path / f".{out.name}{ending}").rename(tmp_path / f"{out.name}{ending}")
    assert table.read(str(out)).chain[-1].stage == "convert"
    call_stage("convert", tmp_path / "given.jsonl", output=out, columns="n")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f".{out.name}.manifest.json",
        f".{out.name}.run.json",
        "given.jsonl",
        out.name,
    ]


def test_a_column_of_text_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    field = pa.field("a", pa.string(), metadata={b"magcli.json_text": b"1"})
    texts = pa.table([pa.array(['"web"', "null", None, "3"])], schema=pa.schema([field]))
    pq.write_table(texts, tmp_path / "old.parquet")
    assert is_json_text(table.read(str(tmp_path / "old.parquet")).schema.field("a"))
    assert [row["a"] for row in rows_of(tmp_path / "old.parquet")] == ["web", None, None, 3]
