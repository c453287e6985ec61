"""Try a user's reward function before any work: on a right and a wrong completion of a real row.

The function runs in the grader's worker, under its deadline, exactly as it will run later.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from magcli.errors import UsageError, first_line
from magcli.model.chat.thoughts import THINK, ThoughtForm
from magcli.verify.custom import Function, extra_arguments, functions_of, grader_of, load
from magcli.verify.reward import RewardRule, gold_answer

if TYPE_CHECKING:
    from magcli.verify.grader import Grader

SIGNATURE = (
    "magcli calls it as function(completion, row), with the text of one completion and the columns of its row; it "
    "returns a number, True or False, or a mapping with total, for any completion (0 for one that it cannot read)"
)

BATCH_NAMES = ("prompts", "completions")
"""Names of a first parameter that takes a batch, as reward functions of TRL do."""


def check_reward(spec: str) -> None:
    """Check that the functions which an option names can be called with a completion and a row.

    Raises:
        UsageError: there is no such function, it cannot be called so, or two have the same name.
    """
    for part in functions_of(spec):
        _check_signature(load(part.spec), part.spec)
    grader_of(spec)


def _check_signature(function: Function, spec: str) -> None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return  # one without a readable signature
    try:
        signature.bind("", {}, **extra_arguments(function, THINK))
    except TypeError as error:
        raise UsageError(f"reward {spec!r} has the signature {signature} ({error}); {SIGNATURE}") from None
    # It can be called so, but would take the text of one completion for a list.
    first_parameter = next(iter(signature.parameters), "")
    if first_parameter in BATCH_NAMES:
        raise UsageError(f"reward {spec!r} has the signature {signature}, which takes a batch as in TRL; {SIGNATURE}")


def try_reward(grader: Grader, spec: str, row: Mapping[str, Any], thoughts: ThoughtForm = THINK) -> None:
    """Call a custom reward function on made-up completions of a row, with thoughts in this form.

    Raises:
        UsageError: it raises an exception, or its result is not a reward.
    """
    rule = RewardRule(thoughts=thoughts)
    jobs = [(text, len(text.split()), row, rule) for text in _completions(row, thoughts)]
    rewards = grader.rewards(jobs)
    # One of them alone may be slow by chance.
    if all(reward.reason == "timeout" for reward in rewards):
        raise UsageError(
            f"reward {spec!r} took {rewards[0].detail} on row {row.get('id', '1')}, twice, and is ended then; "
            "give it more time (--verify-deadline), and load what it needs when its file is imported"
        )
    for reward in rewards:
        if reward.reason == "reward-error":
            failure = first_line(ValueError(reward.detail))
            raise UsageError(f"reward {spec!r} failed on row {row.get('id', '1')}: {failure}; {SIGNATURE}")


def _completions(row: Mapping[str, Any], thoughts: ThoughtForm) -> list[str]:
    """A right and a wrong completion of a math problem, in the format of the recipe."""
    answers = (gold_answer(row) or "42", "unknown")
    return [thoughts.join(f"The answer is {answer}.", f"The answer is \\boxed{{{answer}}}.") for answer in answers]
