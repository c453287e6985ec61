import json
import math
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from magcli.data import table
from magcli.data.json_columns import is_json_text
from magcli.data.jsonl import Style
from magcli.errors import DataError

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
SCALAR = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(allow_nan=False, allow_infinity=False), TEXT
)
VALUE = st.recursive(
    SCALAR, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3), max_leaves=6
)
STYLES = st.sampled_from([Style(), Style(",", ":"), Style(", ", ":"), Style(",", ": "), Style(ascii=True)])


@st.composite
def tables(draw):
    """Objects whose keys stand in one order, each present or absent."""
    keys = draw(st.lists(TEXT, min_size=1, max_size=5, unique=True))
    rows = draw(st.lists(st.fixed_dictionaries({}, optional=dict.fromkeys(keys, VALUE)), min_size=1, max_size=6))
    return [{key: row[key] for key in keys if key in row} for row in rows if row] or [{keys[0]: None}]


def chain(source: Path, *targets: str) -> bytes:
    """Copy a table through several formats in turn; returns the bytes of the last."""
    place = source
    for number, target in enumerate(targets):
        given = table.read(str(place))
        place = source.with_name(f"step-{number}{target}")
        with table.write(str(place), given.schema, "{}") as sink:
            for batch in table.rechunk(given.rows):
                sink.write(batch)
            sink.finish(())
    return place.read_bytes()


def same(value: object) -> object:
    """A value in the form in which equal values are equal: absent is null, 1 is 1.0, but true is not 1."""
    if isinstance(value, dict):
        return {key: same(part) for key, part in value.items() if part is not None}
    if isinstance(value, list):
        return [same(part) for part in value]
    return (type(value) is bool, value)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=tables(), style=STYLES, targets=st.lists(st.sampled_from([".arrow", ".parquet", ".csv", ""]), max_size=3))
def test_json_lines_keep_their_values_through_every_format(tmp_path: Path, rows, style, targets) -> None:
    source = tmp_path / "rows.jsonl"
    source.write_text("".join(style.dumps(row) + "\n" for row in rows), encoding="utf-8")
    back = chain(source, *targets, ".jsonl").decode().rstrip("\n").split("\n")
    assert [same(json.loads(line)) for line in back] == [same(row) for row in rows]


@pytest.mark.parametrize(
    "lines",
    [
        ['{"a": 1, "c": 3}', '{"a": 1, "b": 2, "c": 3}'],
        ['{"a": 1}', '{"a": 0.5}', '{"a": "x"}', '{"a": null}', '{"a": {}}', '{"a": []}'],
        ['{"m": [{"role": "user", "content": "é\\n"}, {"role": "assistant", "content": "\\u0000"}]}'],
        ['{"big": 123456789012345678901234567890, "e": 1e+300, "z": -0.0}'],
        ['{"n": null}', '{"n": null}'],
        ['{"l": [], "x": [null]}', '{"l": [], "x": [1, null]}'],
        ['{"nested": {"a": [1, 2], "b": {"c": "d"}}}', '{"nested": {"a": [], "b": {"c": ""}}}'],
        ['{"id": 7, "prompt": "1+1", "answer": 2}', '{"id": 8, "prompt": "2+2", "answer": 4}'],
        ['{"a":"no slash"}', '{"a":"1 \\/ 2"}', '{"a":"\\u00e9 \\/"}'],
    ],
)
@pytest.mark.parametrize("end", ["\n", ""])
def test_lines_without_an_absent_and_a_null_value_come_back_as_written(tmp_path: Path, lines, end: str) -> None:
    source = tmp_path / "rows.jsonl"
    source.write_text("\n".join(lines) + end, encoding="utf-8")
    assert chain(source, ".arrow", ".parquet", ".jsonl").decode() == source.read_text(encoding="utf-8")


PAIR = pa.struct({"x": pa.int64(), "y": pa.string()})
TYPES = {
    "null in one row, absent in another": ([{"a": "web"}, {"a": None}, {"b": 1}], pa.string()),
    "integers and floats": ([{"a": 0.5}, {"a": 1}], pa.float64()),
    "integers that floats hold": ([{"a": 0.5}, {"a": 2**53}], pa.float64()),
    "an object with a null": ([{"a": {"x": 1, "y": None}}, {"a": {"x": 2, "y": "t"}}], PAIR),
    "objects with other keys": ([{"a": {"x": 1}}, {"a": {"y": "t"}}, {"a": {}}], PAIR),
    "lists of such objects": ([{"a": [{"x": 1}, {"x": 2, "y": "t"}]}, {"a": []}], pa.list_(PAIR)),
    "no value": ([{"a": None}], pa.string()),
}


