"""Groups: sample the completions of a problem and grade each one the moment it ends (recipe, section 3)."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from transformers import PreTrainedTokenizerBase

from magcli.choices import DiverseBy
from magcli.environments.episodes import Episodes, graded
from magcli.generate.types import Message, Rollout, RolloutEngine, Sampling, sample_seed
from magcli.model.chat.prompts import completion_text, prompt_tokens, to_messages
from magcli.model.chat.thoughts import ThoughtForm
from magcli.rl.algorithm import drop_reason_of
from magcli.rl.types import Group, StageSettings
from magcli.run.tasks import end_all
from magcli.verify.grader import CompletionGrader
from magcli.verify.reward import Reward, RewardRule


class GroupJob(NamedTuple):
    """One group to sample and grade.

    ``name`` is that of its seeds, ``messages`` are those of its prompt; the callbacks are as in ``roll_out``.
    """

    name: str
    problem: Mapping[str, Any]
    messages: Sequence[Message]
    sampling: Sampling
    rule: RewardRule
    completion_ended: Callable[[Rollout], None]
    environment_works: Callable[[int], None]


class Graded(NamedTuple):
    """A rollout with its text, its reward, and the conversation if it is an episode."""

    rollout: Rollout
    text: str
    reward: Reward
    messages: tuple[Message, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupSampler:
    """Samples and grades the groups of a run; with ``episodes`` an environment answers the turns of the policy."""

    engine: RolloutEngine
    grader: CompletionGrader
    tokenizer: PreTrainedTokenizerBase
    ends: Collection[int]
    system: str | None
    thoughts: ThoughtForm
    group_size: int
    diverse_by: DiverseBy
    seed: int
    episodes: Episodes | None = None

    async def roll_out(
        self,
        number: int,
        problem: Mapping[str, Any],
        settings: StageSettings,
        completion_ended: Callable[[Rollout], None],
        environment_works: Callable[[int], None] = lambda change: None,
    ) -> Group:
        """Sample and grade one group; ``completion_ended`` is called with each completion when it ends.

        ``environment_works`` is called with 1 when an environment begins to work on a turn, and with -1 at its end.

        Raises:
            PromptTooLong: the prompt does not fit into the context.
            DataError: the problem cannot be graded.
        """
        messages = to_messages(problem["prompt"], self.system)
        prompt = prompt_tokens(self.tokenizer, messages)
        name = f"{problem['id']}#{number}"
        seeds = [sample_seed(self.seed, name, index) for index in range(self.group_size)]
        # All completions of a group are graded by the same tests.
        rule = replace(settings.rule, test_seed=number)
        sampling = settings.sampling
        job = GroupJob(name, problem, messages, sampling, rule, completion_ended, environment_works)
        tasks: dict[int, asyncio.Task[Graded]] = {}
        try:
            async for rollout in self.engine.sample(prompt, sampling, seeds=seeds):
                if self.episodes is None:
                    # Graded while the others are still generated.
                    tasks[rollout.index] = asyncio.create_task(self._graded(rollout, job))
                    completion_ended(rollout)
                else:
                    # The rollout is only the first turn; the episode says when it has ended.
                    tasks[rollout.index] = asyncio.create_task(self._episode(self.episodes, rollout, job))
            # They end in any order, but a group has them in that of its seeds.
            done = [await tasks[index] for index in range(self.group_size)]
        finally:
            await end_all(tasks.values())
        return self._group(number, problem, prompt, done, sampling.temperature)

    def _group(
        self,
        number: int,
        problem: Mapping[str, Any],
        prompt: Sequence[int],
        done: Sequence[Graded],
        temperature: float,
    ) -> Group:
        rewards = [completion.reward for completion in done]
        is_episode = self.episodes is not None
        return Group(
            number=number,
            problem=problem,
            prompt=tuple(prompt),
            rollouts=tuple(completion.rollout for completion in done),
            texts=tuple(completion.text for completion in done),
            rewards=tuple(rewards),
            # Decided at once, so that the scheduler knows how many groups can train.
            dropped=drop_reason_of(rewards, by=self.diverse_by),
            temperature=temperature,
            messages=tuple(completion.messages for completion in done) if is_episode else (),
        )

    async def _graded(self, rollout: Rollout, job: GroupJob) -> Graded:
        text = completion_text(self.tokenizer, rollout.prompt, rollout.tokens, self.ends, self.thoughts)
        reward = await self.grader.reward(text, len(rollout.tokens), job.problem, job.rule)
        return Graded(rollout, text, reward)

    async def _episode(self, episodes: Episodes, first: Rollout, job: GroupJob) -> Graded:
        """The episode that begins with a turn, and its reward."""

        def seed_of(turn: int) -> int:
            # Another seed for each turn, whoever asks for it and when.
            return sample_seed(self.seed, f"{job.name}.{turn}", first.index)

        episode = await episodes.finish(first, job.problem, job.messages, job.sampling, seed_of, job.environment_works)
        # Before grading, which needs no slot.
        job.completion_ended(episode.rollout)
        reward = await graded(episode, episodes.environment, self.grader, job.problem, job.rule)
        return Graded(episode.rollout, episode.text, reward, episode.messages)
