"""Programs that make inputs, in the sandbox."""

from magcli.curate.inputs.generators import (
    MAX_ROUNDS,
    SEEDS,
    GeneratorPrograms,
    ProgramInputs,
    extract_programs,
    input_form,
    messages,
    run_generator,
)
from magcli.generate.types import Completion
from magcli.verify.code.cases import parse_call
from magcli.verify.code.judge import default_sandbox
from magcli.verify.code.stdin_cases import StdinCase

FEED = input_form({0: StdinCase(b"3\n", b"")})
CALL = input_form({0: parse_call("f([1])", "None")})


def test_new_inputs_are_accepted_and_given_ones_left_out():
    program = "seed, size = int(input()), input()\nprint(seed + (100 if size == 'large' else 0))"
    outcome, found = run_generator(program, FEED, default_sandbox())
    assert (outcome, len(found)) == ("used", SEEDS)
    assert "103\n" in found
    assert "3\n" not in run_generator("print(int(input()) // 2)", FEED, default_sandbox())[1]


def test_a_program_that_prints_one_input_or_nothing_or_crashes_yields_none():
    found = {
        program: run_generator(program, FEED, default_sandbox())
        for program in ("print(4)", "pass", "print(", "raise SystemExit(1)", "print('\\u00e9', input())")
    }
    assert found.pop("print(4)") == ("constant", [])
    assert set(map(str, found.values())) == {str(("fails", []))}


def test_calls_must_call_the_function_under_test():
    outcome, found = run_generator("print(f'f([{input()}])')", CALL, default_sandbox())
    assert (outcome, len(found)) == ("used", SEEDS - 1)
    assert run_generator("print(f'g([{input()}])')", CALL, default_sandbox()) == ("unfit", [])


def test_programs_are_extracted_from_answers_or_rejected_with_a_reason():
    block = "```python\nprint(1)\n```"
    texts = [f"<think>```python\n0\n```</think>{block}", block, "```cpp\nx\n```", "none"]
    answers = [Completion(text, 9, "stop") for text in texts] + [Completion("```python\nprint(", 9, "length")]
    assert extract_programs(answers) == (["print(1)\n"], {"repeated": 1, "no-program": 2, "cut": 1})
    assert extract_programs([Completion(block + "\nAnd so", 9, "length")]) == (["print(1)\n"], {})


def test_programs_run_lazily():
    programs = GeneratorPrograms(["print(4)", "print(input(), 5)", "raise SystemExit(1)"], {"cut": 1})
    printers = ProgramInputs(programs, FEED, default_sandbox())
    assert printers.outcomes == {"cut": 1, "unused": 3}
    inputs = printers.inputs()
    assert next(inputs) == "0 5\n"
    assert printers.outcomes == {"cut": 1, "constant": 1, "used": 1, "unused": 1}
    assert len(list(inputs)) == SEEDS * MAX_ROUNDS - 1
    assert printers.outcomes == {"cut": 1, "constant": 1, "used": 1, "fails": 1, "unused": 0}


def test_the_chat_shows_a_program_whose_inputs_look_like_the_example():
    method = input_form({0: parse_call("Solution().f([1], 2)", "None")})
    unseen = input_form({}, "Solution().f")
    for wanted, form in (
        (FEED, "Double {it}.\n"),
        (method, "`Solution().f(...)`"),
        (input_form({}), "in the form that the problem states"),
        (unseen, "`Solution().f(...)`"),
    ):
        system, asked, shown, last = messages("Double {it}.", wanted)
        assert [each["role"] for each in (system, asked, shown, last)] == ["system", "user", "assistant", "user"]
        assert form in last["content"]
        assert "Double {it}." in last["content"]
        given = (
            {0: parse_call("count_value([4, 2, 4], 4)", "None")}
            if wanted.names
            else {0: StdinCase(b"3 4\n4 2 4\n", b"")}
        )
        (program,) = extract_programs([Completion(shown["content"], 9, "stop")]).programs
        outcome, found = run_generator(program, input_form(given), default_sandbox())
        assert (outcome, len(found)) == ("used", SEEDS)