@pytest.mark.parametrize("case", TYPES)
def test_values_with_a_common_type_have_that_type(tmp_path: Path, case: str) -> None:
    rows, kind = TYPES[case]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    field = table.read(str(tmp_path / "rows.jsonl")).schema.field("a")
    assert field.type == kind
    assert not is_json_text(field)


JSON = {
    "a number and a text": [1, "b"],
    "true and a number": [True, 1],
    "an integer that a float rounds": [2**53 + 1, 0.5],
    "an integer of more than 64 bits": [2**64],
    "an object and a list": [{"x": 1}, [1]],
    "only empty objects": [{}, {}],
    "more keys than a struct has": [{str(key): 1} for key in range(300)],
    "more levels than Arrow has": [json.loads("[" * 500 + "]" * 500)],
}


@pytest.mark.parametrize("case", JSON)
def test_values_without_a_common_type_are_json(tmp_path: Path, case: str) -> None:
    rows = [{"a": value} for value in JSON[case]]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert is_json_text(table.read(str(tmp_path / "rows.jsonl")).schema.field("a"))
    back = chain(tmp_path / "rows.jsonl", ".parquet", ".jsonl").decode().splitlines()
    assert [json.loads(line) for line in back] == rows


def test_values_survive_where_bytes_cannot(tmp_path: Path) -> None:
    source = tmp_path / "rows.jsonl"
    source.write_bytes(b'\xef\xbb\xbf{"a":1,"b":1.50}\r\n\r\n{"b":1e5 , "a":2}')
    written = chain(source, ".parquet", ".jsonl").decode().splitlines()
    assert [json.loads(line) for line in written] == [{"a": 1, "b": 1.5}, {"a": 2, "b": 1e5}]


def test_a_file_with_a_manifest_keeps_types_that_json_does_not_have(tmp_path: Path) -> None:
    schema = pa.schema([("n", pa.int32()), ("x", pa.float32()), ("t", pa.list_(pa.int32()))])
    rows = [{"n": 1, "x": 0.1, "t": [1]}, {"n": None, "x": 2.0, "t": None}]
    place = tmp_path / "rows.jsonl"
    with table.write(str(place), schema, "{}") as sink:
        sink.write(pa.RecordBatch.from_pylist(rows, schema=schema))
        sink.finish(())
    back = table.read(str(place))
    assert back.schema == schema
    assert next(back.rows).equals(pa.RecordBatch.from_pylist(rows, schema=schema))


BROKEN = {
    b'{"id": "x7", "a": ': ("x7", "broken-json"),
    b"\xff\xfe": ("line 2", "not-utf-8"),
    b"[1, 2]": ("line 2", "not-an-object"),
    b"{}": ("line 2", "not-an-object"),
    b'{"a": "\\ud800"}': ("line 2", "broken-text"),
    b'{"a": ' + b"[" * 100_000: ("line 2", "broken-json"),
    b'{"id": 12, "a": "' + b"x" * (1 << 25) + b'"}': ("12", "line-too-large"),
}


@pytest.mark.parametrize("line", BROKEN, ids=[reason + str(len(line)) for line, (_, reason) in BROKEN.items()])
def test_an_unreadable_line_is_reported_and_the_others_are_read(tmp_path: Path, line: bytes) -> None:
    source = tmp_path / "rows.jsonl"
    source.write_bytes(b'{"a": "first"}\n' + line + b'\n{"a": "last"}\n')
    reported: list[tuple[str, str, str]] = []
    rows = table.read(str(source), lambda *bad: reported.append(bad)).rows
    assert [row["a"] for batch in rows for row in batch.to_pylist()] == ["first", "last"]
    assert [(place, reason) for place, reason, _ in reported] == [BROKEN[line]]
    assert len(reported[0][2]) <= 500


def test_a_file_without_any_object_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("\n[]\n")
    with pytest.raises(DataError, match="no JSON object"):
        table.read(str(tmp_path / "rows.jsonl"))


def test_what_is_not_json_is_null_where_json_is_written(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(
        '{"a": NaN, "b": [Infinity, 1.5], "c": {"x": NaN}}\n{"a": 1, "b": 2, "c": 3}\n'
    )
    (batch,) = table.read(str(tmp_path / "rows.jsonl")).rows
    assert math.isnan(batch.column("a")[0].as_py())
    lines = chain(tmp_path / "rows.jsonl", ".parquet", ".jsonl").decode().splitlines()
    assert json.loads(lines[0], parse_constant=pytest.fail) == {"a": None, "b": [None, 1.5], "c": {"x": None}}
