"""Compute the rewards of completions, with each part and a reason.

Completions may come from any tool: each row needs a problem, its answer (or tests) and a completion, under any of the
common column names. Problems whose ground truth cannot be parsed have the reason bad-gold. Programs run in a sandbox.

With --serve no table is read: other trainers ask for rewards over HTTP, by OpenRLHF's protocol of remote reward models
or with the arguments of verl's reward functions, until Ctrl-C.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from magcli.config import opt
from magcli.errors import usage
from magcli.run.local_http import LOOPBACK_NAMES
from magcli.stages.shared import options
from magcli.stages.shared.environment_check import check_environment

INPUTS = "Completions: columns prompt, answer or tests, completion; num_tokens for the length penalty; - is stdin."
RESUMES = True
EXAMPLE = "magcli grade examples/completions.jsonl -o graded.arrow"


@dataclass(frozen=True)
class Config(options.EnvironmentOptions, options.RewardOptions, options.ClusterOptions):
    """Options of `magcli grade`."""

    opening: str = opt(
        "", "Text that the prompt ended with and completions lack, such as '<think>'; it is put before them."
    )
    thoughts: str = options.thoughts(options.REWARD, "from the table's history, else that of most completions")
    serve: str = opt(
        "",
        "Answer requests for rewards at [HOST:]PORT instead of reading a table; another host than 127.0.0.1 needs a "
        "token in MAGCLI_TOKEN.",
        affects_rows=False,
    )


TOKEN = "MAGCLI_TOKEN"
"""The variable with the token that requests to --serve need."""


def address(text: str) -> tuple[str, int]:
    """Host and port of --serve; port 0 is a free one.

    Raises:
        UsageError: it is not [HOST:]PORT.
    """
    host, _, port = text.rpartition(":")
    # int() also reads digits of other scripts.
    right = port.isascii() and port.isdecimal() and int(port) < 1 << 16
    usage(right, f"grade: --serve {text} is not [HOST:]PORT, such as 8000 or 127.0.0.1:8000")
    # An IPv6 address is in brackets.
    return host.strip("[]") or LOOPBACK_NAMES[0], int(port)


def reads(config: Config) -> tuple[str, ...] | None:
    """The required columns; none are read by a server."""
    if config.serve:
        return None
    if config.reward or config.environment:
        return ("id", "completion")
    return ("id", "prompt", "answer|tests", "completion", *(("num_tokens",) if config.penalty_end else ()))


def writes(config: Config) -> bool:
    """A server writes no table."""
    return not config.serve


def check(config: Config) -> None:
    """Refuse options that are out of range or contradict each other."""
    options.check_reward("grade", config)
    options.check_thoughts("grade", config.thoughts)
    check_environment("grade", config, config.environment, config.reward)
    judges = options.environment_judges(config.environment)
    usage(judges or not config.environment, f"grade: --environment {config.environment} has no reward of its own")
    usage(config.penalty_end > 0 or config.penalty_width == 0, "grade: --penalty-width requires --penalty-end")
    if config.serve:
        _check_serve(config)


def _check_serve(config: Config) -> None:
    """Refuse an open server, and rewards that need what requests do not have."""
    host, _ = address(config.serve)
    has_token = bool(os.environ.get(TOKEN, "").strip())
    usage(
        host in LOOPBACK_NAMES or has_token,
        f"grade: --serve {config.serve} is open to other machines: set a token in {TOKEN}, or serve on 127.0.0.1",
    )
    usage(not config.environment, "grade: --serve has no --environment: requests have one answer each")
    usage(not config.penalty_end, "grade: --serve has no --penalty-end: requests do not say how many tokens there are")
    usage(not config.cluster, "grade: --serve runs on this machine alone; leave --cluster out")
