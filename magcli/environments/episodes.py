"""Episodes by tokens: turns of a policy, and between them what an environment says, in one growing sequence.

What the policy wrote is never rendered again. A request leaves its slot when a turn ends; while the environment works,
other sequences have the slot. The next turn is a request whose prompt is all tokens so far.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from magcli.environments.environment import Environment
from magcli.errors import DataError, PromptTooLong
from magcli.generate.types import Finish, Rollout, Sampler, Sampling
from magcli.model.chat.prompts import completion_text
from magcli.model.chat.thoughts import ThoughtForm
from magcli.model.chat.turns import TurnRenderer
from magcli.verify.environment import Message
from magcli.verify.grader import CompletionGrader
from magcli.verify.reward import Reward, RewardRule, ungraded

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True, slots=True)
class Episode:
    """An episode that has ended.

    Attributes:
        rollout: all its tokens after the prompt, with those that the environment wrote as ``given``.
        text: of the last turn of the policy.
        messages: the whole conversation.
        failure: the verdict, if the environment failed.
    """

    rollout: Rollout
    text: str
    messages: tuple[Message, ...]
    failure: Reward | None


@dataclass(slots=True)
class _Tokens:
    """The tokens of an episode so far, as in ``Rollout``."""

    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[tuple[int, int]] = field(default_factory=list)
    given: list[tuple[int, int]] = field(default_factory=list)

    def add_turn(self, turn: Rollout) -> None:
        """Append a turn of the policy."""
        # Runs of tokens by the version of the weights; a run may go on over several turns.
        for start, version in turn.versions:
            if not self.versions or self.versions[-1][1] != version:
                self.versions.append((len(self.tokens) + start, version))
        self.tokens += turn.tokens
        self.logprobs += turn.logprobs

    def add_given(self, tokens: Sequence[int]) -> None:
        """Append what the environment said."""
        start = len(self.tokens)
        self.tokens += tokens
        # Placeholders, so that positions agree; what the environment wrote is not trained.
        self.logprobs += [0.0] * len(tokens)
        self.given.append((start, len(self.tokens)))

    def rollout(self, first: Rollout, finish: Finish) -> Rollout:
        """The whole episode, whose first turn this is."""
        return replace(
            first,
            tokens=tuple(self.tokens),
            logprobs=tuple(self.logprobs),
            versions=tuple(self.versions),
            finish=finish,
            given=tuple(self.given),
        )


@dataclass(frozen=True)
class Episodes:
    """Continues first turns to the end of their episodes, with the turns of an environment.

    ``ends`` are the ids of the tokens that end a turn of the policy.
    """

    sampler: Sampler
    environment: Environment
    renderer: TurnRenderer
    tokenizer: PreTrainedTokenizerBase
    ends: Collection[int]
    thoughts: ThoughtForm

    async def finish(
        self,
        first: Rollout,
        row: Mapping[str, Any],
        prompt: Sequence[Message],
        sampling: Sampling,
        seed_of: Callable[[int], int],
        environment_works: Callable[[int], None],
    ) -> Episode:
        """The episode that begins with a turn.

        ``prompt`` are the messages before it; ``seed_of`` gives the seed of a turn by its number, from 1 on for the one
        after the first; ``environment_works`` is called with 1 when the environment has the turn, and then with -1.
        ``sampling.max_tokens`` is the most that an episode may have after its prompt, with what the environment says.
        """
        all_tokens = _Tokens()
        messages = list(prompt)
        turn, number = first, 1
        failure: Reward | None = None
        while True:
            context = (*first.prompt, *all_tokens.tokens)
            text = completion_text(self.tokenizer, context, turn.tokens, self.ends, self.thoughts)
            messages.append({"role": "assistant", "content": text})
            all_tokens.add_turn(turn)
            finish = turn.finish
            if finish == "length" or number == self.environment.terms.max_turns:
                break
            # Its slot is free for another completion meanwhile.
            environment_works(1)
            try:
                reply = await self.environment.reply(row, messages)
            finally:
                environment_works(-1)
            if isinstance(reply, Reward):
                failure = reply
                break
            if not reply.messages:
                break
            shown = self.renderer.shown(reply.messages)
            try:
                tokens_of_reply = self.renderer.after(shown)
            except DataError as error:
                failure = ungraded("reward-error", f"a turn of {self.environment.spec} cannot be shown: {error}")
                break
            context_after = [*all_tokens.tokens, *tokens_of_reply]
            next_turn = await self._next_turn(first, context_after, sampling, seed_of(number))
            if next_turn is None:
                finish = "length"
                break
            # Only with a turn after it: an episode ends with what the policy wrote.
            all_tokens.add_given(tokens_of_reply)
            messages += shown
            turn, number = next_turn, number + 1
        return Episode(all_tokens.rollout(first, finish), text, tuple(messages), failure)

    async def _next_turn(self, first: Rollout, tokens: Sequence[int], sampling: Sampling, seed: int) -> Rollout | None:
        """The policy's turn after these tokens of an episode; None if they leave no room for one."""
        left = sampling.max_tokens - len(tokens)
        if left < 1:
            return None
        stream = self.sampler.sample((*first.prompt, *tokens), replace(sampling, max_tokens=left), seeds=[seed])
        with suppress(PromptTooLong):
            # Closed at once, as the sampler frees what a request holds with its stream.
            async with aclosing(stream) as turns:
                return await anext(turns, None)
        return None


async def graded(
    episode: Episode, environment: Environment, grader: CompletionGrader, row: Mapping[str, Any], rule: RewardRule
) -> Reward:
    """The reward of an episode: the environment's own if it has one, else that of the last turn as a completion.

    Raises:
        DataError: the problem cannot be graded.
        EnvironmentFault: no worker starts.
    """
    if episode.failure is not None:
        return episode.failure
    if environment.terms.judges:
        return await environment.reward(row, episode.messages)
    return await grader.reward(episode.text, episode.rollout.num_generated, row, rule)
