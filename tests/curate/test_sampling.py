"""Samples in waves: which are made, with which seeds, and what was saved."""

import asyncio
from collections.abc import Sequence

import pytest
from scripted_generator import ScriptedGenerator

from magcli.curate.sampling import Sample, SamplingCost, SamplingPlan, sample_in_waves, sample_problem
from magcli.errors import PromptTooLong
from magcli.generate.types import Completion, Message, Sampling, sample_seed
from magcli.verify.grader import Grader
from magcli.verify.reward import Reward, RewardRule

ROW = {"id": "p", "prompt": "3+4", "answer": "7"}
ASK = SamplingPlan(None, Sampling(32), samples=10, seed=5)


def sevens(messages: Sequence[Message], sampling: Sampling, seed: int) -> Completion:
    return Completion("<think>a</think>\\boxed{7}", seed % 7, "stop")


def in_waves(wave: int, enough: int) -> tuple[list[Sample], list[Reward], list[int]]:
    """Samples, rewards, and about how many of these it was asked each time whether more are wanted."""
    asked: list[int] = []

    async def wanted(rewards: Sequence[Reward]) -> int:
        asked.append(len(rewards))
        return 0 if len(rewards) >= enough else wave

    async def work() -> tuple[list[Sample], list[Reward]]:
        grader, rule = Grader(1, deadline=20), RewardRule(use_language=False)
        try:
            return await sample_in_waves(ScriptedGenerator(sevens), grader, ROW, ASK, rule, wanted)
        finally:
            await grader.close()

    return *asyncio.run(work()), asked


def test_waves_are_prefixes_of_all_samples() -> None:
    every = asyncio.run(sample_problem(ScriptedGenerator(sevens), ROW, ASK))
    assert [sample.seed for sample in every] == [sample_seed(5, "p", index) for index in range(10)]
    samples, rewards, asked = in_waves(4, enough=8)
    assert samples == every[:8]
    assert (asked, [reward.correct for reward in rewards]) == ([0, 4, 8], [True] * 8)


def test_the_last_wave_has_the_remaining_samples() -> None:
    samples, rewards, asked = in_waves(4, enough=99)
    assert (len(samples), len(rewards), asked) == (10, 10, [0, 4, 8])
    assert in_waves(10, enough=0) == ([], [], [0])


def test_a_prompt_that_is_too_long_is_reported() -> None:
    def refuse(messages: Sequence[Message], sampling: Sampling, seed: int) -> Completion:
        raise PromptTooLong("600 tokens")

    with pytest.raises(PromptTooLong):
        asyncio.run(sample_problem(ScriptedGenerator(refuse), ROW, ASK))


def test_samples_not_drawn_count_with_the_mean_length_of_their_problem() -> None:
    spent = SamplingCost()
    spent.add([Sample(i, i, Completion("x", tokens, "stop")) for i, tokens in enumerate((10, 20))], maximum=8)
    spent.add([Sample(0, 0, Completion("x", 5, "stop"))], maximum=1)
    assert spent == SamplingCost(problems=2, samples=3, tokens=35, samples_saved=6, tokens_saved=6 * 15.0)
