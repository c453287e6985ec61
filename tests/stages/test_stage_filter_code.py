"""`magcli filter-code` on real programs in the sandbox."""

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from calling import call_stage, kill_and_resume, seconds_of

from magcli.command import stage_of
from magcli.data import durable, table
from magcli.errors import DataError, UsageError
from magcli.layouts.names import SOLUTIONS, TESTS
from magcli.stages.shared.tables import CODE_ALIASES
from magcli.verify.code import compiler

EXAMPLE = Path(__file__).parents[2] / "examples" / "programs.jsonl"
ADD = "a, b = map(float, input().split())\nprint(a + b)"
CPP = '#include <bits/stdc++.h>\nint main() { double a, b; std::cin >> a >> b; printf("%.9f\\n", a + b); }'


def rows_of(path):
    return [each for batch in table.read(str(path)).rows for each in batch.to_pylist()]


def written(path, rows):
    path.write_text("".join(json.dumps(each) + "\n" for each in rows))
    return path


def solution(code, verdict="right", language="python"):
    return {"language": language, "code": code, "verdict": verdict}


def problem(id, tests, solutions, **more):
    pairs = [{"input": given, "output": expected} for given, expected in tests]
    return {"id": id, "prompt": "Add.", "tests": pairs, "solutions": solutions, **more}


def filtered(tmp_path, rows, **options):
    source = written(tmp_path / "problems.jsonl", rows)
    out, dropped = tmp_path / "kept.arrow", tmp_path / "dropped.jsonl"
    call_stage("filter-code", source, output=out, dropped=dropped, restart=True, allow_empty=True, **options)
    return {row["id"]: row for row in rows_of(out)}, {row["id"]: row["drop_reason"] for row in rows_of(dropped)}


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    """The shipped example, with its matrix."""
    folder = tmp_path_factory.mktemp("example")
    places = {"output": folder / "kept.arrow", "dropped": folder / "dropped.jsonl", "matrix": folder / "matrix.arrow"}
    call_stage("filter-code", EXAMPLE, **places)
    return folder


def test_the_example_shows_every_decision(example):
    kept = {row["id"]: row for row in rows_of(example / "kept.arrow")}
    assert {row["id"]: row["drop_reason"] for row in rows_of(example / "dropped.jsonl")} == {
        "split-unchecked": "disputed", "double": "solutions-fail", "one-test": "few-tests", "unsolved": "no-solutions",
    }  # fmt: skip
    assert [test["output"] for test in kept["sum"]["tests"]] == ["3\n", "6\n", "0\n", "15\n"]
    assert (kept["sum"]["outputs_replaced"], kept["sum"]["tests_dropped"]["duplicate"]) == (1, 1)
    assert {id: (row["weak"], row["wrong_passing"]) for id, row in kept.items()} == {
        "sum": (False, 0), "larger": (True, 1), "reverse": (False, 0), "split": (False, 0),
    }  # fmt: skip


def test_kept_rows_can_be_graded(example, tmp_path):
    rows = [
        row | {"completion": f"<think>So.</think>\n```python\n{row['solutions'][0]['code']}\n```"}
        for row in rows_of(example / "kept.arrow")
    ]
    call_stage("grade", written(tmp_path / "c.jsonl", rows), output=tmp_path / "g.arrow", language=False)
    assert [row["reason"] for row in rows_of(tmp_path / "g.arrow")] == ["accepted"] * 4


def test_the_matrix_has_a_row_for_each_run(example):
    runs = rows_of(example / "matrix.arrow")
    counts = Counter(run["id"] for run in runs)
    assert counts == {
        "sum": 12,
        "larger": 6,
        "reverse": 6,
        "split": 9,
        "split-unchecked": 6,
        "double": 3,
        "one-test": 1,
    }
    (fourth,) = [run for run in runs if (run["id"], run["solution"], run["test"]) == ("sum", 0, 3)]
    assert (fourth["verdict"], fourth["group"], fourth["output"]) == ("wrong-answer", 1, "15\n")
    assert 0 < fourth["seconds"] < 1
    assert {run["group"] for run in runs if run["id"] == "split"} == {0, 1}
    assert table.read(str(example / "matrix.arrow")).chain[-1].rows_out == len(runs)


def test_decisions_are_recomputed_from_the_matrix(example, tmp_path, monkeypatch):
    def of(name, **options):
        call_stage("filter-code", EXAMPLE, output=tmp_path / name, from_matrix=example / "matrix.arrow", **options)
        return rows_of(tmp_path / name)

    monkeypatch.setattr("magcli.verify.sandbox.open_sandbox", None)
    assert of("same.arrow") == rows_of(example / "kept.arrow")
    ids = [row["id"] for row in of("other.arrow", min_tests=1, drop_weak=True)]
    assert ids == ["sum", "reverse", "split", "one-test"]
    assert [row["id"] for row in of("lenient.arrow", agreement=0.5, disputed=1.0, min_tests=1)][:2] == ["sum", "larger"]


