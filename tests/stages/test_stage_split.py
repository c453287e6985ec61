"""`magcli split`: training rows and held-out rows."""

import json
from pathlib import Path

import pytest
from calling import call_stage

from magcli.data import table
from magcli.errors import DataError, UsageError
from magcli.stages.split.work import held_out, margin


def problems(path: Path, count: int) -> Path:
    rows = [{"prompt": f"What is {number} + 1?", "answer": str(number + 1)} for number in range(count)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def prompts(path: Path) -> list[str]:
    return [row["prompt"] for batch in table.read(str(path)).rows for row in batch.to_pylist()]


def split(source: Path, folder: Path, **options: object) -> tuple[list[str], list[str]]:
    """The prompts to train on, and those that are held out."""
    train, held = folder / "train.jsonl", folder / "held-out.arrow"
    call_stage("split", source, output=train, held_out=held, **options)
    return prompts(train), prompts(held)


def test_every_row_is_on_one_side_in_its_order(tmp_path):
    source = problems(tmp_path / "problems.jsonl", 400)
    train, held = split(source, tmp_path, share=0.25)
    given = prompts(source)
    assert [prompt for prompt in given if prompt in set(train)] == train
    assert [prompt for prompt in given if prompt in set(held)] == held
    assert len(train) + len(held) == 400
    assert 60 < len(held) < 140


def test_a_table_that_grows_keeps_its_split(tmp_path):
    source = problems(tmp_path / "problems.jsonl", 100)
    _, held = split(source, tmp_path)
    problems(source, 200)
    _, held_of_more = split(source, tmp_path)
    assert held_of_more[: len(held)] == held
    assert len(held_of_more) > len(held)


def test_another_seed_holds_out_other_rows(tmp_path):
    source = problems(tmp_path / "problems.jsonl", 200)
    assert split(source, tmp_path)[1] != split(source, tmp_path, seed=1)[1]


def test_the_same_question_in_other_spelling_is_on_the_same_side():
    questions = [f"What is {number} + 1?" for number in range(50)]
    sides = [held_out(question, 0.5, 0) for question in questions]
    assert [held_out(f" what  is {number} + 1?\n", 0.5, 0) for number in range(50)] == sides
    assert len(set(sides)) == 2


def test_a_side_without_rows_is_an_error(tmp_path):
    source = problems(tmp_path / "problems.jsonl", 3)
    with pytest.raises(DataError, match="no held-out row among 3"):
        split(source, tmp_path, share=1e-9)
    assert not (tmp_path / "held-out.arrow").exists()
    assert not (tmp_path / "train.jsonl").exists()


def test_a_file_of_the_user_is_not_replaced(tmp_path):
    source = problems(tmp_path / "problems.jsonl", 50)
    mine = problems(tmp_path / "mine.jsonl", 1)
    before = mine.read_bytes()
    with pytest.raises(UsageError, match="magcli did not make it"):
        call_stage("split", source, output=tmp_path / "train.jsonl", held_out=mine)
    with pytest.raises(UsageError, match="read or written by this command already"):
        call_stage("split", source, output=tmp_path / "train.jsonl", held_out=source)
    assert mine.read_bytes() == before


def test_a_missing_held_out_table_is_made_again(tmp_path):
    source = problems(tmp_path / "problems.jsonl", 100)
    before = split(source, tmp_path)
    (tmp_path / "held-out.arrow").unlink()
    assert split(source, tmp_path) == before


@pytest.mark.parametrize("count", [1, 6, 100, 1600])
def test_the_interval_that_held_out_problems_can_measure(count: int) -> None:
    """At its end a true accuracy would give 50 % at 1.96 of its own standard errors."""
    end = 0.5 + margin(count)
    assert end - 0.5 == pytest.approx(1.96 * (end * (1 - end) / count) ** 0.5)


def test_the_interval_is_said(tmp_path, capsys):
    _, held = split(problems(tmp_path / "problems.jsonl", 60), tmp_path, quiet=False)
    said = f"split: {len(held)} problems measure an accuracy of 50 % to +-{100 * margin(len(held)):.1f} points"
    assert said in capsys.readouterr().err
