"""`magcli evaluate --compare`: what tables, and the completions that they were made of, tell of several models."""

import json
from pathlib import Path

import pytest
from calling import call_stage

from magcli.data import table
from magcli.stages.shared.evaluations import COMPLETIONS, digests


def written(path: Path, rows: list[dict]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def rows_of(path: Path) -> list[dict]:
    return [row for batch in table.read(str(path)).rows for row in batch.to_pylist()]


def graded(right: int, samples: int = 4) -> list[dict]:
    """Three problems, whose first samples are right."""
    return [{"id": f"p{p}", "correct": s < right, "extracted": str(s)} for p in range(3) for s in range(samples)]


def measured(path: Path, right: int, ks: str = "1") -> Path:
    """A table of metrics beside the completions that it was made of, noted as if a model had been asked."""
    kept = written(path.with_name(f"{path.stem}-kept.jsonl"), graded(right))
    call_stage("evaluate", kept, output=path, ks=ks)
    note = path.with_name(f".{path.name}.run.json")
    settings = {**json.loads(note.read_text()), COMPLETIONS: digests({"": kept})}
    note.write_text(json.dumps(settings))
    return path


def compared(tmp_path: Path, *tables: Path, **options) -> list[dict]:
    out = tmp_path / "compared.jsonl"
    call_stage("evaluate", *tables, compare=True, output=out, restart=True, **options)
    return rows_of(out)


def test_changed_completions_are_left_out_with_a_warning(tmp_path, capsys) -> None:
    tables = [measured(tmp_path / name, right) for name, right in (("a.arrow", 1), ("b.arrow", 2))]
    found = compared(tmp_path, *tables, quiet=False)
    gains = [row["difference"] for row in found if row["metric"] == "avg@n"]
    assert gains == [None, pytest.approx(0.25)]
    assert "warning" not in capsys.readouterr().err
    other = written(tmp_path / "b-kept.jsonl", graded(4))
    for content in (other.read_bytes(), b""):
        other.write_bytes(content)
        found = compared(tmp_path, *tables, quiet=False)
        assert {row["difference"] for row in found} == {None}
        assert f"warning: evaluate: {other} has changed since {tables[1]} was computed" in capsys.readouterr().err


def test_restored_completions_are_compared_again(tmp_path) -> None:
    tables = [measured(tmp_path / name, right) for name, right in (("a.arrow", 1), ("b.arrow", 2))]
    out, kept = tmp_path / "t.jsonl", tmp_path / "a-kept.jsonl"
    kept.rename(tmp_path / "away")
    call_stage("evaluate", *tables, compare=True, output=out)
    assert {row["difference"] for row in rows_of(out)} == {None}
    (tmp_path / "away").rename(kept)
    call_stage("evaluate", *tables, compare=True, output=out)
    assert pytest.approx(0.25) in [row["difference"] for row in rows_of(out)]


@pytest.mark.parametrize(
    "text", ['{"completions": {"": "/nowh', "[]", '{"completions": 3}', '{"completions": {"": 3}}']
)
def test_a_damaged_note_of_a_table_is_ignored(text, tmp_path) -> None:
    tables = [measured(tmp_path / name, right) for name, right in (("a.arrow", 1), ("b.arrow", 2))]
    (tmp_path / ".b.arrow.run.json").write_text(text)
    assert {row["difference"] for row in compared(tmp_path, *tables)} == {None}


def test_tables_that_differ_only_in_their_suffix_are_two_models(tmp_path) -> None:
    tables = [measured(tmp_path / name, right) for name, right in (("m.arrow", 1), ("m.parquet", 2))]
    assert {row["model"] for row in compared(tmp_path, *tables)} == {"m.arrow", "m.parquet"}


def test_a_comparison_is_compared_model_by_model(tmp_path) -> None:
    tables = [measured(tmp_path / name, right) for name, right in (("a.arrow", 1), ("b.arrow", 2))]
    first = tmp_path / "first.arrow"
    call_stage("evaluate", *tables, compare=True, output=first)
    third = measured(tmp_path / "b.parquet", 3)
    found = {row["model"]: row["value"] for row in compared(tmp_path, first, third) if row["metric"] == "avg@n"}
    assert found == {"a": 0.25, "b": 0.5, "b (2)": 0.75}


def test_differences_cover_every_k_of_the_tables(tmp_path) -> None:
    tables = [measured(tmp_path / name, right, ks="2,4") for name, right in (("a.arrow", 1), ("b.arrow", 2))]
    metrics = [row for row in compared(tmp_path, *tables) if row["model"] == "b"]
    assert {"pass@2", "maj@2", "pass@4", "maj@4"} <= {row["metric"] for row in metrics}
    assert all(row["difference"] is not None for row in metrics)


def test_a_comparison_without_its_markdown_is_not_up_to_date(tmp_path) -> None:
    tables = [measured(tmp_path / name, right) for name, right in (("a.arrow", 1), ("b.arrow", 2))]
    options = {"compare": True, "output": tmp_path / "t.jsonl"}
    call_stage("evaluate", *tables, **options)
    call_stage("evaluate", *tables, markdown=tmp_path / "t.md", **options)
    assert (tmp_path / "t.md").read_text().startswith("| suite | metric | a | b |")


def test_a_k_with_too_few_samples_is_reported(tmp_path, capsys) -> None:
    runs = [written(tmp_path / f"{right}.jsonl", graded(right)) for right in (1, 2)]
    compared(tmp_path, *runs, ks="1,64", quiet=False)
    errors = capsys.readouterr().err
    assert all(f"{name}: --ks 64 skipped: the fewest samples of a problem are 4\n" in errors for name in "12")
