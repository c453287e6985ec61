"""A machine with another layout: other numbers of trainer ranks, of engines, and of devices of an engine.

What is assumed beyond the machine's own speeds:

- Trainer ranks divide the tokens of an update. Its fixed time stays, although ranks divide the optimizer too.
- The devices of an engine divide the time of a step, except that a key-value head is not divided.
- Collectives are added in full, as if none overlapped with computation; without their costs they take no time. Those of
  several ranks that the machine already has are in its speeds, and are taken out first.
- Copies of the weights (hybrid sharding) add up their gradients once for each optimizer step.
- Several trainer ranks gather the weights before they send them. To send them takes as long as before, to however many
  engines.
- A trainer and engines that get devices of their own do not slow each other down, and no time passes between steps.
"""

from dataclasses import dataclass, replace

from magcli.errors import usage
from magcli_simulate.collectives import Costs
from magcli_simulate.machine import GeneratorSpec, Machine, TrainerSpec


@dataclass(frozen=True, slots=True)
class Layout:
    """What is asked for; None is as the machine has it. With 0 ``generators`` trainer and engine take turns."""

    trainers: int | None = None
    fsdp_size: int | None = None
    generators: int | None = None
    tensor_parallel: int | None = None


def placed(machine: Machine, layout: Layout, costs: Costs | None = None, *, optimizer_steps: int = 1) -> Machine:
    """The machine with a layout.

    Args:
        optimizer_steps: of an update, one for each mini-batch.

    Raises:
        UsageError: the trainer ranks cannot be divided into copies, with this link the collectives of the machine's own
            ranks would take longer than their updates did, or the machine does not say how large their micro-batches
            are.
    """
    engines = _with_engines(machine.generators, layout.generators)
    ranks = layout.tensor_parallel or engines.devices_per_engine
    trainer = _with_ranks(machine.trainer, layout, costs, optimizer_steps)
    if layout.generators is not None:
        trainer = replace(trainer, shared=layout.generators == 0)
    return replace(machine, trainer=trainer, generators=_split(engines, ranks, costs))


def _with_ranks(before: TrainerSpec, layout: Layout, costs: Costs | None, optimizer_steps: int) -> TrainerSpec:
    """The trainer on the devices of a layout."""
    ranks = layout.trainers or before.devices
    fsdp_size = before.fsdp_size if layout.fsdp_size is None else layout.fsdp_size
    text = f"simulate.fsdp_size: {fsdp_size} does not divide the {ranks} trainer ranks"
    usage(fsdp_size == 0 or ranks % fsdp_size == 0, text)
    after = replace(before, devices=ranks, fsdp_size=fsdp_size)
    if costs is None or (after.devices, after.sharing) == (before.devices, before.sharing):
        return after
    usage(before.micro_tokens > 0, "simulate: --link needs micro_tokens in [trainer], the tokens of a micro-batch")
    gathering = costs.gathering(after.sharing) - costs.gathering(before.sharing)
    summing = costs.optimizer_step(after.sharing, after.copies) - costs.optimizer_step(before.sharing, before.copies)
    return replace(
        after,
        tokens_per_s=_without_collectives(before, costs),
        update_seconds=max(0.0, before.update_seconds + optimizer_steps * summing),
        collective_seconds=costs.micro_batch(after.sharing),
        transfer_seconds=max(0.0, before.transfer_seconds + gathering),
    )


def _without_collectives(trainer: TrainerSpec, costs: Costs) -> float:
    """Tokens a second of a device that waits for no other."""
    if trainer.collective_seconds or trainer.devices == 1:
        return trainer.tokens_per_s
    a_token = 1 / trainer.tokens_per_s - costs.micro_batch(trainer.sharing) / trainer.micro_tokens
    text = f"simulate: with this --link the collectives of {trainer.devices} trainer ranks take longer than their"
    usage(a_token > 0, f"{text} updates did, of {trainer.tokens_per_s:,.0f} tokens/s each; give a faster one")
    return 1 / a_token


def _with_engines(generators: GeneratorSpec, number: int | None) -> GeneratorSpec:
    """The machine's engines in another number; an engine that takes turns with the trainer is one."""
    if number is None:
        return generators
    gap = generators.gap_seconds if number == 0 else 0.0
    return replace(generators, devices=max(1, number) * generators.devices_per_engine, gap_seconds=gap)


def _split(generators: GeneratorSpec, ranks: int, costs: Costs | None) -> GeneratorSpec:
    """The engines over this many devices each."""
    before = generators.devices_per_engine
    if ranks == before:
        return generators
    part = before / ranks
    step, sequence = generators.step_seconds, generators.sequence_seconds
    cache_part = part
    if costs is not None:
        cache_part = _cache_part(costs.shape.kv_heads, ranks) / _cache_part(costs.shape.kv_heads, before)
        step = max(0.0, step - costs.step(before)) * part + costs.step(ranks)
        sequence = max(0.0, sequence - costs.sequence(before)) * part + costs.sequence(ranks)
    else:
        step, sequence = step * part, sequence * part
    return replace(
        generators,
        devices=generators.engines * ranks,
        devices_per_engine=ranks,
        step_seconds=step,
        sequence_seconds=sequence,
        token_seconds=generators.token_seconds * cache_part,
        cache_tokens=round(generators.cache_tokens / part),
        prefill_tokens_per_s=generators.prefill_tokens_per_s / part,
    )


def _cache_part(heads: int, ranks: int) -> float:
    """The part of a token's cache that each rank of an engine has: at least one key-value head."""
    return max(1, heads // ranks) / heads


def assumptions(before: Machine, after: Machine, costs: Costs | None) -> list[str]:
    """What a layout changes and what is taken for granted, a line each."""
    lines = []
    trainer, engines = after.trainer, after.generators
    several = max(trainer.devices, engines.devices_per_engine) > 1
    if trainer.devices != before.trainer.devices:
        lines.append(
            f"{trainer.devices} trainer ranks instead of {before.trainer.devices} divide the tokens of an update"
        )
    if trainer.sharing != before.trainer.sharing and trainer.copies > 1:
        text = f"{trainer.copies} copies of the weights, over {trainer.sharing} ranks each"
        summing = trainer.update_seconds - before.trainer.update_seconds
        seconds = f"; to add up their gradients takes {summing:.3g} s an update" if summing > 0 else ""
        lines.append(text + seconds)
    if trainer.collective_seconds != before.trainer.collective_seconds:
        lines.append(f"the collectives of a micro-batch take {trainer.collective_seconds:.3g} s")
    if trainer.transfer_seconds != before.trainer.transfer_seconds:
        seconds = f"{trainer.transfer_seconds:.3g} s instead of {before.trainer.transfer_seconds:.3g}"
        lines.append(f"new weights take {seconds}, because the ranks gather them first")
    if engines.engines != before.generators.engines:
        lines.append(f"{engines.engines} engines instead of {before.generators.engines}, each as fast as one was")
    if trainer.shared != before.trainer.shared:
        lines.append("trainer and engine take turns" if trainer.shared else "generators sample during updates")
    if engines.devices_per_engine != before.generators.devices_per_engine:
        step = f"{engines.step_seconds:.3g} s and its sequences, instead of {before.generators.step_seconds:.3g}"
        lines.append(f"{engines.devices_per_engine} devices divide the time of an engine's step: {step}")
    if lines and several and costs is None:
        lines.append("collectives take no time: --link GB/s counts them")
    return lines
