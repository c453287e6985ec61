import copy
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from magcli.errors import MagError
from magcli.generate.types import Rollout
from magcli.model.load import load_model
from magcli.rl.metrics import training_metrics
from magcli.rl.objective import TrainingSample, accumulate, micro_batch_loss, plan, with_proximal
from magcli.rl.trainer import compare, shuffled, update
from magcli.rl.types import Group, Numerics, Objective, UpdateMetrics
from magcli.train import optim
from magcli.train.attention import use_packed_attention
from magcli.train.commands import RankState
from magcli.train.controller import OneProcess, RankController
from magcli.train.logprobs import token_logprobs
from magcli.train.packing import pack
from magcli.train.shard import ShardedModel

RECIPE = Objective(0.2, 0.28, "minibatch", "group")
NUMERICS = Numerics(micro_tokens=10_000, max_norm=1.0, bf16=False)
LR = 1e-2
TAUGHT = replace(RECIPE, teacher=True)
EXTRAS = {"tis_cap": 1.5, "kl": 0.3, "entropy_bonus": 0.2}


@pytest.fixture(scope="module")
def model(tiny_model_dir):
    return trainable(tiny_model_dir)


@pytest.fixture(scope="module")
def reference(tiny_model_dir):
    """A frozen model whose weights are not those of ``model``."""
    return moved(trainable(tiny_model_dir), 0.02).requires_grad_(False)


def trainable(folder):
    model = load_model(str(folder), dtype=torch.float32)
    use_packed_attention(model)
    return model


def alone(model, optimizer, reference=None):
    """A trainer of one process."""
    controller = RankController(OneProcess())
    controller.open(lambda ranks, bf16: RankState(ranks, ShardedModel(model), optimizer, None, reference))
    return controller


def moved(model, by):
    """The model with noise in its weights."""
    noise = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += by * torch.randn(parameter.shape, generator=noise)
    return model


def groups(model, count=3, size=4, seed=0, noise=0.0, temperature=1.0):
    """Random rollouts with the log-probs that the model gives them, moved by ``noise``, and random rewards."""
    random = np.random.default_rng(seed)
    made, rewards = [], []
    for number in range(count):
        prompt = tuple(random.integers(0, 100, int(random.integers(2, 8))).tolist())
        rollouts = []
        for index in range(size):
            tokens = tuple(random.integers(0, 100, int(random.integers(1, 30))).tolist())
            with torch.no_grad():
                packed = pack([prompt + tokens])
                values = token_logprobs(model, packed, temperature=temperature).values[len(prompt) :].numpy()
            logprobs = tuple((values + noise * random.standard_normal(len(tokens))).tolist())
            rollouts.append(Rollout(index, prompt, tokens, logprobs, ((0, 0),), "stop", index))
        made.append(Group(number, {"id": str(number)}, prompt, tuple(rollouts), ("",) * size, (), None, temperature))
        rewards.append(random.choice([0.0, 0.1, 1.0], size).tolist())
    return made, rewards


def gradient(model, chosen, rewards, objective, reference=None, micro_tokens=NUMERICS.micro_tokens):
    """The gradient of one mini-batch, its loss, and the metrics of its micro-batches as those of an update."""
    model.zero_grad(set_to_none=True)
    planned = plan(chosen, rewards, objective, groups_per_step=len(chosen), micro_tokens=micro_tokens)
    (batch,) = planned.mini_batches
    loss, measured = accumulate(ShardedModel(model), batch, objective, bf16=False, reference=reference)
    accumulated = flat_gradient(model)
    model.zero_grad(set_to_none=True)
    return accumulated, loss, UpdateMetrics(measured)


def flat_gradient(model):
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def new_logprobs(model, group, rollout, temperature=1.0):
    with torch.no_grad():
        scored = token_logprobs(model, pack([group.prompt + rollout.tokens]), temperature=temperature)
    return scored.values[len(group.prompt) :].double().numpy(), scored.entropy[len(group.prompt) :].double().numpy()


def standardised(rewards):
    flat = np.array(rewards) - np.mean(rewards, axis=1, keepdims=True)
    return (flat - flat.mean()) / flat.std()


