"""From options to graders, sandboxes and reward rules, and what determines their verdicts besides the options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from magcli.stages.shared.options import GraderOptions, RewardOptions
    from magcli.stages.shared.options import Sandbox as SandboxOption
    from magcli.verify.grader import Grader
    from magcli.verify.reward import RewardRule
    from magcli.verify.sandbox import Choice, Sandbox


def reward_rule(config: RewardOptions) -> RewardRule:
    """The reward that a stage's options describe."""
    from magcli.verify.reward import ALL_TESTS, NO_LIMIT, RewardRule

    return RewardRule(
        config.penalty_end or NO_LIMIT,
        config.penalty_width,
        use_language=config.language,
        num_tests=config.num_tests or ALL_TESTS,
        partial=config.partial,
    )


def open_grader(config: GraderOptions, function: str = "") -> Grader:
    """The grader that a stage's options describe; ``function`` is a user's own reward."""
    from magcli.verify.grader import Grader

    choice, unsafe = _isolation(config.sandbox)
    return Grader(
        config.workers, deadline=config.verify_deadline, sandbox=choice, accept_unsandboxed=unsafe, function=function
    )


def open_sandbox(choice: SandboxOption) -> Sandbox:
    """The sandbox that --sandbox names."""
    from magcli.verify import sandbox

    level, unsafe = _isolation(choice)
    return sandbox.open_sandbox(level, accept_unsandboxed=unsafe)


def _isolation(choice: SandboxOption) -> tuple[Choice, bool]:
    """The isolation level that an option names, and whether the user accepts that there is none."""
    return ("none", True) if choice == "dangerously-none" else (choice, False)


def sandbox_identity(choice: SandboxOption) -> dict[str, Any]:
    """The isolation level that ``auto`` resolves to on this machine."""
    return {"sandbox": open_sandbox(choice).level} if choice == "auto" else {}


def grader_identity(config: GraderOptions, function: str = "") -> dict[str, Any]:
    """What determines verdicts besides the options: the resolved isolation level, and the source of a user's reward."""
    return sandbox_identity(config.sandbox) | function_identity(reward=function)


def function_identity(**functions: str) -> dict[str, Any]:
    """Digests of the sources of a user's own functions, by option; an empty text is none."""
    from magcli.verify import custom

    return {f"{option}_sha256": custom.digest(spec, option) for option, spec in functions.items() if spec}
