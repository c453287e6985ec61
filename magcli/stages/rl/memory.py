"""The memory of `magcli rl`: a trainer, and on the same card perhaps the engine that samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from magcli.model import compute
from magcli.model.model import Model
from magcli.model.shape import shape_of
from magcli.plan import fit, memory
from magcli.plan.engines import policy_engine
from magcli.plan.fit import Plan
from magcli.plan.memory import EnginePlan, TrainingPlan
from magcli.plan.ranks import BESIDE_TRAINER
from magcli.stages.rl.config import Config
from magcli.stages.rl.sharing import shares_base
from magcli.stages.shared import forecast, training
from magcli.stages.shared.forecast import Forecast
from magcli.stages.shared.run_sizes import options_in

if TYPE_CHECKING:
    from magcli.model.shape import ModelShape
    from magcli.plan.fit import Change
    from magcli.plan.machine import Card

PADDING = 1.1
"""Slots per token in the padded batches of sequences of similar length: the mean of uniform lengths."""


def plan_memory(config: Config, model: Model, longest_prompt: int = forecast.UNKNOWN_PROMPT) -> Forecast:
    """The memory of a run whose longest prompt has this many tokens.

    Raises:
        EnvironmentFault: the model's configuration is missing or damaged.
    """
    card = forecast.card_for(config)
    shape = shape_of(model)
    longest = min(longest_prompt + _largest(config, "max_tokens"), model.context)
    trainer = _trainer(config, model, shape, card, prompt=longest_prompt)
    plan = forecast.as_fast_as_fits(config, _with_engine(config, model, card, trainer, longest), card)
    changes = [
        fit.recomputation(plan),
        fit.smaller_micro_batches(plan, longest=longest),
        fit.fewer_sequences(plan, group=config.group_size),
        fit.offloaded_moments(plan),
        fit.adapters(plan, bf16_base=forecast.would_have_bf16_base(config, model, card)),
        _shared_base(config, model, card, plan, longest),
        fit.smaller_share(plan, total=card.total, longest=longest, ranks=config.tensor_parallel),
    ]
    stored = 1 + config.updates // config.trajectory_every if config.trajectory_every else 0
    disk = memory.disk_lines(trainer, checkpoints=config.keep_checkpoints, trajectory=stored)
    return Forecast("rl", plan, card, changes, disk)


def _shared_base(config: Config, model: Model, card: Card, plan: Plan, longest: int) -> Sequence[Change]:
    """The change to an engine on the trainer's frozen weights, where the embedded engine can have them."""
    with_lora = replace(config, lora=config.lora or fit.PROPOSED_RANK)
    if not shares_base(with_lora, model, on_gpu=card.is_gpu):
        return []
    engine = _embedded(config, model, card, plan.training.shape, longest)
    return fit.shared_base(plan, engine, group=config.group_size)


def as_planned(config: Config, forecast: Forecast) -> Config:
    """The options as in the forecast: activation checkpointing, vLLM's share of the GPU, and whether it sleeps."""
    plan = forecast.plan
    config = training.with_checkpointing_as_planned(config, plan)
    share = plan.share / forecast.card.total if plan.share else config.gpu_memory
    return replace(config, vllm_sleep="yes" if plan.sleeps else "no", gpu_memory=share)


def _largest(config: Config, option: str) -> int:
    """The largest value of a size among the run and its stages."""
    in_stages = [options_in(stage, config) for stage in config.stage]
    return max(int(getattr(sizes, option)) for sizes in (config, *in_stages))


def _trainer(config: Config, model: Model, shape: ModelShape, card: Card, *, prompt: int) -> TrainingPlan:
    """The trainer: completions of a group share their prompt, except in attention."""
    bf16 = forecast.trains_in_bf16(config, model, card)
    completion = _largest(config, "max_tokens")
    sample = completion + prompt / config.group_size
    all_tokens = round(_largest(config, "n_mini") * sample)
    teacher = Model.open(config.teacher) if config.teacher else None
    return TrainingPlan(
        shape,
        micro_tokens=min(max(config.micro_tokens, prompt + completion), all_tokens),
        on_gpu=card.is_gpu,
        bf16=bf16,
        ranks=config.fsdp_size or config.trainers,
        lora_rank=config.lora,
        bf16_base=training.has_bf16_base(config, model, bf16=bf16),
        offload_moments=config.offload == "moments" and card.is_gpu,
        activation_checkpointing=training.checkpoints_activations(config, on_gpu=card.is_gpu),
        padding=PADDING * (prompt + completion) / sample,
        scored=completion / sample,
        reference=config.kl > 0,
        loads_whole=training.loads_whole(model, config.trainers),
        teacher=shape_of(teacher) if teacher else None,
        bf16_teacher=teacher is not None and training.frozen_in_bf16(teacher, bf16=bf16),
    )


def _with_engine(config: Config, model: Model, card: Card, training: TrainingPlan, longest: int) -> Plan:
    """The trainer's card with the engine that is on it, if any."""
    if config.generators and card.is_gpu:
        return Plan(training)  # generators have cards of their own
    device = "cuda" if card.is_gpu else config.device
    exact = config.schedule == "sync"
    if policy_engine(config.engine, device, deterministic=exact) == "vllm":
        awake = Plan(training, share=_share(config, card, training.shape, longest) if card.is_gpu else 0)
        return replace(awake, sleeps=_sleeps(config, awake, card))
    return Plan(training, engine=_embedded(config, model, card, training.shape, longest))


def _share(config: Config, card: Card, shape: ModelShape, longest: int) -> int:
    """vLLM's bytes of the trainer's GPU."""
    if config.gpu_memory:
        return round(config.gpu_memory * card.total)
    ranks = config.tensor_parallel
    return fit.usual_share(shape, total=card.total, longest=longest, share=BESIDE_TRAINER, ranks=ranks)


def _sleeps(config: Config, awake: Plan, card: Card) -> bool:
    """Whether vLLM gives its share of the trainer's GPU back during updates: by default if both do not fit at once."""
    if not awake.share or config.vllm_sleep == "no":
        return False
    return config.vllm_sleep == "yes" or awake.peak > card.usable


def _embedded(config: Config, model: Model, card: Card, shape: ModelShape, longest: int) -> EnginePlan:
    """The embedded engine; on a CPU all generators together, as they share its memory."""
    exact = config.schedule == "sync"
    in_bf16 = config.dtype == "bf16"
    if config.dtype == "auto" and not exact:
        in_bf16 = card.is_gpu or compute.choose(model, config.device, "sampling").format == "bf16"
    slots = _largest(config, "n_async")
    copies = max(config.generators, 1)
    bounded = card.is_gpu and not exact
    share = round((config.gpu_memory or BESIDE_TRAINER) * card.total) if bounded else 0
    rank = config.lora if shares_base(config, model, on_gpu=card.is_gpu) else 0
    return EnginePlan(
        shape, slots, longest, in_bf16, card.is_gpu, packed=not exact, copies=copies, share=share, adapter_rank=rank
    )
