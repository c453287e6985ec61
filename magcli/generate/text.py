"""An engine of an RL run as a ``Generator`` of text, for samples that are not rollouts."""

from collections.abc import Callable, Collection, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from transformers import PreTrainedTokenizerBase

from magcli.generate.types import Completion, Message, Rollout, Sampler, Sampling
from magcli.model.chat.prompts import completion_text, prompt_tokens
from magcli.model.chat.thoughts import ThoughtForm


@dataclass
class SamplerText:
    """Text from the newest weights of an engine, which it does not own.

    ``started`` is told how many samples of a request the engine gets, ``ended`` each sample that has ended.
    """

    sampler: Sampler
    tokenizer: PreTrainedTokenizerBase
    ends: Collection[int]
    thoughts: ThoughtForm
    started: Callable[[int], None]
    ended: Callable[[Rollout], None]
    num_finished: int = 0

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, *, seeds: Sequence[int]
    ) -> list[Completion]:
        """Sample one completion per seed for the same messages, in the order of the seeds."""
        prompt = prompt_tokens(self.tokenizer, messages)
        self.started(len(seeds))
        rollouts: list[Rollout] = []
        async with aclosing(self.sampler.sample(prompt, sampling, seeds=seeds)) as stream:
            async for rollout in stream:
                rollouts.append(rollout)
                self.num_finished += 1
                self.ended(rollout)
        # They have ended in any order.
        rollouts.sort(key=lambda rollout: rollout.index)
        return [self._completion(rollout) for rollout in rollouts]

    def _completion(self, rollout: Rollout) -> Completion:
        text = completion_text(self.tokenizer, rollout.prompt, rollout.tokens, self.ends, self.thoughts)
        return Completion(text, len(rollout.tokens), rollout.finish)

    async def close(self) -> None:
        """Nothing: the engine goes on."""
