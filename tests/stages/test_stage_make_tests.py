"""`magcli make-tests` on real programs in the sandbox."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from calling import call_stage, kill_and_resume, seconds_of
from scripted_generator import ScriptedGenerator

from magcli.data import table
from magcli.errors import PromptTooLong, UsageError
from magcli.generate.types import Completion
from magcli.stages.shared import engines
from magcli.verify.code import compiler

EXAMPLE = Path(__file__).parents[2] / "examples" / "weak_programs.jsonl"
PROMPT = "Read n (1 <= n <= 50) and n integers a_i (-20 <= a_i <= 20). Print the greatest."
RIGHT = (
    "input()\nprint(max(map(int, input().split())))",
    "n = int(input())\nprint(sorted(map(int, input().split()))[-1])",
)
WRONG = (
    "input()\nprint(max(0, *map(int, input().split())))",
    "input()\nprint(max(list(map(int, input().split()))[:2]))",
)
TESTS = [("3\n1 5 2\n", "5\n"), ("2\n7 4\n", "7\n")]


CPP = (
    "#include <bits/stdc++.h>\nint main() { int n, a, most = INT_MIN; std::cin >> n;\n"
    "while (std::cin >> a) most = std::max(most, a); std::cout << most; }"
)


def rows_of(path):
    return [each for batch in table.read(str(path)).rows for each in batch.to_pylist()]


def written(path, rows):
    path.write_text("".join(json.dumps(each) + "\n" for each in rows))
    return path


def problem(id, right=RIGHT, wrong=WRONG, tests=TESTS, **more):
    labelled = [("right", code) for code in right] + [("wrong", code) for code in wrong]
    solutions = [{"language": "python", "code": code, "verdict": verdict} for verdict, code in labelled]
    pairs = [{"input": given, "output": expected} for given, expected in tests]
    return {"id": id, "prompt": PROMPT, "tests": pairs, "solutions": solutions, **more}


def made(tmp_path, rows, **options):
    source = written(tmp_path / "problems.jsonl", rows)
    options = {"tries": 20, "until": 7} | options
    out, dropped = tmp_path / "out.arrow", tmp_path / "dropped.jsonl"
    call_stage("make-tests", source, output=out, dropped=dropped, restart=True, allow_empty=True, **options)
    return {row["id"]: row for row in rows_of(out)}, {row["id"]: row["drop_reason"] for row in rows_of(dropped)}


def test_a_problem_gets_as_many_tests_as_asked_without_a_wrong_solution(tmp_path, capsys):
    kept, _ = made(tmp_path, [problem("p", wrong=())], until=20, tries=60, quiet=False)
    tests = kept["p"]["tests"]
    assert len(tests) == 20
    assert len({test["input"] for test in tests}) == 20
    assert {test["catches"] for test in tests[2:]} == {0}
    assert "0 have fewer tests than asked" in capsys.readouterr().err
    kept, _ = made(tmp_path, [problem("p", wrong=())], until=2, quiet=False)
    assert (kept["p"]["no_tests"], kept["p"]["tests_tried"]) == ("enough", 0)
    kept, _ = made(tmp_path, [problem("p", wrong=(), tests=TESTS[:1])], until=20, tries=1, quiet=False)
    assert "1 have fewer tests than asked" in capsys.readouterr().err


def test_enough_tests_that_a_wrong_solution_passes_are_not_enough(tmp_path):
    """Inputs are tried until one catches it; the others of them are not kept."""
    kept, _ = made(tmp_path, [problem("p", wrong=WRONG[:1])], until=2, tries=60)
    (new,) = kept["p"]["tests"][2:]
    assert (new["catches"], kept["p"]["wrong_passing"]) == (1, 0)
    assert int(new["output"]) < 0


def test_new_tests_fail_wrong_solutions(tmp_path):
    kept, _ = made(tmp_path, [problem("p")])
    row = kept["p"]
    assert (row["wrong_solutions"], row["wrong_passing_before"], row["wrong_passing"], row["weak"]) == (2, 2, 0, False)
    assert [test["origin"] for test in row["tests"][:3]] == ["given", "given", "mutation"]
    assert row["tests_made"] == len(row["tests"]) - 2 >= 5
    assert all(test["catches"] for test in row["tests"][7:]), "more than asked only if they catch something"
    assert [test["catches"] for test in row["tests"][:2]] == [None, None]
    assert sum(test["catches"] for test in row["tests"][2:]) == 2
    assert row["no_tests"] is None
    for test in row["tests"]:
        count, *values = map(int, test["input"].split())
        assert (len(values), max(values)) == (count, int(test["output"]))
        assert 1 <= count <= 50
    assert row["tests_made"] + sum(row["tests_thrown"].values()) == row["tests_tried"]


def test_the_example_gets_calls_or_a_reason(tmp_path):
    call_stage("make-tests", EXAMPLE, output=tmp_path / "out.arrow", tries=20)
    rows = {row["id"]: row for row in rows_of(tmp_path / "out.arrow")}
    assert (rows["count"]["wrong_passing_before"], rows["count"]["wrong_passing"]) == (1, 0)
    assert all(test["call"].startswith("count([") for test in rows["count"]["tests"])
    assert (rows["alone"]["no_tests"], rows["alone"]["tests_made"]) == ("few-solutions", 0)


def test_inputs_on_which_correct_solutions_crash_or_disagree_are_discarded(tmp_path):
    dying = "n = int(input())\na = list(map(int, input().split()))\nassert n < 4\nprint(max(a))"
    other = "input()\na = list(map(int, input().split()))\nprint(max(a) if len(a) < 4 else 0)"
    first = ("input()\nprint(max(list(map(int, input().split()))[:3]))",)
    rows = [
        problem("dies", (RIGHT[0], dying), first),
        problem("leads", (dying, RIGHT[0]), first),
        problem("differs", (RIGHT[0], other), first),
    ]
    kept, _ = made(tmp_path, rows, tries=40)
    for row in kept.values():
        assert all(int(test["input"].split()[0]) < 4 for test in row["tests"])
    assert kept["leads"]["tests_thrown"]["fault"] > 0
    assert kept["dies"]["tests_thrown"]["disagree"] > 0
    assert kept["differs"]["tests_thrown"]["disagree"] > 0


def test_cpp_solutions_answer_calls(tmp_path):
    """They agree with Python's, a wrong one is found out, and no input is tried that their types cannot hold."""
    labelled = [
        ("right", "python", "def f(a): return [max(a)] if a else []"),
        ("right", "cpp", "vector<int> f(vector<int> a) { return a.empty() ? a : vector<int>{ranges::max(a)}; }"),
        (
            "wrong",
            "cpp",
            "vector<int> f(vector<int> a) { return a.empty() ? a : vector<int>{max(0, ranges::max(a))}; }",
        ),
    ]
    solutions = [{"language": language, "code": code, "verdict": verdict} for verdict, language, code in labelled]
    tests = [{"call": f"f({given})", "output": f"[{max(given)}]"} for given in ([1, 5, 2], [-7, 4], [3])]
    prompt = "Give back the greatest, -50 <= a[i] <= 50."
    row = {"id": "calls", "prompt": prompt, "solutions": solutions, "tests": tests}
    kept, _ = made(tmp_path, [row])
    found = kept["calls"]
    assert (found["wrong_passing_before"], found["wrong_passing"], found["cpp_unrun"]) == (1, 0, None)
    assert any("-" in test["output"] for test in found["tests"][3:])


