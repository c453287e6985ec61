"""The layouts, in one table: recognised by their columns, with the place of everything that a stage reads.

Names of single columns that mean the same everywhere are in ``magcli.layouts.names``. A layout that has all columns of
another one and more replaces it; of others a stage refuses to choose (``magcli.layouts.recognise``).
"""

from collections.abc import Mapping

from magcli.layouts import names, programs, readers, responses
from magcli.layouts.dumps import ASKED, DUMPS, SAID
from magcli.layouts.types import Layout, Place

QUESTION = "question|problem|prompt|Question|Problem"
ANSWERS = "ground_truth|answer|expected_answer|gold|target|reference_answer|final_answer"

VERIFIED = Place(("verification_info",), programs.verified)
"""What verifies a solution, in the data sets of Prime Intellect."""
WORKED = Place(("solution",), readers.short_or_final, uses_up=False)
"""A worked solution or a short answer; the column is kept, as it has more than the answer."""
ANY_TESTS = Place(("tests", "entry_point", "starter_code", "metadata"), programs.read_all)
"""Tests in any form, with what says how they call a program."""

RL: tuple[Layout, ...] = (
    Layout(
        "verl",
        "verl: docs/preparation/prepare_data.rst; DAPO-Math-17k, Skywork-OR1-RL-Data",
        ("prompt", "reward_model.ground_truth"),
        {
            "prompt|system": ASKED,
            "answer|tests": Place(("reward_model.ground_truth", "ability"), programs.ground_truth),
        },
    ),
    Layout(
        "verl-answer",
        "verl's reward_model, renamed to answer",
        ("answer.ground_truth|answer.value",),
        {"answer": Place(("answer",), programs.struct_answer)},
    ),
    Layout(
        "RLVR",
        "allenai/RLVR-GSM, RLVR-MATH; messages with an answer",
        ("messages[].content", ANSWERS),
        {
            "prompt|system": Place(("messages",), readers.opened),
            "answer|tests": Place((ANSWERS, "dataset"), programs.rlvr_truth),
            "completion|thoughts": Place(("messages",), responses.last_turn),
            "messages": Place(("messages",)),
        },
        without=("prompt", "question", "problem", "completion", "response"),
    ),
    Layout(
        "OpenAI evals",
        "openai/evals: samples.jsonl",
        ("input[].content|input:string", "ideal"),
        {"prompt|system": Place(("input",), readers.asked), "answer": Place(("ideal",), readers.only)},
    ),
    Layout(
        "NeMo Gym",
        "NVIDIA-NeMo/Gym: data sets of resource servers",
        ("responses_create_params.input",),
        {
            "prompt|system": Place(
                ("responses_create_params.input", "responses_create_params.instructions"), readers.asked
            ),
            "tests": Place(("verifier_metadata",), programs.unit_tests),
        },
    ),
    Layout(
        "TRL messages",
        "TRL: docs/source/dataset_formats.md, conversational prompt-only",
        ("prompt[].content",),
        {"prompt|system": ASKED},
    ),
    Layout(
        "TRL solution",
        "TRL: docs/source/grpo_trainer.md, datasets with a column solution",
        ("prompt[].content", "solution:string"),
        {
            "prompt|system": ASKED,
            "answer": WORKED,
        },
        without=("answer", "ground_truth"),
    ),
    Layout(
        "verification_info",
        "PrimeIntellect/verifiable-math-problems, verifiable-coding-problems, SYNTHETIC-1",
        ("verification_info", "prompt"),
        {
            "prompt": Place(("prompt",)),
            "answer|tests": VERIFIED,
            "solutions": Place(("gold_standard_solution",), programs.programs),
        },
    ),
    Layout(
        "SYNTHETIC-1",
        "PrimeIntellect/SYNTHETIC-1: problems with responses and their scores",
        ("verification_info", "prompt", "llm_response"),
        {
            "prompt": Place(("prompt",)),
            "answer|tests": VERIFIED,
            "solutions": Place(("gold_standard_solution",), programs.programs),
            "completion": Place(("llm_response",)),
            "verdict": Place(("score",), uses_up=False),
        },
    ),
    Layout(
        "verifiable-coding",
        "open-r1/verifiable-coding-problems-python",
        ("verification_info", "problem_statement"),
        {
            "prompt": Place(("problem_statement",)),
            "answer|tests": VERIFIED,
            "solutions": Place(("gold_standard_solution", "verification_info.language"), programs.programs),
            "time_limit": Place(("metadata.time_limit",), readers.seconds, uses_up=False),
        },
    ),
    Layout(
        "Open-Reasoner-Zero",
        "Open-Reasoner-Zero: data/orz_math_57k_collected.json",
        ("0.value", "1.ground_truth.value"),
        {"prompt": Place(("0.value",)), "answer": Place(("1.ground_truth.value",), readers.only)},
    ),
)
"""Problems with verifiable answers or tests, as trainers read them."""

