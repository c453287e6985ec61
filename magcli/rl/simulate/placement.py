"""A machine with another layout: other numbers of trainer ranks, of engines, and of devices of an engine.

What is assumed beyond the machine's own speeds:

- Trainer ranks divide the tokens of an update. Its fixed time stays, although ranks divide the optimizer too.
- The devices of an engine divide the time of a step, except that a key-value head is not divided.
- Collectives are added in full, as if none overlapped with computation; without their costs they take no time. Those of
  several ranks that the machine already has are in its speeds, and are taken out first.
- Several trainer ranks gather the weights before they send them. To send them takes as long as before, to however many
  engines.
- A trainer and engines that get devices of their own do not slow each other down, and no time passes between steps.
"""

from dataclasses import dataclass, replace

from magcli.errors import usage
from magcli.rl.simulate.collectives import Costs
from magcli.rl.simulate.machine import GeneratorSpec, Machine, TrainerSpec


@dataclass(frozen=True, slots=True)
class Layout:
    """What is asked for; None is as the machine has it. With 0 ``generators`` trainer and engine take turns."""

    trainers: int | None = None
    generators: int | None = None
    tensor_parallel: int | None = None


def placed(machine: Machine, layout: Layout, costs: Costs | None = None) -> Machine:
    """The machine with a layout.

    Raises:
        UsageError: with this link the collectives of the machine's own ranks would take longer than their updates did,
            or the machine does not say how large their micro-batches are.
    """
    engines = _with_engines(machine.generators, layout.generators)
    ranks = layout.tensor_parallel or engines.devices_per_engine
    trainer = _with_ranks(machine.trainer, layout.trainers or machine.trainer.devices, costs)
    if layout.generators is not None:
        trainer = replace(trainer, shared=layout.generators == 0)
    return replace(machine, trainer=trainer, generators=_split(engines, ranks, costs))


def _with_ranks(trainer: TrainerSpec, ranks: int, costs: Costs | None) -> TrainerSpec:
    """The trainer on this many devices."""
    if ranks == trainer.devices:
        return trainer
    if costs is None:
        return replace(trainer, devices=ranks)
    usage(trainer.micro_tokens > 0, "simulate: --link needs micro_tokens in [trainer], the tokens of a micro-batch")
    gathering = costs.gathering(ranks) - costs.gathering(trainer.devices)
    return replace(
        trainer,
        devices=ranks,
        tokens_per_s=_without_collectives(trainer, costs),
        collective_seconds=costs.micro_batch(ranks),
        transfer_seconds=max(0.0, trainer.transfer_seconds + gathering),
    )


def _without_collectives(trainer: TrainerSpec, costs: Costs) -> float:
    """Tokens a second of a device that waits for no other."""
    if trainer.collective_seconds or trainer.devices == 1:
        return trainer.tokens_per_s
    a_token = 1 / trainer.tokens_per_s - costs.micro_batch(trainer.devices) / trainer.micro_tokens
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
        text = f"{trainer.devices} trainer ranks instead of {before.trainer.devices} divide the tokens of an update"
        collectives = f"; a micro-batch takes {trainer.collective_seconds:.3g} s of collectives besides"
        lines.append(text + (collectives if trainer.collective_seconds else ""))
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
