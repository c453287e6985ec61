"""One hand-made row for each layout: what is recognised, and what is read from where."""

import json

import pytest

from magcli.data import table
from magcli.data.values import to_rows
from magcli.errors import DataError
from magcli.layouts.convert import UNREAD, converted
from magcli.layouts.describe import description
from magcli.layouts.recognise import matching
from magcli.layouts.table import LAYOUTS
from magcli.layouts.types import COLUMNS

USER = {"role": "user", "content": "What is 2 * 3?"}
SYSTEM = {"role": "system", "content": "Answer briefly."}
SAID = {"role": "assistant", "content": "<think>six</think>\\boxed{6}"}
THOUGHT = {"role": "assistant", "content": "\\boxed{6}", "reasoning_content": "six"}
FEED = {"input": "1 2\n", "output": "3\n", "call": None, "assert": None}
UNIT_TEST = """import unittest
class TestCases(unittest.TestCase):
    def test_add(self):
        self.assertEqual(add(ONE, 2), 3)
"""
ADDS = "assert add(1, 2) == 3"
PROGRAM = "print(sum(map(int, input().split())))"


def asserted(source: str) -> dict[str, str | None]:
    return {"input": None, "output": None, "call": None, "assert": source}


def written(code: str) -> dict[str, str | None]:
    return {"language": None, "code": code, "verdict": None}


TURNS = {"prompt": "What is 2 * 3?", "system": "Answer briefly."}
COMPLETED = {"completion": "\\boxed{6}", "reasoning_content": "six"}

