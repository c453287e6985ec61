"""The named losses: against values of TRL's and verl's own code, and under every split into micro-batches.

``python -m benchmarks.loss_parity`` makes ``peer_losses.json``; ``python -m benchmarks loss-parity`` compares more.
"""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch
from calling import call_stage
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.loss_parity import VALUES, Batch, Value, gap, magcli_advantages, magcli_value
from magcli.config import field_types, options_of
from magcli.errors import UsageError
from magcli.generate.types import Rollout
from magcli.model.load import load_model
from magcli.rl.algorithm import Tokens
from magcli.rl.losses import LOSSES, loss_of
from magcli.rl.objective import TrainingSample, accumulate, micro_batch_loss, plan
from magcli.rl.types import Group, Objective
from magcli.stages.rl.config import Config, defaults
from magcli.train.attention import use_packed_attention
from magcli.train.shard import ShardedModel

RECORDED = json.loads(VALUES.read_text())
BATCH = Batch(**RECORDED["batch"])
PEERS = [(peer, name) for peer, values in RECORDED["losses"].items() for name in values]
TOLERANCE = 1e-5
OF_THE_LOSS = ("clip_low", "clip_high", "advantage_norm", "loss_norm")


def objective_of(name, **extras):
    loss = LOSSES[name]
    norms = loss.advantage_norm, loss.loss_norm
    return Objective(loss.clip_low, loss.clip_high, *norms, loss=name, max_tokens=30, **extras)


@pytest.mark.parametrize(("peer", "name"), PEERS)
def test_loss_and_gradient_are_those_of_the_peer(peer, name):
    recorded = Value(**RECORDED["losses"][peer][name])
    assert gap(magcli_value(name, BATCH), recorded) <= TOLERANCE
    others = [other for other in LOSSES if other not in (name, "magistral")]
    assert all(gap(magcli_value(other, BATCH), recorded) > 100 * TOLERANCE for other in others)


def test_every_loss_but_the_recipes_has_a_peer():
    assert {name for _, name in PEERS} == set(LOSSES) - {"magistral"}


@pytest.mark.parametrize("norm", RECORDED["advantages"])
def test_advantages_are_those_of_verl(norm):
    assert magcli_advantages(BATCH, norm) == pytest.approx(RECORDED["advantages"][norm], abs=TOLERANCE)


def test_on_policy_the_gradient_of_rloo_is_that_of_trl():
    ours = magcli_value("rloo", BATCH.on_policy())
    assert gap(ours, Value(ours.loss, RECORDED["rloo_gradient"])) <= TOLERANCE


def test_gspo_clips_whole_completions_and_counts_them():
    new = torch.tensor([-1.0, -0.5, -1.0, -1.0], requires_grad=True)
    old = torch.tensor([-1.0, -1.0, -1.0, -1.0])
    tokens = Tokens(new, old, torch.ones(4), torch.tensor([0, 0, 1, 1]))
    loss_of("gspo").policy_loss(tokens, 0.1, 0.1).sum().backward()
    assert (new.grad != 0).tolist() == [False, False, True, True]
    low, high = loss_of("gspo").is_clipped(tokens, 0.1, 0.1)
    assert (low.any().item(), high.tolist()) == (False, [True, True, False, False])


def test_cispo_keeps_the_gradient_of_tokens_beyond_the_cap():
    new = torch.tensor([-1.0, -1.0], requires_grad=True)
    tokens = Tokens(new, torch.tensor([-4.0, -1.0]), torch.ones(2), torch.zeros(2, dtype=torch.long))
    loss_of("cispo").policy_loss(tokens, 1.0, 4.0).sum().backward()
    assert new.grad.tolist() == [-5.0, -1.0]


def test_cispo_counts_the_tokens_beyond_the_cap_whatever_their_advantage():
    new = torch.zeros(4)
    old, signs = torch.tensor([-3.0, -3.0, -1.0, 1.0]), torch.tensor([1.0, -1.0, 1.0, -1.0])
    tokens = Tokens(new, old, signs, torch.arange(4))
    low, high = loss_of("cispo").is_clipped(tokens, 0.5, 4.0)
    assert (low.tolist(), high.tolist()) == ([False, False, False, True], [True, True, False, False])
    low, high = loss_of("grpo").is_clipped(tokens, 0.5, 4.0)
    assert (low.tolist(), high.tolist()) == ([False, False, False, True], [True, False, False, False])


@pytest.fixture(scope="module")
def model(tiny_model_dir):
    model = load_model(str(tiny_model_dir), dtype=torch.float32)
    use_packed_attention(model)
    return model


