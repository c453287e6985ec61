"""`magcli grade` on programs: judged in the sandbox, beside answers, with resume."""

import json
import re
from itertools import count

import pytest
from calling import call_stage, kill_and_resume, seconds_of

from magcli.data import table
from magcli.errors import UsageError
from magcli.verify.code.judge import Programs

TESTS = [{"input": f"{n} {n + 1}\n", "output": f"{2 * n + 1}\n"} for n in range(30)]
RIGHT = "print(sum(map(int, input().split())))"
CPP = "#include <iostream>\nint main() { long a, b; std::cin >> a >> b; std::cout << a + b; }"


def fenced(program, language="python"):
    return f"<think>We add the two numbers.</think>\nHere is the program:\n```{language}\n{program}\n```\n"


def row(id, completion, **more):
    problem = {"id": id, "kind": "code", "prompt": "Print the sum of two numbers.", "tests": TESTS}
    return problem | {"completion": completion, "num_tokens": 10} | more


def written(path, rows):
    path.write_text("".join(json.dumps(each) + "\n" for each in rows))
    return path


def rows_of(path):
    return [each for batch in table.read(str(path)).rows for each in batch.to_pylist()]


def test_programs_and_answers_are_graded_together(tmp_path, capsys):
    data = [
        row("right", fenced(RIGHT)),
        row("cpp", fenced(CPP, "cpp")),
        row("wrong", fenced("print(0)")),
        row("crash", fenced("print(int(input()))")),
        row("broken", fenced("print(")),
        row("unnamed", fenced(RIGHT, "")),
        row("as-text", fenced(RIGHT), tests=[{"input": "1 1", "output": "2", "call": None}]),
        row("math", "<think>six</think>\\boxed{6}", kind="math", tests=None, answer="6"),
        row("no-tests", fenced(RIGHT), tests=[]),
    ]
    out, options = tmp_path / "out.arrow", {"language": False, "workers": 2, "quiet": False}
    call_stage("grade", written(tmp_path / "c.jsonl", data), output=out, **options)
    found = {each["id"]: each for each in rows_of(out)}
    assert {id: each["reason"] for id, each in found.items()} == {
        "right": "accepted", "cpp": "accepted", "wrong": "wrong-answer", "crash": "runtime-error",
        "broken": "compile-error", "unnamed": "unnamed-code", "as-text": "accepted", "math": "correct",
    }  # fmt: skip
    assert found["right"]["reward"] == pytest.approx(1.0)
    assert found["wrong"]["detail"].startswith("test ")
    assert found["right"]["extracted"].strip() == RIGHT
    printed = capsys.readouterr().err
    assert "50.0% [" in printed
    assert "dropped 1 (missing-answer 1)" in printed
    assert table.read(str(out)).chain[-1].config["sandbox"] == "full"


def test_the_partial_reward_is_optional(tmp_path):
    source = written(tmp_path / "c.jsonl", [row("half", fenced("n = input().split()[0]\nprint(1 if n == '0' else 3)"))])
    call_stage("grade", source, output=tmp_path / "out.arrow", language=False, partial=True, num_tests=0)
    (found,) = rows_of(tmp_path / "out.arrow")
    assert (found["reward"], found["correct"]) == (pytest.approx(0.1 + 0.9 * 2 / 30), False)


def test_the_isolation_is_recorded_in_the_history(tmp_path):
    source = written(tmp_path / "c.jsonl", [row("a", fenced(RIGHT))])
    with pytest.raises(UsageError, match="'none' is not one of full, restricted, auto, dangerously-none"):
        call_stage("grade", source, output=tmp_path / "out.arrow", sandbox="none")
    call_stage("grade", source, output=tmp_path / "out.arrow", sandbox="dangerously-none")
    assert rows_of(tmp_path / "out.arrow")[0]["reason"] == "accepted"
    assert table.read(str(tmp_path / "out.arrow")).chain[-1].config["sandbox"] == "dangerously-none"
    call_stage("grade", source, output=tmp_path / "auto.arrow", sandbox="auto")
    assert table.read(str(tmp_path / "auto.arrow")).chain[-1].config["sandbox"] in ("full", "restricted")


class Unspeakable(Exception):
    def __str__(self):
        raise RecursionError("no end")


