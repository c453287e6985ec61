import copy
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from training_ranks import InStep, on_ranks

from magcli.errors import MagError
from magcli.model.load import load_model
from magcli.train.attention import use_packed_attention
from magcli.train.commands import RankState
from magcli.train.controller import RankController
from magcli.train.distributed import Ranks
from magcli.train.optim import adamw
from magcli.train.sft import (
    PADDING,
    EvaluateLoss,
    Example,
    TrainStep,
    accumulate,
    default_step_tokens,
    num_targets,
    plan_steps,
    sft_loss,
    split_examples,
)
from magcli.train.shard import ShardedModel, shard


@pytest.fixture(scope="module")
def model(tiny_model_dir):
    model = load_model(str(tiny_model_dir), dtype=torch.float32)
    use_packed_attention(model)
    return model


def examples(count=12, seed=0):
    random = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        length = int(random.integers(3, 40))
        mask = random.random(length) < 0.6
        mask[0], mask[-1] = False, True
        found.append(Example(tuple(random.integers(0, 100, length).tolist()), tuple(mask.tolist())))
    return found


@given(st.lists(st.integers(1, 50), min_size=1, max_size=30), st.integers(1, 3), st.integers(1, 200), st.integers(0, 9))
def test_a_plan_uses_every_example_once_per_epoch(lengths, epochs, step_tokens, seed):
    steps = plan_steps(lengths, epochs=epochs, step_tokens=step_tokens, seed=seed)
    flat = [index for indices in steps for index in indices]
    for epoch in range(epochs):
        assert sorted(flat[epoch * len(lengths) : (epoch + 1) * len(lengths)]) == list(range(len(lengths)))
    for indices in steps:
        assert sum(lengths[i] for i in indices[:-1]) < step_tokens, "a step ends with the example that fills it"
    assert steps == plan_steps(lengths, epochs=epochs, step_tokens=step_tokens, seed=seed)


def test_another_seed_gives_another_order():
    assert plan_steps([1] * 20, epochs=1, step_tokens=5, seed=0) != plan_steps(
        [1] * 20, epochs=1, step_tokens=5, seed=1
    )


def test_the_loss_is_the_mean_over_target_tokens(model):
    chosen = examples()
    total, count = 0.0, 0
    for example in chosen:
        ids = torch.tensor([example.tokens])
        logits = _plain_logits(model, ids)
        values = logits.log_softmax(-1)[0, :-1].gather(1, ids[0, 1:, None])[:, 0]
        mask = torch.tensor(example.mask[1:])
        total -= values[mask].sum().item()
        count += int(mask.sum())
    assert measured(model, chosen) == pytest.approx(total / count, rel=1e-5)


def test_sft_loss_is_the_mean_over_targets():
    logprobs = torch.tensor([-1.0, -2.0, -4.0])
    mask = torch.tensor([False, True, True])
    assert sft_loss(logprobs, mask, total=2).item() == pytest.approx(3.0)
    weighted = sft_loss(logprobs, mask, total=4, weight=torch.tensor([9.0, 1.0, 3.0]))
    assert weighted.item() == pytest.approx(3.5)
    with pytest.raises(MagError, match="needs target tokens"):
        sft_loss(logprobs, mask, total=0)


def measured(model, chosen):
    (batches,) = split_examples(chosen, micro_tokens=1000)
    return EvaluateLoss(batches, num_targets(chosen), bf16=False).run(state_of(model))


def state_of(model, lr=1e-2):
    return RankState(Ranks(), ShardedModel(model), adamw(model, lr=lr, weight_decay=0.0), None)


def step(state, chosen, *, lr=1e-2, bf16=False):
    (batches,) = split_examples(chosen, micro_tokens=64)
    return TrainStep(batches, num_targets(chosen), lr, 1.0, bf16).run(state)


def _plain_logits(model, ids):
    plain = copy.deepcopy(model)
    plain.set_attn_implementation("eager")
    with torch.no_grad():
        return plain(input_ids=ids).logits


@given(st.integers(40, 500))
@settings(max_examples=8, deadline=None)
def test_any_split_into_micro_batches_gives_the_same_loss_and_gradient(model, micro_tokens):
    chosen = [*examples(8), Example((5, 6, 7, 8), (False, True, True, True), weight=3.0)]
    whole, split = _gradient(model, chosen, 10_000), _gradient(model, chosen, micro_tokens)
    assert split[0] == pytest.approx(whole[0], rel=1e-5)
    assert torch.linalg.vector_norm(split[1] - whole[1]) <= 1e-5 * torch.linalg.vector_norm(whole[1])