@given(
    st.integers(10, 400),
    st.sampled_from(["group", "token", "sample"]),
    st.sampled_from(["minibatch", "group", "none"]),
    st.fixed_dictionaries({name: st.sampled_from([0.0, value]) for name, value in EXTRAS.items()}),
    st.integers(0, 50),
)
@settings(max_examples=15, deadline=None)
def test_any_split_into_micro_batches_gives_the_same_gradient(
    model, reference, micro_tokens, loss_norm, advantage_norm, extras, seed
):
    chosen, rewards = groups(model, seed=seed, noise=0.3)
    objective = replace(RECIPE, loss_norm=loss_norm, advantage_norm=advantage_norm, **extras)
    whole, loss, one = gradient(model, chosen, rewards, objective, reference)
    split, sum_of_losses, many = gradient(model, chosen, rewards, objective, reference, micro_tokens)
    assert len(one.micro_batches) == 1 <= len(many.micro_batches)
    assert torch.linalg.vector_norm(split - whole) <= 1e-5 * max(torch.linalg.vector_norm(whole).item(), 1e-3)
    assert sum_of_losses == pytest.approx(loss, abs=1e-5)


def test_the_loss_is_that_of_the_recipe_written_out(model):
    """Mean over groups of 1 / (tokens of the group) times the sum of min(ratio * A, clip(ratio) * A)."""
    chosen, rewards = groups(model, noise=0.4)
    _, loss, measured = gradient(model, chosen, rewards, RECIPE)
    expected = 0.0
    for group, row in zip(chosen, standardised(rewards), strict=True):
        total = 0.0
        for rollout, a in zip(group.rollouts, row, strict=True):
            ratio = np.exp(new_logprobs(model, group, rollout)[0] - np.array(rollout.logprobs))
            total += np.minimum(ratio * a, np.clip(ratio, 0.8, 1.28) * a).sum()
        expected += total / group.num_tokens / len(chosen)
    assert loss == pytest.approx(-expected, abs=1e-5)
    metrics = training_metrics(measured)
    assert 0 < metrics["clip_low_share"] < 1
    assert 0 < metrics["clip_high_share"] < 1
    assert not {"importance_mean", "kl_reference"} & metrics.keys()


def test_a_teacher_gives_each_token_its_advantage(model, reference):
    """Each token: min(ratio * A, clip(ratio) * A) with A = log teacher - log policy, whatever the rewards are."""
    chosen, rewards = groups(model, noise=0.4, temperature=0.7)
    planned = plan(chosen, rewards, TAUGHT, groups_per_step=len(chosen), micro_tokens=NUMERICS.micro_tokens)
    assert planned.advantages == {}
    loss, measured = accumulate(ShardedModel(model), planned.mini_batches[0], TAUGHT, bf16=False, teacher=reference)
    model.zero_grad(set_to_none=True)
    expected, distances = 0.0, []
    for group in chosen:
        total = 0.0
        for rollout in group.rollouts:
            new = new_logprobs(model, group, rollout, 0.7)[0]
            a = new_logprobs(reference, group, rollout, 0.7)[0] - new
            ratio = np.exp(new - np.array(rollout.logprobs))
            total += np.minimum(ratio * a, np.clip(ratio, 0.8, 1.28) * a).sum()
            distances += (-a).tolist()
        expected += total / group.num_tokens / len(chosen)
    assert loss == pytest.approx(-expected, abs=1e-5)
    assert training_metrics(UpdateMetrics(measured))["kl_teacher"] == pytest.approx(np.mean(distances), abs=1e-5)


def test_on_policy_the_gradient_of_distillation_is_that_of_the_divergence(model, reference):
    """Over all possible completions of one token, each weighted by its probability."""
    prompt, vocabulary = (5, 6, 7), model.config.vocab_size
    every = [(*prompt, token) for token in range(vocabulary)]

    def logprobs(scorer):
        values = [token_logprobs(scorer, pack([tokens])).values[-1] for tokens in every]
        return torch.stack(values)

    new, taught = logprobs(model), logprobs(reference).detach()
    (new.exp() * (new - taught)).sum().backward()
    expected = flat_gradient(model)
    model.zero_grad(set_to_none=True)
    probs = new.detach().exp().tolist()
    samples = [
        TrainingSample(prompt, Rollout(0, prompt, (token,), (value,), ((0, 0),), "stop", 0), 0.0, probability)
        for token, (value, probability) in enumerate(zip(new.tolist(), probs, strict=True))
    ]
    accumulate(ShardedModel(model), [samples], TAUGHT, bf16=False, teacher=reference)
    found = flat_gradient(model)
    model.zero_grad(set_to_none=True)
    assert torch.linalg.vector_norm(found - expected) <= 1e-3 * torch.linalg.vector_norm(expected)


