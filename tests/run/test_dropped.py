"""The table of dropped rows is an input like any other; no row kept, or rows lost, is not success."""

import datetime
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from calling import call_stage

from magcli.console import Console
from magcli.data import table
from magcli.data.manifest import Link
from magcli.data.values import to_rows
from magcli.errors import DataError
from magcli.run import outcome
from magcli.run.dropped import DroppedTable, schema_of
from magcli.run.each_row import Decision, Drop, each_row
from magcli.run.job import Drops, Job
from magcli.run.journal import Journal
from magcli.run.types import Dropped, Result
from magcli.run.units import with_rows

HARD = [{"id": f"p{i}", "prompt": f"Compute {i}+1.", "answer": str(i + 1), "tags": [{"k": i}]} for i in range(3)]
PROOF = {"id": "proof", "prompt": "Prove that 1 = 1.", "answer": "x", "tags": [{"k": 9}]}


def written(path: Path, rows: list[dict]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def rows_of(path: Path) -> list[dict]:
    return [row for batch in table.read(str(path)).rows for row in to_rows(batch)]


@pytest.mark.parametrize("name", ["dropped.jsonl", "dropped.parquet", "dropped.csv", "dropped"])
def test_dropped_rows_are_whole_and_an_input(tmp_path: Path, name: str) -> None:
    source, dropped = written(tmp_path / "in.jsonl", [*HARD, PROOF]), tmp_path / name
    call_stage("clean-math", source, output=tmp_path / "kept.jsonl", dropped=dropped)
    (row,) = rows_of(dropped)
    assert {key: row[key] for key in PROOF} == PROOF
    assert row["drop_reason"] == "proof"
    call_stage("convert", tmp_path / "kept.jsonl", dropped, columns="id,prompt,answer", output=tmp_path / "all.jsonl")
    assert {row["id"] for row in rows_of(tmp_path / "all.jsonl")} == {"p0", "p1", "p2", "proof"}


SCHEMA = pa.schema([("id", pa.string()), ("day", pa.date32()), ("image", pa.binary()), ("n", pa.int64())])


def test_values_keep_their_types_and_others_are_in_the_detail(tmp_path: Path) -> None:
    rows = [
        {"id": "a", "day": datetime.date(2026, 1, 2), "image": b"\xff", "n": 1, "error": "too long"},
        {"id": None, "day": None, "image": None, "n": "no number", "against": "x.jsonl"},
    ]
    with DroppedTable(str(tmp_path / "d.parquet"), schema_of(SCHEMA, pa.schema([])), "stage") as dropped:
        for number, row in enumerate(rows):
            dropped.add(f"row {number}", "bad", row)
        dropped.finish(())
    first, second = rows_of(tmp_path / "d.parquet")
    assert first == {k: v for k, v in rows[0].items() if k != "error"} | {
        "drop_reason": "bad",
        "drop_detail": "too long",
    }
    assert (second["id"], second["n"]) == ("row 1", None)
    assert "no number" in second["drop_detail"]
    assert "x.jsonl" in second["drop_detail"]


def test_own_columns_keep_their_values_whatever_a_stage_calls_its_details(tmp_path: Path, capsys) -> None:
    own = {"detail": "from book A", "error": "page torn", "against": "nothing"}
    table = [{**PROOF, **own}, {**PROOF, **own, "prompt": ""}, {**HARD[0], **own}]
    source, dropped = written(tmp_path / "in.jsonl", table), tmp_path / "dropped.jsonl"
    evaluation = written(tmp_path / "test.jsonl", HARD)
    options = {"against": str(evaluation), "allow_empty": True, "quiet": False}
    call_stage("clean-math", source, output=tmp_path / "kept.jsonl", dropped=dropped, **options)
    rows = {row["drop_reason"]: row for row in rows_of(dropped)}
    assert all({name: row[name] for name in own} == own for row in rows.values())
    assert rows["proof"]["drop_detail"] == "Prove that"
    assert json.loads(rows["contaminated"]["drop_detail"]) == {"against": "test.jsonl", "against_row": "p0"}
    assert rows["empty-prompt"]["drop_detail"] is None
    assert "page torn" not in capsys.readouterr().err


def test_rows_without_an_id_get_no_empty_one(tmp_path: Path) -> None:
    source, dropped = written(tmp_path / "in.jsonl", [{"id": None, "n": 1}, {"id": "a", "n": 2}]), tmp_path / "d.jsonl"
    call_stage("convert", source, output=tmp_path / "kept.jsonl", dropped=dropped, where="n > 1")
    assert [(row["id"], row["n"]) for row in rows_of(dropped)] == [(None, 1)]


def test_rows_are_written_while_the_stage_runs(tmp_path: Path) -> None:
    """Memory is bounded: rows leave it long before the end."""
    with DroppedTable(str(tmp_path / "d.arrow"), schema_of(SCHEMA, pa.schema([])), "stage") as dropped:
        for number in range(1000):
            dropped.add(str(number), "bad", {"id": str(number), "n": number})
        assert dropped.num_waiting < 200
        dropped.finish(())
    assert [row["n"] for row in rows_of(tmp_path / "d.arrow")] == list(range(1000))


def test_the_rows_of_a_resumed_unit_come_from_the_input(tmp_path: Path) -> None:
    part = pa.RecordBatch.from_pylist(HARD)
    journal = Journal.open(tmp_path / "j", part.schema, {})
    empty = part.slice(0, 0)
    journal.put("k", Result(empty, [Dropped("p1", "too-hard", {"pass_rate": 0.0}, HARD[1], 1)]))
    assert journal.path.stat().st_size < 2000
    (dropped,) = with_rows(journal.get("k"), part).dropped
    assert dropped == Dropped("p1", "too-hard", {"pass_rate": 0.0}, HARD[1], 1)
    journal.close()


def test_dropped_rows_of_a_resumed_stage_are_their_own_where_ids_repeat(tmp_path: Path) -> None:
    """Of rows with one id the second and the third are dropped."""
    part = pa.RecordBatch.from_pylist([{"id": "p", "n": number} for number in range(3)])

    async def keep_first(row: dict[str, Any]) -> Decision:
        return row if row["n"] == 0 else Drop("late")

    for _ in range(2):  # the second time from the journal
        journal = Journal.open(tmp_path / "j", part.schema, {})
        table = DroppedTable(str(tmp_path / "d.arrow"), schema_of(part.schema, pa.schema([])), "stage")
        job = Job("stage", Console(quiet=True), Drops(keep=True), journal=journal, output_schema=part.schema)
        with table as job.drops.table:
            (kept,) = each_row(job, iter([part]), keep_first, size=3)
            table.finish(())
        journal.close()
        assert kept.column("n").to_pylist() == [0]
        assert [row["n"] for row in rows_of(tmp_path / "d.arrow")] == [1, 2]


def test_a_format_that_cannot_hold_the_rows_is_refused_before_the_work(tmp_path: Path) -> None:
    pq.write_table(pa.table({"prompt": [""], "answer": ["1"], "image": [b"x"]}), tmp_path / "in.parquet")
    places = {"output": tmp_path / "out.parquet", "dropped": tmp_path / "d.jsonl"}
    with pytest.raises(DataError, match=r"d\.jsonl: column image has raw bytes, which have no JSON form"):
        call_stage("filter-math", tmp_path / "in.parquet", model="http://127.0.0.1:9/v1", **places)
    assert [path.name for path in tmp_path.iterdir()] == ["in.parquet"]


# ---- none kept, most dropped, some lost ----


def test_no_row_kept_is_an_error_with_reasons_each_time(tmp_path: Path, magcli) -> None:
    source, out, dropped = written(tmp_path / "in.jsonl", [PROOF]), tmp_path / "out.jsonl", tmp_path / "dropped.jsonl"
    for _ in range(2):
        done = magcli("clean-math", source, "-o", out, "--dropped", dropped)
        assert done.returncode == 3
        assert f"clean-math: {out} has no rows: 1 rows in, dropped proof 1; --allow-empty" in done.stderr
    assert (rows_of(out), [row["id"] for row in rows_of(dropped)]) == ([], ["proof"])
    assert magcli("clean-math", source, "-o", out, "--allow-empty").returncode == 0
    done = magcli("clean-math", source)
    assert done.returncode == 3
    assert pa.ipc.open_stream(done.stdout).read_all().num_rows == 0


def test_of_shards_the_joined_table_decides(tmp_path: Path, magcli) -> None:
    source = written(tmp_path / "in.jsonl", [{"prompt": "1+1?", "answer": None, "completion": "2"}] * 2)
    shards = [tmp_path / "1.arrow", tmp_path / "2.arrow"]
    for number, shard in enumerate(shards, 1):
        assert magcli("grade", source, "--shard", f"{number}/2", "-o", shard).returncode == 0
    done = magcli("commit", *shards, "-o", tmp_path / "all.arrow")
    assert done.returncode == 3
    assert "grade: " in done.stderr
    assert "has no rows: 2 rows in, dropped missing-answer 2" in done.stderr
    assert magcli("commit", *shards, "-o", tmp_path / "all.arrow", "--allow-empty").returncode == 0


@pytest.mark.parametrize(("count", "said"), [(91, True), (90, False)])
def test_one_reason_for_most_rows_is_said(capsys: pytest.CaptureFixture[str], count: int, said: bool) -> None:
    link = Link("grade", "0", {}, (), rows_in=100, rows_out=100 - count, dropped={"missing-answer": count})
    outcome.check(link, "x.arrow", Console(), allow_empty=False)
    assert (
        "warning: grade: 91% of the rows were dropped for one reason: missing-answer" in capsys.readouterr().err
    ) == said


@pytest.mark.parametrize("stage", ["convert", "show"])
def test_lines_in_another_encoding_are_not_lost_in_silence(tmp_path: Path, magcli, stage: str) -> None:
    (tmp_path / "x.jsonl").write_bytes('{"a": "é"}\n{"a": "e"}\n'.encode("latin-1"))
    output = ["-o", tmp_path / "out.jsonl"] if stage == "convert" else []
    done = magcli(stage, tmp_path / "x.jsonl", *output)
    assert done.returncode == 3
    assert f"error: {stage}: rows are lost: not-utf-8 1; convert the input, for example with iconv" in done.stderr


def test_a_failing_command_writes_the_rows_dropped_so_far_and_no_others(tmp_path: Path) -> None:
    source = written(tmp_path / "in.jsonl", [{**HARD[0], "prompt": " "}, HARD[1]])
    with pytest.raises(DataError, match=r"no (training|held-out) row"):
        call_stage(
            "split", source, output=tmp_path / "o.jsonl", held_out=tmp_path / "h.jsonl", dropped=tmp_path / "d.jsonl"
        )
    assert [row["drop_reason"] for row in rows_of(tmp_path / "d.jsonl")] == ["empty-prompt"]
    assert not (tmp_path / "o.jsonl").exists()
    (tmp_path / "d.jsonl").unlink()
    with pytest.raises(DataError, match="lacks column"):
        call_stage("split", source, by="none", output=tmp_path / "o.jsonl", held_out=tmp_path / "h.jsonl")
    assert not (tmp_path / "d.jsonl").exists()