@pytest.mark.parametrize("error", [OverflowError("large"), RecursionError("deep"), MemoryError(), Unspeakable()])
def test_a_row_that_crashes_a_verifier_is_written_with_the_location(tmp_path, monkeypatch, error):
    """Whatever a verifier raises: the other rows are judged, and the next run has nothing left to do."""
    whole = Programs.verify

    def verify(self, answer, problem, rule):
        if "fails" in answer:
            raise error
        return whole(self, answer, problem, rule)

    monkeypatch.setattr(Programs, "verify", verify)
    data = [row(f"r{n}", fenced(f"{RIGHT}  # {'fails' if n == 11 else n}")) for n in range(20)]
    source, out = written(tmp_path / "c.jsonl", data), tmp_path / "out.arrow"
    call_stage("grade", source, output=out, language=False, num_tests=1)
    found = {each["id"]: each for each in rows_of(out)}
    assert list(found) == [f"r{n}" for n in range(20)]
    assert {id for id, each in found.items() if each["reason"] != "accepted"} == {"r11"}
    assert (found["r11"]["reason"], found["r11"]["reward"]) == ("infra-error", 0.0)
    assert found["r11"]["detail"].startswith(f"{type(error).__name__} at test_stage_grade_code.py:")
    before = out.read_bytes()
    call_stage("grade", source, output=out, language=False, num_tests=1)
    assert out.read_bytes() == before


def test_a_row_that_crashes_the_grader_is_written_with_the_location(tmp_path, monkeypatch):
    monkeypatch.setattr("magcli.verify.grader.problem_kind", lambda problem: {"a": "code", "c": "code"}[problem["id"]])
    source = written(tmp_path / "c.jsonl", [row(id, fenced(RIGHT)) for id in "abc"])
    call_stage("grade", source, output=tmp_path / "out.arrow", language=False, num_tests=1)
    found = rows_of(tmp_path / "out.arrow")
    assert [each["reason"] for each in found] == ["accepted", "infra-error", "accepted"]
    assert "KeyError at test_stage_grade_code.py:" in found[1]["detail"]


@pytest.mark.faults
def test_a_table_with_ungradable_rows_resumes_after_a_kill(tmp_path):
    data = [row(f"r{n}", fenced(f"{RIGHT}  # {n}"), time_limit=1e300 if n % 5 == 3 else 4.0) for n in range(24)]
    source, out = written(tmp_path / "c.jsonl", data), tmp_path / "out.arrow"
    longest = seconds_of("grade", source, output=tmp_path / "unbroken.arrow", language=False, num_tests=3)
    kill_and_resume(1, longest, "grade", source, output=out, language=False, num_tests=3)
    assert out.read_bytes() == (tmp_path / "unbroken.arrow").read_bytes()
    lacking = [each for each in rows_of(out) if each["reason"] == "infra-error"]
    assert [each["id"] for each in lacking] == ["r3", "r8", "r13", "r18", "r23"]
    assert all(re.match(r"OverflowError at \w+\.py:\d+: ", each["detail"]) for each in lacking)
    assert {each["reason"] for each in rows_of(out) if each not in lacking} == {"accepted"}


@pytest.mark.faults
def test_grading_programs_resumes_after_a_kill(tmp_path):
    source = written(tmp_path / "c.jsonl", [row(f"r{n}", fenced(f"{RIGHT}  # {n}")) for n in range(24)])
    unbroken = tmp_path / "unbroken.arrow"
    options, kills = {"language": False, "num_tests": 3}, 20
    longest = seconds_of("grade", source, output=unbroken, **options)
    for number in count():
        broken = tmp_path / f"broken-{number}.arrow"
        kills -= kill_and_resume(min(kills, 3), longest, "grade", source, output=broken, **options)
        assert broken.read_bytes() == unbroken.read_bytes()
        assert {each["reason"] for each in rows_of(broken)} == {"accepted"}
        if kills == 0:
            return


def test_asserts_that_a_program_could_forge_need_an_entry_point(tmp_path):
    helped = [{"assert": "assert is_right(f(1))"}]
    nested = [{"assert": "assert f(Pair(1, 2)) == 3"}]
    swapped = [{"input": "aB", "output": "Ab"}]
    forged = "def is_right(value): return True\ndef f(n): return 0\n"
    pair = "class Pair:\n    def __init__(self, a, b): self.a, self.b = a, b\ndef f(p): return p.a + p.b\n"
    data = [
        row("helper", fenced(forged), tests=helped),
        row("helper-entry", fenced(forged), tests=helped, entry_point="f"),
        row("pair", fenced(pair), tests=nested),
        row("pair-entry", fenced(pair), tests=nested, entry_point="f"),
        row("pair-wrong", fenced(pair.replace("p.a + p.b", "p.a - p.b")), tests=nested),
        row("case", fenced("print(input())"), tests=swapped),
        row("no-case", fenced("print(input())"), tests=swapped, compare="tokens"),
    ]
    call_stage("grade", written(tmp_path / "c.jsonl", data), output=tmp_path / "g.arrow", language=False)
    assert {each["id"]: each["reason"] for each in rows_of(tmp_path / "g.arrow")} == {
        "helper": "bad-gold", "helper-entry": "bad-gold", "pair": "accepted", "pair-entry": "accepted",
        "pair-wrong": "wrong-answer",
        "case": "wrong-answer", "no-case": "accepted",
    }  # fmt: skip
