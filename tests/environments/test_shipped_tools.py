"""The shipped tools: calls of each family, wrong calls, arithmetic that is exact, programs in the sandbox."""

import pytest

from magcli.environments.calculator import Calculator, evaluate
from magcli.environments.calls import Call, calls_in
from magcli.environments.python import MAX_OUTPUT, Python
from magcli.verify.sandbox import Limits, open_sandbox

QUESTION = {"role": "user", "content": "?"}
FORMS = {
    "hermes": '<think>hm</think>\n<tool_call>\n{"name": "python", "arguments": {"code": "print(1)"}}\n</tool_call>',
    "qwen-coder": "<tool_call>\n<function=python>\n<parameter=code>\nprint(1)\n</parameter>\n</function>\n</tool_call>",
    "mistral": '[TOOL_CALLS] [{"name": "python", "arguments": {"code": "print(1)"}}]',
    "mistral-args": '[TOOL_CALLS]python[ARGS]{"code": "print(1)"}',
    "llama": '{"name": "python", "parameters": {"code": "print(1)"}}',
    "llama-tag": '<|python_tag|>{"name": "python", "parameters": {"code": "print(1)"}}',
    "gpt-oss": '<|channel|>commentary to=functions.python <|constrain|>json<|message|>{"code": "print(1)"}',
    "openai": '<tool_call>{"name": "python", "arguments": "{\\"code\\": \\"print(1)\\"}"}</tool_call>',
}


def asked(tool, *turns):
    """The results for the last of several turns of a model."""
    messages = [QUESTION]
    for turn in turns:
        messages += [{"role": "assistant", "content": turn}, QUESTION]
    return tool.reply({}, messages[:-1])


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_call_is_read_in_the_form_of_each_family(form):
    assert calls_in(form) == [Call("python", {"code": "print(1)"})]


def test_calls_in_parallel_keep_their_order_and_text_is_no_call():
    both = FORMS["hermes"] + FORMS["hermes"].replace("print(1)", "print(2)")
    assert [call.arguments["code"] for call in calls_in(both)] == ["print(1)", "print(2)"]
    for text in ("", "The answer is {7}.", '{"answer": 7}', '<think>x</think>{"name": "Ada"}'):
        assert calls_in(text) == []


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        ("<tool_call>{bad}</tool_call>", "error: the call is not JSON ("),
        ('<tool_call>"calculator"</tool_call>', "error: the call needs a name and arguments"),
        (
            '[TOOL_CALLS]calculator[ARGS]{"expression": 1 2}',
            "error: the arguments are not JSON (Expecting ',' delimiter: line 1 column 18 (char 17))",
        ),
        (
            'to=functions.calculator<|message|>{"expression": 1 2}',
            "error: the arguments are not JSON (Expecting ',' delimiter: line 1 column 18 (char 17))",
        ),
        (
            '<tool_call>{"name": "calculator", "arguments": "{2}"}</tool_call>',
            "error: the arguments are not JSON (Expecting property name enclosed in double quotes",
        ),
        ("<tool_call>[1]</tool_call>", "error: the call needs a name and arguments"),
        ('<tool_call>{"name": "calculator", "arguments": 3}</tool_call>', "error: the arguments are not an object: 3"),
        (
            '<tool_call>{"name": "bash", "arguments": {}}</tool_call>',
            "error: there is no tool 'bash', only 'calculator'",
        ),
        ('<tool_call>{"name": "calculator"}</tool_call>', "error: calculator needs the argument 'expression', a text"),
        ("<<2 +>>", "error: invalid syntax"),
        ("<<__import__('os')>>", "error: __import__('os') is not arithmetic"),
        ("<<9**9**9>>", "error: the power is too large"),
        ("<<1/0>>", "error: Fraction(1, 0)"),
        ("<<1e999>>", "error: inf is not a finite real number"),
        (f"<<{'1+' * 400}1>>", "error: the expression has more than 500 characters"),
    ],
)
def test_a_wrong_call_gets_a_message(call, problem):
    (result,) = asked(Calculator(), call)
    assert result["role"] == "tool"
    assert result["content"].startswith(problem)


@pytest.mark.parametrize(
    ("expression", "value"),
    [("12*(3+4)", "84"), ("47*83%97", "21"), ("2^10", "1024"), ("1/3", "0.333333333333"), ("0.1+0.2", "0.3"),
     ("-7//2", "-4"), ("99999999999*99999999999", "9999999999800000000001"), ("2**0.5", "1.41421356237")],
)  # fmt: skip
def test_arithmetic_is_exact(expression, value):
    assert evaluate(expression) == value


def test_a_turn_without_a_call_ends_the_episode_and_so_many_calls_are_answered():
    assert asked(Calculator(), "The answer is 84.") is None
    turns = ["<<1+1>>"] * Calculator.max_calls
    assert asked(Calculator(), *turns)[0]["content"] == "2"
    assert asked(Calculator(), *turns, "<<1+1>>")[0]["content"] == "error: at most 8 calls are answered"


@pytest.fixture(scope="module")
def python():
    return Python(open_sandbox("auto"))


def block(code):
    return f"I compute it.\n```python\n{code}\n```"


@pytest.mark.parametrize(
    ("code", "printed"),
    [
        ("print(2**100)", "1267650600228229401496703205376"),
        ("x = 1", "(no output: print what you want to see)"),
        ("print(1)\n1/0", '1\nerror: File "<string>", line 2, in <module>\nZeroDivisionError: division by zero'),
        ("x =", 'error: File "<string>", line 1\nx =\n^\nSyntaxError: invalid syntax'),
        ("import os; os.system('ls')\nprint(open('/etc/hostname').read())", "error: "),
        ("[0] * 10**10", "error: refused more than 300 MiB: MemoryError"),
    ],
)
def test_a_program_runs_in_the_sandbox_and_the_model_sees_what_it_prints(code, printed, python):
    (result,) = asked(python, block(code))
    assert result["content"].startswith(printed)


def test_output_and_time_are_limited(python):
    (long,) = asked(python, block("print('a' * 10**5)"))
    assert long["content"] == f"{'a' * MAX_OUTPUT}... (100000 characters)"

    class Quick(Python):
        limits = Limits(cpu=0.5)

    (endless,) = asked(Quick(open_sandbox("auto")), block("while True: pass"))
    assert endless["content"] == "error: more than 0.5 s of CPU time"
