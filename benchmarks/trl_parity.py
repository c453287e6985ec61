"""Loss and gradient against TRL's GRPOTrainer on the same rollouts, rewards and weights, in float32.

TRL's code is unchanged: it gets the fixed rollouts by ``rollout_func`` and the rewards by a reward function, and
``compute_loss`` returns the loss. The sampler's log-probs, with noise so that both clips take effect, are the old
policy on both sides. Lengths, prompts and rewards vary, so that a wrong normalisation cannot pass.
"""

import os
import random
import sys
import tempfile
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from math import fsum
from statistics import pstdev, stdev
from typing import Any

from torch import Tensor
from transformers import PreTrainedModel

from benchmarks.downloads import ROOT, TRL_TITLE, hide_vllm, trl_path
from benchmarks.models import SMOLLM2_135M, random_llama
from magcli.choices import AdvantageNorm, LossNorm
from magcli.generate.torch.engine import Engine
from magcli.generate.types import Rollout, Sampling
from magcli.model.load import load_tokenizer
from magcli.rl.algorithm import advantages, token_weights
from magcli.rl.objective import TrainingSample, micro_batch_loss
from magcli.rl.types import Objective
from magcli.train.attention import use_packed_attention
from magcli.train.packing import greedy_collate

TOLERANCE = 1e-4
"""Largest allowed difference: of losses, and of gradients relative to the largest element and to the norm."""
CLIP_LOW, CLIP_HIGH = 0.2, 0.28
TRL_EPSILON = 1e-4
"""Added by TRL to the standard deviation that it divides by."""
MICRO_TOKENS = 256
SHIFT = 0.3
"""Standard deviation of the noise on log-probs: about a third of the ratios leave the clip range."""
LONGEST = 32
VOCABULARY = 512
"""Prompts use the first tokens of the vocabulary, completions all."""


@dataclass(frozen=True, slots=True)
class Norms:
    """A normalisation in TRL's options and one in magcli's."""

    loss_type: str
    scale_rewards: str
    loss_norm: LossNorm
    advantage_norm: AdvantageNorm

    def __str__(self) -> str:
        return f"TRL {self.loss_type}/{self.scale_rewards}, magcli {self.loss_norm}/{self.advantage_norm}"


SAME = (
    Norms("dapo", "none", "token", "none"),
    Norms("grpo", "none", "sample", "none"),
    Norms("dapo", "batch", "token", "minibatch"),
)
DIFFERENT = Norms("dapo", "none", "group", "none")
"""The recipe's normalisation, which TRL lacks."""


@dataclass(frozen=True, slots=True)
class Case:
    """Shape of the model, number of rollouts, temperature, and normalisations that must agree or differ."""

    name: str
    shape: Mapping[str, int]
    groups: int
    group: int
    temperature: float
    same: Sequence[Norms] = SAME
    different: Sequence[Norms] = (DIFFERENT,)


SMALL = {
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 512,
}
CASES = (
    Case("a small model", SMALL, groups=4, group=8, temperature=1.0),
    Case("a small model", SMALL, groups=4, group=8, temperature=0.7),
    Case("SmolLM2-135M's shape", SMOLLM2_135M, groups=3, group=4, temperature=0.7, same=SAME[:1], different=()),
)


@dataclass(frozen=True, slots=True)
class Batch:
    """Fixed rollouts, group after group, with log-probs of the old policy, and their rewards."""

    rollouts: Sequence[Rollout]
    rewards: Sequence[float]
    groups: Sequence[int]


@dataclass(frozen=True, slots=True)
class Side:
    """A loss and its gradient by parameter name."""

    loss: float
    gradient: Mapping[str, Tensor]


@dataclass(frozen=True, slots=True)
class Gap:
    """Differences of losses and of gradients, the latter relative to the largest element and to the norm."""

    loss: float
    largest: float
    norm: float

    def __str__(self) -> str:
        return f"loss {self.loss:.1e}, gradient {self.largest:.1e} of its largest element, {self.norm:.1e} of its norm"


def run() -> None:
    """Compare both sides in all cases.

    Raises:
        AssertionError: they differ, or a normalisation that TRL lacks gives the same gradient.
    """
    sys.path.insert(0, trl_path())
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
    hide_vllm()
    print(f"trl-parity: against {TRL_TITLE}", flush=True)
    for case in CASES:
        model = _model(case.shape)
        batch = _batch(model, case)
        for norms in case.same:
            gap = _gap(case, model, batch, norms)
            assert max(gap.loss, gap.largest, gap.norm) <= TOLERANCE, f"trl-parity: {case.name}, {norms}: {gap}"
        for norms in case.different:
            gap = _gap(case, model, batch, norms)
            assert gap.norm > 100 * TOLERANCE, f"trl-parity: {case.name}, {norms}: no difference: {gap}"


def _gap(case: Case, model: PreTrainedModel, batch: Batch, norms: Norms) -> Gap:
    factor = _factor(batch, norms)
    ours = _magcli(model, batch, norms, case.temperature)
    theirs = _trl(model, batch, norms, case)
    scale = max(gradient.abs().max().item() for gradient in theirs.gradient.values())
    differences = {name: factor * ours.gradient[name] - gradient for name, gradient in theirs.gradient.items()}
    largest = max(difference.abs().max().item() for difference in differences.values())
    gap = Gap(abs(factor * ours.loss - theirs.loss), largest / scale, _norm(differences) / _norm(theirs.gradient))
    print(
        f"trl-parity: {case.name}, temperature {case.temperature}, {norms} times {factor:.4f}: "
        f"loss {theirs.loss:.5f}; differences: {gap}",
        flush=True,
    )
    return gap