def _gradient(model, chosen, micro_tokens):
    model.zero_grad(set_to_none=True)
    (batches,) = split_examples(chosen, micro_tokens=micro_tokens)
    loss = accumulate(ShardedModel(model), batches, total=num_targets(chosen), bf16=False)
    gradient = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    model.zero_grad(set_to_none=True)
    return loss, gradient


def test_an_example_weight_equals_copies(model):
    one, other = examples(2)
    heavy = Example(one.tokens, one.mask, weight=3.0)
    weighted, copied = _gradient(model, [heavy, other], 1000), _gradient(model, [one, one, one, other], 1000)
    assert weighted[0] == pytest.approx(copied[0], rel=1e-5)
    assert torch.allclose(weighted[1], copied[1], rtol=1e-4, atol=1e-7)


def test_evaluation_leaves_no_gradient(model):
    model.zero_grad(set_to_none=True)
    measured(model, examples(3))
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("bf16", [False, True])
def test_steps_learn_their_examples(tiny_model_dir, bf16):
    model = load_model(str(tiny_model_dir), dtype=torch.float32)
    use_packed_attention(model)
    state, chosen = state_of(model), examples(3)
    losses = [step(state, chosen, bf16=bf16)[0] for _ in range(30)]
    assert losses[-1] < 0.5 * losses[0]
    assert all(parameter.dtype == torch.float32 for parameter in model.parameters())


def test_a_non_finite_gradient_changes_nothing(tiny_model_dir):
    model = load_model(str(tiny_model_dir), dtype=torch.float32)
    use_packed_attention(model)
    state = state_of(model)
    with torch.no_grad():
        model.model.norm.weight[0] = math.nan
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    loss, norm = step(state, examples(2))
    assert math.isnan(loss)
    assert norm is None
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor.view(torch.int32), before[name].view(torch.int32))


def learn(ranks, folder, recompute=False):
    """Three steps with evaluations on all ranks; returns their results and the weights on rank 0."""

    def open_state(ranks, bf16):
        model = load_model(str(folder), dtype=torch.float32)
        use_packed_attention(model)
        sharded = shard(model, ranks, checkpoint_activations=recompute)
        return RankState(ranks, sharded, adamw(model, lr=1e-3, weight_decay=0.0), None)

    controller, results = RankController(InStep(ranks)), []
    controller.open(open_state)
    for number, micro_tokens in enumerate((50, 80, 400)):  # 400: one micro-batch, and ranks that idle
        chosen = examples(9, seed=number)
        by_rank = split_examples(chosen, micro_tokens=micro_tokens, size=ranks.size, hidden=48)
        total = num_targets(chosen)
        results.append(controller.run([TrainStep(own, total, 1e-3, 1.0, False) for own in by_rank]))
        results.append(controller.run([EvaluateLoss(own, total, False) for own in by_rank]))
    return results, {name: tensor.clone() for name, tensor in controller.weights().items()}


@pytest.mark.parametrize("size", [2, 3])
def test_steps_of_several_ranks_are_those_of_one_process(tiny_model_dir, size):
    results, weights = learn(Ranks(), tiny_model_dir)
    found, found_weights = on_ranks(learn, tiny_model_dir, size == 3, size=size)[0]
    for ours, theirs in zip(found, results, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-4)
    for name, tensor in weights.items():
        torch.testing.assert_close(found_weights[name], tensor, rtol=1e-3, atol=1e-4)


@given(st.lists(st.integers(1, 60), min_size=1, max_size=20), st.integers(1, 5), st.integers(20, 200))
def test_every_example_goes_to_one_rank_and_all_have_equally_many_micro_batches(lengths, size, budget):
    chosen = [Example((index,) * length, (True,) * length) for index, length in enumerate(lengths)]
    by_rank = split_examples(chosen, micro_tokens=budget, size=size, hidden=48)
    assert len({len(own) for own in by_rank}) == 1
    given = [example for own in by_rank for batch in own for example in batch if example is not PADDING]
    assert sorted(given, key=lambda example: example.tokens) == chosen
    assert all(batch for own in by_rank for batch in own)


@pytest.mark.parametrize(("traces", "steps"), [(1, 1), (8, 8), (68, 8), (800, 8), (2000, 19)])
def test_a_small_table_has_several_steps_an_epoch(traces, steps):
    lengths = [150] * traces
    planned = plan_steps(lengths, epochs=1, step_tokens=default_step_tokens(sum(lengths)), seed=0)
    assert len(planned) == steps
