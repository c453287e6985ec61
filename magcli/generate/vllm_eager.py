"""Whether vLLM on a GPU shall compile and capture CUDA graphs, which delays its first token by a minute."""

from collections.abc import Iterable

COMPILING_SECONDS = 50.0
"""How much longer a start takes with compilation and graphs, at least: on an H100 SmolLM2-135M took 20 s without them,
and was not ready after 70 s with them, without a compile cache."""

EAGER_STEP_SECONDS = 0.034
"""One step of 512 sequences without them, at most: 256 tokens took the same model 8.6 s, its first step not counted."""


def decode_steps(expected: Iterable[tuple[int, int]], slots: int) -> int:
    """The steps of ``slots`` sequences at once, at most, for pairs of a number of completions and their tokens."""
    return sum(-(-completions // slots) * tokens for completions, tokens in expected)


def starts_sooner(steps: int) -> bool:
    """Whether so many steps end sooner without compilation, even if compiled ones took no time at all."""
    return steps * EAGER_STEP_SECONDS < COMPILING_SECONDS
