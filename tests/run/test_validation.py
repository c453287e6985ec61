"""Bad rows go to --dropped with an id and a reason; the run goes on; rows in = out + dropped."""

import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from magcli.config import opt
from magcli.console import Console
from magcli.data import table
from magcli.data.source import LOST
from magcli.errors import DataError, UsageError
from magcli.run import harness, validation
from magcli.run.job import Drops, Job
from magcli.run.journal import Journal
from magcli.run.stage import Stage
from magcli.run.types import Result


@dataclass(frozen=True)
class Options:
    """None."""


@dataclass(frozen=True)
class RunOptions:
    """The folder of a run."""

    run: Path = opt(Path("run"), "", owned_dir=True)


def passing(needs: Sequence[str] = ()) -> Stage:
    """A stage that changes nothing and requires some columns."""
    return Stage("pass", Options, lambda config, rows, job: rows, lambda config, schema: schema, lambda config: needs)


def through(rows, place: Path, needs=("id", "prompt", "answer"), lost: str | None = None, **more) -> dict[str, int]:
    """Run a stage that changes nothing by the harness; returns the counts of its manifest.

    ``lost``: the reason of a row that cannot be read at all, which is an error.
    """
    stage = passing(needs)
    source = place / "in.jsonl"
    if rows is not None:
        source.write_bytes(b"\n".join(row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows))
    tables = harness.Tables([str(source)], str(place / "out.arrow"), str(place / "dropped.jsonl"), **more)
    with contextlib.nullcontext() if lost is None else pytest.raises(DataError, match=f"rows are lost: {lost} 1; "):
        harness.execute(stage, Options(), tables, Console(quiet=True))
    link = table.read(str(place / "out.arrow")).chain[-1]
    return {"in": link.rows_in, "out": link.rows_out, **link.dropped}


def rows_of(place: Path) -> list[dict]:
    return [row for batch in table.read(str(place)).rows for row in batch.to_pylist()]


GOOD = {"id": "good", "prompt": "1+1?", "answer": "2"}
BAD = {
    "broken-json": (b'{"id": "bad", "prompt": "x"', "bad"),
    "not-an-object": (b"17", "line 2"),
    "empty-prompt": ({"id": "bad", "prompt": " \n", "answer": "2"}, "bad"),
    "missing-answer": ({"id": "bad", "prompt": "1+1?"}, "bad"),
    "not-utf-8": (b'{"id": "bad", "prompt": "\xe9", "answer": "2"}', "bad"),
    "nul-byte": ({"id": "bad", "prompt": "1+1?\0", "answer": "2"}, "bad"),
    "too-large": ({"id": "bad", "prompt": "x" * ((1 << 24) + 1), "answer": "2"}, "bad"),
    "line-too-large": ({"id": "bad", "prompt": "x" * 100_000_000, "answer": "2"}, "bad"),
}


@pytest.mark.parametrize("reason", BAD)
def test_a_bad_row_is_dropped_with_its_id_and_a_reason(tmp_path: Path, reason: str) -> None:
    row, id = BAD[reason]
    lost = reason if reason in LOST else None
    counts = through([GOOD, row, {**GOOD, "id": "last"}], tmp_path, lost=lost)
    assert counts == {"in": 3, "out": 2, reason: 1}
    assert [row["id"] for row in rows_of(tmp_path / "out.arrow")] == ["good", "last"]
    (dropped,) = rows_of(tmp_path / "dropped.jsonl")
    assert (dropped["id"], dropped["drop_reason"]) == (id, reason)
    assert len(dropped["drop_detail"] or "") < 5000
    if isinstance(row, dict) and reason != "line-too-large":
        assert {name: dropped[name] for name in row} == row, "the row is whole"


def test_a_large_cell_of_any_column_is_dropped(tmp_path: Path) -> None:
    counts = through([GOOD, {**GOOD, "id": "bad", "solution": "x" * ((1 << 24) + 1)}], tmp_path, lost="too-large")
    assert counts == {"in": 2, "out": 1, "too-large": 1}
    assert rows_of(tmp_path / "dropped.jsonl")[0]["id"] == "bad"


ANY = st.one_of(
    st.none(), st.text(max_size=5), st.integers(-3, 3), st.just(""), st.just("a\0"), st.lists(st.integers())
)
LINE = st.one_of(
    st.fixed_dictionaries({}, optional={"id": ANY, "prompt": ANY, "answer": ANY, "x": ANY}),
    st.sampled_from([b"{", b"nonsense", b"[]", b"{}", b'{"a": "\\ud800"}', b'"text"']),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=st.lists(LINE, max_size=12))
