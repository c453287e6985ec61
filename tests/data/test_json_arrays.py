"""JSON arrays and gzipped JSON: rows are found without holding the file; a truncated file is refused."""

import gzip
import io
import json
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from magcli.data import jsonl, table
from magcli.errors import DataError, UsageError

TEXT = st.text('ab"\\[]{},: \n\t\u00e9\u2028', max_size=8)
VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
ROWS = [{"id": str(n), "text": f'{n} "[{{\\\\' * n, "part": [{"a": n}]} for n in range(5)]


def split(text: str, chunk: int, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    monkeypatch.setattr(jsonl, "CHUNK", chunk)
    return list(jsonl.elements(io.BytesIO(text.encode()), "x.json"))


def rows_of(place: Path, bad=table.ignore) -> list[dict]:
    return [row for batch in table.read(str(place), bad).rows for row in batch.to_pylist()]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=st.lists(VALUE, min_size=1, max_size=5), chunk=st.integers(1, 40), indent=st.sampled_from([None, 0, 2]))
def test_elements_are_found_wherever_a_piece_ends(monkeypatch, values, chunk: int, indent: int | None) -> None:
    text = f" \n{json.dumps(values, ensure_ascii=False, indent=indent)}\n"
    assert [json.loads(each) for each in split(text, chunk, monkeypatch)] == values
    for end in range(1, len(text.rstrip()), 7):
        with pytest.raises(DataError, match=r"x\.json is truncated"):
            split(text[:end], chunk, monkeypatch)
    with pytest.raises(DataError, match=r"x\.json is not a single array: after its end comes b'\["):
        split(text + "[1]", chunk, monkeypatch)


@pytest.mark.parametrize("name", ["rows.json", "rows.json.gz", "rows.jsonl.gz", "rows.ndjson.gz"])
@pytest.mark.parametrize("indent", [None, 4])
def test_files_of_other_tools_are_read(tmp_path: Path, name: str, indent: int | None) -> None:
    text = json.dumps(ROWS, indent=indent) if ".json" in name.split("rows")[1].replace(".jsonl", "") else ""
    text = text or "".join(json.dumps(row) + "\n" for row in ROWS)
    pack = gzip.compress if name.endswith(".gz") else bytes
    (tmp_path / name).write_bytes(pack(text.encode()))
    source = table.read(str(tmp_path / name))
    assert (source.total, [row for batch in source.rows for row in batch.to_pylist()]) == (5, ROWS)


def test_lines_in_a_json_file_and_a_byte_order_mark_are_read(tmp_path: Path) -> None:
    (tmp_path / "lines.json").write_text("\n" + "".join(json.dumps(row) + "\n" for row in ROWS))
    (tmp_path / "marked.json").write_text("\ufeff" + json.dumps(ROWS))
    assert rows_of(tmp_path / "lines.json") == rows_of(tmp_path / "marked.json") == ROWS


def test_elements_that_are_not_rows_are_reported_and_the_others_read(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(jsonl, "ROW_LIMIT", 300)
    monkeypatch.setattr(jsonl, "CHUNK", 100)
    large = json.dumps({"id": "large", "text": 'x"]},\\' * 200})
    place = tmp_path / "rows.json"
    place.write_text(f'[{{"id": "a"}}, 3, [1, {{}}], {{"id": "b", "n": nope}}, }}, {large}, {{"id": "c"}},]')
    reported: list[tuple[str, str]] = []
    assert rows_of(place, lambda name, reason, _: reported.append((name, reason))) == [{"id": "a"}, {"id": "c"}]
    assert reported == [
        ("element 2", "not-an-object"),
        ("element 3", "not-an-object"),
        ("b", "broken-json"),
        ("element 5", "broken-json"),
        ("large", "line-too-large"),
    ]


@pytest.mark.parametrize("text", ["[]", "[1, 2]", " [ ]\n"])
def test_an_array_without_objects_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "rows.json").write_text(text)
    with pytest.raises(DataError, match=r"rows\.json contains no JSON object"):
        table.read(str(tmp_path / "rows.json"))


def test_a_file_whose_rows_cannot_be_stored_names_the_first(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"a": "\\ud800"}\n{"a": "\\udfff"}\n')
    with pytest.raises(DataError, match=r"rows\.jsonl has no usable row: line 1 is broken-text"):
        table.read(str(tmp_path / "rows.jsonl"))


@pytest.mark.parametrize("name", ["rows.json.gz", "rows.jsonl.gz"])
def test_a_gzip_file_truncated_or_damaged_anywhere_is_refused(tmp_path: Path, name: str) -> None:
    """Of another tool's, without a manifest: what packs it has a checksum. Bits of its header say nothing, nor do the
    last ones before the checksum.
    """
    place = tmp_path / name
    text = json.dumps(ROWS) if ".json." in name else "".join(json.dumps(row) + "\n" for row in ROWS)
    data = gzip.compress(text.encode(), mtime=0)
    damaged = [data[:end] for end in range(1, len(data))]
    damaged += [
        data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :] for at in range(10, len(data)) if at != len(data) - 9
    ]
    for each in damaged:
        place.write_bytes(each)
        with pytest.raises(DataError, match=name):
            rows_of(place)


def test_memory_holds_a_part_of_an_array(tmp_path: Path) -> None:
    place = tmp_path / "rows.json"
    with open(place, "w") as file:
        file.write("[")
        for n in range(1000):
            file.write(f'{"," if n else ""}\n {{"id": "{n}", "text": "{"x" * 20_000}"}}')
        file.write("]")
    tracemalloc.start()
    try:
        assert sum(1 for _ in jsonl.texts_of(place).read()) == 1000
        assert tracemalloc.get_traced_memory()[1] < 6e6 < 20e6 < place.stat().st_size
    finally:
        tracemalloc.stop()


def test_json_arrays_pass_through_pipes_and_side_files_are_refused(tmp_path: Path, magcli) -> None:
    out = tmp_path / "rows.json"
    done = magcli("convert", "-o", out, input=json.dumps(ROWS, indent=1).encode())
    assert done.returncode == 0, done.stderr
    assert json.loads(out.read_text()) == ROWS
    assert out.read_text().splitlines()[1] == json.dumps(ROWS[0], ensure_ascii=False) + ","
    for name in (".rows.json.run.json", ".rows.json.manifest.json"):
        with pytest.raises(DataError, match="is not a table but the manifest"):
            table.read(str(tmp_path / name))
    with pytest.raises(UsageError, match=r"unknown table format '\.csv\.gz'"):
        table.check_target(str(tmp_path / "rows.csv.gz"))


def test_packing_keeps_json_lines_byte_for_byte(tmp_path: Path, magcli) -> None:
    source = tmp_path / "rows.jsonl"
    source.write_text("".join(json.dumps(row, separators=(",", ":")) + "\n" for row in ROWS).rstrip("\n"))
    packed, twice = tmp_path / "packed.jsonl.gz", tmp_path / "twice.jsonl.gz"
    for one, other in ((source, packed), (source, twice), (packed, tmp_path / "back.jsonl")):
        assert magcli("convert", one, "-o", other).returncode == 0
    assert (tmp_path / "back.jsonl").read_bytes() == source.read_bytes() == gzip.decompress(packed.read_bytes())
    assert packed.read_bytes() == twice.read_bytes()