MATH: tuple[Layout, ...] = (
    Layout(
        "boxed solution",
        "hendrycks/competition_math, AI-MO/NuminaMath-CoT; with ####: openai/gsm8k",
        (QUESTION, "solution:string"),
        {"answer": Place(("solution",), readers.final_answer, uses_up=False)},
        without=("answer", "final_answer", "ground_truth", "gold", "expected_answer", "test", "tests", "input_output"),
    ),
    Layout(
        "GPQA",
        "Idavidrein/gpqa",
        ("Question", "Correct Answer", "Incorrect Answer 1"),
        {
            "prompt": Place(("Question",)),
            "answer|choices": Place(
                ("Correct Answer", "Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3"),
                readers.chosen_among,
            ),
        },
    ),
    Layout(
        "choices by index",
        "cais/mmlu",
        ("choices|options", "answer:int"),
        {"answer|choices": Place(("answer", "choices|options"), readers.chosen_by_index)},
    ),
    Layout(
        "choices by label",
        "allenai/ai2_arc, tau/commonsense_qa",
        ("choices|options", "answerKey"),
        {"answer|choices": Place(("answerKey", "choices|options"), readers.chosen_by_label)},
    ),
    Layout(
        "labelled choices",
        "ARC's choices beside an answer",
        ("choices.text", "choices.label", "answer:string"),
        {"answer|choices": Place(("answer", "choices"), readers.chosen_by_label)},
    ),
    Layout(
        "AQuA-RAT",
        "deepmind/aqua_rat",
        ("question", "options[]", "rationale", "correct:string"),
        {"answer": Place(("correct",))},
    ),
    Layout(
        "AGIEval",
        "microsoft/AGIEval",
        ("question", "options", "label", "answer"),
        {
            "prompt": Place(("question",)),
            "answer|choices": Place(("label", "options", "answer"), readers.chosen_or_written),
        },
    ),
)
"""Problems of mathematics and questions with choices."""