def test_matrices_of_shards_are_joined(example, tmp_path):
    for shard in ("1/2", "2/2"):
        places = {"output": tmp_path / f"{shard[0]}.arrow", "matrix": tmp_path / f"m{shard[0]}.arrow"}
        call_stage("filter-code", EXAMPLE, **places, shard=shard)
    with pytest.raises(UsageError, match=r"m1\.arrow is the matrix of shard 1/2"):
        call_stage("filter-code", EXAMPLE, output=tmp_path / "x.arrow", matrix=tmp_path / "m1.arrow", shard="2/2")
    call_stage("commit", tmp_path / "m2.arrow", tmp_path / "m1.arrow", output=tmp_path / "m.arrow")
    call_stage("filter-code", EXAMPLE, output=tmp_path / "kept.arrow", from_matrix=tmp_path / "m.arrow")
    assert rows_of(tmp_path / "kept.arrow") == rows_of(example / "kept.arrow")


def test_a_repeated_problem_has_no_more_votes_in_a_replay(tmp_path):
    """One solution alone replaces no output, however often its problem is in the table."""
    tests = [{"input": f"{n}\n", "output": f"{n + 1}\n"} for n in (1, 2, 3)]
    wrong = {"input": "4\n", "output": "99\n"}
    row = {
        "id": "p",
        "prompt": "Add one.",
        "tests": [*tests, wrong],
        "solutions": [{"language": "python", "code": "print(int(input()) + 1)", "verdict": "right"}],
    }
    rows = [row, row, {**row, "tests": tests}]
    decided = filtered(tmp_path, rows, matrix=tmp_path / "m.arrow")
    assert decided[1] == {"p": "solutions-fail"}
    assert filtered(tmp_path, rows, from_matrix=tmp_path / "m.arrow") == decided


def test_a_matrix_that_another_command_writes_is_refused(tmp_path):
    held = tmp_path / "m.arrow"
    with durable.locked(held), pytest.raises(UsageError, match=r"m\.arrow is being written by process \d+"):
        call_stage("filter-code", EXAMPLE, output=tmp_path / "out.arrow", matrix=held)


def test_a_matrix_of_other_problems_is_refused(example, tmp_path):
    other = problem("sum", [("1 2", "3")], [solution(ADD)])
    with pytest.raises(DataError, match="has no runs of problem sum in its current form"):
        filtered(tmp_path, [other], from_matrix=example / "matrix.arrow", min_tests=1)
    with pytest.raises(DataError, match="lacks column"):
        filtered(tmp_path, [other], from_matrix=example / "kept.arrow")


def test_outputs_agree_by_the_rule_of_the_problem(tmp_path):
    """Python and C++ write other digits: equal with a tolerance, and then the common output replaces a wrong one."""
    tests = [("0.1 0.2", "0.3"), ("1.5 2", "3.5"), ("1 1", "7.0")]
    solutions = [solution(ADD), solution(CPP, language="cpp")]
    rows = [problem("floats", tests, solutions, compare="floats"), problem("text", tests, solutions, compare="tokens")]
    kept, dropped = filtered(tmp_path, rows)
    assert dropped == {"text": "disputed"}
    assert kept["floats"]["outputs_replaced"] == 1
    assert float(kept["floats"]["tests"][2]["output"]) == 2.0


def test_calls_agree_by_value_and_asserts_get_new_outputs(tmp_path):
    tests = [{"assert": f"assert f({n}) == {{{n}: [{n}]}}"} for n in (1, 2)] + [{"assert": "assert f(3) == {3: 3}"}]
    tests.append({"assert": "assert f(4) == unknown_name"})
    solutions = [solution("def f(n): return {n: [n]}"), solution("def f(n):\n    return dict([(n, [n])])")]
    row = {"id": "calls", "prompt": "Write f.", "tests": tests, "solutions": solutions}
    kept, _ = filtered(tmp_path, [row])
    assert kept["calls"]["tests"][2] == {"input": None, "output": "{3: [3]}", "call": "f(3)", "assert": None}
    assert kept["calls"]["tests_dropped"]["bad"] == 1


