"""Try an environment before any work, in its worker and under its deadline, as it will run later."""

from collections.abc import Mapping
from typing import Any

from magcli.environments.environment import Environment
from magcli.verify.environment import Message
from magcli.verify.reward import Reward

TURN = "The answer is 42."
"""A turn of a model that any environment must be able to answer."""


async def failure_of(environment: Environment, row: Mapping[str, Any]) -> str:
    """How an environment fails on the first turn of a row's episode, or at its end; empty if it does not."""
    messages: list[Message] = [
        {"role": "user", "content": str(row.get("prompt", ""))},
        {"role": "assistant", "content": TURN},
    ]
    reply = await environment.reply(row, messages)
    if isinstance(reply, Reward):
        return reply.detail
    if not environment.terms.judges:
        return ""
    reward = await environment.reward(row, messages)
    # A reward of 0 is no failure: the answer is made up.
    return "" if reward.trainable else reward.detail
