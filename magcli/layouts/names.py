"""Names of single columns in other tools, where nothing else tells the layout of a table."""

PROBLEM = {
    "prompt": ("problem", "question", "Problem", "Question"),
    "answer": ("Answer", "ground_truth", "gold", "reference_answer", "final_answer", "expected_answer", "target"),
}
"""Names of the columns of problems; one is read if it is the only one and the column is missing."""
CODE = {
    "prompt": ("problem", "question", "statement", "description", "statement_md", "statement_tex", "statement_html",
               "content", "text"),
    "id": ("task_id", "slug"),
}  # fmt: skip
"""Names of the columns of code problems."""
COMPLETION = {"completion": ("response", "generation", "output")}
"""Names of the column of a completion."""
OPTIONS = ("choices", "options")
"""Columns with the options of a multiple-choice question."""
CONTEXT = ("body", "Body", "context", "passage")
"""Columns in which other data sets keep the facts of a question (ASDiv, SVAMP, OlympiadBench)."""
TESTS = ("tests", "test_list", "test", "public_tests", "private_tests", "generated_tests")
"""Columns of tests; all that a row has are combined, except that ``test`` counts only without the two before it."""
SETUP = ("test_setup_code", "test_imports")
"""Columns of what runs before the tests."""
SOLUTIONS = (
    "solutions", "incorrect_solutions", "submissions", "code", "canonical_solution", "reference_python", "python_file",
    "cpp_file", "samples",
)  # fmt: skip
"""Columns of programs that solve a problem; all that a row has are combined."""
WITH_SOLUTIONS = ("id", "prompt", "|".join(TESTS), "|".join(SOLUTIONS))
"""The columns of a problem with tests and programs that solve it."""
STATEMENT = (
    "prompt", "description", "statement", "statement_md", "statement_html", "problem", "question", "content",
    "input_format", "output_format", "note",
)  # fmt: skip
"""Columns of the statement of a code problem and its parts."""
WORKED = ("solution", "worked_solution", "rationale", "explanation")
"""Columns with worked solutions of problems of mathematics."""
TRACE_PROMPTS = ("prompt", "question", "problem", "instruction", "query")
"""Columns with the prompt of a trace."""
TRACE_COMPLETIONS = (
    "completion", "generations", "completions", "responses", "samples", "code", "response", "attempt", "generation",
    "solution", "output",
)  # fmt: skip
"""Columns with what a model answered in a trace, one or several."""
TRACE_THOUGHTS = ("reasoning_content", "reasoning", "thinking", "thinking_trajectories", "thinking_trajectory")
"""Columns with the thoughts of a trace, beside the answer."""
TRACE_VERDICTS = ("correct", "correctness_math_verify", "score", "is_correct", "correctness")
"""Columns with verdicts on traces."""
CONVERSATIONS = ("messages", "conversations", "conversation")
"""Columns with conversations."""
LIKELY = {
    "prompt": ("prompt", "question", "problem", "statement", "query", "instruction", "input", "text"),
    "answer": ("answer", "gold", "truth", "solution", "target", "label", "result", "correct"),
    "completion": ("completion", "response", "generat", "output", "attempt", "sample"),
    "tests": ("test", "case", "check", "assert", "input_output"),
    "solutions": ("solution", "program", "submission", "completion"),
}
"""Parts of names of columns that could be meant, for messages."""