def test_rows_in_equal_rows_out_plus_dropped(tmp_path: Path, lines: list) -> None:
    counts = through([GOOD, *lines], tmp_path, restart=True)
    dropped = rows_of(tmp_path / "dropped.jsonl")
    assert counts["in"] == 1 + len(lines)
    assert counts["out"] == len(rows_of(tmp_path / "out.arrow"))
    assert sum(count for name, count in counts.items() if name not in ("in", "out")) == len(dropped)
    assert counts["in"] == counts["out"] + len(dropped)
    assert all(row["id"] and row["drop_reason"] for row in dropped)


def test_a_missing_column_is_named_with_the_stage_and_the_columns_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"pass: .*in.jsonl lacks column answer; it has: id, question"):
        through([{"id": "1", "question": "x"}], tmp_path, needs=("id", "answer"))
    assert not (tmp_path / "out.arrow").exists()


def test_text_columns_accept_numbers_lists_and_mixed_values(tmp_path: Path) -> None:
    rows = [{"prompt": "p", "answer": answer} for answer in (42, 0.5, "x", ["a"], {"b": 1}, True)]
    assert through(rows, tmp_path) == {"in": 6, "out": 6}
    assert [row["answer"] for row in rows_of(tmp_path / "out.arrow")] == ["42", "0.5", "x", "a", '{"b": 1}', "true"]


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["p", "q"]).dictionary_encode(),
        pa.array(["p", "q"], pa.large_string()),
        pa.array([b"p", b"q"]),
        pa.array([b"p", b"q"], pa.large_binary()),
    ],
    ids=lambda column: str(column.type),
)
def test_text_of_other_tools_is_accepted(tmp_path: Path, column: pa.Array) -> None:
    given = pa.table({"prompt": column, "answer": ["1", "2"]})
    with pa.OSFile(str(tmp_path / "x.arrow"), "wb") as file, pa.ipc.new_stream(file, given.schema) as writer:
        writer.write_table(given)
    (tmp_path / "x.arrow").rename(tmp_path / "in.jsonl.arrow")
    stage = passing(("id", "prompt"))
    tables = harness.Tables([str(tmp_path / "in.jsonl.arrow")], str(tmp_path / "out.jsonl"))
    harness.execute(stage, Options(), tables, Console(quiet=True))
    rows = rows_of(tmp_path / "out.jsonl")
    assert [row["prompt"] for row in rows] == ["p", "q"]
    assert len({row["id"] for row in rows}) == 2


def test_bytes_that_are_not_text_are_dropped(tmp_path: Path) -> None:
    given = pa.table({"prompt": pa.array([b"p", b"\xff"]), "answer": ["1", "2"]})
    with pa.OSFile(str(tmp_path / "x.arrow"), "wb") as file, pa.ipc.new_stream(file, given.schema) as writer:
        writer.write_table(given)
    stage = passing(("id", "prompt"))
    tables = harness.Tables([str(tmp_path / "x.arrow")], str(tmp_path / "out.arrow"), str(tmp_path / "dropped.arrow"))
    harness.execute(stage, Options(), tables, Console(quiet=True))
    assert len(rows_of(tmp_path / "out.arrow")) == 1
    assert rows_of(tmp_path / "dropped.arrow")[0]["drop_reason"] == "broken-text"


def test_rows_without_an_id_get_one_from_their_content(tmp_path: Path) -> None:
    through([{"prompt": "a", "answer": "1"}, {"id": "", "prompt": "b", "answer": "1"}, GOOD], tmp_path)
    first = [row["id"] for row in rows_of(tmp_path / "out.arrow")]
    assert len(set(first)) == 3
    assert first[2] == "good"
    through(None, tmp_path, restart=True)
    assert [row["id"] for row in rows_of(tmp_path / "out.arrow")] == first


def test_rows_without_prompt_and_answer_get_an_id_from_all_columns(tmp_path: Path) -> None:
    rows = [{"completion": "a"}, {"completion": "b"}, {"id": "c", "completion": "b"}, {"completion": "b"}]
    through(rows, tmp_path, ("id", "completion"))
    ids = [row["id"] for row in rows_of(tmp_path / "out.arrow")]
    assert len(set(ids)) == 3
    assert ids[2:] == ["c", ids[1]]
    through(rows, tmp_path, ("id", "completion"), restart=True)
    assert [row["id"] for row in rows_of(tmp_path / "out.arrow")] == ids


