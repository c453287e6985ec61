"""Any table in, any table out; other tools read ours."""

import datetime
import gzip
import itertools
import json
import time
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magcli.data import csv, folder, table, types
from magcli.errors import DataError, EnvironmentFault, UsageError

KINDS = [".arrow", ".feather", ".parquet", ".jsonl", ".jsonl.gz", ".json", ".csv", ""]
ROWS = [
    {"id": "a", "n": 1, "x": 0.5, "ok": True, "t": "", "l": [{"role": "user", "content": "é,\"'\n"}], "s": {"a": [1]}},
    {"id": "b", "n": None, "x": None, "ok": None, "t": None, "l": None, "s": None},
    {"id": "007", "n": -(2**63), "x": 1e300, "ok": False, "t": " 1.50 ", "l": [], "s": {"a": []}},
]
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("n", pa.int64()),
        ("x", pa.float64()),
        ("ok", pa.bool_()),
        ("t", pa.string()),
        ("l", pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))),
        ("s", pa.struct([("a", pa.list_(pa.int64()))])),
    ]
)


def write(place: Path, schema: pa.Schema, rows: list[dict]) -> Path:
    with table.write(str(place), schema, "{}") as sink:
        for batch in table.rechunk(iter([pa.RecordBatch.from_pylist(rows, schema=schema)])):
            sink.write(batch)
        sink.finish(())
    return place


def rows_of(place: Path) -> list[dict]:
    return [row for batch in table.read(str(place)).rows for row in batch.to_pylist()]


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_survives_a_round_trip(tmp_path: Path, kind: str) -> None:
    place = write(tmp_path / f"rows{kind}", SCHEMA, ROWS)
    assert table.read(str(place)).schema == SCHEMA
    assert rows_of(place) == ROWS


@pytest.mark.parametrize("second", KINDS)
@pytest.mark.parametrize("first", KINDS)
def test_equal_tables_have_equal_bytes_whatever_their_source(tmp_path: Path, first: str, second: str) -> None:
    schema = SCHEMA.remove(SCHEMA.get_field_index("s"))  # what lies hidden under a null object may differ
    direct = write(tmp_path / f"direct{second}", schema, ROWS)
    step = table.read(str(write(tmp_path / f"step{first}", schema, ROWS)))
    with table.write(str(tmp_path / f"indirect{second}"), step.schema, "{}") as sink:
        for batch in table.rechunk(step.rows):
            sink.write(batch)
        sink.finish(())
    names = ["data-00000-of-00001.arrow", "state.json"] if not second else [""]
    for name in names:
        assert (tmp_path / f"indirect{second}" / name).read_bytes() == (direct / name).read_bytes()


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_batches_depend_only_on_the_rows(data) -> None:
    values = data.draw(st.lists(st.one_of(st.none(), st.text(max_size=30)), min_size=1, max_size=40))
    lists = [None if value is None else [value, None, value] for value in values]
    batch = pa.RecordBatch.from_pydict({"a": values, "b": lists, "c": [value == "x" for value in values]})
    cuts = sorted(data.draw(st.sets(st.integers(1, len(values)), max_size=5)) | {0, len(values)})
    parts = [batch.slice(a, b - a) for a, b in itertools.pairwise(cuts)]
    whole = [b.serialize().to_pybytes() for b in table.rechunk(iter([batch]), 7, 150)]
    assert [b.serialize().to_pybytes() for b in table.rechunk(iter(parts), 7, 150)] == whole


def test_a_batch_stays_far_below_the_limit_of_a_text_column() -> None:
    batch = pa.RecordBatch.from_pydict({"t": ["x" * 1000] * 100})
    sizes = [part.num_rows for part in table.rechunk(iter([batch] * 3), 1024, 50_000)]
    assert sum(sizes) == 300
    assert max(sizes) * 1000 <= 50_000


FOREIGN = {
    "dictionary": pa.array(["x", None, "y"]).dictionary_encode(),
    "large_string": pa.array(["x", None, "y"], pa.large_string()),
    "string_view": pa.array(["x", None, "y"], pa.string_view()),
    "large_list": pa.array([["x"], None, []], pa.large_list(pa.large_string())),
    "fixed_size_list": pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int32(), 2)),
    "struct": pa.array([{"a": "x"}, None, {"a": "y"}], pa.struct([("a", pa.large_string())])),
    "null": pa.nulls(3),
    "decimal": pa.array([1, None, 2], pa.decimal128(5, 2)),
    "timestamp": pa.array([1, None, 2], pa.timestamp("ms")),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", FOREIGN)