def test_the_extra_terms_are_those_written_out(model, reference):
    """Each token: min(proximal / sampler, C) * min(..new / proximal..) - kl * k3 + bonus * entropy."""
    chosen, rewards = groups(model, noise=0.8)
    old = moved(copy.deepcopy(model), 0.01)
    planned = plan(chosen, rewards, RECIPE, groups_per_step=len(chosen), micro_tokens=NUMERICS.micro_tokens)
    (batch,) = planned.mini_batches
    batch = [with_proximal(ShardedModel(old), samples, bf16=False) for samples in batch]
    objective = replace(RECIPE, **EXTRAS)
    loss, measured = accumulate(ShardedModel(model), batch, objective, bf16=False, reference=reference)
    model.zero_grad(set_to_none=True)
    expected, importances, penalties = 0.0, [], []
    for group, row in zip(chosen, standardised(rewards), strict=True):
        for rollout, a in zip(group.rollouts, row, strict=True):
            new, entropy = new_logprobs(model, group, rollout)
            proximal, known = new_logprobs(old, group, rollout)[0], new_logprobs(reference, group, rollout)[0]
            importance = np.minimum(np.exp(proximal - np.array(rollout.logprobs)), 1.5)
            ratio = np.exp(new - proximal)
            penalty = np.exp(known - new) - 1 - (known - new)
            terms = importance * np.minimum(ratio * a, np.clip(ratio, 0.8, 1.28) * a) - 0.3 * penalty + 0.2 * entropy
            expected += terms.sum() / group.num_tokens / len(chosen)
            importances, penalties = [*importances, *importance], [*penalties, *penalty]
    assert loss == pytest.approx(-expected, abs=1e-5)
    metrics = training_metrics(UpdateMetrics(measured))
    assert metrics["importance_mean"] == pytest.approx(np.mean(importances), rel=1e-4)
    assert metrics["kl_reference"] == pytest.approx(np.mean(penalties), rel=1e-4)


def test_prompts_do_not_train(model):
    chosen, rewards = groups(model, count=2)
    _, _, measured = gradient(model, chosen, rewards, RECIPE)
    assert sum(len(part.entropy) for part in measured.micro_batches) == sum(group.num_tokens for group in chosen)
    assert training_metrics(measured)["ratio_max"] == pytest.approx(1, abs=1e-5)


def test_each_mini_batch_is_one_optimizer_step(tiny_model_dir):
    model = trainable(tiny_model_dir)
    optimizer = optim.adamw(model, lr=1e-3, weight_decay=0.0)
    chosen, rewards = groups(model, count=6)
    measured = update(alone(model, optimizer), chosen, RECIPE, NUMERICS, groups_per_step=2, rewards=rewards, lr=LR)
    assert len(measured.norms) == 3
    assert {int(state["step"]) for state in optimizer.state.values()} == {3}
    assert measured.seconds > 0
    assert set(measured.advantages) == set(range(6))


def test_a_gradient_that_is_not_finite_is_skipped(tiny_model_dir):
    model = trainable(tiny_model_dir)
    chosen, rewards = groups(model, count=2)
    with torch.no_grad():
        model.model.norm.weight[0] = math.nan
    before = model.lm_head.weight.clone()
    optimizer = optim.adamw(model, lr=1e-3, weight_decay=0.0)
    measured = update(alone(model, optimizer), chosen, RECIPE, NUMERICS, groups_per_step=1, rewards=rewards, lr=LR)
    assert (measured.skipped, measured.norms) == (2, [])
    assert training_metrics(measured)["grad_norm"] is training_metrics(measured)["loss"] is None
    assert torch.equal(model.lm_head.weight, before)