def test_tests_keep_their_origin_through_filter_code(tmp_path):
    made(tmp_path, [problem("p")])
    chain = [tmp_path / "out.arrow", *(tmp_path / f"{n}.arrow" for n in range(2))]
    call_stage("filter-code", chain[0], output=chain[1], min_tests=1)
    call_stage("make-tests", chain[1], output=chain[2], tries=1)
    first, second, third = ([test["origin"] for test in rows_of(path)[0]["tests"]] for path in chain)
    assert first.count("given") == 2
    assert "mutation" in first
    assert first == second == third[: len(first)]
    catches = [[test["catches"] for test in rows_of(path)[0]["tests"]] for path in chain[:2]]
    assert catches[0] == catches[1]
    assert sum(filter(None, catches[0])) == 2


@pytest.mark.flaky(reruns=2)
def test_a_problem_out_of_time_keeps_the_tests_made_so_far(tmp_path, capsys):
    """Runs take between 0.01 and 0.2 s of CPU time here; the first ten are on given tests."""
    slow = "import time\nwhile time.process_time() < 0.1: pass\n"
    row = problem("slow", [slow + code for code in RIGHT], [slow + code for code in WRONG])
    kept, _ = made(tmp_path, [row], problem_seconds=1.5, tries=1000, until=1000, quiet=False)
    assert kept["slow"]["out_of_time"]
    assert kept["slow"]["tests_made"] > 0
    assert (kept["slow"]["wrong_passing_before"], kept["slow"]["no_tests"]) == (2, None)
    assert kept["slow"]["tests_made"] + sum(kept["slow"]["tests_thrown"].values()) == kept["slow"]["tests_tried"] < 100
    assert "1 ran out of time" in capsys.readouterr().err
    kept, _ = made(tmp_path, [row, problem("p")], problem_seconds=0.3)
    assert (kept["slow"]["no_tests"], kept["slow"]["tests_made"], kept["slow"]["tests_tried"]) == ("out-of-time", 0, 0)
    assert not made(tmp_path, [problem("p")], problem_seconds=0)[0]["p"]["out_of_time"]


