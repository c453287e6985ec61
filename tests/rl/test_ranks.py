"""RL updates by several ranks against those of one process."""

from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
import pytest
import torch
from calling import others_slow
from hypothesis import given, settings
from hypothesis import strategies as st
from training_ranks import InStep, on_ranks
from transformers import AutoModelForCausalLM

from magcli.errors import DataError
from magcli.generate.types import Rollout
from magcli.model.load import load_model, load_tokenizer
from magcli.rl.metrics import training_metrics
from magcli.rl.objective import TrainingSample
from magcli.rl.trainer import PADDING, compare, split_over_ranks, update
from magcli.rl.types import Group, Numerics, Objective
from magcli.train.attention import use_packed_attention
from magcli.train.commands import RankState
from magcli.train.controller import RankController
from magcli.train.distributed import Ranks
from magcli.train.logprobs import token_logprobs
from magcli.train.optim import adamw
from magcli.train.packing import pack
from magcli.train.shard import shard

RECIPE = Objective(0.2, 0.28, "minibatch", "group")
NUMERICS = Numerics(micro_tokens=120, max_norm=1.0, bf16=False)
EXTRAS = replace(RECIPE, tis_cap=2.0, kl=0.1, entropy_bonus=0.01, loss_norm="token", advantage_norm="group")
GSPO = Objective(0.01, 0.01, "global", "constant", tis_cap=2.0, loss="gspo", max_tokens=64)
"""A loss over whole completions, with the advantages and the normalisation of others."""
TAUGHT = replace(RECIPE, teacher=True)


def opened(folder):
    model = load_model(str(folder), dtype=torch.float32)
    use_packed_attention(model)
    return model


def share_of(ranks, folder, objective=RECIPE):
    """What a rank holds; the reference model is the model as it begins."""
    whole = shard(opened(folder), ranks)
    reference = opened(folder) if objective.kl else None
    teacher = another(folder) if objective.teacher else None
    optimizer = adamw(whole.model, lr=1e-3, weight_decay=0.0)
    return RankState(ranks, whole, optimizer, load_tokenizer(str(folder)), reference, teacher=teacher)


def another(folder):
    """The model with noise in its weights."""
    model, noise = opened(folder), torch.Generator().manual_seed(1)
    for parameter in model.requires_grad_(False).parameters():
        parameter += 0.05 * torch.randn(parameter.shape, generator=noise)
    return model


def groups(folder, count=5, size=4, seed=0):
    """Random rollouts with log-probs near the model's, and random rewards."""
    random, model = np.random.default_rng(seed), opened(folder)
    made, rewards = [], []
    for number in range(count):
        prompt = tuple(random.integers(0, 100, int(random.integers(2, 8))).tolist())
        rollouts = []
        for index in range(size):
            tokens = tuple(random.integers(0, 100, int(random.integers(1, 60))).tolist())
            with torch.no_grad():
                values = token_logprobs(model, pack([prompt + tokens])).values[len(prompt) :].numpy()
            logprobs = tuple((values + 0.1 * random.standard_normal(len(tokens))).tolist())
            rollouts.append(Rollout(index, prompt, tokens, logprobs, ((0, 7),), "stop", index))
        made.append(Group(number, {"id": str(number)}, prompt, tuple(rollouts), ("",) * size, (), None))
        rewards.append(random.choice([0.0, 0.1, 1.0], size).tolist())
    return made, rewards


def train(ranks, folder, objective, work):
    """``work(controller, groups, rewards)`` on all ranks."""
    controller = RankController(InStep(ranks))
    controller.open(lambda ranks, bf16: share_of(ranks, folder, objective))
    return work(controller, *groups(folder))


def two_updates(controller, chosen, rewards, *, objective):
    """Metrics and advantages of two updates, three optimizer steps each, then the weights."""
    measurements = []
    for number, rate in enumerate((1e-3, 5e-4)):
        measured = update(
            controller,
            chosen,
            objective,
            NUMERICS,
            groups_per_step=2,
            rewards=rewards,
            lr=rate,
            version=7 + number,
        )
        measurements.append((training_metrics(measured), measured.advantages, measured.norms))
    return measurements, {name: tensor.clone() for name, tensor in controller.weights().items()}


OBJECTIVES = {"recipe": RECIPE, "extras": EXTRAS, "gspo": GSPO, "teacher": TAUGHT}


@pytest.mark.parametrize(
    ("size", "loss"),
    others_slow(product((2, 3), OBJECTIVES), kept=[(2, "recipe"), (2, "gspo"), (3, "extras"), (3, "teacher")]),
)
def test_updates_of_several_ranks_are_those_of_one_process(tiny_model_dir, loss, size):
    objective = OBJECTIVES[loss]
    work = partial(two_updates, objective=objective)
    measurements, weights = train(Ranks(), tiny_model_dir, objective, work)
    found, found_weights = on_ranks(train, tiny_model_dir, objective, work, size=size)[0]
    for (metrics, advantages, norms), (ours, our_advantages, our_norms) in zip(measurements, found, strict=True):
        assert our_advantages == advantages
        assert our_norms == pytest.approx(norms, rel=1e-4)
        assert ours.keys() == metrics.keys()
        for name in metrics.keys() - {"micro_batches"}:
            assert ours[name] == pytest.approx(metrics[name], rel=1e-3, abs=2e-5), name
    assert found_weights.keys() == weights.keys()
    for name, tensor in weights.items():
        torch.testing.assert_close(found_weights[name], tensor, rtol=1e-3, atol=1e-4)