ROWS = {
    "verl": (
        {"data_source": "x", "prompt": [SYSTEM, USER], "reward_model": {"ground_truth": '["6"]', "style": "rule"}},
        {**TURNS, "answer": "6", "tests": None, "kind": None, "reward_model": {"style": "rule"}},
    ),
    "verl-answer": ({"prompt": "2 * 3?", "answer": {"ground_truth": "6", "style": "rule"}}, {"answer": "6"}),
    "RLVR": (
        {"messages": [SYSTEM, USER], "ground_truth": "6", "dataset": "gsm8k"},
        {"messages": [SYSTEM, USER], "ground_truth": "6"},
    ),
    "OpenAI evals": ({"input": [SYSTEM, USER], "ideal": "6"}, {**TURNS, "answer": "6"}),
    "NeMo Gym": (
        {"responses_create_params": {"input": [{**USER, "type": "message"}], "instructions": "Answer briefly."},
         "verifier_metadata": {"unit_tests": {"inputs": ["1 2\n"], "outputs": ["3\n"]}}},
        {**TURNS, "tests": [FEED], "kind": "code"},
    ),
    "TRL messages": ({"prompt": [SYSTEM, USER], "answer": "6"}, {**TURNS, "answer": "6"}),
    "TRL solution": (
        {"prompt": [SYSTEM, USER], "solution": "$6$"},
        {**TURNS, "answer": "$6$", "solution": "$6$"},
    ),
    "verification_info": (
        {"prompt": "2 * 3?", "verification_info": "{'ground_truth': '6'}", "gold_standard_solution": "It is 6."},
        {"prompt": "2 * 3?", "answer": "6", "tests": None},
    ),
    "SYNTHETIC-1": (
        {"prompt": "2 * 3?", "verification_info": "{'ground_truth': '6'}", "gold_standard_solution": "It is 6.",
         "llm_response": "<think>six</think>\\boxed{6}", "score": 1.0},
        {"prompt": "2 * 3?", "answer": "6", "completion": "<think>six</think>\\boxed{6}", "correct": "1.0"},
    ),
    "verifiable-coding": (
        {
            "problem_statement": "Add.",
            "gold_standard_solution": f"```python\n{PROGRAM}\n```",
            "verification_info": {
                "language": "python",
                "test_cases": [{"fn_name": None, "input": "1 2\n", "output": "3\n", "type": "stdin_stdout"}],
            },
            "metadata": {"time_limit": "2.5 seconds"},
        },
        {"prompt": "Add.", "tests": [FEED], "kind": "code", "time_limit": 2.5},
    ),
    "Open-Reasoner-Zero": (
        [{"from": "human", "value": "2 * 3?"}, {"from": "assistant", "ground_truth": {"value": "6"}}],
        {"prompt": "2 * 3?", "answer": "6"},
    ),
    "boxed solution": (
        {"problem": "2 * 3?", "level": "Level 1", "solution": "Three twos are $\\boxed{6}$."},
        {"problem": "2 * 3?", "answer": "6", "solution": "Three twos are $\\boxed{6}$."},
    ),
    "GPQA": (
        {"Question": "Which?", "Correct Answer": "this", "Incorrect Answer 1": "that", "Incorrect Answer 2": "those",
         "Incorrect Answer 3": "none"},
        {"prompt": "Which?", "answer": "this", "choices": ["this", "that", "those", "none"]},
    ),
    "choices by index": (
        {"question": "Which is prime?", "choices": ["4", "6", "7", "9"], "answer": 2},
        {"answer": "7", "choices": ["4", "6", "7", "9"]},
    ),
    "choices by label": (
        {"question": "Which?", "choices": {"text": ["one", "two"], "label": ["1", "2"]}, "answerKey": "2"},
        {"answer": "two", "choices": ["one", "two"]},
    ),
    "labelled choices": (
        {"question": "Which?", "choices": {"text": ["one", "two"], "label": ["A", "B"]}, "answer": "B"},
        {"answer": "two", "choices": ["one", "two"]},
    ),
    "AQuA-RAT": (
        {"question": "Which?", "options": ["A)1", "B)2"], "rationale": "so", "correct": "B"},
        {"question": "Which?", "answer": "B", "options": ["A)1", "B)2"]},
    ),
    "AGIEval": (
        {"passage": None, "question": "Which?", "options": {"A": "1", "B": "2"}, "label": "B", "answer": None},
        {"prompt": "Which?", "answer": "2", "choices": ["1", "2"]},
    ),
    "APPS": (
        {"question": "Add.", "solutions": json.dumps([PROGRAM]), "starter_code": "", "time_limit": "2.0 seconds",
         "memory_limit": "256.0 megabytes", "input_output": json.dumps({"inputs": ["1 2\n"], "outputs": ["3\n"]})},
        {"prompt": "Add.", "tests": [FEED], "solutions": [written(PROGRAM)], "time_limit": 2.0, "memory_limit": 256.0},
    ),
    "LiveCodeBench": (
        {"question_content": "Add.", "starter_code": "class Solution:\n    def add(self, a, b):", "metadata":
         '{"func_name": "add"}', "private_test_cases": "[]", "public_test_cases":
         json.dumps([{"input": "1\n2", "output": "3", "testtype": "functional"}])},
        {"prompt": "Add.\n\n```python\nclass Solution:\n    def add(self, a, b):\n```",
         "tests": [{"input": None, "output": "3", "call": "Solution().add(1, 2)", "assert": None}]},
    ),
    "KodCode": (
        {"question": "Add.", "solution": "def add(a, b): ...", "test_info": [{"function_name": "add"}],
         "test": "from solution import add\n\ndef test_it():\n    total = add(1, 2)\n    assert total == 3\n"},
        {"prompt": "Add.", "tests": [asserted(ADDS)], "solutions": [written("def add(a, b): ...")]},
    ),
    "DeepCoder": (
        {"problem": "Add.", "solutions": [f"```python\n{PROGRAM}\n```"],
         "tests": json.dumps([{"type": "stdin_stdout", "input": "1 2\n", "output": "3\n"}])},
        {"prompt": "Add.", "tests": [FEED], "solutions": [written(f"```python\n{PROGRAM}\n```")]},
    ),
    "Codeforces": (
        {"description": "Add.", "input_format": "Two numbers.", "output_format": "Their sum.", "note": None,
         "examples": [{"input": "1 2", "output": "3"}], "official_tests": [{"input": "1 2\n", "output": "3\n"}]},
        {"prompt": "Add.\n\nInput\n\nTwo numbers.\n\nOutput\n\nTheir sum.\n\nExamples\n\n```\n1 2\n```\n```\n3\n```",
         "tests": [FEED], "kind": "code"},
    ),
    "LeetCodeDataset": (
        {"problem_description": "Add.", "prompt": "import math", "entry_point": "add", "starter_code": "",
         "completion": "def add(a, b): ...", "test": f"def check(candidate):\n    {ADDS.replace('add', 'candidate')}"},
        {"prompt": "Add.", "tests": [asserted(ADDS)], "solutions": [written("import math\ndef add(a, b): ...")]},
    ),
    "BigCodeBench": (
        {"task_id": "BigCodeBench/0", "complete_prompt": "import math\ndef add(a, b):\n    \"\"\"Add.\"\"\"\n",
         "instruct_prompt": "Add.", "canonical_solution": "    return a + b", "entry_point": "add",
         "code_prompt": "import math\nONE = 1\ndef add(a, b):\n", "libs": "['math']", "test": UNIT_TEST},
        {"prompt": "Add.", "tests": [asserted(f"ONE = 1\n{UNIT_TEST}")], "entry_point": "add",
         "solutions": [written('import math\ndef add(a, b):\n    """Add."""\n\n    return a + b')]},
    ),
    "CodeContests": (
        {"description": "Add.", "public_tests": {"input": ["1 2\n"], "output": ["3\n"]},
         "private_tests": {"input": ["1 2\n"], "output": ["3\n"]}, "generated_tests": None,
         "time_limit": {"seconds": 1, "nanos": 500_000_000}},
        {"prompt": "Add.", "tests": [FEED, FEED], "time_limit": 1.5},
    ),
    "MBPP": ({"text": "Add.", "code": "def add(a, b): ...", "test_list": [ADDS]}, {"tests": [asserted(ADDS)]}),
    "HumanEval": (
        {"prompt": "def add(a, b):", "entry_point": "add",
         "test": "def check(candidate):\n    assert candidate(1, 2) == 3"},
        {"prompt": "def add(a, b):", "entry_point": "add", "tests": [asserted(ADDS)]},
    ),
    "tests with set-up": (
        {"prompt": "Add.", "tests": [asserted(ADDS)], "test_setup_code": "import math as m\nONE = 1"},
        {"tests": [asserted(f"import math as m\nONE = 1\n{ADDS}")]},
    ),
    "tests as text": ({"prompt": "Add.", "tests": json.dumps([ADDS])}, {"tests": [asserted(ADDS)], "kind": "code"}),
    "tests by column": ({"prompt": "Add.", "tests": {"inputs": ["1 2\n"], "outputs": ["3\n"]}}, {"tests": [FEED]}),
    "OpenThoughts metadata": (
        {"problem": "2 * 3?", "deepseek_reasoning": "six", "deepseek_solution": "\\boxed{6}",
         "ground_truth_solution": "So $\\boxed{6}$.", "test_cases": None, "domain": "math"},
        {"prompt": "2 * 3?", "answer": "6", "tests": None, **COMPLETED},
    ),
    "OpenR1-Math": (
        {"problem": "2 * 3?", "answer": "6", "generations": ["<think>a</think>6", "<think>b</think>7"],
         "correctness_math_verify": [True, False]},
        {"sample": 0, "completion": "<think>a</think>6", "correct": "True", "answer": "6"},
    ),
    "OpenMathReasoning": (
        {"problem": "2 * 3?", "generated_solution": "\\boxed{6}", "expected_answer": "6"},
        {"prompt": "2 * 3?", "completion": "\\boxed{6}", "answer": "6"},
    ),
    "s1K-1.1": (
        {"question": "2 * 3?", "solution": "6", "deepseek_thinking_trajectory": "six", "deepseek_attempt": "\\boxed{6}",
         "gemini_thinking_trajectory": "other", "gemini_attempt": "7", "deepseek_grade": "Yes"},
        {"prompt": "2 * 3?", "answer": "6", **COMPLETED, "correct": "Yes"},
    ),
    "s1K": (
        {"question": "2 * 3?", "solution": "6", "attempt": "\\boxed{6}", "thinking_trajectories": ["six"]},
        {"answer": "6", **COMPLETED},
    ),
    "OpenCodeReasoning": (
        {"id": "a", "input": "Add.", "output": "<think>add</think>", "solution": PROGRAM, "split": "train",
         "difficulty": "1", "source": "x"},
        {"prompt": "Add.", "completion": "<think>add</think>", "solutions": [written(PROGRAM)]},
    ),
    "Nemotron post-training": (
        {"input": [USER], "output": SAID["content"], "reasoning": "on", "system_prompt": "detailed thinking on"},
        {"messages": [{"role": "system", "content": "detailed thinking on"}, USER, SAID]},
    ),
    "Alpaca": (
        {"instruction": "Add.", "input": "1 and 2", "output": "3"},
        {"prompt": "Add.\n\n1 and 2", "completion": "3"},
    ),
    "TRL prompt-completion": (
        {"prompt": [SYSTEM, USER], "completion": [THOUGHT]},
        {"messages": [SYSTEM, USER, THOUGHT]},
    ),
    "ShareGPT": (
        {"conversations": [{"from": "human", "value": "2 * 3?"}, {"from": "gpt", "value": "6"}]},
        {"messages": [{"role": "user", "content": "2 * 3?"}, {"role": "assistant", "content": "6"}]},
    ),
    "messages": ({"messages": [USER, SAID]}, {"messages": [USER, SAID]}),
    "samples": (
        {"prompt": "2 * 3?", "answer": "6", "responses": ["\\boxed{6}", "\\boxed{7}"]},
        {"sample": 0, "completion": "\\boxed{6}", "answer": "6"},
    ),
    "completion object": ({"prompt": "2 * 3?", "completion": [THOUGHT]}, COMPLETED),
    "response object": ({"prompt": "2 * 3?", "response": THOUGHT}, COMPLETED),
    "response as a row": (
        {"id": "chatcmpl-1", "object": "chat.completion", "prompt": "2 * 3?", "choices": [{"message": THOUGHT}]},
        {"sample": 0, **COMPLETED},
    ),
    "OpenAI batch": (
        {"custom_id": "r1", "prompt": "2 * 3?",
         "response": {"status_code": 200, "body": {"choices": [{"message": THOUGHT}]}}},
        {"sample": 0, **COMPLETED, "custom_id": "r1", "response": {"status_code": 200}},
    ),
    "Anthropic batch": (
        {"custom_id": "r1", "prompt": "2 * 3?", "result": {"type": "succeeded", "message": {"role": "assistant",
         "content": [{"type": "thinking", "thinking": "six"}, {"type": "text", "text": "\\boxed{6}"}]}}},
        {**COMPLETED, "custom_id": "r1", "result": {"type": "succeeded"}},
    ),
    "NeMo Gym rollouts": (
        {"responses_create_params": {"input": [SYSTEM, USER]}, "expected_answer": "6", "reward": 1.0,
         "response": {"object": "response", "output": [
             {"type": "reasoning", "summary": [{"type": "summary_text", "text": "six"}]},
             {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "\\boxed{6}"}]}]}},
        {**TURNS, **COMPLETED, "expected_answer": "6"},
    ),
    "inspect_ai": (
        {"id": "a", "epoch": 2, "input": USER["content"], "target": "6", "messages": [SYSTEM, USER, THOUGHT],
         "output": {"model": "m", "choices": [{"message": THOUGHT, "stop_reason": "stop"}]}, "scores": {}},
        {**TURNS, **COMPLETED, "id": "a", "epoch": 2, "answer": "6"},
    ),
    "LiveCodeBench outputs": (
        {"question_id": "a1", "question_content": "Add.", "starter_code": "", "output_list": ["one", "two"],
         "code_list": ["1", "2"], "graded_list": [True, False]},
        {"sample": 0, "prompt": "Add.", "completion": "one", "correct": "True"},
    ),
    "HumanEval samples": ({"task_id": "HumanEval/0", "completion": "    return 1"}, {"completion": "    return 1"}),
    "lm-evaluation-harness": (
        {"doc_id": 0, "doc": {"question": "2 * 3?"}, "target": "Three twos.\n#### 6", "resps": [["\\boxed{6}"]]},
        {"prompt": "2 * 3?", "answer": "6", "sample": 0, "completion": "\\boxed{6}"},
    ),
    "verl dump": (
        {"input": "2 * 3?", "output": "\\boxed{6}", "gts": "6", "score": 1.0, "step": 1},
        {"prompt": "2 * 3?", "completion": "\\boxed{6}", "answer": "6", "score": 1.0, "trainer_reward": 1.0},
    ),
    "TRL completions": (
        {"step": 1, "prompt": [USER], "completion": [THOUGHT], "right": 1.0, "answer": "6", "advantage": 0.5},
        {"prompt": "What is 2 * 3?", **COMPLETED, "answer": "6", "right": 1.0},
    ),
    "NeMo-RL rollouts": (
        {"content": [["2 * 3?", "\\boxed{6}"]], "rewards": [1.0], "token_loss_mask": [[0, 1]],
         "generation_logprobs": [[0.0, -0.5]], "prev_logprobs": [[0.0, -0.25]], "idx": 0},
        {"prompt": "2 * 3?", "completion": "\\boxed{6}", "trainer_reward": 1.0, "num_tokens": 1,
         "logprobs": [-0.5], "trainer_logprobs": [-0.25]},
    ),
    "OpenRLHF samples": (
        {"global_step": 1, "text": "<|im_start|>user\n2 * 3?<|im_end|>\n<|im_start|>assistant\n6<|im_end|>",
         "reward": 1.0},
        {"prompt": "<|im_start|>user\n2 * 3?<|im_end|>\n", "completion": "6", "trainer_reward": 1.0},
    ),
    "verifiers results": (
        {"example_id": 0, "prompt": [USER], "completion": [THOUGHT], "answer": "6", "reward": 1.0},
        {"prompt": "What is 2 * 3?", **COMPLETED, "answer": "6"},
    ),
    "verifiers traces": (
        {"id": "e1", "task": {"type": "T", "data": {"idx": 0, "prompt": USER["content"], "system_prompt":
         "Answer briefly.", "answer": "6"}}, "ok": True, "traces": [{"id": "t1", "agent": {"name": "agent"}, "nodes": [
             {"message": USER}, {"parent": 0, "message": THOUGHT, "sampled": True}]}]},
        {"messages": [{**USER, "reasoning_content": None}, THOUGHT]},
    ),
    "distilabel": (
        {"instruction": "2 * 3?", "generation": "\\boxed{6}", "model_name": "m"},
        {"prompt": "2 * 3?", "completion": "\\boxed{6}"},
    ),
}  # fmt: skip
"""By layout: a row as it is published, and values of the first row that it becomes."""


