"""Programs that make inputs, in the sandbox."""

from magcli.curate.inputs.programs import SEEDS, inputs_of, messages, programs_of
from magcli.verify.code.calls import of_call
from magcli.verify.code.cases import Feed
from magcli.verify.code.judging import default_sandbox

FEED = {0: Feed(b"3\n", b"")}


def test_different_inputs_are_taken_and_given_ones_left_out():
    program = "seed, size = int(input()), input()\nprint(seed + (100 if size == 'large' else 0))"
    found = list(inputs_of(program, FEED, default_sandbox()))
    assert len(found) == SEEDS
    assert "103\n" in found
    assert "3\n" not in list(inputs_of("print(int(input()) // 2)", FEED, default_sandbox()))


def test_a_program_that_prints_one_input_or_nothing_or_dies_makes_none():
    for program in ("print(4)", "pass", "print(", "raise SystemExit(1)", "print('\\u00e9', input())"):
        assert list(inputs_of(program, FEED, default_sandbox())) == []


def test_calls_must_call_what_is_tested():
    given = {0: of_call("f([1])", "None")}
    assert len(list(inputs_of("print(f'f([{input()}])')", given, default_sandbox()))) == SEEDS - 1
    assert list(inputs_of("print(f'g([{input()}])')", given, default_sandbox())) == []


def test_programs_are_read_from_answers():
    block = "```python\nprint(1)\n```"
    assert programs_of([f"<think>```python\n0\n```</think>{block}", block, "```cpp\nx\n```", "none"]) == ["print(1)\n"]
    assert "3" in messages("Double it.", FEED[0])[1]["content"]
