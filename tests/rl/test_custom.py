"""A user's own advantage and loss: they replace the built-in ones, and what is wrong with them is one line."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from magcli.errors import UsageError
from magcli.generate.types import Rollout
from magcli.model.load import load_model
from magcli.rl import algorithm
from magcli.rl.algorithm import Tokens
from magcli.rl.objective import TrainingSample, micro_batch_loss, plan
from magcli.rl.types import Group, Objective
from magcli.train.attention import use_packed_attention

EXAMPLE = Path(__file__).parents[2] / "examples" / "objective.py"
RECIPE = Objective(0.2, 0.28, "minibatch", "group")
MICRO_TOKENS = 10_000
SOURCE = """
import torch
from magcli.rl.algorithm import advantages, clipped_policy_loss

def same(rewards, groups):
    return advantages(rewards, groups, norm="minibatch")

def same_loss(tokens, clip_low, clip_high):
    return clipped_policy_loss(tokens, clip_low, clip_high)

def short(rewards, groups):
    return rewards[1:]

def infinite(rewards, groups):
    return [float("inf") for _ in rewards]

def words(rewards, groups):
    return ["many"] * len(rewards)

def broken(*arguments):
    raise ValueError("of no\\nuse")

def number(tokens, clip_low, clip_high):
    return 1.0

def scalar(tokens, clip_low, clip_high):
    return tokens.new.mean()

def constant(tokens, clip_low, clip_high):
    return tokens.advantage
"""


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "own_objective.py"
    path.write_text(SOURCE)
    return path


@pytest.fixture(scope="module")
def model(tiny_model_dir):
    model = load_model(str(tiny_model_dir), dtype=torch.float32)
    use_packed_attention(model)
    return model


def groups(size=4, count=3):
    random, made = np.random.default_rng(0), []
    for number in range(count):
        rollouts = []
        for index in range(size):
            tokens = tuple(random.integers(0, 100, int(random.integers(1, 30))).tolist())
            logprobs = tuple((random.standard_normal(len(tokens)) - 4.5).tolist())
            rollouts.append(Rollout(index, (3, 4), tokens, logprobs, ((0, 0),), "stop", index))
        made.append(Group(number, {"id": str(number)}, (3, 4), tuple(rollouts), ("",) * size, (), None))
    return made, [random.choice([0.0, 0.1, 1.0], size).tolist() for _ in range(count)]


def advantages_of(objective):
    advantages = plan(*groups(), objective, groups_per_step=3, micro_tokens=MICRO_TOKENS).advantages
    return [value for group in advantages.values() for value in group]


def gradient(model, objective):
    model.zero_grad(set_to_none=True)
    planned = plan(*groups(), replace(objective, advantage=""), groups_per_step=3, micro_tokens=MICRO_TOKENS)
    (batch,) = planned.mini_batches
    for samples in batch:
        micro_batch_loss(model, samples, objective, bf16=False).loss.backward()
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def test_an_advantage_replaces_the_built_in_one(source):
    built_in = advantages_of(RECIPE)
    assert advantages_of(replace(RECIPE, advantage=f"{source}:same")) == built_in
    own = advantages_of(replace(RECIPE, advantage=f"{EXAMPLE}:leave_one_out"))
    rewards = groups()[1]
    expected = [r - (sum(group) - r) / (len(group) - 1) for group in rewards for r in group]
    assert own == pytest.approx(expected)
    assert own != pytest.approx(built_in)


def test_a_loss_replaces_the_built_in_one(source, model):
    built_in = gradient(model, RECIPE)
    assert torch.equal(gradient(model, replace(RECIPE, loss=f"{source}:same_loss")), built_in)
    for name in ("cispo", "gspo"):
        own = gradient(model, replace(RECIPE, loss=f"{EXAMPLE}:{name}"))
        assert torch.linalg.vector_norm(own - built_in) > 0.01 * torch.linalg.vector_norm(built_in)


def test_a_sample_without_generated_tokens_never_reaches_the_loss(source, model):
    filler = TrainingSample((5,), Rollout(0, (5,), (), (), (), "stop", 0), 0.0, 0.0)
    loss, _ = micro_batch_loss(model, [filler], replace(RECIPE, loss=f"{source}:broken"), bf16=False)
    assert loss.item() == 0


@given(st.lists(st.tuples(st.integers(1, 5), st.floats(-1, 1)), min_size=1, max_size=5))
def test_the_loss_sees_which_completion_each_token_belongs_to(completions):
    """GSPO of one token each is the clipped loss; of more, all tokens of a completion share one ratio."""
    sequence = torch.tensor([index for index, (length, _) in enumerate(completions) for _ in range(length)])
    advantage = torch.tensor([value for _, value in completions])[sequence]
    new = torch.linspace(-2, -0.1, len(sequence))
    tokens = Tokens(new, torch.full_like(new, -1.0), advantage, sequence)
    loss = algorithm.custom_policy_loss(f"{EXAMPLE}:gspo", tokens, 0.2, 0.28)
    for index in range(len(completions)):
        assert len(set(loss[sequence == index].tolist())) == 1
    if len(sequence) == len(completions):
        expected = algorithm.clipped_policy_loss(tokens, 0.2, 0.28)
        torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("short", "returned 3 values for 4 completions"),
        ("infinite", "returned inf, which is not finite"),
        ("words", "failed: ValueError: could not convert string to float: 'many'"),
        ("broken", "failed: ValueError: of no use"),
        ("missing", "has no function missing"),
    ],
)
def test_errors_of_an_advantage_function_are_one_line(name, message, source):
    with pytest.raises(UsageError) as error:
        algorithm.check_custom(f"{source}:{name}", "")
    text = str(error.value)
    assert text.startswith(f"advantage '{source}:{name}'")
    assert text.endswith(message)
    assert "\n" not in text


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("number", "returned float, expected a tensor"),
        ("scalar", "returned shape [], expected one value for each token [4]"),
        ("constant", "does not depend on tokens.new, so it has no gradient"),
        ("broken", "failed: ValueError: of no use"),
        ("SOURCE", "has no function SOURCE"),
    ],
)
def test_errors_of_a_loss_function_are_one_line(name, message, source):
    with pytest.raises(UsageError) as error:
        algorithm.check_custom("", f"{source}:{name}")
    text = str(error.value)
    assert text.startswith(f"loss '{source}:{name}'")
    assert text.endswith(message)
    assert "\n" not in text


def test_good_functions_pass(source):
    algorithm.check_custom(f"{source}:same", f"{source}:same_loss")
    algorithm.check_custom(f"{EXAMPLE}:leave_one_out", f"{EXAMPLE}:gspo")
    with pytest.raises(UsageError, match=r"loss 'no_such_module:f': no_such_module cannot be imported"):
        algorithm.check_custom("", "no_such_module:f")