def test_the_report_counts_wrong_solutions_before_and_after(tmp_path, capsys):
    weak = (*WRONG, "print(1)")
    made(tmp_path, [problem("p", wrong=weak)], quiet=False)
    assert (
        "of 3 wrong solutions given tests fail 1 (33.3%), given and new ones 3 (100.0%): 2 more"
        in capsys.readouterr().err
    )


def test_problems_without_new_tests_have_their_reasons(tmp_path):
    rows = [
        problem("alone", RIGHT[:1]),
        problem("all-wrong", ("print(1)",) * 2),
        problem("only-wrong", ()),
        problem("interactive", validation="custom interactive"),
    ]
    kept, dropped = made(tmp_path, rows)
    assert {id: row["no_tests"] for id, row in kept.items()} == {
        "alone": "few-solutions",
        "all-wrong": "solutions-fail",
    }
    assert dropped == {"only-wrong": "no-solutions", "interactive": "interactive"}
    assert made(tmp_path, rows[:1], votes=1)[0]["alone"]["tests_made"] > 0


def test_a_checker_decides_where_several_outputs_are_correct(tmp_path):
    checker = (
        "import sys\nn = int(open(sys.argv[1]).read())\na = list(map(int, sys.stdin.read().split()))\n"
        "sys.exit(42 if len(a) == 2 and sum(a) == n and min(a) > 0 else 43)"
    )
    right = ("print(1, int(input()) - 1)", "print(int(input()) - 1, 1)")
    wrong = ("n = int(input())\nprint(n // 2, n // 2)",)
    row = problem("split", right, wrong, [("4\n", "2 2"), ("2\n", "1 1")], checker=checker)
    kept, _ = made(tmp_path, [row | {"prompt": "Read n (2 <= n <= 99). Print two positive integers with sum n."}])
    assert (kept["split"]["wrong_passing_before"], kept["split"]["wrong_passing"]) == (1, 0)


def test_programs_of_a_model_make_inputs(tmp_path, monkeypatch):
    """Scripted answers: a program that prints one input for all seeds is not used, one with different ones is."""
    good = (
        "import random\nrandom.seed(int(input()))\na = [-random.randint(1, 20) for _ in range(3)]\nprint(3)\nprint(*a)"
    )
    answers = [f"```python\n{code}\n```" for code in ("print('3\\n-1 -1 -1')", good)]
    prompts = []

    def answer(messages, _sampling, _seed):
        prompts.append(messages)
        return Completion(answers[len(prompts) % 2], 10, "stop")

    monkeypatch.setattr(engines, "open_generator", lambda *_args, **_options: ScriptedGenerator(answer))
    monkeypatch.setattr("magcli.stages.shared.engines.model_identity", lambda *_: {})
    monkeypatch.setattr("magcli.stages.shared.engines.sampling_format", lambda *_: "fp32")
    kept, _ = made(tmp_path, [problem("p", wrong=WRONG[:1], prompt="Print the greatest.")], model="scripted", tries=10)
    (caught,) = [test for test in kept["p"]["tests"] if test["catches"]]
    assert (caught["origin"], kept["p"]["wrong_passing"]) == ("generator", 0)
    assert "-" in caught["input"]
    assert "Print the greatest." in prompts[0][-1]["content"]
    assert TESTS[0][0] in prompts[0][-1]["content"]