def groups(seed, size=4, count=3):
    random, made = np.random.default_rng(seed), []
    for number in range(count):
        rollouts = []
        for index in range(size):
            tokens = tuple(random.integers(0, 100, int(random.integers(1, 30))).tolist())
            logprobs = tuple((random.standard_normal(len(tokens)) - 4.5).tolist())
            rollouts.append(Rollout(index, (3, 4), tokens, logprobs, ((0, 0),), "stop", index))
        made.append(Group(number, {"id": str(number)}, (3, 4), tuple(rollouts), ("",) * size, (), None))
    return made, [random.permutation([0.0, 0.1, 1.0, 1.0]).tolist() for _ in range(count)]


def gradient(model, objective, seed, micro_tokens):
    model.zero_grad(set_to_none=True)
    (batch,) = plan(*groups(seed), objective, groups_per_step=3, micro_tokens=micro_tokens).mini_batches
    loss = accumulate(ShardedModel(model), batch, objective, bf16=False).loss
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]), loss


@pytest.mark.parametrize("name", LOSSES)
@settings(max_examples=3, deadline=None)
@given(st.integers(10, 300), st.sampled_from([0.0, 1.5]), st.integers(0, 50))
def test_any_split_into_micro_batches_gives_the_same_gradient(model, name, micro_tokens, tis_cap, seed):
    # wide bounds, so that the random log-probs leave tokens to GSPO
    objective = replace(objective_of(name, tis_cap=tis_cap), clip_low=0.9, clip_high=4.0)
    whole, loss = gradient(model, objective, seed, 10_000)
    split, sum_of_losses = gradient(model, objective, seed, micro_tokens)
    assert torch.linalg.vector_norm(whole) > 0
    assert torch.linalg.vector_norm(split - whole) <= 1e-4 * torch.linalg.vector_norm(whole)
    assert sum_of_losses == pytest.approx(loss, abs=1e-4)


@pytest.mark.parametrize("name", LOSSES)
def test_a_micro_batch_without_generated_tokens_has_no_loss(model, name):
    filler = TrainingSample((5,), Rollout(0, (5,), (), (), (), "stop", 0), 0.0, 0.0)
    loss, _ = micro_batch_loss(model, [filler], objective_of(name), bf16=False)
    loss.backward()
    assert loss.item() == 0


def test_the_default_is_the_recipe_and_the_help_names_all_losses():
    default = Config()
    assert default.loss == "magistral"
    assert not defaults(default).keys() & {"loss", *OF_THE_LOSS}
    assert [getattr(default, option) for option in OF_THE_LOSS] == [
        getattr(LOSSES["magistral"], option) for option in OF_THE_LOSS
    ]
    (option,) = [option for option in options_of(Config) if option.name == "loss"]
    assert set(LOSSES) <= set(re.findall(r"[\w+-]+", option.metadata["help"]))


@pytest.mark.parametrize("norm", ["advantage_norm", "loss_norm"])
def test_the_norms_of_all_losses_can_be_chosen_for_others(norm):
    assert {getattr(loss, norm) for loss in LOSSES.values()} <= set(get_args(field_types(Config)[norm]))


def test_an_unknown_name_is_refused_with_all_names(tmp_path):
    with pytest.raises(UsageError) as error:
        call_stage("rl", "nothing.jsonl", model="m", run=tmp_path / "run", loss="grop")
    assert str(error.value) == (
        "rl: --loss 'grop' is no name of a loss (magistral, grpo, dr-grpo, dapo, gspo, cispo, rloo, reinforce++), "
        "nor module:function"
    )


SMALL = {
    "updates": 2, "group_size": 8, "n_async": 32, "n_batch": 16, "max_tokens": 24, "lr": 1e-3, "bf16": "no",
    "dtype": "fp32", "system": Path("none"), "language": False, "schedule": "sync",
}  # fmt: skip


def test_a_run_records_its_loss_and_what_it_brings(guesser, threes, tmp_path):
    run = tmp_path / "run"
    call_stage("rl", threes, model=str(guesser), run=run, **SMALL, loss="gspo", clip_high=0.01)
    recorded = json.loads((run / "run.json").read_text())
    assert [recorded[option] for option in ("loss", *OF_THE_LOSS)] == ["gspo", 3e-4, 0.01, "group", "sample"]
    assert len((run / "metrics.jsonl").read_text().splitlines()) == 2
    with pytest.raises(UsageError, match=r"other settings: .*loss 'gspo' \(now 'cispo'\)"):
        call_stage("rl", threes, model=str(guesser), run=run, **SMALL, loss="cispo")


@pytest.fixture(scope="module")
def threes(tmp_path_factory):
    path = tmp_path_factory.mktemp("problems") / "threes.jsonl"
    rows = [{"id": letter, "prompt": f"{letter}?", "answer": "3"} for letter in "abcdefgh"]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path