def test_columns_of_other_tools_pass_through_every_format(tmp_path: Path, name: str, kind: str) -> None:
    given = pa.table({"id": ["1", "2", "3"], "c": FOREIGN[name]})
    pq.write_table(given, tmp_path / "foreign.parquet") if name != "string_view" else _stream(tmp_path, given)
    source = table.read(str(next(tmp_path.glob("foreign.*"))))
    with table.write(str(tmp_path / f"ours{kind}"), source.schema, "{}") as sink:
        for batch in table.rechunk(source.rows):
            sink.write(batch)
        sink.finish(())
    back = [row["c"] for row in rows_of(tmp_path / f"ours{kind}")]
    expected = FOREIGN[name].to_pylist()
    as_text = name in ("decimal", "timestamp") and kind in table.LINES
    assert back == ([None if value is None else str(value) for value in expected] if as_text else expected)


def _stream(folder: Path, given: pa.Table) -> None:
    with pa.OSFile(str(folder / "foreign.arrow"), "wb") as file, pa.ipc.new_stream(file, given.schema) as writer:
        writer.write_table(given)


def test_tables_are_exchanged_with_pandas(tmp_path: Path) -> None:
    frame = pd.DataFrame({"q": ["x", "y"], "c": pd.Categorical(["u", "v"]), "n": [1, None]}, index=[5, 6])
    frame.to_parquet(tmp_path / "pandas.parquet")
    source = table.read(str(tmp_path / "pandas.parquet"))
    assert source.schema.metadata is None
    write(tmp_path / "ours.parquet", source.schema, [row for batch in source.rows for row in batch.to_pylist()])
    assert pd.read_parquet(tmp_path / "ours.parquet")["q"].tolist() == ["x", "y"]
    assert pd.read_parquet(tmp_path / "ours.parquet")["c"].tolist() == ["u", "v"]


def test_the_random_access_format_is_read(tmp_path: Path) -> None:
    given = pa.Table.from_pylist(ROWS, schema=SCHEMA)
    with pa.OSFile(str(tmp_path / "x.arrow"), "wb") as file, pa.ipc.new_file(file, SCHEMA) as writer:
        writer.write_table(given)
    assert rows_of(tmp_path / "x.arrow") == ROWS
    (tmp_path / "x.arrow").write_bytes((tmp_path / "x.arrow").read_bytes()[:-9])
    with pytest.raises(DataError, match="not a complete Arrow file"):
        rows_of(tmp_path / "x.arrow")


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    _stream(tmp_path, pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]))
    with pytest.raises(DataError, match="more than one column named a"):
        table.read(str(tmp_path / "foreign.arrow"))


# ---- csv ----


