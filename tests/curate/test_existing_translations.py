"""Existing translations, joined by id and by position."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

from magcli.curate.translation import EXISTING, LanguageChoice, read_translations, with_translations
from magcli.errors import DataError

LANGUAGES = ("fr", "de")


def written(path: Path, rows: list[dict]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def batches(*sizes: int):
    first = 0
    for size in sizes:
        yield pa.RecordBatch.from_pylist([{"id": f"p{number}"} for number in range(first, first + size)])
        first += size


def found(path: Path, by, choice: LanguageChoice) -> list[str | None]:
    rows = with_translations(batches(2, 3), read_translations(path, by, choice.languages, pytest.fail), by, choice)
    return [text for batch in rows for text in batch.column(EXISTING).to_pylist()]


def test_rows_are_joined_by_id_and_target_language(tmp_path: Path) -> None:
    rows = [{"id": f"p{n}", "language": name, "prompt": f"{name}{n}"} for n in (4, 3, 1, 0) for name in LANGUAGES]
    path, choice = written(tmp_path / "t.jsonl", rows), LanguageChoice(1.0, LANGUAGES)
    texts = found(path, "id", choice)
    assert texts == [f"{choice.of(f'p{n}')}{n}" if n != 2 else None for n in range(5)]
    assert {text[:2] for text in texts if text} == set(LANGUAGES)
    assert found(path, "id", LanguageChoice(0.0, LANGUAGES)) == [None] * 5


def test_rows_are_joined_by_row_number_or_a_column_of_row_numbers(tmp_path: Path) -> None:
    choice = LanguageChoice(1.0, ("de",))
    in_order = written(tmp_path / "a.jsonl", [{"prompt": f"de{n}"} for n in range(4)])
    assert found(in_order, "position", choice) == ["de0", "de1", "de2", "de3", None]
    numbered = written(tmp_path / "b.jsonl", [{"prompt": f"de{n}", "position": n} for n in (4, 1)])
    assert found(numbered, "position", choice) == [None, "de1", None, None, "de4"]


def test_a_table_that_cannot_be_joined_is_refused_by_name(tmp_path: Path) -> None:
    path = written(tmp_path / "t.jsonl", [{"prompt": "de0"}])
    with pytest.raises(DataError, match=r"t\.jsonl lacks column id"):
        read_translations(path, "id", ("de",), pytest.fail)
    with pytest.raises(DataError, match="no column language, so --languages must name one, not fr,de"):
        read_translations(path, "position", LANGUAGES, pytest.fail)


def test_broken_lines_are_reported_and_refused_where_row_numbers_matter(tmp_path: Path) -> None:
    path, heard = tmp_path / "t.jsonl", list[str]()
    path.write_text('{"id": "a", "prompt": "de0"}\n{"id"\n{"id": "b", "prompt": "de2"}\n')
    assert len(read_translations(path, "id", ("de",), heard.append)) == 2
    assert heard == [f"{path}: skipped unreadable lines (broken-json 1)"]
    with pytest.raises(DataError, match=r"line 2 \(broken-json\); fix or remove"):
        read_translations(path, "position", ("de",), pytest.fail)
