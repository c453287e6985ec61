"""Several inputs are one table; where they cannot be, the column is named."""

import pyarrow as pa
import pytest

from magcli.data.schema import common_schema, conform
from magcli.data.shapes import NULL_KEY
from magcli.data.values import parse_texts, to_rows
from magcli.errors import DataError

LARGE = 2**53 + 1


def together(name: str, *values: object) -> list[object]:
    """A column of one value a table, read as one table."""
    batches = [pa.RecordBatch.from_pydict({name: [value]}) for value in values]
    schema = common_schema([batch.schema for batch in batches])
    return [row[name] for batch in batches for row in to_rows(conform(batch, schema))]


def test_numbers_of_two_kinds_stay_as_written_in_a_column_of_text() -> None:
    found = together("answer", LARGE, 2.5, 2)
    assert found == [LARGE, 2.5, 2]
    assert [type(value) for value in found] == [int, float, int]


def test_numbers_of_two_kinds_are_one_type_in_other_columns() -> None:
    assert together("weight", 1, 0.5) == [1.0, 0.5]


def test_values_without_a_common_type_are_json() -> None:
    assert together("kind", "math", 1, None, {"a": 1}) == ["math", 1, None, {"a": 1}]


def test_a_column_without_values_takes_the_type_of_the_others() -> None:
    empty = pa.schema([pa.field("weight", pa.string(), metadata={NULL_KEY: b"1"})])
    schema = common_schema([empty, pa.schema([("weight", pa.float64())])])
    assert schema.field("weight").type == pa.float64()
    batch = pa.RecordBatch.from_arrays([pa.nulls(2, pa.string())], schema=empty)
    assert conform(batch, schema).column("weight").to_pylist() == [None, None]


def test_objects_of_several_tables_are_their_union() -> None:
    found = together("m", [{"a": 1}], [{"a": 0.5, "b": "t"}])
    assert found == [[{"a": 1.0, "b": None}], [{"a": 0.5, "b": "t"}]]


def test_a_number_that_does_not_fit_the_common_type_is_refused_with_its_column() -> None:
    with pytest.raises(DataError, match=r"column weight is int64 here and double in another .*inputs separately"):
        together("weight", LARGE, 0.5)


@pytest.mark.parametrize("text", ["1e30", "1.5", '"many"', "[1]", "-9223372036854775809"])
def test_a_value_that_is_not_a_64_bit_integer_is_refused(text: str) -> None:
    with pytest.raises(DataError, match="where a whole number is expected"):
        parse_texts(pa.array(["3.0", None, text]), "num_tokens", pa.int64())