CODE: tuple[Layout, ...] = (
    Layout(
        "APPS",
        "codeparrot/apps, BAAI/TACO",
        ("question", "input_output", "solutions"),
        {
            "prompt": Place(("question", "starter_code"), readers.with_starter),
            "tests": Place(("input_output", "entry_point", "starter_code"), programs.read_all),
            "solutions": Place(("solutions",), programs.programs),
            "time_limit": Place(("time_limit",), readers.seconds),
            "memory_limit": Place(("memory_limit",), readers.megabytes),
        },
    ),
    Layout(
        "LiveCodeBench",
        "livecodebench/code_generation_lite",
        ("question_content", "public_test_cases", "private_test_cases"),
        {
            "prompt": Place(("question_content", "starter_code"), readers.with_starter),
            "tests": Place(
                ("public_test_cases", "private_test_cases", "metadata", "starter_code"), programs.joined_tests
            ),
        },
    ),
    Layout(
        "KodCode",
        "KodCode/KodCode-V1",
        ("question", "solution", "test", "test_info"),
        {
            "prompt": Place(("question",)),
            "tests": Place(("test",), programs.read_all),
            "solutions": Place(("solution",), programs.programs),
        },
    ),
    Layout(
        "DeepCoder",
        "agentica-org/DeepCoder-Preview-Dataset",
        ("problem", "tests:string"),
        {
            "prompt": Place(("problem", "starter_code"), readers.with_starter),
            "tests": ANY_TESTS,
            "solutions": Place(("solutions",), programs.programs),
        },
    ),
    Layout(
        "Codeforces",
        "open-r1/codeforces",
        ("description", "input_format", "output_format", "official_tests"),
        {
            "prompt": Place(
                ("description", "input_format", "output_format", "interaction_format", "examples", "note"),
                readers.statement,
            ),
            "tests": Place(
                ("official_tests", "examples", "generated_checker", "interaction_format", "input_mode"),
                programs.official_tests,
            ),
        },
        without=("prompt",),
    ),
    Layout(
        "LeetCodeDataset",
        "newfacade/LeetCodeDataset",
        ("problem_description", "prompt", "entry_point", "test"),
        {
            "prompt": Place(("problem_description", "starter_code"), readers.with_starter),
            "tests": Place(("test", "entry_point", "starter_code"), programs.read_all),
            "solutions": Place(("completion|solutions", "prompt"), programs.continued_program),
        },
    ),
    Layout(
        "BigCodeBench",
        "bigcode/bigcodebench",
        ("code_prompt", "test:string", "entry_point", "libs"),
        {
            "prompt": Place(("instruct_prompt",)),
            "tests": Place(("test", "entry_point", "code_prompt", "libs"), programs.tests_after),
            "solutions": Place(("canonical_solution", "complete_prompt", "code_prompt"), programs.continued_function),
        },
    ),
    Layout(
        "CodeContests",
        "deepmind/code_contests",
        ("description", "public_tests", "private_tests"),
        {
            "prompt": Place(("description",)),
            "tests": Place(
                ("public_tests", "private_tests", "generated_tests", "metadata", "starter_code"), programs.joined_tests
            ),
            "time_limit": Place(("time_limit",), readers.seconds),
        },
        native=True,
    ),
    Layout(
        "MBPP",
        "google-research-datasets/mbpp",
        ("test_list[]", "code|prompt"),
        {"prompt": Place(("prompt|text",)), "tests": Place(("test_list", *names.SETUP), programs.read_after)},
        native=True,
    ),
    Layout(
        "HumanEval",
        "openai/openai_humaneval",
        ("prompt", "test:string", "entry_point"),
        {
            "tests": Place(("test", *names.SETUP, "entry_point"), programs.read_after),
            "completion": Place(("completion", "prompt"), programs.continued_text, uses_up=False),
        },
        native=True,
    ),
    Layout(
        "tests with set-up",
        "tests under magcli's name, with the set-up code or imports of MBPP",
        ("tests", "|".join(names.SETUP)),
        {"tests": Place(("tests", *names.SETUP, "entry_point", "starter_code", "metadata"), programs.read_after)},
        native=True,
    ),
    Layout(
        "tests as text",
        "tests in any of these forms as JSON text",
        ("tests:string",),
        {"tests": ANY_TESTS},
        native=True,
    ),
    Layout(
        "tests by column",
        "inputs and outputs in lists of their own",
        ("tests.inputs|tests.input",),
        {"tests": ANY_TESTS},
        native=True,
    ),
)
"""Problems with tests."""