def stored(folder, rows):
    """A table with these rows; a row that is a list is an element of an array, as its publisher has it."""
    path = folder / ("rows.json" if isinstance(rows[0], list) else "rows.jsonl")
    lines = [json.dumps(row) for row in rows]
    path.write_text(
        "[" + ",\n".join(lines) + "]" if isinstance(rows[0], list) else "".join(f"{line}\n" for line in lines)
    )
    return path


def read_as(folder, row, roles=tuple(COLUMNS)):
    source = table.read(str(stored(folder, [row])))
    layout = converted(source.schema, roles)
    assert layout is not None
    return layout, [new for batch in layout.rows(source.rows) for new in to_rows(batch)]


def test_every_layout_has_a_row_here():
    assert list(ROWS) == [layout.name for layout in LAYOUTS]


@pytest.mark.parametrize("name", ROWS)
def test_layout_is_recognised_and_read(name, tmp_path):
    row, expected = ROWS[name]
    layout, (first, *_) = read_as(tmp_path, row)
    assert layout.layout == name
    assert first[UNREAD] is None
    assert {column: first.get(column) for column in expected} == expected


@pytest.mark.parametrize("name", ROWS)
def test_a_converted_table_is_not_converted_again(name, tmp_path):
    """Otherwise the next stage would undo what this one changed."""
    row, _ = ROWS[name]
    _, converted_rows = read_as(tmp_path, row)
    changed = [
        {key: value for key, value in each.items() if key not in (UNREAD, "messages")} for each in converted_rows
    ]
    changed[0]["prompt"] = "changed"
    again = table.read(str(stored(tmp_path, changed)))
    second = converted(again.schema, ("prompt", "answer", "tests", "completion", "choices"))
    rows = [new for batch in (second.rows(again.rows) if second else again.rows) for new in to_rows(batch)]
    assert rows[0]["prompt"] == "changed"
    assert [each.get("answer") for each in rows] == [each.get("answer") for each in converted_rows]


