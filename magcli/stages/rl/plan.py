"""What a run of `magcli rl` does where, in which formats, and whether it fits: from options, model and machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from magcli.cluster.open import address_for
from magcli.cluster.types import LOCAL
from magcli.generate.vllm.adapter import accepts
from magcli.model.model import Model
from magcli.model.shape import ModelShape, shape_of
from magcli.plan import fit, formats, memory
from magcli.plan.engines import Engines, may_be_replaced, policy_engine, starts_eager
from magcli.plan.fit import Free, Plan
from magcli.plan.forecast import Forecast
from magcli.plan.formats import Formats, TrainerPlan
from magcli.plan.memory import EnginePlan, TrainingPlan
from magcli.plan.ranks import ALONE, BESIDE_TRAINER, numbered
from magcli.stages.rl.config import Config, processes
from magcli.stages.shared import rank_weights
from magcli.stages.shared.forecast import UNKNOWN_PROMPT
from magcli.stages.shared.run_sizes import options_in

if TYPE_CHECKING:
    from magcli.choices import AskedEngine, EngineName, TransferName
    from magcli.plan.fit import Change
    from magcli.plan.machine import Card, Machine
    from magcli.plan.ranks import Processes

USUAL_MICRO_TOKENS = 16384
"""The tokens of a micro-batch where the options and the memory of a GPU do not say another number."""

PADDING = 1.1
"""Slots per token in the padded batches of sequences of similar length: the mean of uniform lengths."""


@dataclass(frozen=True, slots=True)
class RunPlan:
    """How a run trains and samples, and what memory and disk it takes; nothing in it is still to be decided.

    A replay does not open its ``engines``.
    """

    trainer: TrainerPlan
    engines: Engines
    forecast: Forecast
    is_replay: bool = False

    @classmethod
    def of(
        cls,
        config: Config,
        model: Model,
        machine: Machine,
        *,
        formats: Formats | None = None,
        longest_prompt: int = UNKNOWN_PROMPT,
        ranks: int = 0,
    ) -> RunPlan:
        """The plan of a run.

        Args:
            config, model, machine: what it follows from.
            formats: those of a run that has begun; by default those that are expected.
            longest_prompt: its tokens.
            ranks: how many trainer ranks go on after a loss; by default all.

        Raises:
            UsageError: GPUs would be idle, or there are fewer than engines.
            EnvironmentFault: there is no such GPU, or the model's configuration is missing or damaged.
        """
        basis = _basis(config, model, machine, formats, longest_prompt, ranks or config.trainers)
        forecast = _forecast(basis)
        engines = _engines(basis, forecast, machine)
        return cls(_trainer(basis, forecast), engines, forecast, is_replay=config.replay is not None)

    def text(self) -> str:
        """The plan in one line."""
        trainer, engines = self.trainer, self.engines
        if self.is_replay:
            return f"the run {trainer.text()}; it samples nothing"
        where = "on the cluster" if engines.elsewhere else f"on {', '.join(engines.devices)}"
        samples = f"samples by {engines.name} in {engines.dtype} {where}"
        if engines.number:
            samples += f", {engines.number} generators with weights by {engines.transfer}"
        if engines.sleeps:
            samples += ", asleep during updates"
        return f"the run {trainer.text()}; it {samples}"


@dataclass(frozen=True, slots=True)
class _Basis:
    """What a plan follows from, with what several of its parts need."""

    config: Config
    model: Model
    card: Card
    formats: Formats
    shape: ModelShape
    prompt: int
    ranks: int
    exact: bool
    asked: Processes

    @property
    def longest(self) -> int:
        """Tokens of the longest sequence, prompt included."""
        return min(self.prompt + self.largest("max_tokens"), self.model.context)

    def largest(self, option: str) -> int:
        """The largest value of a size among the run and its stages."""
        in_stages = [options_in(stage, self.config) for stage in self.config.stage]
        return max(int(getattr(sizes, option)) for sizes in (self.config, *in_stages))

    @property
    def base_in_bf16(self) -> bool:
        """Whether the frozen weights under adapters are, or would be, in bf16."""
        return formats.frozen_in_bf16(self.model, bf16=self.formats.bf16)


def _basis(config: Config, model: Model, machine: Machine, chosen: Formats | None, prompt: int, ranks: int) -> _Basis:
    card = machine.required_card()
    config = replace(config, device=machine.device)  # that of a card which is only planned for
    exact = config.schedule == "sync"
    if chosen is None:
        chosen = formats.expected(config.bf16, config.dtype, model, config.device, on_gpu=card.is_gpu, exact=exact)
    return _Basis(config, model, card, chosen, shape_of(model), prompt, ranks, exact, processes(config, ranks))


def _shares_base(basis: _Basis, rank: int, *, on_gpu: bool) -> bool:
    """Whether the embedded engine takes the weights under LoRA adapters of a ``rank`` from the trainer of its process.

    On a CPU it does not: there it keeps weights in a layout of their own, which is faster. Models for which magcli has
    no decoder of its own are loaded a second time.
    """
    if not (rank and on_gpu) or basis.config.generators or basis.exact or basis.model.decoder is None:
        return False
    # One tensor for both, so engine and trainer must want it in one format.
    return (basis.formats.dtype == "bf16") == basis.base_in_bf16


def _trainer(basis: _Basis, forecast: Forecast) -> TrainerPlan:
    """How each rank trains; activations are recomputed as in the forecast."""
    config, training_memory = basis.config, forecast.plan.training
    return TrainerPlan(
        basis.ranks,
        bf16=basis.formats.bf16,
        attention=formats.attention(config.attention, bf16=basis.formats.bf16),
        recomputes=training_memory.activation_checkpointing,
        micro_tokens=_micro_tokens(basis, training_memory),
        lora_rank=config.lora,
        lora_alpha=config.lora_alpha,
        bf16_base=training_memory.bf16_base,
        offloads_moments=config.offload == "moments",
        weight_decay=config.weight_decay,
    )


def _micro_tokens(basis: _Basis, planned: TrainingPlan) -> int:
    """The tokens of a micro-batch, at most: those of the options, or those that memory was planned for on a GPU."""
    if basis.config.micro_tokens or not basis.card.is_gpu:
        return basis.config.micro_tokens or USUAL_MICRO_TOKENS
    return planned.micro_tokens


def _engines(basis: _Basis, forecast: Forecast, machine: Machine) -> Engines:
    """Which engines sample, where, and how weights reach them."""
    config, asked = basis.config, basis.asked
    name = policy_engine(config.engine, asked.first_device, deterministic=basis.exact)
    elsewhere = config.generators > 0 and address_for(config.cluster) != LOCAL
    devices = _devices(asked, machine, elsewhere=elsewhere or config.replay is not None)
    on_base = name == "torch" and _shares_base(basis, config.lora, on_gpu=asked.on_gpu)
    adapter_rank = config.lora if on_base or (name == "vllm" and _takes_adapters(basis)) else 0
    transfer = _transfer(basis, sends_adapters=adapter_rank > 0, elsewhere=elsewhere)
    slots = basis.largest("n_async")
    # At least: groups that are dropped are sampled too.
    completions = config.updates * config.n_batch, basis.largest("max_tokens")
    return Engines(
        name,
        basis.formats.dtype,
        number=config.generators,
        slots=-(-slots // max(config.generators, 1)),  # generators share the completions; rounded up
        tensor_parallel=config.tensor_parallel,
        exact=basis.exact,
        trainer_device=config.device,
        devices=devices,
        idle=() if elsewhere else asked.idle_cards(machine.gpus, devices),
        elsewhere=elsewhere,
        share=_share_of_engine(basis, forecast, devices, elsewhere=elsewhere),
        transfer=transfer,
        ranks_send=basis.ranks > 1 and config.generators > 0 and transfer == "broadcast",
        sleeps=forecast.plan.sleeps,
        eager=starts_eager(config.vllm_eager, [completions], slots=slots),
        adapter_rank=adapter_rank,
        on_base_of_trainer=on_base,
        may_be_replaced=_may_be_replaced(basis, name),
    )


def _devices(asked: Processes, machine: Machine, *, elsewhere: bool) -> Sequence[str]:
    """The devices of the engines' ranks; the trainer's stands for those that are ``elsewhere`` or do not exist."""
    not_there = asked.on_gpu and machine.gpus == 0
    return (asked.device,) if elsewhere or not_there else asked.sampling_devices(machine.gpus)


def _takes_adapters(basis: _Basis) -> bool:
    """Whether vLLM gets LoRA adapters themselves; else the weights that they are merged into."""
    on_gpu = basis.asked.first_device.startswith("cuda")
    return accepts(basis.config.lora, on_gpu=on_gpu, bf16=basis.formats.dtype == "bf16")


def _transfer(basis: _Basis, *, sends_adapters: bool, elsewhere: bool) -> TransferName:
    """How weights reach the engines: a file in shared memory stays on its machine, and adapters are small."""
    if elsewhere:
        return "broadcast"
    return "file" if sends_adapters else basis.asked.transfer(basis.config.transfer)


def _share_of_engine(basis: _Basis, forecast: Forecast, devices: Sequence[str], *, elsewhere: bool) -> float:
    """The share of a GPU's memory that each vLLM takes."""
    if forecast.plan.share:
        return forecast.plan.share / forecast.card.total
    if basis.config.gpu_memory:
        return basis.config.gpu_memory
    return ALONE if elsewhere else basis.asked.gpu_share([numbered(name) for name in devices])


