"""The losses of ``--loss`` against TRL's and verl's own code, on the same random log-probs, advantages and masks.

From TRL it is ``_compute_loss`` of ``GRPOTrainer`` and ``RLOOTrainer``, with log-probs in place of a model; from verl
the policy losses, aggregations and advantages of ``core_algos``. Both are unchanged. Lengths vary, and the log-probs of
the old policy are far enough from the new ones for both clipping bounds to take effect.

``python -m benchmarks.loss_parity`` writes the values of a small batch, which the tests compare without these packages.
"""

import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from benchmarks.downloads import ROOT, TRL_RELEASE, VERL_RELEASE, hide_vllm, trl_path, verl_path
from magcli.choices import AdvantageNorm
from magcli.rl.algorithm import Tokens, advantages, token_weights, weighted_loss
from magcli.rl.losses import LOSSES, Loss

VALUES = ROOT / "tests" / "rl" / "peer_losses.json"
"""What the peers compute on the small batch."""
TOLERANCE = 1e-5
"""Largest allowed difference of losses and of advantages, and of gradients relative to the largest element."""
MAX_TOKENS = 12
"""The limit of completions, by which Dr. GRPO divides."""
SHIFT = 0.3
"""Standard deviation of the difference of old and new log-probs."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A mini-batch: the log-probs of each completion's tokens under both policies, its reward, and its group."""

    new: list[list[float]]
    old: list[list[float]]
    rewards: list[float]
    groups: list[int]

    @property
    def lengths(self) -> list[int]:
        """The tokens of each completion."""
        return [len(logprobs) for logprobs in self.new]

    def on_policy(self) -> "Batch":
        """The same batch, sampled by the new policy."""
        return Batch(self.new, self.new, self.rewards, self.groups)


@dataclass(frozen=True, slots=True)
class Value:
    """A loss, and its gradient with respect to each token's new log-prob, completion after completion."""

    loss: float
    gradient: list[float]


@dataclass(frozen=True, slots=True)
class Padded:
    """A batch with a row for each completion, padded on the right, ``[completions, tokens]``."""

    new: Tensor
    old: Tensor
    mask: Tensor
    advantages: Tensor

    def value(self, loss: Tensor) -> Value:
        """A loss of ``new`` with its gradient at the tokens."""
        (gradient,) = torch.autograd.grad(loss, self.new)
        return Value(loss.item(), gradient[self.mask.bool()].tolist())


PeerLoss = Callable[[str, Padded], Value]


