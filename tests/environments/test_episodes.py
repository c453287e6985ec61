"""Episodes by tokens on the embedded engine: what is the policy's, what is given, and where an episode ends."""

import asyncio
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import torch

from magcli.environments.environment import in_workers
from magcli.environments.episodes import Episodes
from magcli.generate.open import open_policy
from magcli.generate.spec import Spec
from magcli.generate.types import Rollout, Sampling
from magcli.model.chat.prompts import prompt_tokens, render_text
from magcli.model.chat.turns import TurnRenderer
from magcli.model.load import load_model
from magcli.model.model import Model
from magcli.rl.metrics import version_sum
from magcli.rl.objective import TrainingSample, pack_samples, score
from magcli.train.attention import use_packed_attention

FILE = Path(__file__).with_name("toys.py")
ROW = {"id": "p1", "prompt": "a?", "answer": "3"}
MESSAGES = [{"role": "user", "content": "a?"}]


@asynccontextmanager
async def opened(folder, name):
    model = Model.open(str(folder))
    policy = open_policy(Spec(model, dtype="fp32", slots=4))
    renderer = TurnRenderer(model.tokenizer, model.ends, None, model.thoughts)
    with in_workers(f"{FILE}:{name}", sandbox="none") as environment:
        yield Episodes(policy, environment, renderer, model.tokenizer, model.ends, model.thoughts)
    await policy.close()


async def episodes_of(folder, name, max_tokens=120, number=4, between=None):
    """Finished episodes, and how often the environment had the turn at once."""
    working, most = 0, 0

    def environment_works(change):
        nonlocal working, most
        working += change
        most = max(most, working)

    async with opened(folder, name) as episodes:
        prompt = prompt_tokens(episodes.tokenizer, MESSAGES)
        sampling = Sampling(max_tokens)
        firsts = [first async for first in episodes.sampler.sample(prompt, sampling, seeds=range(number))]
        if between:
            await between(episodes.sampler)
        done = await asyncio.gather(
            *(
                episodes.finish(
                    first, ROW, MESSAGES, sampling, lambda turn, at=first.index: 100 * turn + at, environment_works
                )
                for first in firsts
            )
        )
        assert working == 0
        return done, most, episodes.tokenizer


def test_an_episode_is_one_growing_sequence_that_renders_as_its_messages(guesser):
    done, most, tokenizer = asyncio.run(episodes_of(guesser, "Cup"))
    assert most >= 1
    for episode in done:
        rollout = episode.rollout
        whole = tokenizer.decode([*rollout.prompt, *rollout.tokens])
        assert whole == render_text(tokenizer, episode.messages)
        assert [message["role"] for message in episode.messages] == ["user", "assistant"] * 3
        given = [tokenizer.decode(rollout.tokens[start:end]) for start, end in rollout.given]
        assert given == ["<|user|>It is 3.<|end|><|assistant|>"] * 2
        assert all(rollout.logprobs[at] == 0 for start, end in rollout.given for at in range(start, end))
        assert rollout.num_generated == len(rollout.tokens) - sum(end - start for start, end in rollout.given)
        assert rollout.versions == ((0, 0),)


def test_only_the_policys_tokens_are_trained_and_their_log_probs_are_the_trainers(guesser):
    done, _, _ = asyncio.run(episodes_of(guesser, "Cup"))
    model = load_model(str(guesser), dtype=torch.float32)
    use_packed_attention(model)
    samples = [TrainingSample(episode.rollout.prompt, episode.rollout, 1.0, 1.0) for episode in done]
    batch = pack_samples(samples, model.device)
    written = [token for sample in samples for token in sample.rollout.generated(sample.rollout.tokens)]
    assert batch.packed.input_ids[0, batch.generated].tolist() == written
    with torch.no_grad():
        logprobs = score(model, batch, bf16=False).values
    torch.testing.assert_close(logprobs, batch.sampler, atol=2e-4, rtol=0)


def test_weights_that_change_between_turns_are_known_by_token(guesser):
    async def update(policy):
        weights = load_model(str(guesser), dtype=torch.float32).state_dict()
        await policy.load(weights, 7)

    done, _, _ = asyncio.run(episodes_of(guesser, "Hint", between=update))
    for episode in done:
        (start, end), rollout = episode.rollout.given[0], episode.rollout
        assert rollout.versions == ((0, 0), (end, 7)), "what is given has the version before it"
        assert version_sum(rollout) == 7 * (len(rollout.tokens) - end)
        assert rollout.num_generated == len(rollout.tokens) - (end - start)


def test_an_episode_ends_at_its_most_tokens(guesser):
    done, _, _ = asyncio.run(episodes_of(guesser, "Cup", max_tokens=40))
    assert all(len(episode.rollout.tokens) <= 40 for episode in done)
    assert {episode.rollout.finish for episode in done} == {"length"}
    assert all(episode.messages[-1]["role"] == "assistant" for episode in done)


def test_a_failing_environment_ends_its_episode_with_the_reason(guesser):
    done, _, _ = asyncio.run(episodes_of(guesser, "Raises"))
    assert all(episode.failure.reason == "reward-error" for episode in done)
    assert all(episode.rollout.given == () for episode in done)


def test_values_per_token_are_cut_to_those_of_the_policy():
    rollout = Rollout(0, (1,), (5, 6, 7, 8, 9), (-1, 0, 0, -2, -3), ((0, 0),), "stop", 0, ((1, 3),))
    assert rollout.num_generated == 3
    assert rollout.generated(rollout.tokens) == [5, 8, 9]
    plain = Rollout(0, (1,), (5, 6), (-1, -2), ((0, 0),), "stop", 0)
    assert plain.generated(plain.tokens) is plain.tokens


@pytest.mark.parametrize("name", ["Cup", "Hint"])
def test_the_same_seeds_give_the_same_episode(name, guesser):
    one, other = (asyncio.run(episodes_of(guesser, name, number=2))[0] for _ in range(2))
    assert sorted(episode.rollout.tokens for episode in one) == sorted(episode.rollout.tokens for episode in other)