def test_samples_become_rows_with_their_verdicts(tmp_path):
    row, _ = ROWS["OpenR1-Math"]
    _, rows = read_as(tmp_path, row)
    assert [(each["sample"], each["correct"]) for each in rows] == [(0, "True"), (1, "False")]


AMBIGUOUS = {
    "two ground truths": (
        {"prompt": "p", "reward_model": {"ground_truth": "1"}, "verification_info": "{'ground_truth': '2'}"},
        "reward_model.ground_truth (verl) or verification_info (verification_info)",
    ),
    "an answer of its own": (
        {"prompt": "p", "reward_model": {"ground_truth": "1"}, "answer": "2"},
        "column answer could be answer or reward_model.ground_truth (verl)",
    ),
    "two lists of samples": (
        {"prompt": "p", "responses": ["a"], "generations": ["b"]},
        "responses[]:string or generations[]:string",
    ),
}


@pytest.mark.parametrize("name", AMBIGUOUS)
def test_ambiguous_tables_are_refused_with_the_choices(name, tmp_path):
    row, choices = AMBIGUOUS[name]
    with pytest.raises(DataError) as caught:
        read_as(tmp_path, row)
    assert choices in str(caught.value)


UNREADABLE = {
    "an index outside of the choices": (
        {"question": "Which?", "choices": ["a", "b"], "answer": 2},
        "ambiguous-choice\tanswer 2 is no index from 0 of 2 choices",
    ),
    "a label that is another choice's text": (
        {"question": "Which?", "choices": {"text": ["2", "1"], "label": ["1", "2"]}, "answerKey": "1"},
        "ambiguous-choice\tanswer 1 is the label of '2' and the text of another choice",
    ),
    "several answers": (
        {"prompt": [USER], "reward_model": {"ground_truth": '["6", "7"]'}},
        "several-answers\t2 answers are given, one is expected: ['6', '7']",
    ),
    "several turns": (
        {"prompt": [USER, SAID, USER], "reward_model": {"ground_truth": "6"}},
        "several-turns\tthe prompt has turns of user, assistant, user; one question is expected",
    ),
    "no box": ({"problem": "2?", "solution": "It is so."}, "missing-answer\tthe solution has no final answer in a box"),
    "a package that programs do not have": (
        {**ROWS["BigCodeBench"][0], "libs": "['math', 'pandas']"},
        "bad-tests\tprograms need pandas, which is not installed for programs",
    ),
    "unit tests of files": (
        {**ROWS["BigCodeBench"][0], "test": f"import tempfile\n{UNIT_TEST}"},
        "bad-tests\tthe unit tests cannot be used: "
        "they need files, which the program's sandbox does not share (line 2)",
    ),
    "an interactive problem": (
        ROWS["Codeforces"][0] | {"interaction_format": "Ask."},
        "interactive\tthe program talks to another one",
    ),
    "a checker with another interface": (
        ROWS["Codeforces"][0] | {"generated_checker": "import sys"},
        "no-checker\tseveral outputs are accepted; the data set's checker has another interface",
    ),
    "a question that is stored elsewhere": (
        ROWS["OpenCodeReasoning"][0] | {"input": "-"},
        "empty-prompt\tthe question is not stored here; join it from the data set that it names",
    ),
    "traces of several agents": (
        {
            "task": {"data": {"prompt": "2?"}},
            "traces": [
                {"agent": {"name": "a"}, "nodes": [{"message": SAID}]},
                {"agent": {"name": "b"}, "nodes": [{"message": SAID}]},
            ],
        },
        "several-agents\tthe episode has the agents a, b; traces of one are expected",
    ),
    "a log of an agent": (
        ROWS["inspect_ai"][0] | {"messages": [USER, SAID, USER, SAID]},
        "several-turns\tthe sample has 2 turns of the assistant; one is expected",
    ),
    "a sample that failed": (
        ROWS["inspect_ai"][0] | {"output": {"choices": []}, "error": {"message": "no answer"}},
        "missing-completion\tthe request failed: no answer",
    ),
    "a likelihood task": (
        {"doc_id": 0, "doc": {"q": "?"}, "target": "a", "resps": [[[-1.5, False]], [[-2.5, True]]]},
        "missing-completion\tthe row has no generated text: its task compares likelihoods",
    ),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_rows_that_are_ambiguous_or_incomplete_say_why(name, tmp_path):
    row, reason = UNREADABLE[name]
    _, (first,) = read_as(tmp_path, row)
    assert first[UNREAD] == reason


def test_failed_requests_of_a_batch_say_why(tmp_path):
    good = {"custom_id": "a", "error": None, "response": {"body": {"choices": [{"message": THOUGHT}]}}}
    failed = {"custom_id": "b", "error": "too long", "response": {"body": {"choices": None}}}
    source = table.read(str(stored(tmp_path, [good, failed])))
    layout = converted(source.schema, ("completion",))
    rows = [new for batch in layout.rows(source.rows) for new in to_rows(batch)]
    assert [row[UNREAD] for row in rows] == [None, "missing-completion\tthe request failed: too long"]


def test_a_layout_with_more_columns_replaces_one_with_fewer(tmp_path):
    row, _ = ROWS["verifiers results"]
    assert [layout.name for layout in matching(table.read(str(stored(tmp_path, [row]))).schema)] == [
        "verifiers results"
    ]


def test_own_columns_are_left_as_they_are(tmp_path):
    source = table.read(str(stored(tmp_path, [{"id": "a", "prompt": "2?", "answer": "2", "completion": "2"}])))
    layout = converted(source.schema, ("prompt", "answer", "tests", "completion"))
    assert (layout.layout, layout.columns, layout.changes_number) == ("", {}, False)
    (row,) = [row for batch in layout.rows(source.rows) for row in to_rows(batch)]
    assert row == {"id": "a", "prompt": "2?", "answer": "2", "completion": "2", UNREAD: None}


def test_description_says_what_is_recognised_by_what_and_what_could_be_meant(tmp_path):
    lines = description(table.read(str(stored(tmp_path, [ROWS["KodCode"][0]]))).schema)
    assert lines[0] == "layout KodCode (KodCode/KodCode-V1), recognised by: question, solution, test, test_info"
    assert "tests: test (layout KodCode)" in lines
    assert "answer: none, which could be solution" in lines


def test_tests_without_an_answer_mean_code_and_both_are_ambiguous(tmp_path):
    tests = [{"input": "1", "output": "1"}]
    rows = [
        {"prompt": "a", "tests": tests, "answer": None, "kind": None},
        {"prompt": "b", "tests": tests, "answer": "1", "kind": None},
        {"prompt": "c", "tests": tests, "answer": "1", "kind": "math"},
        {"prompt": "d", "tests": None, "answer": "1", "kind": None},
    ]
    source = table.read(str(stored(tmp_path, rows)))
    layout = converted(source.schema, ("prompt", "answer", "tests"))
    found = [row for batch in layout.rows(source.rows) for row in to_rows(batch)]
    assert [row["kind"] for row in found] == ["code", None, "math", None]
    assert [bool(row[UNREAD]) for row in found] == [False, True, False, False]


PROBLEM = ("prompt", "system", "answer", "tests", "completion", "thoughts")
MESSAGES = {
    "a question": (
        {"messages": [SYSTEM, USER], "ground_truth": "6", "dataset": "gsm8k"},
        {**TURNS, "answer": "6", "completion": None},
    ),
    "a question and its completion": ({"messages": [USER, THOUGHT], "answer": "6"}, {**COMPLETED, "answer": "6"}),
    "a question of code": (
        {"messages": [USER], "ground_truth": [json.dumps([ADDS])], "dataset": ["code"]},
        {"tests": [asserted(ADDS)], "kind": "code"},
    ),
    "instructions to follow": (
        {"messages": [USER], "ground_truth": '{"func_name": "validate_json"}', "dataset": "ifeval"},
        {UNREAD: "missing-answer\tthe ground truth is instructions to follow, which no verifier here checks"},
    ),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_messages_with_an_answer_are_problems_and_completions(name, tmp_path):
    row, expected = MESSAGES[name]
    _, (first,) = read_as(tmp_path, row, PROBLEM)
    assert {column: first.get(column) for column in expected} == expected


def test_thoughts_on_is_no_thought(tmp_path):
    """Nemotron's column reasoning says whether there are thoughts; they are in the output."""
    row, _ = ROWS["Nemotron post-training"]
    _, (first,) = read_as(tmp_path, row, PROBLEM)
    assert (first["completion"], first["reasoning_content"]) == (SAID["content"], None)
    assert "reasoning" not in first


def test_rollouts_of_one_task_are_of_one_problem(tmp_path):
    """An episode's and a response's own id would make each sample a problem of its own."""
    for name in ("verifiers traces", "response as a row", "OpenAI batch"):
        row, _ = ROWS[name]
        _, (first, *_) = read_as(tmp_path, row | {"id": "episode"}, PROBLEM)
        assert "id" not in first


def test_the_rest_of_a_function_is_read_as_the_whole(tmp_path):
    row = ROWS["HumanEval"][0] | {"completion": "    return a + b\n"}
    _, (first,) = read_as(tmp_path, row, PROBLEM)
    assert first["completion"] == "```python\ndef add(a, b):\n    return a + b\n```"
    whole = "```python\ndef add(a, b):\n    return a + b\n```"
    _, (first,) = read_as(tmp_path, row | {"completion": whole}, PROBLEM)
    assert first["completion"] == whole