TRACES: tuple[Layout, ...] = (
    Layout(
        "OpenThoughts metadata",
        "open-thoughts/OpenThoughts-114k, configuration metadata",
        ("problem", "deepseek_reasoning", "deepseek_solution"),
        {
            "prompt": Place(("problem", "starter_code"), readers.with_starter),
            "answer|tests": Place(
                ("ground_truth_solution", "test_cases", "starter_code"), programs.solved_or_tested, uses_up=False
            ),
            "thoughts": Place(("deepseek_reasoning",)),
            "completion": Place(("deepseek_solution",)),
        },
    ),
    Layout(
        "OpenR1-Math",
        "open-r1/OpenR1-Math-220k",
        (QUESTION, "generations[]", "correctness_math_verify[]"),
        {
            "completion": Place(("generations",), readers.samples_of),
            "verdict": Place(("correctness_math_verify",)),
        },
    ),
    Layout(
        "OpenMathReasoning",
        "nvidia/OpenMathReasoning, nvidia/OpenMathInstruct-2",
        ("problem", "generated_solution", "expected_answer"),
        {
            "prompt": Place(("problem",)),
            "answer": Place(("expected_answer",)),
            "completion": Place(("generated_solution",)),
        },
    ),
    Layout(
        "s1K-1.1",
        "simplescaling/s1K-1.1, the traces of DeepSeek-R1",
        ("question", "solution", "deepseek_thinking_trajectory", "deepseek_attempt"),
        {
            "prompt": Place(("question",)),
            "answer": WORKED,
            "thoughts": Place(("deepseek_thinking_trajectory",)),
            "completion": Place(("deepseek_attempt",)),
            "verdict": Place(("deepseek_grade",)),
        },
    ),
    Layout(
        "s1K",
        "simplescaling/s1K",
        ("question", "solution", "attempt", "thinking_trajectories[]"),
        {
            "answer": WORKED,
            "thoughts": Place(("thinking_trajectories",), readers.only),
            "completion": Place(("attempt",)),
        },
    ),
    Layout(
        "OpenCodeReasoning",
        "nvidia/OpenCodeReasoning",
        ("input:string", "output:string", "solution:string", "split", "difficulty"),
        {
            "prompt": Place(("input",), readers.stored_question),
            "completion": Place(("output",)),
            "solutions": Place(("solution",), programs.programs),
        },
    ),
    Layout(
        "Nemotron post-training",
        "nvidia/Llama-Nemotron-Post-Training-Dataset: SFT",
        ("input[].content", "output:string"),
        {
            "prompt|system": Place(("input", "system_prompt"), readers.asked),
            "completion|thoughts": Place(("output", "reasoning"), readers.without_mode),
            "messages": Place(("input", "output", "system_prompt", "reasoning"), readers.with_output),
        },
    ),
    Layout(
        "Alpaca",
        "tatsu-lab/alpaca",
        ("instruction:string", "input:string", "output:string"),
        {
            "prompt": Place(("instruction", "input"), readers.with_input),
            "completion": Place(("output",)),
        },
    ),
    Layout(
        "TRL prompt-completion",
        "TRL: docs/source/dataset_formats.md, conversational prompt-completion",
        ("prompt[].content", "completion[].content"),
        {
            "prompt|system": ASKED,
            "completion|thoughts": SAID,
            "messages": Place(("prompt", "completion"), readers.conversation),
        },
    ),
    Layout(
        "ShareGPT",
        "Vicuna's conversations of from and value; open-thoughts/OpenThoughts-114k",
        ("conversations[].value|conversation[].value",),
        {"messages": Place(("conversations|conversation", "system"), readers.turns)},
        native=True,
    ),
    Layout(
        "messages",
        "TRL's conversational language modeling; open-r1/Mixture-of-Thoughts",
        ("messages[].content",),
        {"messages": Place(("messages",))},
        native=True,
    ),
)
"""Traces to learn from."""

GROUPS: Mapping[str, tuple[Layout, ...]] = {
    "Problems for RL": RL,
    "Problems of mathematics, choices": MATH,
    "Code problems": CODE,
    "Traces": TRACES,
    "Completions of other tools": DUMPS,
}
LAYOUTS: tuple[Layout, ...] = tuple(layout for group in GROUPS.values() for layout in group)
"""All layouts."""