def test_inputs_of_different_columns_are_one_table(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"id": "1", "x": 1}\n')
    (tmp_path / "b.jsonl").write_text('{"id": "2", "x": 0.5, "y": {}}\n{"id": "3", "y": "z", "x": 1}\n')
    stage = passing(())
    tables = harness.Tables([str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl")], str(tmp_path / "out.jsonl"))
    harness.execute(stage, Options(), tables, Console(quiet=True))
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert lines == [{"id": "1", "x": 1}, {"id": "2", "x": 0.5, "y": {}}, {"id": "3", "x": 1, "y": "z"}]


def test_rows_and_dropped_rows_need_different_outputs(tmp_path: Path) -> None:
    stage = passing()
    tables = harness.Tables([], str(tmp_path / "x.arrow"), str(tmp_path / "." / "x.arrow"))
    with pytest.raises(UsageError, match="already; name another"):
        harness.execute(stage, Options(), tables, Console(quiet=True))


def test_either_of_two_columns_is_enough(tmp_path: Path) -> None:
    needs = ("id", "prompt", "answer|tests")
    tests = [{"input": "1", "output": "2"}]
    rows = [GOOD, {"id": "code", "prompt": "?", "tests": tests}, {"id": "neither", "prompt": "?", "tests": []}]
    rows.append({"id": "blank", "prompt": "?", "answer": " "})
    assert through(rows, tmp_path, needs) == {"in": 4, "out": 2, "missing-answer": 2}
    assert through(rows[1:3], tmp_path, needs, restart=True) == {"in": 2, "out": 2}
    with pytest.raises(DataError, match="lacks column answer or tests; it has: id, prompt"):
        through([{"id": "a", "prompt": "?"}], tmp_path, needs)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [(["2"], "2"), ([2], "2"), ([0.5], "0.5"), (["1", "2"], '["1", "2"]'), ([True], "[true]"), ([[1]], "[[1]]")],
)
def test_a_list_of_one_answer_is_that_answer(tmp_path: Path, answer: list, expected: str) -> None:
    through([{"id": "a", "prompt": "?", "answer": answer}], tmp_path, restart=True)
    assert [row["answer"] for row in rows_of(tmp_path / "out.arrow")] == [expected]


def test_tests_may_be_one_object(tmp_path: Path) -> None:
    rows = [{"id": "a", "prompt": "?", "tests": {"input": ["1"], "output": ["2"]}}, GOOD]
    assert through(rows, tmp_path, ("id", "prompt", "answer|tests")) == {"in": 2, "out": 2}


def test_columns_of_other_tools_are_recognised(tmp_path: Path) -> None:
    aliases = {"prompt": ("problem", "question"), "answer": ("gold",)}
    schema = pa.schema([("problem", pa.string()), ("gold", pa.int64())])
    batch = pa.RecordBatch.from_pydict({"problem": ["1+1?"], "gold": [2]}, schema)
    running = Job("stage", Console(quiet=True), Drops(keep=False))
    after, rows = validation.validate_rows(
        ("id", "prompt", "answer|tests"), schema, iter([batch]), running, "t", aliases
    )
    (row,) = next(rows).to_pylist()
    assert after.names == ["id", "prompt", "answer"]
    assert (row["prompt"], row["answer"]) == ("1+1?", "2")
    two = pa.schema([("problem", pa.string()), ("question", pa.string()), ("answer", pa.string())])
    with pytest.raises(DataError, match="column prompt is missing and could be problem or question"):
        validation.validate_rows(("prompt", "answer"), two, iter([]), running, "t", aliases)


def turns(*pairs):
    return [{"role": role, "content": content} for role, content in pairs]


def test_a_prompt_of_one_turn_is_its_text(tmp_path: Path) -> None:
    rows = [{"id": "a", "prompt": turns(("user", "1+1?")), "answer": "2"}, {"id": "b", "prompt": "2+2?", "answer": "4"}]
    assert through(rows, tmp_path) == {"in": 2, "out": 2}
    assert [row["prompt"] for row in rows_of(tmp_path / "out.arrow")] == ["1+1?", "2+2?"]


def test_a_prompt_of_several_turns_is_refused_by_its_column(tmp_path: Path) -> None:
    rows = [{"id": "a", "prompt": turns(("system", "Be brief."), ("user", "1+1?")), "answer": "2"}]
    with pytest.raises(
        DataError, match=r"column prompt holds a conversation \(system, user\).* a system prompt by --system"
    ):
        through(rows, tmp_path)


def test_a_number_of_a_mixed_column_keeps_its_spelling(tmp_path: Path) -> None:
    rows = [b'{"id": "a", "prompt": "x", "answer": 1.50}', b'{"id": "b", "prompt": "x", "answer": "two"}']
    through(rows, tmp_path)
    assert [row["answer"] for row in rows_of(tmp_path / "out.arrow")] == ["1.5", "two"]


def test_a_failed_start_does_not_constrain_the_next_command(tmp_path: Path) -> None:
    """The journal that a command left without a finished unit is replaced by one with other settings."""
    schema = pa.schema([("x", pa.int64())])
    place = tmp_path / "journal"
    Journal.open(place, schema, {"model": "typo"}).file.close()
    journal = Journal.open(place, schema, {"model": "right"})
    journal.put("one", Result(pa.RecordBatch.from_pylist([{"x": 1}], schema)))
    journal.file.close()
    with pytest.raises(UsageError, match=r"holds unfinished work with other settings: model 'right' \(now 'typo'\)"):
        Journal.open(place, schema, {"model": "typo"})
    again = Journal.open(place, schema, {"model": "right"})
    assert "one" in again
    again.file.close()


def test_the_number_of_a_dropped_row_counts_those_that_cannot_be_read(monkeypatch) -> None:
    dropped = []
    drops = Drops(keep=False)
    monkeypatch.setattr(drops, "row", lambda id, reason, row, **detail: dropped.append((id, reason)))
    prompts = ["?", "{}", " ", "!"]
    batch = pa.record_batch({"prompt": prompts, validation.UNREAD: [None, "not-text\tan object", None, None]})
    job = Job("pass", Console(quiet=True), drops)
    _, rows = validation.validate_rows(("prompt",), batch.schema, iter([batch, batch]), job, "x")
    assert [row["prompt"] for batch in rows for row in batch.to_pylist()] == ["?", "!"] * 2
    assert dropped == [
        ("row 2", "not-text"), ("row 3", "empty-prompt"), ("row 6", "not-text"), ("row 7", "empty-prompt"),
    ]  # fmt: skip


def test_dropped_rows_are_reported_without_an_output(tmp_path: Path, capsys) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text('{"x": 1}\nbroken\n')
    stage = passing()
    harness.execute(stage, Options(), harness.Tables([str(source)], None, None), Console())
    assert "pass: 2 rows in, 1 out, dropped 1 (broken-json 1)" in capsys.readouterr().err


MIXED = [
    {"id": "a", "prompt": "?", "kind": "code", "num_tokens": 12, "tests": [{"input": "1"}], "correct": False, "own": 1},
    {"id": "b", "prompt": "?", "kind": None, "num_tokens": None, "tests": None, "correct": None, "own": None},
    {"id": "c", "prompt": "?"},
]


def test_known_columns_that_mix_null_and_absent_have_their_values(tmp_path: Path) -> None:
    through(MIXED, tmp_path, ("id", "prompt"))
    source = table.read(str(tmp_path / "out.arrow"))
    rows = [row for batch in source.rows for row in batch.to_pylist()]
    assert [row["kind"] for row in rows] == ["code", None, None]
    assert [row["num_tokens"] for row in rows] == [12, None, None]
    assert [row["correct"] for row in rows] == [False, None, None]
    assert [row["tests"] for row in rows] == [[{"input": "1"}], None, None]
    assert [row["own"] for row in rows] == [1, None, None]


def test_a_stage_without_required_columns_accepts_mixed_ones(tmp_path: Path) -> None:
    through(MIXED, tmp_path, ())
    assert [row["kind"] for row in rows_of(tmp_path / "out.arrow")] == ["code", None, None]


def test_code_problems_in_a_mixed_table_need_an_answer_or_tests(tmp_path: Path) -> None:
    rows = [*MIXED, {"id": "d", "prompt": "?", "answer": "2"}]
    counts = through(rows, tmp_path, ("id", "prompt", "answer|tests"))
    assert counts == {"in": 4, "out": 2, "missing-answer": 2}


@pytest.mark.parametrize("wrong", ["many", 1.5, True, 2**70])
def test_a_known_column_of_other_values_is_refused_by_name(tmp_path: Path, wrong: object) -> None:
    rows = [*MIXED, {"id": "d", "prompt": "?", "num_tokens": wrong}]
    with pytest.raises(DataError, match=r"column num_tokens has .*, where a whole number is expected"):
        through(rows, tmp_path, ("id", "prompt"))


@pytest.mark.parametrize("where", ["run/in.jsonl", "run/deeper/in.jsonl", "link/in.jsonl"])
def test_no_table_is_inside_the_folder_that_a_stage_owns(tmp_path: Path, where: str) -> None:
    (tmp_path / "run" / "deeper").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "run")
    stage, config = replace(passing(), Config=RunOptions), RunOptions(tmp_path / "run")
    inside, outside = tmp_path / where, tmp_path / "in.jsonl"
    for path in (inside, outside):
        path.write_text('{"x": 1}\n')
    for tables in (harness.Tables([str(inside)]), harness.Tables([str(outside)], f"{inside}.arrow")):
        with pytest.raises(UsageError, match="which this command owns; name another path"):
            harness.execute(stage, config, tables, Console(quiet=True))
    harness.execute(stage, config, harness.Tables([str(outside)]), Console(quiet=True))
