"""The engine from which `magcli rl` samples: a second copy of the model, in this process or in generators."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from magcli.cluster.types import LOCAL, Demand
from magcli.errors import EnvironmentFault
from magcli.generate.open import open_policy, warn_of_embedded
from magcli.generate.parallel import engine_resources
from magcli.generate.spec import Spec
from magcli.generate.torch.open import open_adapted
from magcli.generate.torch.policy import TorchPolicy
from magcli.plan.machine import gpus
from magcli.stages.shared import trainer_ranks

if TYPE_CHECKING:
    from magcli.cluster.runtime import Cluster
    from magcli.console import Console
    from magcli.generate.remote.fleet import Fleet
    from magcli.generate.types import RolloutEngine
    from magcli.generate.vllm.policy import VllmPolicy
    from magcli.model.model import Model
    from magcli.plan.engines import Engines
    from magcli.plan.ranks import Processes
    from magcli.rl.trainer import Trainer
    from magcli.stages.rl.plan import RunPlan
    from magcli.stages.shared.trainer_ranks import RankSpec


def check_devices(asked: Processes, cluster: Cluster | None) -> None:
    """Refuse engines for which this machine has too few GPUs, before a model is loaded.

    GPUs of a cluster are counted when processes are placed, and without any the trainer says that its own is missing.

    Raises:
        UsageError: GPUs would be idle, or there are fewer than engines.
    """
    cards = gpus()
    on_this_machine = cluster is None or cluster.is_local or not asked.generators
    if cards and on_this_machine:
        asked.sampling_devices(cards)


def check_room(ranks: RankSpec, asked: Processes, console: Console, *, beside: list[Demand]) -> None:
    """For --dry-run: refuse trainer ranks and processes beside them for which this machine or cluster has no room.

    Raises:
        UsageError: this machine has too few GPUs.
        EnvironmentFault: the nodes of the cluster have no room, or it cannot be joined.
    """
    trainer_ranks.check_room(ranks, console, beside=beside)
    on_this_machine = not asked.generators or ranks.address == LOCAL
    if on_this_machine and ranks.counts_cards:
        asked.sampling_devices(gpus())


def generators_demand(asked: Processes) -> Demand | None:
    """The resources of a cluster that the generators of a run need; None without any."""
    if not asked.generators:
        return None
    return Demand("generators", asked.generators, engine_resources(asked.device, asked.tensor_parallel))


@asynccontextmanager
async def opened_engine(
    plan: RunPlan, model: Model, cluster: Cluster | None, trainer: Trainer, console: Console
) -> AsyncIterator[RolloutEngine]:
    """The engine of a plan for the duration of the block, in this process or on the cluster.

    It has a second copy of the model, or in this process the frozen weights of the trainer and its adapters. The
    trainer's ranks may send generators their weights themselves.
    """
    engines = plan.engines
    opened: RolloutEngine
    if engines.number:
        assert cluster is not None
        opened = fleet = await _open_fleet(plan, model, cluster, console)
        # Else the weights go through this process, or a file.
        trainer.sends_to = fleet if engines.ranks_send else None
    else:
        # As the first and only engine.
        spec = spec_of(plan, model).placed(engines.devices, 0)
        if engines.on_base_of_trainer:
            warn_of_embedded(spec.device, console)
            opened = open_adapted(spec, trainer.controller.frozen_weights())
        else:
            opened = _open_local(spec, console, may_be_replaced=engines.may_be_replaced)
    try:
        yield opened
    finally:
        await opened.close()


def _open_local(spec: Spec, console: Console, *, may_be_replaced: bool) -> TorchPolicy | VllmPolicy:
    """The engine in this process; ``may_be_replaced``: by the embedded one, if it is a vLLM that does not start.

    An engine of adapters stays vLLM, as the trainer sends what vLLM takes.
    """
    try:
        return open_policy(spec, console)
    except EnvironmentFault as fault:
        if spec.engine != "vllm" or not may_be_replaced or spec.lora_rank:
            raise
        console.warn(f"rl: {fault}; sampling with --engine torch instead")
        return open_policy(replace(spec, engine="torch", sleeps=False), console)


def samples_beside_trainer(plan: Engines, engine: RolloutEngine) -> bool:
    """Whether the engine works during updates: in processes of its own, unless it sleeps then."""
    return plan.number > 0 or not (isinstance(engine, TorchPolicy) or engine.sleeps)


async def _open_fleet(plan: RunPlan, model: Model, cluster: Cluster, console: Console) -> Fleet:
    """The generators, in processes of a Ray of this machine or of a cluster."""
    from magcli.generate.remote.fleet import Fleet

    engines = plan.engines
    on_gpu = engines.trainer_device.startswith("cuda")
    if engines.name == "torch":
        warn_of_embedded(engines.devices[0], console)
    if engines.idle:
        console.warn(f"rl: {', '.join(engines.idle)} stay idle; more --generators would use them")
    if on_gpu and not engines.elsewhere:
        torch.cuda.empty_cache()  # what repeated updates of a resumed run have freed: vLLM is another process
    devices = () if engines.elsewhere else engines.devices
    spec = spec_of(plan, model)

    def say(text: str) -> None:
        console.say(f"rl: {text}")

    with console.waiting() as wait:
        return await Fleet.open(cluster, spec, engines.number, devices=devices, say=say, show=wait.show)


def spec_of(plan: RunPlan, model: Model) -> Spec:
    """The engine of each generator of a plan."""
    engines = plan.engines
    threads = _share_threads(plan.trainer.ranks, engines.number)
    # ``Fleet`` gives each generator its own from the list.
    device = engines.devices[0]
    if engines.elsewhere and device.startswith("cuda"):
        device = "cuda"  # the GPU that Ray gives it
    return Spec(
        model,
        engine=engines.name,
        dtype=engines.dtype,
        slots=engines.slots,
        deterministic=engines.exact,
        device=device,
        threads=1 if engines.elsewhere else threads,
        transfer=engines.transfer,
        source=engines.trainer_device,
        gpu_memory=engines.share,
        sleeps=engines.sleeps,
        lora_rank=engines.adapter_rank,
        lora_alpha=plan.trainer.lora_alpha,
        tensor_parallel=engines.tensor_parallel,
        eager=engines.eager,
    )


def _share_threads(ranks: int, generators: int) -> int:
    """Divide torch's threads among trainer ranks and generators; returns those of each generator, 0 without any.

    A single trainer is in this process, which gets what the generators leave. Several ranks are processes with
    threads of their own, and this one hardly computes.
    """
    if not generators:
        return 0
    threads = torch.get_num_threads()
    per_generator = trainer_ranks.share_threads(threads, ranks, generators)
    if ranks == 1:
        torch.set_num_threads(max(1, threads - per_generator * generators))
    return per_generator
