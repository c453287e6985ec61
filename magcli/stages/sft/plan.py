"""How a run of `magcli sft` trains and evaluates, and whether it fits: from its options, its model and the machine."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from magcli.model.shape import shape_of
from magcli.plan import fit, memory
from magcli.plan import formats as formats_plan
from magcli.plan.fit import Free, Plan
from magcli.plan.forecast import Forecast
from magcli.plan.formats import Formats, TrainerPlan
from magcli.plan.memory import EnginePlan, TrainingPlan
from magcli.stages.shared import rank_weights
from magcli.stages.shared.forecast import UNKNOWN_PROMPT

if TYPE_CHECKING:
    from magcli.model.model import Model
    from magcli.plan.machine import Card, Machine
    from magcli.stages.sft import Config

USUAL_MICRO_TOKENS = 8192
"""The tokens of a micro-batch where the options and the memory of a GPU do not say another number."""


@dataclass(frozen=True, slots=True)
class RunPlan:
    """How each rank trains, the formats of training and of the evaluations, and what memory and disk a run takes."""

    trainer: TrainerPlan
    formats: Formats
    forecast: Forecast

    @classmethod
    def of(
        cls,
        config: Config,
        model: Model,
        machine: Machine,
        *,
        formats: Formats | None = None,
        longest: int = 0,
        step_tokens: int = 0,
        ranks: int = 0,
    ) -> RunPlan:
        """The plan of a run.

        Args:
            config, model, machine: what it follows from.
            formats: those of a run that has begun; by default those that are expected.
            longest: tokens of the longest trace; 0: all fit the micro-batches.
            step_tokens: those of an optimizer step; by default those of the options.
            ranks: how many trainer ranks go on after a loss; by default all.

        Raises:
            EnvironmentFault: there is no such GPU, or the model's configuration is missing or damaged.
        """
        card = machine.required_card()
        if formats is None:
            formats = formats_plan.expected(config.bf16, config.dtype, model, config.device, on_gpu=card.is_gpu)
        trainer = _trainer(config, model, card, formats, ranks or config.trainers)
        plan = _memory(config, model, card, trainer, formats, longest, step_tokens or config.step_tokens)
        # What was left to the plan of the memory.
        trainer = replace(trainer, recomputes=plan.training.activation_checkpointing)
        if card.is_gpu and not config.micro_tokens:
            trainer = replace(trainer, micro_tokens=plan.training.micro_tokens)
        forecast = _forecast(config, model, card, plan, formats, longest)
        return cls(trainer, formats, forecast)

    def text(self) -> str:
        """The plan in one line."""
        return f"the run {self.trainer.text()}"


def _trainer(config: Config, model: Model, card: Card, formats: Formats, ranks: int) -> TrainerPlan:
    """How each rank trains, as long as its memory is not planned."""
    return TrainerPlan(
        ranks,
        bf16=formats.bf16,
        attention=formats_plan.attention(config.attention, bf16=formats.bf16),
        recomputes=formats_plan.recomputes(config.activation_checkpointing, on_gpu=card.is_gpu),
        micro_tokens=config.micro_tokens or USUAL_MICRO_TOKENS,
        lora_rank=config.lora,
        lora_alpha=config.lora_alpha,
        bf16_base=config.lora > 0 and formats_plan.frozen_in_bf16(model, bf16=formats.bf16),
        offloads_moments=config.offload == "moments",
        weight_decay=config.weight_decay,
    )


def _memory(
    config: Config, model: Model, card: Card, trainer: TrainerPlan, formats: Formats, longest: int, step_tokens: int
) -> Plan:
    """What is on a trainer's card. On a GPU, what the options leave open is chosen by its memory."""
    shape = shape_of(model)
    training_memory = TrainingPlan(
        shape,
        micro_tokens=max(trainer.micro_tokens, longest),
        on_gpu=card.is_gpu,
        bf16=trainer.bf16,
        ranks=config.fsdp_size or trainer.ranks,
        lora_rank=trainer.lora_rank,
        bf16_base=trainer.bf16_base,
        offload_moments=trainer.offloads_moments and card.is_gpu,
        activation_checkpointing=trainer.recomputes,
        loads_whole=rank_weights.loads_whole(model, trainer.ranks, from_scratch=config.from_scratch),
        # A step has one trace at least, however long.
        step_tokens=max(step_tokens, longest) if step_tokens else 0,
    )
    engine = None
    if config.eval_table is not None and config.engine == "torch":
        # Prompts of --eval-table are not read for a plan.
        tokens = min(UNKNOWN_PROMPT + config.eval_max_tokens, model.context)
        engine = EnginePlan(shape, config.eval_slots, tokens, formats.dtype == "bf16", card.is_gpu)
    # The evaluating engine is opened between steps and closed after each evaluation.
    plan = Plan(training_memory, engine=engine, engine_stays=False)
    if not card.is_gpu:
        return plan
    free = Free.of(config.activation_checkpointing, config.micro_tokens, longest)
    return fit.as_fast_as_fits(plan, free, card.usable)


def _forecast(config: Config, model: Model, card: Card, plan: Plan, formats: Formats, longest: int) -> Forecast:
    """The memory of a run, and what its options could do about it."""
    changes = [
        fit.recomputation(plan),
        fit.smaller_micro_batches(plan, longest=longest),
        fit.offloaded_moments(plan),
        fit.adapters(plan, bf16_base=formats_plan.frozen_in_bf16(model, bf16=formats.bf16)),
    ]
    disk = memory.disk_lines(plan.training, checkpoints=config.keep_checkpoints, trajectory=0)
    return Forecast("sft", plan, card, changes, disk)