def test_a_csv_of_another_tool(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes(
        b'\xef\xbb\xbfid,n,x,answer,zip\r\n1,1,0.5,42,01234\r\n2,,1e3,"4,\r\n2",5\r\nbad\r\n3,3,2,"",6\r\n\r\n4,4,3,\xff,7\r\n'
    )
    reported = []
    source = table.read(str(tmp_path / "x.csv"), lambda *bad: reported.append(bad[1]))
    rows = [row for batch in source.rows for row in batch.to_pylist()]
    assert rows == [
        {"id": "1", "n": 1, "x": 0.5, "answer": "42", "zip": "01234"},
        {"id": "2", "n": None, "x": 1000.0, "answer": "4,\r\n2", "zip": "5"},
        {"id": "3", "n": 3, "x": 2.0, "answer": "", "zip": "6"},
    ]
    assert sorted(reported) == ["not-utf-8", "ragged-line"]


OPEN_QUOTES = {
    'a,b\nx,"6\nlast,7\nlast2,8\n': "line 2 is never closed",
    'a,b\nx,"6 ""\n': "line 2 is never closed",
    'a,b\nx,"': "line 2 is never closed",
    # A cell that swallows a separator makes its row ragged.
    'a,b\n1,2\n"x,6\nlast,7': "line 3 is never closed",
    '"a,b\n1,2\n': "line 1 is never closed",
    'a;b\n"x\ny";1\n2;"z\n': "line 4 is never closed",
    # The mark of another row closes it.
    'a,b\nx,"6\ny,"7\nz,8\n': "line 2 ends before text in line 3",
}


@pytest.mark.parametrize("packing", ["", ".gz"])
@pytest.mark.parametrize(("text", "fault"), OPEN_QUOTES.items())
def test_a_quote_that_runs_into_other_rows_is_refused_by_its_line(
    tmp_path: Path, text: str, fault: str, packing: str
) -> None:
    path = tmp_path / f"x.csv{packing}"
    path.write_bytes(gzip.compress(text.encode()) if packing else text.encode())
    with pytest.raises(DataError, match=f"x.csv{packing}: the quotation mark that opens a cell in {fault}; close it"):
        list(table.read(str(path), lambda *_: None).rows)


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_quotes_that_end_in_their_cell_are_read(tmp_path: Path, end: str) -> None:
    text = 'a,b\n"x" y,6" pipe\n"u\n""v""\n" ,"w, ""z"""'
    (tmp_path / "x.csv").write_text(text + end)
    rows = [row for batch in table.read(str(tmp_path / "x.csv")).rows for row in batch.to_pylist()]
    assert rows == [{"a": "x y", "b": '6" pipe'}, {"a": 'u\n"v"\n ', "b": 'w, "z"'}]


@pytest.mark.parametrize("block", [128, 1000, 1 << 20])
def test_the_end_of_a_csv_is_checked_in_every_block(tmp_path: Path, monkeypatch, block: int) -> None:
    """Blocks end anywhere, also within a quoted cell or the mark after the last row."""
    monkeypatch.setattr(csv, "BLOCK", block)
    rows = [f'{n},"a\n{n % 7 * "b"}"\n' for n in range(200)]
    (tmp_path / "x.csv").write_text("n,text\n" + "".join(rows))
    assert sum(batch.num_rows for batch in table.read(str(tmp_path / "x.csv")).rows) == 200
    rows[150] = '150,"a\n'
    (tmp_path / "x.csv").write_text("n,text\n" + "".join(rows))
    with pytest.raises(DataError, match="line 302 ends before text in line 303"):
        list(table.read(str(tmp_path / "x.csv")).rows)


NESTED = pa.table(
    {
        "id": ["a", "b"],
        "dates": [[{"day": datetime.date(2026, 1, 2), "x": 1.5}], None],
        "pairs": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
        "span": pa.array([datetime.timedelta(seconds=3), None]),
        "clock": pa.array([datetime.time(3, 4), None]),
    }
)


@pytest.mark.parametrize("kind", [".jsonl", ".json", ".csv"])
def test_values_without_a_text_format_become_text_at_any_depth(tmp_path: Path, kind: str) -> None:
    write(tmp_path / f"x{kind}", NESTED.schema, NESTED.to_pylist())
    first, last = rows_of(tmp_path / f"x{kind}")
    assert "2026-01-02" in str(first["dates"])
    assert "k" in str(first["pairs"])
    assert str(first["clock"]).startswith("03:04:00")
    assert set(last.values()) <= {"b", None, "null"}


@pytest.mark.parametrize("kind", [".jsonl", ".csv"])
def test_bytes_within_values_are_refused_before_a_file_is_begun(tmp_path: Path, kind: str) -> None:
    rows = [{"id": "a", "image": [{"bytes": b"\xff", "path": "p"}]}]
    schema = pa.RecordBatch.from_pylist(rows).schema
    with pytest.raises(DataError, match="column image has raw bytes"):
        write(tmp_path / f"x{kind}", schema, rows)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("cells", "values"),
    [
        (["9223372036854775807", "-9223372036854775808"], [2**63 - 1, -(2**63)]),
        (["9223372036854775808", "1"], ["9223372036854775808", "1"]),
        (["1234567890123456", "0.5"], ["1234567890123456", "0.5"]),
        (["123456789012345", "0.5", "1e3"], [123456789012345.0, 0.5, 1000.0]),
        (["1e400", "2"], ["1e400", "2"]),
        (["True", "False"], [True, False]),
        (["TRUE", "true"], [True, True]),
        (["True", "yes"], ["True", "yes"]),
    ],
)
def test_csv_cells_of_other_tools_become_typed_values_or_stay_text(tmp_path: Path, cells, values) -> None:
    (tmp_path / "x.csv").write_text("\n".join(["n", *cells]) + "\n")
    (batch,) = table.read(str(tmp_path / "x.csv")).rows
    assert batch.column("n").to_pylist() == values


def test_other_tools_read_the_csv(tmp_path: Path) -> None:
    write(tmp_path / "x.csv", SCHEMA, ROWS)
    assert pd.read_csv(tmp_path / "x.csv", dtype={"id": str})["id"].tolist() == ["a", "b", "007"]
    assert pd.read_csv(tmp_path / "x.csv")["ok"].tolist()[::2] == [True, False]


# ---- datasets ----


@pytest.fixture
def datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    import datasets

    datasets.disable_progress_bars()
    return datasets


def test_datasets_reads_the_tables(tmp_path: Path, datasets) -> None:
    given = [{"id": str(i), "l": [{"role": "user", "content": "é"}]} for i in range(3000)]
    schema = pa.schema([SCHEMA.field("id"), SCHEMA.field("l")])
    cache = str(tmp_path / "cache")
    for kind, builder in ((".arrow", "arrow"), (".parquet", "parquet"), (".jsonl", "json")):
        place = write(tmp_path / f"rows{kind}", schema, given)
        data = datasets.load_dataset(builder, data_files=str(place), split="train", cache_dir=cache)
        assert data.to_list() == given
    assert datasets.Dataset.from_file(str(tmp_path / "rows.arrow")).to_list() == given
    assert datasets.load_from_disk(str(write(tmp_path / "folder", schema, given))).to_list() == given