def scripted_model(monkeypatch, code):
    """A model that answers every question with this program; returns the questions."""
    questions = []

    def answer(messages, _sampling, _seed):
        questions.append(messages[-1]["content"])
        return Completion(f"```python\n{code}\n```", 10, "stop")

    monkeypatch.setattr(engines, "open_generator", lambda *_args, **_options: ScriptedGenerator(answer))
    monkeypatch.setattr("magcli.stages.shared.engines.model_identity", lambda *_: {})
    monkeypatch.setattr("magcli.stages.shared.engines.sampling_format", lambda *_: "fp32")
    return questions


def test_a_model_makes_tests_for_a_problem_that_has_none(tmp_path, monkeypatch):
    code = (
        "import random\nrandom.seed(int(input()))\nn = random.randint(1, 9)\nprint(n)\n"
        "print(*[random.randint(-9, 9) for _ in range(n)])"
    )
    questions = scripted_model(monkeypatch, code)
    rows = [problem("empty", tests=()), problem("absent"), problem("silent", ("n = input()",) * 2, (), tests=())]
    rows[2]["solutions"][1]["code"] += "  # the same"
    del rows[1]["tests"]
    kept, _ = made(tmp_path, rows, model="scripted", until=20, tries=40)
    for row in (kept["empty"], kept["absent"]):
        assert len(row["tests"]) >= 20
        assert {test["origin"] for test in row["tests"]} == {"generator"}
        assert all(max(map(int, test["input"].split()[1:])) == int(test["output"]) for test in row["tests"])
        assert row["wrong_passing"] == 0
    assert kept["silent"]["tests"] == [], "a program that prints nothing answers nothing"
    assert all("in the form that the problem states" in question for question in questions)
    assert all(PROMPT in question for question in questions)
    _, dropped = made(tmp_path, rows[:1])
    assert dropped == {"empty": "few-tests"}


def test_a_model_makes_calls_of_the_entry_point(tmp_path, monkeypatch):
    questions = scripted_model(monkeypatch, "a = int(input())\nprint(f'greatest([{a}, {-a}])')")
    codes = ("def greatest(a): return max(a)", "def greatest(a): return sorted(a)[-1]")
    row = problem("calls", codes, ("def greatest(a): return a[-1]",), tests=(), entry_point="greatest")
    kept, _ = made(tmp_path, [row], model="scripted", until=12, tries=40)
    tests = kept["calls"]["tests"]
    assert len(tests) == 12
    assert {"call": "greatest([3, -3])", "output": "3"}.items() <= next(
        test for test in tests if test["call"] == "greatest([3, -3])"
    ).items()
    assert kept["calls"]["wrong_passing"] == 0
    assert "`greatest(...)`" in questions[0]


ANSWERS = [
    Completion(text, 10, finish)
    for text, finish in (
        ("```python\nprint(", "length"),
        ("```cpp\nint main() {}\n```", "stop"),
        *[
            (
                "```python\nlists = '1 2 3', '-99', '-50 -50', '-1 -2', '5 6'\n"
                "a = lists[min(int(input()), 4)].split()\nprint(len(a), ' '.join(a), sep='\\n')\n```",
                "stop",
            )
        ]
        * 2,
        ("```python\nraise SystemExit(1)\n```", "stop"),
        ("```python\nprint('2\\n-8 -9')\n```", "stop"),
        ("```python\nprint(['3\\n1 5 2', '2\\n7 4'][int(input()) % 2])\n```", "stop"),
    )
]
"""Of a model: one answer for each thing that may become of it."""


@pytest.fixture
def model(monkeypatch):
    """A scripted model that gives these answers in turn, and finds problems of the word LONG too long."""
    prompts = []

    def answer(messages, _sampling, _seed):
        if "LONG" in messages[-1]["content"]:
            raise PromptTooLong("900 tokens")
        prompts.append(messages)
        return ANSWERS[(len(prompts) - 1) % len(ANSWERS)]

    monkeypatch.setattr(engines, "open_generator", lambda *_args, **_options: ScriptedGenerator(answer))
    monkeypatch.setattr("magcli.stages.shared.engines.model_identity", lambda *_: {})
    monkeypatch.setattr("magcli.stages.shared.engines.sampling_format", lambda *_: "fp32")
    return prompts


