r"""reasoning-gym's own scorers as the judge of a model's answer, for rows of ``magcli.data.reasoning_gym``.

The answer is what the last ``<answer>...</answer>`` of the last turn has, else its ``\boxed{...}``, else all that
follows the thoughts. The reward is the scorer's: most give a part of it for an answer that is nearly right.

Scorers of some families run the answer as Python (reasoning-gym 0.1.25: ``eval``, and SymPy's ``parse_expr``, which is
``eval``). What a model writes must not run outside of the sandbox, so such a scorer gets only what is harmless: a
literal, one word, a text that is no Python, or arithmetic; in place of anything else it gets an empty answer.
"""

import ast
import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

from magcli.data.generated import missing
from magcli.data.reasoning_gym import COLUMN, LIBRARY, library
from magcli.model.chat.thoughts import form_of_text
from magcli.verify.environment import Message
from magcli.verify.format import boxed_answer
from magcli.verify.loading import loading

EVALUATED = frozenset({"binary_matrix", "n_queens", "spiral_matrix", "string_insertion"})
"""Families whose scorers run an answer with ``eval``."""
PARSED = frozenset(
    {"countdown", "intermediate_integration", "polynomial_multiplication", "puzzle24", "simple_integration"}
)
"""Families whose scorers run an answer with SymPy's ``parse_expr``."""
TUPLES = frozenset({"arc_agi", "rearc"})
"""Families whose scorers compare with tuples, which JSON has as lists."""

FUNCTIONS = frozenset(
    {"sin", "cos", "tan", "sec", "csc", "cot", "asin", "acos", "atan", "sinh", "cosh", "tanh", "exp", "log", "ln"}
    | {"sqrt", "Abs", "pi", "E", "C"}
)
"""Names of more than one letter, and constants, that arithmetic may have."""
MAX_ARITHMETIC = 1000
"""Characters of an answer that is arithmetic."""

_TAGGED = re.compile(r"<answer>\s?(.*?)\s?</answer>", re.DOTALL)
_ARITHMETIC = re.compile(r"[\w\s+\-*/^().,]*", re.ASCII)
_NAME = re.compile(r"[^\W\d]\w*")
# A point before a letter, which looks up an attribute; in 2.5 it is a decimal.
_ATTRIBUTE = re.compile(r"\.\s*[^\W\d]")


class ReasoningGym:
    """The judge: one turn of the model, which the scorer of the row's family grades."""

    max_turns = 1
    seconds = 20.0

    @staticmethod
    def check_installed() -> None:
        """Raises EnvironmentFault if the library is not installed."""
        if find_spec("reasoning_gym") is None:
            raise missing(LIBRARY)

    @staticmethod
    def identity() -> dict[str, str]:
        """The version of the library, which determines scores."""
        return {LIBRARY: version(LIBRARY)}

    def reply(self, row: Mapping[str, Any], messages: Sequence[Message]) -> None:
        """Nothing: the first turn is the answer."""

    def reward(self, row: Mapping[str, Any], messages: Sequence[Message]) -> dict[str, Any]:
        """The score of the last turn, and the answer that was found in it.

        Raises:
            ValueError: the row is not one of reasoning-gym.
        """
        answer = answer_of(messages[-1]["content"])
        score, detail = scored(_problem(row), answer)
        return {"total": score, "correct": score >= 1, "extracted": answer, "detail": detail}


def answer_of(text: str) -> str:
    """The answer in a turn of a model."""
    form = form_of_text(text)
    said = form.answer(text) if form else text
    tagged = _TAGGED.findall(said)
    if tagged:
        return str(tagged[-1]).strip()
    box = boxed_answer(said)
    return (said if box is None else box).strip()


def _problem(row: Mapping[str, Any]) -> Mapping[str, Any]:
    problem = row.get(COLUMN)
    if not isinstance(problem, Mapping) or "name" not in problem:
        raise ValueError(f"the row has no column {COLUMN}; make the table with magcli convert reasoning-gym:NAME")
    return problem


def scored(problem: Mapping[str, Any], answer: str) -> tuple[float, str]:
    """The score of an answer, and why the scorer was not asked or failed; empty if it gave the score itself.

    A scorer that fails on an answer, and not on the problem's own, gives it 0.

    Raises:
        Exception: whatever it raises on the problem's own answer.
    """
    name = str(problem["name"])
    fault = unsafe(name, answer)
    options = json.dumps(problem.get("options") or {}, sort_keys=True)
    with loading():
        data = _dataset(name, options)
    # JSON has lists where some scorers expect tuples.
    metadata = _tuples(problem["metadata"]) if name in TUPLES else problem["metadata"]
    entry = {"answer": problem["answer"], "metadata": metadata}
    try:
        score = data.score_answer("" if fault else answer, entry)
        return float(score), fault
    except Exception as error:
        # Not the answer's fault if the scorer fails on the right one too.
        data.score_answer(entry["answer"], entry)
        return 0.0, f"the scorer of {name} raised {type(error).__name__} for this answer"


@lru_cache(maxsize=32)
def _dataset(name: str, options: str) -> Any:
    # A scorer is a method of a data set, whose problems are not needed.
    return library().create_dataset(name, **json.loads(options), size=1, seed=0)


def _tuples(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _tuples(part) for key, part in value.items()}
    if isinstance(value, list):
        return tuple(_tuples(part) for part in value)
    return value


def unsafe(name: str, answer: str) -> str:
    """Why a family's scorer must not get an answer, because it would run it; empty if it may."""
    if name in EVALUATED and not _runs_nothing(answer):
        return f"the scorer of {name} would run this answer, which is no literal of Python"
    if name in PARSED and not _is_arithmetic(answer):
        return f"the scorer of {name} would run this answer, which is not only arithmetic"
    return ""


def _runs_nothing(answer: str) -> bool:
    """Whether ``eval`` of a text would give a literal, look up a name, or fail before anything runs."""
    try:
        # What is no Python raises in ``eval`` before anything runs.
        expression = ast.parse(answer, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return True
    if isinstance(expression, ast.Name):  # a word, such as the right answers of string_insertion
        return True
    try:
        ast.literal_eval(answer)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return False
    return True


def _is_arithmetic(answer: str) -> bool:
    """Whether a text has only numbers, operators, variables of one letter and functions of mathematics."""
    if len(answer) > MAX_ARITHMETIC or not _ARITHMETIC.fullmatch(answer) or _ATTRIBUTE.search(answer):
        return False
    # Any other name could be one that SymPy's parser calls.
    return all(len(word) == 1 or word in FUNCTIONS for word in _NAME.findall(answer))
