import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from magcli.generate.types import Rollout
from magcli.model.load import load_model
from magcli.rl.loop import shuffled
from magcli.rl.rollouts import Group
from magcli.rl.update import Objective, Tally, _mini_batch, update
from magcli.train import optim
from magcli.train.attention import use_packed_attention
from magcli.train.logprobs import token_logprobs
from magcli.train.packing import pack

RECIPE = Objective(0.2, 0.28, 1.0, "minibatch", "group", 1.0, 10_000, False)


@pytest.fixture(scope="module")
def model(tiny_model_dir):
    model = load_model(str(tiny_model_dir), dtype=torch.float32)
    use_packed_attention(model)
    return model


def groups(model, count=3, size=4, seed=0, noise=0.0):
    """Random rollouts with the log-probs that the model gives them, moved by ``noise``, and random rewards."""
    random = np.random.default_rng(seed)
    made, rewards = [], []
    for number in range(count):
        prompt = tuple(random.integers(0, 100, int(random.integers(2, 8))).tolist())
        rollouts = []
        for index in range(size):
            tokens = tuple(random.integers(0, 100, int(random.integers(1, 30))).tolist())
            with torch.no_grad():
                values = token_logprobs(model, pack([prompt + tokens])).values[len(prompt) :].numpy()
            logprobs = tuple((values + noise * random.standard_normal(len(tokens))).tolist())
            rollouts.append(Rollout(index, prompt, tokens, logprobs, ((0, 0),), "stop", index))
        made.append(Group(number, {"id": str(number)}, prompt, tuple(rollouts), ("",) * size, (), None))
        rewards.append(random.choice([0.0, 0.1, 1.0], size).tolist())
    return made, rewards


def gradient(model, chosen, rewards, objective):
    tally = Tally()
    model.zero_grad(set_to_none=True)
    _mini_batch(model, chosen, rewards, objective, tally)
    found = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    model.zero_grad(set_to_none=True)
    return found, tally


def changed(objective, **values):
    fields = {name: getattr(objective, name) for name in Objective.__slots__}
    return Objective(**fields | values)


@given(
    st.integers(10, 400),
    st.sampled_from(["group", "token", "sample"]),
    st.sampled_from(["minibatch", "group", "none"]),
    st.integers(0, 50),
)
@settings(max_examples=15, deadline=None)
def test_any_split_into_micro_batches_gives_the_same_gradient(model, micro_tokens, loss_norm, advantage_norm, seed):
    chosen, rewards = groups(model, seed=seed, noise=0.3)
    objective = changed(RECIPE, loss_norm=loss_norm, advantage_norm=advantage_norm)
    whole, one = gradient(model, chosen, rewards, objective)
    split, many = gradient(model, chosen, rewards, changed(objective, micro_tokens=micro_tokens))
    assert one.micro_batches == 1
    assert many.micro_batches >= 1
    assert torch.linalg.vector_norm(split - whole) <= 1e-5 * max(torch.linalg.vector_norm(whole).item(), 1e-3)
    assert many.loss == pytest.approx(one.loss, abs=1e-5)


def test_the_loss_is_that_of_the_recipe_written_out(model):
    """Mean over groups of 1 / (tokens of the group) times the sum of min(ratio * A, clip(ratio) * A)."""
    chosen, rewards = groups(model, noise=0.4)
    _, tally = gradient(model, chosen, rewards, RECIPE)
    flat = np.array(rewards) - np.mean(rewards, axis=1, keepdims=True)
    advantage = (flat - flat.mean()) / flat.std()
    expected = 0.0
    for group, row in zip(chosen, advantage, strict=True):
        total = 0.0
        for rollout, a in zip(group.rollouts, row, strict=True):
            with torch.no_grad():
                new = token_logprobs(model, pack([group.prompt + rollout.tokens])).values[len(group.prompt) :].numpy()
            ratio = np.exp(new - np.array(rollout.logprobs))
            total += np.minimum(ratio * a, np.clip(ratio, 0.8, 1.28) * a).sum()
        expected += total / group.num_tokens / len(chosen)
    assert tally.loss == pytest.approx(-expected, abs=1e-5)
    metrics = tally.metrics()
    assert 0 < metrics["clip_low"] < 1
    assert 0 < metrics["clip_high"] < 1


def test_prompts_do_not_train(model):
    chosen, rewards = groups(model, count=2)
    _, tally = gradient(model, chosen, rewards, RECIPE)
    assert sum(len(part) for part in tally.entropies) == sum(group.num_tokens for group in chosen)
    assert tally.metrics()["ratio_max"] == pytest.approx(1, abs=1e-5)


def test_each_mini_batch_is_one_optimizer_step(tiny_model_dir):
    model = load_model(str(tiny_model_dir), dtype=torch.float32)
    use_packed_attention(model)
    optimizer = optim.adamw(model, lr=1e-3, weight_decay=0.0)
    chosen, rewards = groups(model, count=6)
    tally = update(model, optimizer, chosen, RECIPE, groups_per_step=2, rewards=rewards)
    assert len(tally.norms) == 3
    assert {int(state["step"]) for state in optimizer.state.values()} == {3}
    assert tally.seconds > 0
    assert set(tally.advantages) == set(range(6))


def test_a_gradient_that_is_not_finite_is_skipped(tiny_model_dir):
    model = load_model(str(tiny_model_dir), dtype=torch.float32)
    use_packed_attention(model)
    chosen, rewards = groups(model, count=2)
    with torch.no_grad():
        model.model.norm.weight[0] = math.nan
    before = model.lm_head.weight.clone()
    optimizer = optim.adamw(model, lr=1e-3, weight_decay=0.0)
    tally = update(model, optimizer, chosen, RECIPE, groups_per_step=1, rewards=rewards)
    assert (tally.skipped, tally.norms) == (2, [])
    assert tally.metrics()["grad_norm"] is None
    assert torch.equal(model.lm_head.weight, before)


@given(st.lists(st.lists(st.floats(0, 1), min_size=2, max_size=8), min_size=1, max_size=5), st.integers(0, 99))
def test_shuffled_rewards_stay_in_their_group(rewards, seed):
    found = shuffled(rewards, [seed, 1])
    assert [sorted(group) for group in found] == [sorted(group) for group in rewards]
    assert found == shuffled(rewards, [seed, 1])