def test_a_nan_loss_is_skipped_even_if_its_gradient_is_finite(tiny_model_dir):
    """One log-prob from the engine that is NaN: clamping takes the gradient of its token away, and hides it."""
    model = trainable(tiny_model_dir)
    chosen, rewards = groups(model, count=2)
    broken = chosen[1].rollouts[2]
    rollouts = list(chosen[1].rollouts)
    rollouts[2] = replace(broken, logprobs=(math.nan, *broken.logprobs[1:]))
    chosen[1] = replace(chosen[1], rollouts=tuple(rollouts))
    found, loss, _ = gradient(model, chosen[1:], rewards[1:], RECIPE)
    assert math.isnan(loss)
    assert found.isfinite().all()
    before = model.lm_head.weight.clone()
    optimizer = optim.adamw(model, lr=1e-3, weight_decay=0.0)
    measured = update(
        alone(model, optimizer), chosen[1:], RECIPE, NUMERICS, groups_per_step=1, rewards=rewards[1:], lr=LR
    )
    assert (measured.skipped, measured.norms, measured.losses) == (1, [], [])
    assert torch.equal(model.lm_head.weight, before)
    measured = update(alone(model, optimizer), chosen, RECIPE, NUMERICS, groups_per_step=1, rewards=rewards, lr=LR)
    assert (measured.skipped, len(measured.norms)) == (1, 1)
    assert math.isfinite(training_metrics(measured)["loss"])


def test_each_group_is_scored_at_its_temperature(model):
    """Log-probs sampled at 0.7 and at 1.3 in one batch: all ratios are 1."""
    cool, cool_rewards = groups(model, count=2, temperature=0.7)
    warm, warm_rewards = groups(model, count=2, seed=1, temperature=1.3)
    warm = [replace(group, number=group.number + 2) for group in warm]
    _, _, measured = gradient(model, [*cool, *warm], [*cool_rewards, *warm_rewards], RECIPE)
    metrics = training_metrics(measured)
    assert metrics["ratio_min"] == pytest.approx(1, abs=1e-4)
    assert metrics["ratio_max"] == pytest.approx(1, abs=1e-4)


def test_with_one_mini_batch_the_proximal_policy_is_the_policy(model):
    """The ratio is 1 wherever the sampler was, nothing is clipped, and what is truncated is the importance alone."""
    chosen, rewards = groups(model, noise=0.8)
    _, _, measured = gradient(model, chosen, rewards, replace(RECIPE, tis_cap=2.0))
    metrics = training_metrics(measured)
    assert metrics["ratio_min"] == metrics["ratio_max"] == 1.0
    assert metrics["clip_low_share"] == metrics["clip_high_share"] == 0.0
    assert torch.cat([part.importance for part in measured.micro_batches]).max().item() == pytest.approx(2.0)


def test_with_more_mini_batches_the_proximal_policy_is_that_before_the_first_step(tiny_model_dir):
    """The second mini-batch sees moved weights; its importance is that of the weights before they moved."""
    model = trainable(tiny_model_dir)
    chosen, rewards = groups(model, count=2, noise=0.3)
    objective = replace(RECIPE, tis_cap=100.0)
    expected = [
        np.exp(new_logprobs(model, group, rollout)[0] - np.array(rollout.logprobs))
        for group in chosen
        for rollout in group.rollouts
    ]
    optimizer = optim.adamw(model, lr=1e-3, weight_decay=0.0)
    measured = update(alone(model, optimizer), chosen, objective, NUMERICS, groups_per_step=1, rewards=rewards, lr=LR)
    got = torch.cat([part.importance for part in measured.micro_batches]).sort().values.numpy()
    np.testing.assert_allclose(got, np.sort(np.concatenate(expected)), rtol=1e-3)
    first, second = measured.micro_batches
    assert first.clips.log_ratio.abs().max() == 0
    assert second.clips.log_ratio.abs().max() > 1e-3


def test_the_kl_penalty_is_zero_for_an_equal_reference(model):
    chosen, rewards = groups(model)
    objective = replace(RECIPE, kl=0.5)
    with pytest.raises(MagError, match="needs the reference model"):
        gradient(model, chosen, rewards, objective)
    _, loss, measured = gradient(model, chosen, rewards, objective, model)
    assert training_metrics(measured)["kl_reference"] == pytest.approx(0, abs=1e-9)
    assert loss == pytest.approx(gradient(model, chosen, rewards, RECIPE)[1], abs=1e-6)


