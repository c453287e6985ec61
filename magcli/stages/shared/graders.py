"""From options to graders and reward rules, and what determines their verdicts besides."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from magcli.model.chat.thoughts import THINK, ThoughtForm
from magcli.stages.shared.options import environment_judges
from magcli.verify import custom, sandbox
from magcli.verify.environment import identity_of, runs_programs
from magcli.verify.reward import ALL_TESTS, NO_LIMIT, RewardRule
from magcli.verify.trial import try_reward

if TYPE_CHECKING:
    from magcli.stages.shared.options import GraderOptions, RewardOptions
    from magcli.stages.shared.options import Sandbox as SandboxOption
    from magcli.verify.grader import Grader
    from magcli.verify.sandbox import Choice, Sandbox


def reward_rule(config: RewardOptions, thoughts: ThoughtForm = THINK) -> RewardRule:
    """The reward that a stage's options describe, of completions with this form of thoughts."""
    return RewardRule(
        # 0 in an option means none, which the rule has as a very large number.
        config.penalty_end or NO_LIMIT,
        config.penalty_width,
        use_language=config.language,
        num_tests=config.num_tests or ALL_TESTS,
        partial=config.partial,
        thoughts=thoughts,
    )


def open_grader(config: GraderOptions, function: str = "", environment: str = "") -> Grader:
    """The grader that a stage's options describe; ``function`` is a user's own reward."""
    from magcli.verify.grader import Grader  # stages that only sample import this module too

    choice, unsafe = isolation(config.sandbox)
    return Grader(
        config.workers,
        deadline=config.verify_deadline,
        sandbox=choice,
        accept_unsandboxed=unsafe,
        function=function,
        own_reward=environment_judges(environment),
    )


def check_isolation(config: GraderOptions, environment: str) -> None:
    """Refuse an environment that runs programs, where this machine cannot isolate them."""
    if runs_programs(environment):
        open_sandbox(config.sandbox)


def reward_trial(config: RewardOptions) -> Callable[[Mapping[str, Any]], None] | None:
    """Tries a user's own reward function on a row before any work; None without one."""
    if not config.reward:
        return None

    def attempt(row: Mapping[str, Any]) -> None:
        # One worker is enough for one row.
        with open_grader(replace(config, workers=1), config.reward) as grader:
            try_reward(grader, config.reward, row)

    return attempt


def open_sandbox(choice: SandboxOption) -> Sandbox:
    """The sandbox that --sandbox names."""
    level, unsafe = isolation(choice)
    return sandbox.open_sandbox(level, accept_unsandboxed=unsafe)


def isolation(choice: SandboxOption) -> tuple[Choice, bool]:
    """The isolation level that an option names, and whether the user accepts that there is none."""
    return ("none", True) if choice == "dangerously-none" else (choice, False)


def sandbox_identity(choice: SandboxOption) -> dict[str, Any]:
    """The isolation level that ``auto`` resolves to on this machine."""
    # Other values are among the options, which the history has anyway.
    return {"sandbox": open_sandbox(choice).level} if choice == "auto" else {}


def grader_identity(config: GraderOptions, function: str = "", environment: str = "") -> dict[str, Any]:
    """What determines verdicts besides the options: the resolved isolation level, and the source of a user's reward
    and of an environment.
    """
    return sandbox_identity(config.sandbox) | function_identity(reward=function) | environment_identity(environment)


def environment_identity(spec: str) -> dict[str, Any]:
    """Digests of the source of an environment and of what it imports; an empty text is none."""
    return identity_of(spec) if spec else {}


def function_identity(**functions: str) -> dict[str, Any]:
    """Digests of the sources of a user's own functions and of what they import, by option; an empty text is none."""
    identity: dict[str, Any] = {}
    for option, spec in functions.items():
        identity |= custom.digests(spec, option) if spec else {}
    return identity