def _may_be_replaced(basis: _Basis, name: EngineName) -> bool:
    """Whether vLLM was not asked for, and the run would fit with the embedded engine in its place."""
    config = basis.config
    if name == "torch" or not may_be_replaced(config.engine, tensor_parallel=config.tensor_parallel):
        return False
    return _memory(basis, "torch").peak <= basis.card.usable


def _forecast(basis: _Basis) -> Forecast:
    """The memory of a run, and what its options could do about it."""
    config, card, longest = basis.config, basis.card, basis.longest
    plan = _memory(basis, config.engine)
    changes = [
        fit.recomputation(plan),
        fit.smaller_micro_batches(plan, longest=longest),
        fit.fewer_sequences(plan, group=config.group_size),
        fit.offloaded_moments(plan),
        fit.adapters(plan, bf16_base=basis.base_in_bf16),
        _shared_base(basis, plan),
        fit.smaller_share(plan, total=card.total, longest=longest, ranks=config.tensor_parallel),
    ]
    # The initial weights too.
    stored = 1 + config.updates // config.trajectory_every if config.trajectory_every else 0
    disk = memory.disk_lines(plan.training, checkpoints=config.keep_checkpoints, trajectory=stored)
    return Forecast("rl", plan, card, changes, disk)


def _memory(basis: _Basis, engine: AskedEngine) -> Plan:
    """What is on the trainer's card. On a GPU, what the options leave open is chosen by its memory."""
    config, card = basis.config, basis.card
    plan = _with_engine(basis, _training(basis), engine)
    if not card.is_gpu:
        return plan
    free = Free.of(config.activation_checkpointing, config.micro_tokens, basis.longest)
    return fit.as_fast_as_fits(plan, free, card.usable)


