"""Each input table is named and selected in its own layout before the tables are joined."""

import json
from pathlib import Path
from typing import Any

import pytest
from calling import call_stage

from magcli.data import table
from magcli.data.values import to_rows
from magcli.errors import DataError, UsageError


def written(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [row for batch in table.read(str(path)).rows for row in to_rows(batch)]


def test_a_column_that_nobody_asked_for_does_not_get_in_the_way(tmp_path: Path) -> None:
    one = written(tmp_path / "a.jsonl", {"prompt": "1+1?", "answer": "2", "meta": {"k": 1}})
    other = written(tmp_path / "b.jsonl", {"prompt": "2+1?", "answer": "3", "meta": "text"})
    out = tmp_path / "out.parquet"
    call_stage("convert", one, other, output=out, columns="answer,prompt")
    assert rows_of(out) == [{"answer": "2", "prompt": "1+1?"}, {"answer": "3", "prompt": "2+1?"}]
    call_stage("convert", one, other, output=tmp_path / "all.parquet")
    assert [row["meta"] for row in rows_of(tmp_path / "all.parquet")] == [{"k": 1}, "text"]


def test_a_column_is_renamed_in_the_tables_that_have_it(tmp_path: Path) -> None:
    one = written(tmp_path / "a.jsonl", {"question": "1+1?", "answer": 2})
    other = written(tmp_path / "b.jsonl", {"prompt": "2+1?", "answer": 2.5})
    call_stage("convert", one, other, output=tmp_path / "out.jsonl", rename="prompt=question")
    assert [row["prompt"] for row in rows_of(tmp_path / "out.jsonl")] == ["1+1?", "2+1?"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rename": "prompt=query"}, "lacks column query; it has: question, answer, prompt"),
        ({"columns": "query"}, "lacks column query; it has: question, answer, prompt"),
        ({"columns": "question"}, r"b\.jsonl has none of the columns to read; it has: prompt, answer"),
    ],
)
def test_what_no_table_has_is_refused(tmp_path: Path, options: dict[str, str], message: str) -> None:
    one = written(tmp_path / "a.jsonl", {"question": "1+1?", "answer": 2})
    other = written(tmp_path / "b.jsonl", {"prompt": "2+1?", "answer": 3})
    with pytest.raises(DataError, match=message):
        call_stage("convert", one, other, output=tmp_path / "out.jsonl", **options)


def test_a_new_name_that_a_table_has_already_is_refused(tmp_path: Path) -> None:
    one = written(tmp_path / "a.jsonl", {"question": "1+1?", "prompt": "x"})
    with pytest.raises(UsageError, match="has a column prompt already"):
        call_stage("convert", one, output=tmp_path / "out.jsonl", rename="prompt=question")


def test_tables_may_have_different_names_of_the_prompt(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = written(tmp_path / "gsm8k.jsonl", {"question": "Compute 1+1.", "answer": "2"})
    other = written(tmp_path / "svamp.jsonl", {"Body": "Tom has 3 pens.", "Question": "How many pens?", "Answer": 3.0})
    out = tmp_path / "out.jsonl"
    call_stage("clean-math", one, other, output=out, quiet=False)
    assert [(row["prompt"], row["answer"]) for row in rows_of(out)] == [
        ("Compute 1+1.", "2"),
        ("Tom has 3 pens.\nHow many pens?", "3"),
    ]
    said = capsys.readouterr().err
    assert f"reading question as prompt of {one}" in said
    assert f"reading Question as prompt, Answer as answer of {other}" in said


def test_a_table_that_could_be_read_two_ways_is_named(tmp_path: Path) -> None:
    one = written(tmp_path / "a.jsonl", {"prompt": "1+1?", "answer": "2"})
    other = written(tmp_path / "b.jsonl", {"problem": "1+1?", "question": "2+1?", "answer": "2"})
    with pytest.raises(DataError, match=r"b\.jsonl: column prompt is missing and could be problem or question"):
        call_stage("clean-math", one, other, output=tmp_path / "out.jsonl")


def test_traces_of_several_layouts_are_all_read(tmp_path: Path) -> None:
    sharegpt = [{"from": "human", "value": "1+1?"}, {"from": "gpt", "value": "2"}]
    chat = [{"role": "user", "content": "2+1?"}, {"role": "assistant", "content": "3"}]
    one = written(tmp_path / "a.jsonl", {"system": "Think.", "conversations": sharegpt})
    other = written(tmp_path / "b.jsonl", {"messages": chat, "num_tokens": 5})
    third = written(tmp_path / "c.jsonl", {"problem": "3+1?", "solution": "unused", "generations": ["4"]})
    call_stage("cold-start", one, other, third, any_format=True, output=tmp_path / "out.jsonl")
    assert sorted(row["messages"][-1]["content"] for row in rows_of(tmp_path / "out.jsonl")) == ["2", "3", "4"]


def test_a_table_without_traces_is_refused_by_name(tmp_path: Path) -> None:
    one = written(tmp_path / "a.jsonl", {"prompt": "1+1?", "completion": "2"})
    other = written(tmp_path / "b.jsonl", {"id": "x", "text": "2+1?"})
    with pytest.raises(DataError, match=r"b\.jsonl lacks column"):
        call_stage("cold-start", one, other, any_format=True, output=tmp_path / "out.jsonl")
