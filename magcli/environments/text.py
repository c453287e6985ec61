"""Episodes by messages, for stages that sample text from any engine, also from a server.

Each turn is a request with all messages so far, which the engine renders; for training see
``magcli.environments.episodes``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from magcli.environments.environment import Environment
from magcli.errors import PromptRefused
from magcli.generate.types import Completion, Generator, Message, Sampling, sample_seed
from magcli.verify.reward import Reward

Shown = Callable[[Sequence[Mapping[str, str]]], list[dict[str, Any]]]
"""Turns of an environment in the form that a model's chat template can show."""


@dataclass(frozen=True, slots=True)
class TextEpisode:
    """An episode that has ended.

    Attributes:
        completion: the text of the model's last turn, the tokens of all its turns, and how the last one ended.
        messages: the whole conversation.
        reward: the environment's own, or why it failed; None if the last turn is graded as a completion.
    """

    completion: Completion
    messages: tuple[Mapping[str, str], ...]
    reward: Reward | None


@dataclass(frozen=True, slots=True)
class TextEpisodes:
    """Samples episodes in an environment."""

    environment: Environment
    shown: Shown

    async def complete(
        self,
        generator: Generator,
        row: Mapping[str, Any],
        messages: Sequence[Message],
        sampling: Sampling,
        seeds: Sequence[int],
    ) -> list[TextEpisode]:
        """One episode a seed, in their order; ``sampling.max_tokens`` is the most that the model writes in each.

        Raises:
            PromptRefused: the prompt does not fit into the context, or a server refuses it.
        """
        # Engines keep what the turns have in common, instead of computing it again.
        turns = replace(sampling, continues=True)
        episodes = (self._episode(generator, row, messages, turns, seed) for seed in seeds)
        return await asyncio.gather(*episodes)

    async def _episode(
        self, generator: Generator, row: Mapping[str, Any], prompt: Sequence[Message], sampling: Sampling, seed: int
    ) -> TextEpisode:
        messages: list[Mapping[str, str]] = list(prompt)
        terms = self.environment.terms
        (turn,) = await generator.complete(messages, sampling, seeds=[seed])
        num_tokens = turn.num_tokens
        num_turns = 1
        while True:
            messages.append({"role": "assistant", "content": turn.text})
            # The text of this turn, but the tokens of all: what the episode cost.
            ended = Completion(turn.text, num_tokens, turn.finish)
            if turn.finish == "length" or num_turns == terms.max_turns:
                break
            reply = await self.environment.reply(row, messages)
            if isinstance(reply, Reward):
                return TextEpisode(ended, tuple(messages), reply)
            if not reply.messages:
                break
            shown = self.shown(reply.messages)
            left = replace(sampling, max_tokens=sampling.max_tokens - num_tokens)
            seed_of_turn = sample_seed(seed, str(row.get("id")), num_turns)
            try:
                (turn,) = await generator.complete([*messages, *shown], left, seeds=[seed_of_turn])
            except PromptRefused:
                # The context is full, so what the environment said does not belong to the episode.
                ended = replace(ended, finish="length")
                break
            messages += shown
            num_tokens += turn.num_tokens
            num_turns += 1
        reward = await self.environment.reward(row, messages) if terms.judges else None
        return TextEpisode(ended, tuple(messages), reward)


def as_user(replies: Sequence[Mapping[str, str]]) -> list[dict[str, Any]]:
    """The turns of an environment for a server, whose template is not known: results of tools are turns of the user."""
    turns = []
    for reply in replies:
        role = "user" if reply["role"] == "tool" else reply["role"]
        turns.append({"role": role, "content": reply["content"]})
    return turns