def _shared_base(basis: _Basis, plan: Plan) -> Sequence[Change]:
    """The change to an engine on the trainer's frozen weights, where the embedded engine can have them."""
    rank = basis.config.lora or fit.PROPOSED_RANK
    if not _shares_base(basis, rank, on_gpu=basis.card.is_gpu):
        return []
    return fit.shared_base(plan, _embedded(basis), group=basis.config.group_size)


def _training(basis: _Basis) -> TrainingPlan:
    """The memory of a rank: completions of a group share their prompt, except in attention."""
    config, card, bf16, prompt = basis.config, basis.card, basis.formats.bf16, basis.prompt
    completion = basis.largest("max_tokens")
    # Tokens of a completion and its part of the prompt.
    sample = completion + prompt / config.group_size
    teacher = Model.open(config.teacher) if config.teacher else None
    return TrainingPlan(
        basis.shape,
        # The longest sequence is a micro-batch by itself, however small micro-batches are.
        micro_tokens=max(config.micro_tokens or USUAL_MICRO_TOKENS, prompt + completion),
        on_gpu=card.is_gpu,
        bf16=bf16,
        ranks=config.fsdp_size or basis.ranks,
        lora_rank=config.lora,
        bf16_base=config.lora > 0 and basis.base_in_bf16,
        offload_moments=config.offload == "moments" and card.is_gpu,
        activation_checkpointing=formats.recomputes(config.activation_checkpointing, on_gpu=card.is_gpu),
        # In attention each completion has the whole prompt before it.
        padding=PADDING * (prompt + completion) / sample,
        # Logits are needed for sampled tokens alone.
        scored=completion / sample,
        reference=config.kl > 0,
        loads_whole=rank_weights.loads_whole(basis.model, basis.ranks),
        teacher=shape_of(teacher) if teacher else None,
        bf16_teacher=teacher is not None and formats.frozen_in_bf16(teacher, bf16=bf16),
        step_tokens=round(basis.largest("n_mini") * sample),
    )