def random_batch(seed: int, *, groups: int, size: int) -> Batch:
    """A batch with completions of 1 to ``MAX_TOKENS`` tokens, and groups with different rewards."""
    random = np.random.default_rng(seed)
    lengths = random.integers(1, MAX_TOKENS + 1, groups * size)
    old = [np.round(-random.exponential(1.0, length), 4) for length in lengths]
    new = [np.round(logprobs + random.normal(0, SHIFT, len(logprobs)), 4) for logprobs in old]
    rewards = [*([1.0, 0.0] * (size // 2)), *random.choice([0.0, 0.1, 1.0], (groups - 1) * size)]
    return Batch(
        [logprobs.tolist() for logprobs in new],
        [logprobs.tolist() for logprobs in old],
        [float(reward) for reward in rewards],
        [index // size for index in range(groups * size)],
    )


def magcli_advantages(batch: Batch, norm: AdvantageNorm) -> list[float]:
    """Those of magcli."""
    return advantages(batch.rewards, batch.groups, norm=norm, lengths=batch.lengths)


def magcli_value(name: str, batch: Batch) -> Value:
    """The loss of magcli."""
    loss = LOSSES[name]
    lengths = torch.tensor(batch.lengths)
    new = torch.tensor(_flat(batch.new), requires_grad=True)
    advantage = torch.tensor(magcli_advantages(batch, loss.advantage_norm)).repeat_interleave(lengths)
    sequence = torch.arange(len(lengths)).repeat_interleave(lengths)
    weights = token_weights(batch.lengths, batch.groups, norm=loss.loss_norm, max_tokens=MAX_TOKENS)
    tokens = Tokens(new, torch.tensor(_flat(batch.old)), advantage, sequence)
    total = weighted_loss(weights[sequence], loss.policy_loss(tokens, loss.clip_low, loss.clip_high))
    (gradient,) = torch.autograd.grad(total, new)
    return Value(total.item(), gradient.tolist())


def _flat(values: Sequence[Sequence[float]]) -> list[float]:
    return [value for part in values for value in part]


def padded(name: str, batch: Batch) -> Padded:
    """A batch with magcli's advantages, as the peers take it."""
    new = pad_sequence([torch.tensor(logprobs) for logprobs in batch.new], batch_first=True)
    old = pad_sequence([torch.tensor(logprobs) for logprobs in batch.old], batch_first=True)
    mask = pad_sequence([torch.ones(length) for length in batch.lengths], batch_first=True)
    values = torch.tensor(magcli_advantages(batch, LOSSES[name].advantage_norm))
    return Padded(new.requires_grad_(), old, mask, values)


TRL_LOSSES = {
    "grpo": ("grpo", "token"),
    "dr-grpo": ("dr_grpo", "token"),
    "dapo": ("dapo", "token"),
    "gspo": ("grpo", "sequence"),
    "cispo": ("cispo", "token"),
}
"""TRL's ``loss_type`` and ``importance_sampling_level``."""

VERL_LOSSES = {
    "grpo": ("vanilla", "seq-mean-token-mean"),
    "dr-grpo": ("vanilla", "seq-mean-token-sum-norm"),
    "dapo": ("vanilla", "token-mean"),
    "gspo": ("gspo", "seq-mean-token-mean"),
    "cispo": ("cispo", "token-mean"),
    "rloo": ("vanilla", "token-mean"),
    "reinforce++": ("vanilla", "token-mean"),
}
"""verl's ``loss_mode`` and ``loss_agg_mode``."""


def trl_value(name: str, batch: Padded) -> Value:
    """The loss of ``GRPOTrainer``."""
    from trl import GRPOTrainer

    loss_type, level = TRL_LOSSES[name]
    loss = LOSSES[name]
    trainer = SimpleNamespace(
        **vars(_trainer(batch, loss)),
        loss_type=loss_type,
        importance_sampling_level=level,
        args=SimpleNamespace(delta=None, steps_per_generation=1),
        # of CISPO it is the largest ratio itself
        epsilon_high=loss.clip_high + (loss_type == "cispo"),
        max_completion_length=MAX_TOKENS,
        current_gradient_accumulation_steps=1,
        top_entropy_quantile=1.0,
        off_policy_mask_threshold=None,
        use_vllm=False,
        _entropy_bonus_enabled=False,
    )
    inputs = _inputs(batch) | {"old_per_token_logps": batch.old, "num_items_in_batch": batch.mask.sum()}
    return batch.value(GRPOTrainer._compute_loss(trainer, None, inputs))


def trl_rloo_gradient(batch: Padded) -> list[float]:
    """The gradient of ``RLOOTrainer``'s loss, per token as magcli's: TRL divides by the number of completions."""
    from trl import RLOOTrainer

    trainer = SimpleNamespace(**vars(_trainer(batch, LOSSES["rloo"])), epsilon_high=LOSSES["rloo"].clip_high)
    inputs = _inputs(batch) | {"old_logps": (batch.old * batch.mask).sum(1)}
    gradient = batch.value(RLOOTrainer._compute_loss(trainer, None, inputs)).gradient
    return [value * len(batch.mask) / batch.mask.sum().item() for value in gradient]


def _trainer(batch: Padded, loss: Loss) -> SimpleNamespace:
    """What ``_compute_loss`` of both trainers reads of its trainer."""
    scored = batch.new, torch.zeros_like(batch.old), None
    one_process = SimpleNamespace(
        num_processes=1, gather=lambda values: values, reduce=lambda values, reduction: values
    )
    return SimpleNamespace(
        _get_per_token_logps_and_entropies=lambda *_, **__: scored,
        accelerator=one_process,
        model=SimpleNamespace(training=True),
        epsilon_low=loss.clip_low,
        beta=0.0,
        aux_loss_enabled=False,
        _metrics=defaultdict(lambda: defaultdict(list)),
    )


def _inputs(batch: Padded) -> dict[str, Tensor]:
    prompt = torch.ones(len(batch.mask), 1, dtype=torch.long)
    completion = torch.ones_like(batch.mask, dtype=torch.long)
    prompts = {"prompt_ids": prompt, "prompt_mask": prompt}
    return prompts | {"completion_ids": completion, "completion_mask": batch.mask, "advantages": batch.advantages}


def verl_value(name: str, batch: Padded) -> Value:
    """The policy loss of ``core_algos``."""
    from verl.trainer.ppo.core_algos import get_policy_loss_fn
    from verl.workers.config import ActorConfig

    mode, aggregation = VERL_LOSSES[name]
    loss = LOSSES[name]
    config = ActorConfig(
        strategy="fsdp",
        rollout_n=1,
        ppo_micro_batch_size_per_gpu=1,
        clip_ratio_low=loss.clip_low,
        clip_ratio_high=loss.clip_high,
        clip_ratio_c=1e9,  # verl's own second bound of ratios with negative advantages: off
    )
    config.global_batch_info["loss_scale_factor"] = MAX_TOKENS
    each = batch.advantages.unsqueeze(1) * batch.mask
    total, _ = get_policy_loss_fn(mode)(batch.old, batch.new, each, batch.mask, aggregation, config)
    return batch.value(total)


def verl_advantages(batch: Batch, norm: AdvantageNorm) -> list[float]:
    """The advantages of ``core_algos``; its standard deviations are those of a sample, magcli's of a population."""
    from verl.trainer.config import AlgoConfig
    from verl.trainer.ppo import core_algos

    mask = pad_sequence([torch.ones(length) for length in batch.lengths], batch_first=True)
    rewards = torch.zeros_like(mask)
    rewards[torch.arange(len(mask)), torch.tensor(batch.lengths) - 1] = torch.tensor(batch.rewards)
    index = np.array(batch.groups)
    if norm == "leave-one-out":
        values, _ = core_algos.compute_rloo_outcome_advantage(rewards, mask, index)
    elif norm == "global":
        values, _ = core_algos.compute_reinforce_plus_plus_outcome_advantage(rewards, mask, AlgoConfig(gamma=1.0))
    else:
        by_std = norm == "group"
        values, _ = core_algos.compute_grpo_outcome_advantage(rewards, mask, index, norm_adv_by_std_in_grpo=by_std)
    count = {"group": batch.groups.count(0), "global": sum(batch.lengths)}.get(norm)
    factor = 1.0 if count is None else (count / (count - 1)) ** 0.5
    return [value * factor for value in values[:, 0].tolist()]


VERL_NORMS: tuple[AdvantageNorm, ...] = ("none", "group", "leave-one-out", "global")


def gap(ours: Value, theirs: Value) -> float:
    """The larger difference: of losses, and of gradients relative to the largest element."""
    scale = max(map(abs, theirs.gradient))
    assert scale > 0, "all tokens are clipped"
    differences = [abs(our - their) for our, their in zip(ours.gradient, theirs.gradient, strict=True)]
    return max(abs(ours.loss - theirs.loss), max(differences) / scale)


def run() -> None:
    """Compare all losses and advantages on several batches.

    Raises:
        AssertionError: they differ, or a wrong loss would not be found.
    """
    _open_peers()
    print(f"loss-parity: against TRL {TRL_RELEASE} and verl {VERL_RELEASE}", flush=True)
    batches = [random_batch(seed, groups=6, size=8) for seed in range(5)]
    _compare_losses("TRL", trl_value, TRL_LOSSES, batches)
    _compare_losses("verl", verl_value, VERL_LOSSES, batches)
    _say("TRL", "rloo, gradient on policy", max(_rloo_gap(batch.on_policy()) for batch in batches))
    for norm in VERL_NORMS:
        differences = [
            abs(our - their)
            for batch in batches
            for our, their in zip(magcli_advantages(batch, norm), verl_advantages(batch, norm), strict=True)
        ]
        _say("verl", f"advantages, {norm}", max(differences))


def _compare_losses(peer: str, compute: PeerLoss, names: Iterable[str], batches: Sequence[Batch]) -> None:
    """Each of magcli's losses must be the peer's of that name, and none of the peer's others."""
    own: dict[str, float] = defaultdict(float)
    for batch in batches:
        theirs = {name: compute(name, padded(name, batch)) for name in names}
        for name in names:
            gaps = {other: gap(magcli_value(name, batch), value) for other, value in theirs.items()}
            own[name] = max(own[name], gaps.pop(name))
            nearest = min(gaps.values())
            assert nearest > 100 * TOLERANCE, f"loss-parity: {peer}, {name}: another loss is as near: {nearest}"
    for name, difference in own.items():
        _say(peer, name, difference)


def _rloo_gap(batch: Batch) -> float:
    ours = magcli_value("rloo", batch)
    return gap(ours, Value(ours.loss, trl_rloo_gradient(padded("rloo", batch))))


def _say(peer: str, subject: str, difference: float) -> None:
    print(f"loss-parity: {peer}, {subject}: largest difference {difference:.1e}", flush=True)
    assert difference <= TOLERANCE, f"loss-parity: {peer}, {subject}: {difference}"


def write(path: Path) -> None:
    """Write the values of the peers on a small batch."""
    _open_peers()
    batch = random_batch(0, groups=2, size=4)
    trl = {name: asdict(trl_value(name, padded(name, batch))) for name in TRL_LOSSES}
    verl = {name: asdict(verl_value(name, padded(name, batch))) for name in VERL_LOSSES}
    record: Mapping[str, Any] = {
        "batch": asdict(batch),
        "losses": {f"TRL {TRL_RELEASE}": trl, f"verl {VERL_RELEASE}": verl},
        "advantages": {norm: verl_advantages(batch, norm) for norm in VERL_NORMS},
        "rloo_gradient": trl_rloo_gradient(padded("rloo", batch.on_policy())),
    }
    path.write_text(json.dumps(_rounded(record)) + "\n")


def _rounded(value: Any) -> Any:
    """With numbers of seven digits, those of float32."""
    if isinstance(value, Mapping):
        return {key: _rounded(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_rounded(part) for part in value]
    return float(f"{value:.7g}") if isinstance(value, float) else value


def _open_peers() -> None:
    sys.path[:0] = [trl_path(), verl_path()]
    hide_vllm()


if __name__ == "__main__":
    write(VALUES)
