"""Each code problem twice: once for a program in Python and once for one in C++, where both make sense.

Such a problem becomes two rows with the same tests. If its tests call a Python function, the C++ row specifies the
signature of a C++ function; its tests then pass the arguments on stdin to a main function in column harness. All other
rows are unchanged, with the reason in column duplicate.
"""

from __future__ import annotations

from dataclasses import dataclass

from magcli.config import opt
from magcli.stages.shared import options

INPUTS = "Problems: columns prompt, tests, optional id; - is stdin."
EXAMPLE = "magcli duplicate examples/code_problems.jsonl -o two_languages.arrow"


@dataclass(frozen=True)
class Config(options.ClusterOptions):
    """Options of `magcli duplicate`."""

    only: bool = opt(False, "Drop code problems that are not available in both languages.")


def unshardable_reason(config: Config) -> str:
    """Empty: each problem is duplicated by itself."""
    return ""


def reads(config: Config) -> tuple[str, ...]:
    """The required columns; rows of kind math need no tests."""
    return ("id", "prompt")