def test_cpp_answers_calls_of_a_python_function(tmp_path):
    """Its values are equal to those of Python, also to replace an output, and one that is wrong is found out."""
    declared = "Count.\n```python\ndef f(words: List[str], least: int) -> Dict[str, int]:\n```"
    python = "def f(words, least):\n    return {w: words.count(w) for w in words if words.count(w) >= least}"
    cpp = (
        "unordered_map<string, int> f(vector<string>& words, int64_t least) {\n"
        "    unordered_map<string, int> n, found;\n    for (auto& w : words) ++n[w];\n"
        "    for (auto& [w, k] : n) if (k >= least) found[w] = k;\n    return found;\n}"
    )
    tests = [
        {"assert": f"assert f({words}, least={least}) == {expected}"}
        for words, least, expected in ((["a", "b c", "a"], 2, {"a": 2}), (["x"], 1, {"x": 1}), ([], 1, {"no": 1}))
    ]
    wrong = solution(cpp.replace(">=", ">"), "wrong", language="cpp")
    called = {"id": "called", "prompt": declared, "tests": tests}
    sizes = [{"assert": f"assert len(f({['a'] * n}, 1)) == 1"} for n in (1, 2, 3)]
    sized = {"id": "sized", "prompt": declared, "tests": sizes}
    both = [solution(python), solution(cpp, language="cpp"), wrong]
    kept, _ = filtered(
        tmp_path, [called | {"solutions": both}, sized | {"solutions": both}], matrix=tmp_path / "m.arrow"
    )
    assert (kept["called"]["tests"][2]["output"], kept["called"]["outputs_replaced"]) == ("{}", 1)
    assert (kept["called"]["wrong_solutions"], kept["called"]["wrong_passing"], kept["called"]["cpp_unrun"]) == (
        1,
        0,
        None,
    )
    assert (kept["sized"]["wrong_solutions"], kept["sized"]["cpp_unrun"]) == (0, "value")
    runs = Counter((run["id"], run["solution"]) for run in rows_of(tmp_path / "m.arrow"))
    assert runs == {("called", 0): 3, ("called", 1): 3, ("called", 2): 3, ("sized", 0): 3}


def test_problems_that_a_trivial_program_passes_are_weak(tmp_path):
    swap, swapped = solution("print(input().swapcase())"), [("aB", "Ab\n"), ("cD", "Cd\n"), ("e", "E\n")]
    tiny = [(f"{n}", f"{n}e-7\n") for n in (3, 5, 7)]
    small = solution("print(f'{input()}e-7')")
    rows = [
        problem("case", swapped, [swap, solution("print(input())", "wrong")]),
        problem("no-case", swapped, [swap], compare="tokens"),
        problem("tiny", tiny, [small], compare="floats"),
        problem("fine", tiny, [small], compare="floats:1e-9"),
    ]
    tests = [{"assert": f"assert f({n}) == {n + 1}"} for n in range(3)] + [{"assert": "assert is_right(f(1))"}]
    called = {"id": "called", "prompt": "Write f.", "tests": tests, "solutions": [solution("def f(n): return n + 1")]}
    kept, _ = filtered(tmp_path, [*rows, called])
    assert {id: (row["weak"], row["trivial"], row["compare"]) for id, row in kept.items()} == {
        "case": (False, None, "tokens-case"), "no-case": (True, "input", "tokens"),
        "tiny": (True, "constant", "floats"), "fine": (False, None, "floats:1e-9"), "called": (False, None, "tokens"),
    }  # fmt: skip
    assert (kept["case"]["wrong_passing"], kept["called"]["tests_dropped"]["bad"]) == (0, 1)
    kept, dropped = filtered(tmp_path, rows, drop_weak=True)
    assert (set(kept), dropped) == ({"case", "fine"}, {"no-case": "weak", "tiny": "weak"})


def test_slow_solutions_skip_tests_and_still_count_as_wrong(tmp_path):
    tests = [(f"{n} 1", f"{n + 1}.0") for n in range(5)]
    slow = "while True: pass"
    row = problem("slow", tests, [solution(ADD), solution(slow, "wrong")], time_limit=0.2)
    kept, _ = filtered(tmp_path, [row], matrix=tmp_path / "m.arrow")
    verdicts = [run["verdict"] for run in rows_of(tmp_path / "m.arrow") if run["solution"] == 1]
    assert verdicts == ["time-limit"] * 2 + ["unrun"] * 3
    assert not kept["slow"]["weak"]


@pytest.fixture
def compilers(monkeypatch):
    """Make the compiler's time run out for the first so many programs, as on a busy machine."""
    real, short = compiler.build, replace(compiler.LIMITS, cpu=0.02)

    def late_for(late):
        left = iter(range(late))

        def build(source, box, into):
            return real(source, box, into, compiler.LIMITS if next(left, None) is None else short)

        monkeypatch.setattr(compiler, "build", build)

    return late_for