def mismatch(controller, chosen, rewards):
    """What engine and trainer make of the same tokens, and whether the weights stayed."""
    before = {name: tensor.clone() for name, tensor in controller.weights().items()}
    found = compare(controller, chosen, RECIPE, NUMERICS, rewards=rewards, version=7)
    same = all(torch.equal(before[name], tensor) for name, tensor in controller.weights().items())
    return found, same


def test_the_mismatch_of_several_ranks_is_that_of_one_process_and_changes_no_weight(tiny_model_dir):
    expected, _ = train(Ranks(), tiny_model_dir, RECIPE, mismatch)
    found, same = on_ranks(train, tiny_model_dir, RECIPE, mismatch)[0]
    assert found["mismatch_tokens"] == sum(group.num_tokens for group in groups(tiny_model_dir)[0])
    assert found == pytest.approx(expected, rel=1e-3, abs=2e-5)
    assert same


def spoil(controller, chosen, rewards):
    """An update one of whose samples has a log-prob that is no number: its rank alone sees it."""
    rollout = chosen[0].rollouts[0]
    bad = replace(rollout, logprobs=(float("nan"),) * len(rollout.tokens))
    chosen = [replace(chosen[0], rollouts=(bad, *chosen[0].rollouts[1:])), *chosen[1:]]
    before = {name: tensor.clone() for name, tensor in controller.weights().items()}
    measured = update(controller, chosen[:2], RECIPE, NUMERICS, groups_per_step=2, rewards=rewards[:2], lr=1.0)
    same = all(torch.equal(before[name], tensor) for name, tensor in controller.weights().items())
    measured_after = update(controller, chosen[1:3], RECIPE, NUMERICS, groups_per_step=2, rewards=rewards[1:3], lr=1e-3)
    return measured.skipped, len(measured.norms), same, measured_after.skipped, len(measured_after.norms)


def test_a_nan_loss_on_one_rank_is_skipped_and_counted(tiny_model_dir):
    assert on_ranks(train, tiny_model_dir, RECIPE, spoil)[0] == (1, 0, True, 0, 1)


def keep(controller, chosen, rewards, folder):
    """An update, a checkpoint, the model by itself, another update, back to the checkpoint."""
    update(controller, chosen, RECIPE, NUMERICS, groups_per_step=5, rewards=rewards, lr=1e-3)
    weights = {name: tensor.clone() for name, tensor in controller.weights().items()}
    controller.save(folder / "step-000001", {"step": 1})
    controller.save_model(folder / "model")
    update(controller, chosen, RECIPE, NUMERICS, groups_per_step=5, rewards=rewards, lr=1e-3)
    changed = any(not torch.equal(weights[name], tensor) for name, tensor in controller.weights().items())
    state = controller.load(folder / "step-000001")
    same = all(torch.equal(weights[name], tensor) for name, tensor in controller.weights().items())
    (folder / "step-000001" / "state.json").write_text("{}")
    with pytest.raises(DataError, match=r"state\.json is damaged"):
        controller.load(folder / "step-000001")
    return state, changed, same, weights


def kept(ranks, model_dir, folder):
    return train(ranks, model_dir, RECIPE, lambda *more: keep(*more, folder))


def test_checkpoints_and_models_are_written_and_read_by_all_ranks(tiny_model_dir, tmp_path):
    state, changed, same, weights = on_ranks(kept, tiny_model_dir, tmp_path)[0]
    assert (state, changed, same) == ({"step": 1}, True, True)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    assert loaded.dtype == torch.float32
    for name, tensor in loaded.state_dict().items():
        assert torch.equal(tensor, weights[name]), name


@given(
    st.lists(st.lists(st.integers(1, 80), min_size=1, max_size=12), min_size=1, max_size=4),
    st.integers(2, 5),
    st.integers(20, 300),
)
@settings(deadline=None)
def test_every_sample_goes_to_one_rank_and_ranks_have_equally_many_micro_batches(lengths, size, budget):
    batches = [[[sample(length, place) for place, length in enumerate(part)]] for part in lengths]
    shares = split_over_ranks(batches, size, budget, 48)
    assert len(shares) == size
    for number, batch in enumerate(batches):
        assert len({len(own[number]) for own in shares}) == 1
        dealt = [each for own in shares for samples in own[number] for each in samples if each is not PADDING]
        assert sorted(each.rollout.seed for each in dealt) == sorted(each.rollout.seed for each in batch[0])
        assert all(samples for own in shares for samples in own[number])


def sample(length, seed):
    return TrainingSample((1,), Rollout(0, (1,), (2,) * length, (0.0,) * length, ((0, 0),), "stop", seed), 1.0, 1.0)


def test_a_single_process_trains_by_itself(tiny_model_dir, tmp_path):
    state, changed, same, _ = kept(Ranks(), tiny_model_dir, tmp_path)
    assert (state, changed, same) == ({"step": 1}, True, True)
