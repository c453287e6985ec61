"""The verdict on one row, and the interval of a share of rows, for stages that grade."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from magcli.errors import MagError
from magcli.model.chat.messages import thoughts_beside, thoughts_of
from magcli.verify.reward import failed

if TYPE_CHECKING:
    import pyarrow as pa

    from magcli.model.chat.thoughts import ThoughtForm
    from magcli.verify import Grader
    from magcli.verify.reward import Reward, RewardRule


UNIT, CODE_UNIT = 64, 8
"""Rows that are graded and journaled together; fewer with programs, which take longer."""


def unit_size(schema: pa.Schema) -> int:
    """How many rows of a table are graded and journaled together."""
    return CODE_UNIT if "tests" in schema.names else UNIT


async def graded(grader: Grader, rule: RewardRule, opening: str, row: Mapping[str, Any]) -> Reward:
    """The reward of one row, or why there is none: a row that cannot be graded must not stop the others.

    Raises:
        MagError: the problem is of an unknown kind, or nothing can be graded on this machine.
    """
    try:
        text = with_thoughts(row, rule.thoughts)
        return await grader.reward(opening + text, row.get("num_tokens") or 0, row, rule)
    except MagError:
        raise
    except Exception as error:
        # A failure of the grading, which counts neither as right nor as wrong.
        return failed(error)


def with_thoughts(row: Mapping[str, Any], form: ThoughtForm) -> str:
    """The completion of a row after the thoughts that are beside it in a column of their own, if any."""
    completion: str = row["completion"]
    thoughts = thoughts_of({**thoughts_beside(row), "content": completion})
    return form.join(thoughts, completion) if thoughts else completion


def accuracy_interval(correct: Mapping[str, int], counted: Mapping[str, int]) -> tuple[float, float, float]:
    """Share of correct completions and its 95% interval (Wilson).

    Completions of one problem are not independent: the effective sample size matches the variance between problems.
    """
    total = sum(counted.values())
    share = sum(correct.values()) / total
    variance = share * (1 - share)  # of one completion
    deviations = [correct.get(id, 0) - share * number for id, number in counted.items()]  # of each problem
    spread = sum(deviation**2 for deviation in deviations)
    # The number of independent completions with this variance between problems.
    size = variance * total * total / spread if spread else len(counted)
    # Problems that differ less than by chance do not make samples worth more than independent ones.
    size = min(size, total)

    # Wilson's interval: the middle is pulled towards 1/2, the more the fewer completions there are.
    z = 1.96  # the normal quantile of a two-sided 95% interval
    shrinks = 1 + z * z / size
    middle = (share + z * z / (2 * size)) / shrinks
    reach = z / shrinks * (variance / size + z * z / (4 * size * size)) ** 0.5
    low = max(0.0, middle - reach)
    high = min(1.0, middle + reach)
    return share, low, high