def test_a_solution_that_was_not_compiled_in_time_is_retried_alone(tmp_path, compilers):
    tests = [(f"{n} 1", f"{n + 1}.0") for n in range(3)]
    rows = [problem("p", tests, [solution(CPP, language="cpp"), solution(ADD, "wrong")], compare="floats")]
    compilers(late=1)
    kept, dropped = filtered(tmp_path, rows)
    assert (list(kept), dropped) == (["p"], {})


@pytest.mark.parametrize("label", ["right", "wrong", "unknown"])
def test_a_solution_that_never_compiles_leaves_its_problem_undecided(tmp_path, compilers, capsys, label):
    """A right one has failed nothing, a wrong one is not known to fail a test, and an unknown one may be asked."""
    tests = [(f"{n} 1", f"{n + 1}.0") for n in range(3)]
    rows = [problem("p", tests, [solution(ADD), solution(CPP, label, "cpp")], compare="floats")]
    compilers(late=99)
    assert filtered(tmp_path, rows, matrix=tmp_path / "m.arrow", quiet=False) == ({}, {"p": "not-run"})
    assert "1 were not judged, as this machine failed: --restart tries again" in capsys.readouterr().err
    (run,) = rows_of(tmp_path / "m.arrow")
    assert (run["verdict"], "not compiled: the compiler took more than" in run["output"]) == ("infra-error", True)


def test_problems_that_cannot_be_run_have_their_reasons(tmp_path):
    tests = [(f"{n} 1", f"{n + 1}.0") for n in range(3)]
    rows = [
        problem("java", tests, [solution("class A {}", language="java")]),
        problem("only-wrong", tests, [solution(ADD, "wrong")]),
        problem("broken", tests, [solution("print(")]),
        problem("interactive", tests, [solution(ADD)], validation="custom interactive"),
        problem("no-checker", tests, [solution(ADD)], validation="custom"),
        problem("bad-checker", tests, [solution(ADD)], checker="raise SystemExit(1)"),
        problem("compare", tests, [solution(ADD)], compare="vaguely"),
    ]
    kept, dropped = filtered(tmp_path, rows)
    assert kept == {}
    assert dropped == {
        "java": "no-solutions", "only-wrong": "no-solutions", "broken": "solutions-fail",
        "interactive": "interactive", "no-checker": "no-checker", "bad-checker": "not-run", "compare": "bad-tests",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"agreement": 0.0}, "filter-code.agreement: 0.0 is not in"),
        ({"votes": 0}, "filter-code.votes: 0 is not positive"),
        ({"matrix": Path("m.arrow"), "from_matrix": Path("m.arrow")}, "runs nothing, so there is no --matrix"),
    ],
)
def test_invalid_options_are_refused(tmp_path, options, message):
    with pytest.raises(UsageError, match=message):
        call_stage("filter-code", EXAMPLE, output=tmp_path / "out.arrow", **options)


@pytest.mark.faults
def test_a_killed_run_resumes_with_table_and_matrix(tmp_path):
    tests = [(f"{n} 1", f"{n + 1}.0") for n in range(3)]
    rows = [problem(f"p{n}", tests, [solution(f"{ADD}  # {n}"), solution(f"print({n})", "wrong")]) for n in range(12)]
    source = written(tmp_path / "problems.jsonl", rows)
    whole = {"output": tmp_path / "whole.arrow", "matrix": tmp_path / "whole-matrix.arrow"}
    broken = {"output": tmp_path / "broken.arrow", "matrix": tmp_path / "broken-matrix.arrow"}
    kills, longest = 15, seconds_of("filter-code", source, **whole)
    each = 1.4 * longest / (kills + 1)
    assert kill_and_resume(kills, each, "filter-code", source, **broken) >= (kills + 1) // 2
    assert broken["output"].read_bytes() == whole["output"].read_bytes()
    assert [without_seconds(run) for run in rows_of(broken["matrix"])] == [
        without_seconds(run) for run in rows_of(whole["matrix"])
    ]
    assert not list(tmp_path.glob(".*journal"))


def without_seconds(run):
    return {name: value for name, value in run.items() if name != "seconds"}


@pytest.mark.parametrize("stage", ["filter-code", "make-tests"])
def test_missing_columns_are_reported_and_their_other_names_are_in_the_help(stage, tmp_path):
    source = written(tmp_path / "other.jsonl", [{"foo": 1}])
    with pytest.raises(DataError) as raised:
        call_stage(stage, source, output=tmp_path / "out.arrow")
    assert (
        "lacks columns prompt, tests or test_list or ..., solutions or incorrect_solutions or ...; it has: foo"
        in str(raised.value)
    )
    assert str(raised.value).endswith(f"see: magcli {stage} --help")
    words = set(re.findall(r"\w+", str(stage_of(stage).doc)))
    names = {*TESTS[1:], *SOLUTIONS[1:], *CODE_ALIASES["prompt"]}
    assert names <= words