def _with_engine(basis: _Basis, training: TrainingPlan, engine: AskedEngine) -> Plan:
    """The trainer's card with the engine that is on it, if any."""
    config, card = basis.config, basis.card
    if config.replay is not None:
        return Plan(training)
    if config.generators and card.is_gpu:
        return Plan(training)  # generators have cards of their own
    device = "cuda" if card.is_gpu else config.device
    if policy_engine(engine, device, deterministic=basis.exact) == "vllm":
        awake = Plan(training, share=_share(basis) if card.is_gpu else 0)
        return replace(awake, sleeps=_sleeps(basis, awake))
    return Plan(training, engine=_embedded(basis))


def _share(basis: _Basis) -> int:
    """vLLM's bytes of the trainer's GPU."""
    config, total = basis.config, basis.card.total
    if config.gpu_memory:
        return round(config.gpu_memory * total)
    ranks = config.tensor_parallel
    return fit.usual_share(basis.shape, total=total, longest=basis.longest, share=BESIDE_TRAINER, ranks=ranks)


def _sleeps(basis: _Basis, awake: Plan) -> bool:
    """Whether vLLM gives its share of the trainer's GPU back during updates: by default if both do not fit at once."""
    asked = basis.config.vllm_sleep
    if not awake.share or asked == "no":
        return False
    return asked == "yes" or awake.peak > basis.card.usable


def _embedded(basis: _Basis) -> EnginePlan:
    """The embedded engine; on a CPU all generators together, as they share its memory."""
    config, card = basis.config, basis.card
    bounded = card.is_gpu and not basis.exact
    return EnginePlan(
        basis.shape,
        slots=basis.largest("n_async"),
        longest=basis.longest,
        bf16=basis.formats.dtype == "bf16",
        on_gpu=card.is_gpu,
        packed=not basis.exact,
        # On a CPU; generators on GPUs have cards of their own.
        copies=max(config.generators, 1),
        share=round((config.gpu_memory or BESIDE_TRAINER) * card.total) if bounded else 0,
        adapter_rank=config.lora if _shares_base(basis, config.lora, on_gpu=card.is_gpu) else 0,
    )