def test_a_kl_penalty_limits_drift_and_a_bonus_raises_entropy(tiny_model_dir):
    """Equal rewards teach nothing, so that each term works alone."""
    chosen, _ = groups(trainable(tiny_model_dir), count=2)
    rewards = [[0.0] * 4] * 2

    def trained(objective):
        model, start = moved(trainable(tiny_model_dir), 0.03), trainable(tiny_model_dir)
        optimizer = optim.adamw(model, lr=3e-3, weight_decay=0.0)
        updates = [
            update(
                alone(model, optimizer, start), chosen, objective, NUMERICS, groups_per_step=2, rewards=rewards, lr=LR
            )
            for _ in range(8)
        ]
        return training_metrics(updates[0]), training_metrics(updates[-1])

    first, last = trained(replace(RECIPE, kl=1.0))
    assert last["kl_reference"] < 0.5 * first["kl_reference"]
    first, last = trained(replace(RECIPE, entropy_bonus=1.0))
    assert last["entropy"] > first["entropy"] + 0.1


def test_the_mismatch_covers_only_sequences_of_this_version_before_the_first_step(tiny_model_dir):
    model = trainable(tiny_model_dir)
    chosen, rewards = groups(model, count=3)
    biased = [with_versions(group) for group in chosen]
    optimizer = optim.adamw(model, lr=1e-2, weight_decay=0.0)
    before = model.lm_head.weight.clone()
    controller = alone(model, optimizer)
    found = compare(controller, biased[:2], RECIPE, NUMERICS, rewards=rewards[:2], version=7)
    assert torch.equal(model.lm_head.weight, before)
    measured = update(controller, biased, RECIPE, NUMERICS, groups_per_step=2, rewards=rewards, lr=LR, version=7)
    assert not torch.equal(model.lm_head.weight, before)
    metrics = training_metrics(measured)
    expected = sum(len(rollout.tokens) for group in biased[:2] for rollout in group.rollouts[::2])
    assert metrics["mismatch_tokens"] == expected
    assert metrics["mismatch_p50"] == pytest.approx(0.25, abs=1e-4)
    assert metrics["mismatch_max"] == pytest.approx(0.25, abs=1e-4)
    assert metrics["mismatch_signed"] == pytest.approx(-0.25, abs=1e-4)
    assert found == pytest.approx({name: metrics[name] for name in metrics if name.startswith("mismatch")}, abs=1e-6)
    unknown = update(
        alone(model, optimizer), biased, RECIPE, NUMERICS, groups_per_step=3, rewards=rewards, lr=LR, version=8
    )
    assert training_metrics(unknown)["mismatch_tokens"] == 0


def with_versions(group):
    """Every other completion by version 7 alone, its log-probs a quarter too high; the others far off, begun by 6."""
    rollouts = []
    for rollout in group.rollouts:
        whole, half = rollout.index % 2 == 0, len(rollout.tokens) // 2
        shifted = tuple(value + (0.25 if whole else 5.0) for value in rollout.logprobs)
        spans = ((0, 7),) if whole else ((0, 6), (half, 7)) if half else ((0, 6),)
        rollouts.append(replace(rollout, logprobs=shifted, versions=spans))
    return replace(group, rollouts=tuple(rollouts))


def test_a_sample_without_generated_tokens_does_not_train(model, reference):
    """It fills up the micro-batches of a rank that has none left."""
    filler = TrainingSample((5,), Rollout(0, (5,), (), (), (), "stop", 0), 0.0, 0.0)
    objective = replace(RECIPE, **EXTRAS)
    loss, metrics = micro_batch_loss(model, [filler], objective, bf16=False, reference=reference, version=0)
    loss.backward()
    assert loss.item() == 0
    assert all(p.grad is None or not p.grad.any() for p in model.parameters())
    model.zero_grad(set_to_none=True)
    assert training_metrics(UpdateMetrics([metrics]))["mismatch_tokens"] == 0


@given(st.lists(st.lists(st.floats(0, 1), min_size=2, max_size=8), min_size=1, max_size=5), st.integers(0, 99))
def test_rewards_are_shuffled_within_their_group(rewards, seed):
    found = shuffled(rewards, [seed, 1])
    assert [sorted(group) for group in found] == [sorted(group) for group in rewards]
    assert found == shuffled(rewards, [seed, 1])
