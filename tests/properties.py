"""Properties that must hold for whatever an adversary sends: how often they are tried, and on what.

Examples are made from arbitrary bytes, each of which is an instruction of a stack machine: that takes a tenth of the
time of strategies inside each other, and shrinks as bytes do.
"""

from collections.abc import Callable, Sequence
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

MANY = "many examples"
"""The profile of ``make properties``."""


def adversarial(test: Callable[..., None]) -> Callable[..., None]:
    """A property on 100,000 examples in ``make properties``, some minutes each, and on 200 otherwise."""
    many = hypothesis.settings.get_current_profile_name() == MANY
    settings = hypothesis.settings(max_examples=100_000 if many else 200)
    return pytest.mark.timeout(3600)(settings(test))


Make = Callable[[Sequence[Any]], Any]
"""One value of several others."""


def built(atoms: Sequence[Any], makes: Sequence[Make]) -> st.SearchStrategy[Any]:
    """Values of ``atoms`` and of what ``makes`` make of them, nested up to some dozens deep."""
    return st.binary(min_size=1, max_size=64).map(lambda steps: _run(steps, atoms, makes))


def _run(steps: bytes, atoms: Sequence[Any], makes: Sequence[Make]) -> Any:
    """An even byte puts an atom on the stack; an odd one puts the last few values together. The last value stays."""
    stack: list[Any] = []
    for step in steps:
        which, odd = divmod(step, 2)
        if not odd:
            stack.append(atoms[which % len(atoms)])
            continue
        which, count = divmod(which, 5)
        parts = stack[len(stack) - count :] if count <= len(stack) else stack
        stack = [*stack[: len(stack) - len(parts)], makes[which % len(makes)](parts)]
    return stack[-1]
