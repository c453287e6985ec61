"""Groups: sample the completions of a problem and grade each one the moment it ends (recipe, section 3)."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from transformers import PreTrainedTokenizerBase

from magcli.generate.types import Rollout, RolloutEngine, sample_seed
from magcli.model.chat import completion_text, prompt_tokens, to_messages
from magcli.model.thoughts import ThoughtForm
from magcli.rl.algorithm import DiverseBy, drop_reason
from magcli.rl.types import Group, StageSettings
from magcli.verify.grader import CompletionGrader
from magcli.verify.reward import Reward


@dataclass(frozen=True, slots=True)
class GroupSampler:
    """Samples and grades the groups of a run."""

    engine: RolloutEngine
    grader: CompletionGrader
    tokenizer: PreTrainedTokenizerBase
    ends: Collection[int]
    system: str | None
    thoughts: ThoughtForm
    group_size: int
    diverse_by: DiverseBy
    seed: int

    async def roll_out(
        self,
        number: int,
        problem: Mapping[str, Any],
        settings: StageSettings,
        completion_ended: Callable[[Rollout], None],
    ) -> Group:
        """Sample and grade one group; ``completion_ended`` is called with each completion when it ends.

        Raises:
            PromptTooLong: the prompt does not fit into the context.
            DataError: the problem cannot be graded.
        """
        prompt = prompt_tokens(self.tokenizer, to_messages(problem["prompt"], self.system))
        seeds = [sample_seed(self.seed, f"{problem['id']}#{number}", index) for index in range(self.group_size)]
        rule = replace(settings.rule, test_seed=number)
        rollouts: dict[int, Rollout] = {}
        grading: dict[int, asyncio.Task[Reward]] = {}
        texts: dict[int, str] = {}
        async for rollout in self.engine.sample(prompt, settings.sampling, seeds=seeds):
            index = rollout.index
            rollouts[index] = rollout
            texts[index] = completion_text(self.tokenizer, prompt, rollout.tokens, self.ends, self.thoughts)
            job = self.grader.reward(texts[index], len(rollout.tokens), problem, rule)
            grading[index] = asyncio.create_task(job)
            completion_ended(rollout)
        order = range(self.group_size)
        rewards = [await grading[index] for index in order]
        totals = [reward.total for reward in rewards]
        correct = [reward.correct for reward in rewards]
        reasons = [reward.reason for reward in rewards]
        dropped = drop_reason(totals, correct, reasons, by=self.diverse_by)
        return Group(
            number,
            problem,
            tuple(prompt),
            tuple(rollouts[index] for index in order),
            tuple(texts[index] for index in order),
            tuple(rewards),
            dropped,
            settings.sampling.temperature,
        )