def test_rates_are_reported_per_program_and_per_input(tmp_path, model, capsys):
    """Mutations have no negative numbers here, so the model alone finds out that the wrong solution forgets them."""
    read = "input()\na = list(map(int, input().split()))\n"
    right = f"{read}assert -99 not in a\nprint(max(a))", f"{read}print(0 if -50 in a else max(a))"
    rows = [
        problem("p", right, WRONG[:1], prompt="Print the greatest."),
        problem("long", right, WRONG[:1], prompt="LONG"),
        problem("alone", right[:1], ()),
    ]
    options = {"model": "scripted", "programs": len(ANSWERS), "until": 20}
    kept, _ = made(tmp_path, rows, **options, quiet=False)
    found = {id: {name: count for name, count in row["programs"].items() if count} for id, row in kept.items()}
    assert found == {
        "p": dict.fromkeys(["cut", "no-program", "repeated", "used", "fails", "constant", "unfit"], 1),
        "long": {"too-long": 7},
        "alone": {},
    }
    assert len(model) == 7, "a model is not asked about a problem that cannot have the votes"
    assert kept["p"]["program_inputs"] == {"fault": 1, "disagree": 1, "nothing-new": 0, "kept": 3}
    assert kept["p"]["wrong_passing"] == 0
    errors = capsys.readouterr().err
    assert "of 14 programs requested from the model 1 (7.1%) gave inputs (too-long 7, cut 1, " in errors
    assert "of 5 of their inputs that were tried 3 (60.0%) are new tests (fault 1, disagree 1)" in errors
    assert json.loads((tmp_path / ".out.arrow.run.json").read_text())["model"]["input_kept"] == 3
    kept, _ = made(tmp_path, rows[:1], **options, tries=1)
    assert {name: count for name, count in kept["p"]["programs"].items() if count} == {
        "cut": 1, "no-program": 1, "repeated": 1, "used": 1, "unused": 3,
    }  # fmt: skip
    assert made(tmp_path, rows[:1])[0]["p"]["programs"] is None


@pytest.mark.parametrize(("late", "reason"), [(1, None), (99, "not-run")])
def test_a_solution_that_was_not_compiled_in_time_does_not_fail(tmp_path, monkeypatch, late, reason):
    real, left = compiler.build, iter(range(late))

    def build(source, box, into):
        limits = compiler.LIMITS if next(left, None) is None else replace(compiler.LIMITS, cpu=0.02)
        return real(source, box, into, limits)

    monkeypatch.setattr(compiler, "build", build)
    row = problem("p", RIGHT[:1])
    row["solutions"].append({"language": "cpp", "code": CPP, "verdict": "right"})
    kept, dropped = made(tmp_path, [row], tries=6)
    assert (kept["p"]["no_tests"], dropped) == (reason, {})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"agreement": 0.0}, "make-tests.agreement: 0.0 is not in"),
        ({"tries": 0}, "make-tests.tries: 0 is not positive"),
        ({"max_solutions": -1}, "make-tests.max_solutions: -1 is negative"),
    ],
)
def test_invalid_options_are_refused(tmp_path, options, message):
    with pytest.raises(UsageError, match=message):
        call_stage("make-tests", EXAMPLE, output=tmp_path / "out.arrow", **options)


@pytest.mark.faults
def test_a_killed_run_resumes_to_the_same_bytes(tmp_path):
    rows = [problem(f"p{n}", prompt=f"{PROMPT} ({n})") for n in range(3)]
    source = written(tmp_path / "problems.jsonl", rows)
    whole, broken = tmp_path / "whole.arrow", tmp_path / "broken.arrow"
    kills, longest = 15, seconds_of("make-tests", source, output=whole, tries=6)
    each = 1.4 * longest / (kills + 1)
    assert kill_and_resume(kills, each, "make-tests", source, output=broken, tries=6) >= (kills + 1) // 2
    assert broken.read_bytes() == whole.read_bytes()
    assert not list(tmp_path.glob(".*journal"))