def _norm(gradient: Mapping[str, Tensor]) -> float:
    return fsum(part.double().square().sum().item() for part in gradient.values()) ** 0.5


def _factor(batch: Batch, norms: Norms) -> float:
    """The known ratio of TRL's loss to magcli's.

    TRL's ``batch`` divides by the sample standard deviation of the rewards, magcli's ``minibatch`` by the population
    standard deviation of the centred rewards.
    """
    if norms.scale_rewards != "batch":
        return 1.0
    centred = advantages(batch.rewards, batch.groups, norm="none")
    return pstdev(centred) / (stdev(batch.rewards) + TRL_EPSILON)


def _magcli(model: PreTrainedModel, batch: Batch, norms: Norms, temperature: float) -> Side:
    model = deepcopy(model)
    use_packed_attention(model)
    objective = Objective(
        clip_low=CLIP_LOW,
        clip_high=CLIP_HIGH,
        advantage_norm=norms.advantage_norm,
        loss_norm=norms.loss_norm,
    )
    values = advantages(batch.rewards, batch.groups, norm=norms.advantage_norm)
    weights = token_weights([len(rollout.tokens) for rollout in batch.rollouts], batch.groups, norm=norms.loss_norm)
    samples = [
        TrainingSample(rollout.prompt, rollout, advantage, weight, temperature)
        for rollout, advantage, weight in zip(batch.rollouts, values, weights.tolist(), strict=True)
    ]
    parts = greedy_collate([sample.length for sample in samples], MICRO_TOKENS)
    assert len(parts) > 1
    total = 0.0
    for indices in parts:
        loss, _ = micro_batch_loss(model, [samples[index] for index in indices], objective, bf16=False)
        loss.backward()
        total += loss.item()
    return Side(total, _gradient(model))


def _trl(model: PreTrainedModel, batch: Batch, norms: Norms, case: Case) -> Side:
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    model, count = deepcopy(model), len(batch.rollouts)
    with tempfile.TemporaryDirectory() as folder:
        trainer = GRPOTrainer(
            model=model,
            processing_class=load_tokenizer(str(ROOT / "examples" / "model")),
            train_dataset=Dataset.from_list([{"prompt": "fixed"}] * count),
            reward_funcs=lambda **_: list(batch.rewards),
            rollout_func=lambda prompts, trainer: _as_trl(batch),
            args=GRPOConfig(
                output_dir=folder,
                per_device_train_batch_size=count,
                steps_per_generation=1,
                num_generations=case.group,
                max_completion_length=LONGEST,
                temperature=case.temperature,
                beta=0.0,
                epsilon=CLIP_LOW,
                epsilon_high=CLIP_HIGH,
                loss_type=norms.loss_type,
                scale_rewards=norms.scale_rewards,
                gradient_checkpointing=False,
                use_cpu=True,
                bf16=False,
                report_to=[],
            ),
        )
        model.train()
        trainer.current_gradient_accumulation_steps = 1
        inputs = trainer._generate_and_score_completions([{"prompt": "fixed"}] * count)
        inputs["old_per_token_logps"] = inputs["sampling_per_token_logps"]
        loss = trainer.compute_loss(model, inputs)
        loss.backward()
    return Side(loss.item(), _gradient(model))


def _as_trl(batch: Batch) -> dict[str, Any]:
    """The rollouts as a ``rollout_func`` of TRL returns them."""
    return {
        "prompt_ids": [list(rollout.prompt) for rollout in batch.rollouts],
        "completion_ids": [list(rollout.tokens) for rollout in batch.rollouts],
        "logprobs": [list(rollout.logprobs) for rollout in batch.rollouts],
    }


def _gradient(model: PreTrainedModel) -> dict[str, Tensor]:
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def _batch(model: PreTrainedModel, case: Case) -> Batch:
    """Rollouts of many lengths, sampled by the engine, with noise on their log-probs."""
    choose, count = random.Random(0), case.groups * case.group
    groups = [index // case.group for index in range(count)]
    prompts = [tuple(choose.choices(range(VOCABULARY), k=choose.randint(2, 12))) for _ in range(case.groups)]
    lengths = [choose.randint(1, LONGEST) for _ in range(count)]
    engine = Engine(deepcopy(model), slots=count, ends=())
    for index, length in enumerate(lengths):
        engine.submit(prompts[groups[index]], Sampling(length, case.temperature), [index])
    finished: dict[int, Rollout] = {}
    while engine.busy:
        finished |= dict(engine.step())
    rollouts = [
        replace(finished[index], logprobs=tuple(value + choose.gauss(0, SHIFT) for value in finished[index].logprobs))
        for index in range(count)
    ]
    rewards = [choose.choice((0.0, 0.1, 0.2, 1.0)) + 0.01 * choose.random() for _ in range(count)]
    return Batch(rollouts, rewards, groups)


def _model(shape: Mapping[str, int]) -> PreTrainedModel:
    """Random weights, larger than the usual initialisation, so that the distributions are not flat."""
    return random_llama(**shape, max_position_embeddings=256, initializer_range=0.05, pad_token_id=0)