def test_folders_that_datasets_saved(tmp_path: Path, datasets) -> None:
    data = datasets.Dataset.from_list([{"id": str(i), "n": i} for i in range(2500)])
    data.save_to_disk(str(tmp_path / "saved"), num_shards=2)
    assert rows_of(tmp_path / "saved") == data.to_list()
    kept = data.filter(lambda row: row["n"] % 2 == 0)
    kept.save_to_disk(str(tmp_path / "kept"))
    assert rows_of(tmp_path / "kept") == kept.to_list()
    datasets.DatasetDict(train=data, test=kept).save_to_disk(str(tmp_path / "both"))
    with pytest.raises(DataError, match=r"several tables; give one of them: .*both/test, .*both/train"):
        table.read(str(tmp_path / "both"))
    assert len(rows_of(tmp_path / "both" / "test")) == 1250


def test_a_saved_folder_cut_between_batches_is_refused(tmp_path: Path, datasets) -> None:
    datasets.Dataset.from_list([{"n": i} for i in range(2500)]).save_to_disk(str(tmp_path / "saved"))
    file = next((tmp_path / "saved").glob("*.arrow"))
    with pa.OSFile(str(file)) as stream, pa.ipc.open_stream(stream) as reader:
        reader.read_next_batch()
        boundary = stream.tell()
    file.write_bytes(file.read_bytes()[:boundary])
    assert len(datasets.load_from_disk(str(tmp_path / "saved"))) == 1000
    with pytest.raises(DataError, match="no end mark after 1000 rows"):
        rows_of(tmp_path / "saved")


def test_a_folder_that_is_not_a_table(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"is not a folder that `datasets` saved, and has no table in it"):
        table.read(str(tmp_path))


@pytest.mark.parametrize(
    ("name", "of_hub"),
    [("simplescaling/s1K-1.1", True), ("owner/name", True), ("a/b.jsonl", False), ("a/b/c", False), ("./name", False)],
)
def test_names_that_can_be_hub_ids(name: str, of_hub: bool, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)

    def asked(name: str) -> None:
        raise DataError(f"{name} was looked up on the hub")

    monkeypatch.setattr("magcli.data.folder.open_hub", asked)
    with pytest.raises(DataError, match="was looked up on the hub" if of_hub else "does not exist"):
        table.read(name)


@pytest.mark.flaky(reruns=2)
def test_a_hub_id_without_a_hub_fails_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    started = time.monotonic()
    with pytest.raises(EnvironmentFault, match="owner/name is not a local file or folder"):
        table.read("owner/name")
    assert time.monotonic() - started < 10


@pytest.mark.parametrize(
    ("files", "named", "rows"),
    [(["test"], None, ["test"]), (["test", "train"], None, ["train"]), (["test", "train"], "test", ["test"])],
)
def test_a_repository_without_a_named_split_is_its_only_one_or_train(
    tmp_path: Path, monkeypatch, files: list[str], named: str | None, rows: list[str]
) -> None:
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    (tmp_path / "data").mkdir()
    for name in files:
        (tmp_path / "data" / f"{name}.jsonl").write_text(json.dumps({"a": name}) + "\n")
    source = folder.open_split("owner/name", str(tmp_path / "data"), None, named)
    assert [row["a"] for batch in source.rows for row in batch.to_pylist()] == rows


def test_of_several_splits_without_train_one_must_be_named(tmp_path: Path, monkeypatch) -> None:
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    (tmp_path / "data").mkdir()
    for name in ("test", "validation"):
        (tmp_path / "data" / f"{name}.jsonl").write_text('{"a": 1}\n')
    with pytest.raises(DataError, match=r"give one of them: owner/name:(test|validation), owner/name:"):
        folder.open_split("owner/name", str(tmp_path / "data"), None, None)


# ---- outputs that cannot be ----


def test_impossible_outputs_are_refused_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thing").touch()
    (tmp_path / "file").touch()
    (tmp_path / "dir.arrow").mkdir()
    for name, message in {
        "x.txt": "unknown table format",
        "full": "other files",
        "file": "is a file",
        "dir.arrow": "folder",
    }.items():
        with pytest.raises(UsageError, match=message):
            table.check_target(str(tmp_path / name))


def test_row_sizes_follow_values_not_storage() -> None:
    column = pa.array([["ab", None], None, [], ["c"]])
    batch = pa.RecordBatch.from_arrays([column], ["c"])
    assert types.row_bytes(batch).tolist() == types.row_bytes(batch.take(pa.array([0, 1, 2, 3]))).tolist()
    assert types.row_bytes(batch.slice(2)).tolist() == types.row_bytes(batch).tolist()[2:]
