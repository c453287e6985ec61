"""`magcli duplicate` on tables: rows, ids, types of the tests, and the report."""

import json
from pathlib import Path

import pytest
from calling import call_stage

from magcli.data import table

EXAMPLES = Path(__file__).parents[2] / "examples"


def written(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def rows_of(path):
    return [row for batch in table.read(str(path)).rows for row in batch.to_pylist()]


def test_the_examples_are_duplicated_or_kept_with_a_reason(tmp_path, capfd):
    out = tmp_path / "out.arrow"
    call_stage("duplicate", EXAMPLES / "code_problems.jsonl", output=out, quiet=False)
    before, after = {row["id"]: row for row in rows_of(EXAMPLES / "code_problems.jsonl")}, rows_of(out)
    assert [(row["id"], row["of"], row["language"], row["duplicate"]) for row in after] == [
        *((f"c{n}-{name}", f"c{n}", name, "duplicated") for n in (1, 2, 3) for name in ("python", "cpp")),
        ("c4", None, None, "about-python"),
        ("c5", None, None, "types"),
        ("m1", None, None, None),
    ]
    for row in after:
        called = row["of"] in ("c2", "c3") and row["language"] == "cpp"
        assert (row["harness"] is not None) is called
        tests, given = (_filled(found["tests"]) for found in (row, before[row["of"] or row["id"]]))
        assert len(tests) == len(given)
        assert called or tests == given
    summary = "3 code problems now in both languages; unchanged 2 (about-python 1, types 1); 1 of other kinds"
    assert summary in capfd.readouterr().err


def _filled(tests):
    """Tests without their empty fields."""
    return [{key: value for key, value in test.items() if value is not None} for test in tests or []]


def test_tests_as_text_are_read_and_duplicating_is_idempotent(tmp_path):
    tests = json.dumps([{"assert": "assert add(1, 2) == 3"}])
    data = written(tmp_path / "p.jsonl", [{"id": "p", "kind": "code", "prompt": "Add two numbers.", "tests": tests}])
    call_stage("duplicate", data, output=tmp_path / "once.jsonl")
    call_stage("duplicate", tmp_path / "once.jsonl", output=tmp_path / "twice.jsonl")
    python, cpp = rows_of(tmp_path / "once.jsonl")
    assert _filled(python["tests"]) == json.loads(tests)
    assert _filled(cpp["tests"]) == [{"input": "1\n2\n", "output": "3"}]
    again = rows_of(tmp_path / "twice.jsonl")
    assert [(row["id"], row["prompt"], row["harness"]) for row in again] == [
        (row["id"], row["prompt"], row["harness"]) for row in (python, cpp)
    ]
    assert {row["duplicate"] for row in again} == {"asks-already"}


def test_tests_as_mappings_may_also_have_input_and_output(tmp_path):
    rows = [
        {"id": "p", "kind": "code", "prompt": "Add.", "tests": [{"assert": "assert add(1, 2) == 3"}], "compare": None}
    ]
    call_stage("duplicate", written(tmp_path / "p.jsonl", rows), output=tmp_path / "out.arrow")
    python, cpp = rows_of(tmp_path / "out.arrow")
    assert python["tests"] == [{"assert": "assert add(1, 2) == 3", "input": None, "output": None}]
    assert cpp["tests"] == [{"assert": None, "input": "1\n2\n", "output": "3"}]
    assert (python["compare"], cpp["compare"]) == (None, "tokens-case")


@pytest.mark.parametrize(
    ("column", "value", "language", "outcome"),
    [
        ("language", 3, "3", "asks-already"),
        ("language", ["C"], '["C"]', "asks-already"),
        ("language", 0, "python", "duplicated"),
        ("harness", 3, "python", "duplicated"),
        ("solutions", 3, "python", "duplicated"),
        ("solutions", [{"code": 3}], "python", "duplicated"),
    ],
)
def test_values_of_other_types_do_not_end_the_run(tmp_path, column, value, language, outcome):
    row = {"id": "p", "kind": "code", "prompt": "Add.", "tests": [{"assert": "assert add(1, 2) == 3"}], column: value}
    call_stage("duplicate", written(tmp_path / "p.jsonl", [row]), output=tmp_path / "out.arrow")
    first = rows_of(tmp_path / "out.arrow")[0]
    assert (first["language"], first["duplicate"]) == (language, outcome)


def test_the_option_only_drops_the_others_with_their_reasons(tmp_path):
    out, dropped = tmp_path / "out.arrow", tmp_path / "dropped.jsonl"
    call_stage("duplicate", EXAMPLES / "code_problems.jsonl", output=out, dropped=dropped, only=True)
    assert {row["id"]: row["drop_reason"] for row in rows_of(dropped)} == {"c4": "about-python", "c5": "types"}
    assert len(rows_of(out)) == 7


def test_a_cpp_program_is_graded_from_the_table(tmp_path):
    call_stage("duplicate", EXAMPLES / "code_problems.jsonl", output=tmp_path / "two.arrow")
    program = (
        "#include <bits/stdc++.h>\nstd::optional<double> mean_of_positive(std::vector<double> numbers) {\n"
        "    double sum = 0;\n    int count = 0;\n    for (double x : numbers) if (x > 0) sum += x, ++count;\n"
        "    if (!count) return std::nullopt;\n    return sum / count;\n}"
    )
    rows = [
        {**row, "completion": f"<think>Sum and count.</think>\n```cpp\n{program}\n```"}
        for row in rows_of(tmp_path / "two.arrow")
        if row["of"] == "c3"
    ]
    call_stage(
        "grade", written(tmp_path / "c.jsonl", rows), output=tmp_path / "g.jsonl", sandbox="auto", language=False
    )
    assert [(row["id"], row["reason"]) for row in rows_of(tmp_path / "g.jsonl")] == [
        ("c3-python", "wrong-answer"),
        ("c3-cpp", "accepted"),
    ]
