"""The engine from which `magcli rl` samples: a second copy of the model, in this process or in generators."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Literal

import torch

from magcli.cluster.runtime import LOCAL, Demand, address_for
from magcli.errors import EnvironmentFault
from magcli.generate.fleet import Fleet
from magcli.generate.open import open_adapted, open_policy, warn_of_embedded
from magcli.generate.parallel import engine_resources
from magcli.generate.torch_policy import TorchPolicy
from magcli.generate.vllm_adapter import accepts
from magcli.generate.wire import Spec
from magcli.model.compute import dtype_of
from magcli.plan.engines import policy_engine
from magcli.plan.machine import gpus
from magcli.plan.ranks import ALONE, first_cards, numbered
from magcli.stages.rl.config import Config, processes, transfer_of
from magcli.stages.rl.sharing import shares_base
from magcli.stages.shared import engines, trainers
from magcli.stages.shared.run_sizes import options_in

if TYPE_CHECKING:
    from magcli.cluster.runtime import Cluster
    from magcli.console import Console
    from magcli.generate.types import RolloutEngine
    from magcli.generate.vllm import VllmPolicy
    from magcli.model.model import Model
    from magcli.run.job import Job
    from magcli.train.controller import RankController


def check_devices(config: Config, cluster: Cluster | None) -> None:
    """Refuse engines for which this machine has too few GPUs, before a model is loaded.

    GPUs of a cluster are counted when processes are placed, and without any the trainer says that its own is missing.

    Raises:
        UsageError: as ``sampling_devices``.
    """
    cards = gpus()
    on_this_machine = cluster is None or cluster.is_local or not config.generators
    if cards and on_this_machine:
        sampling_devices(config, cards=cards)


def check_room(config: Config, console: Console, *, beside: Sequence[Demand]) -> None:
    """For --dry-run: refuse trainer ranks and processes beside them for which this machine or cluster has no room.

    Raises:
        UsageError: this machine has too few GPUs.
        EnvironmentFault: the nodes of the cluster have no room, or it cannot be joined.
    """
    trainers.check_room("rl", config, console, beside=beside)
    on_this_machine = not config.generators or address_for(config.cluster) == LOCAL
    if on_this_machine and trainers.counts_cards(config):
        sampling_devices(config, cards=gpus())


def generators_demand(config: Config) -> Demand | None:
    """The resources of a cluster that the generators of a run need; None without any."""
    if not config.generators:
        return None
    return Demand("generators", config.generators, engine_resources(config.device, config.tensor_parallel))


def ranks_send_weights(config: Config, cluster: Cluster | None) -> bool:
    """Whether trainer ranks send generators their weights themselves; else they go through this process, or a file."""
    if cluster is None or config.trainers == 1 or not config.generators:
        return False
    return not cluster.is_local or transfer_of(config) == "broadcast"


@asynccontextmanager
async def build_engine(
    config: Config,
    model: Model,
    job: Job,
    cluster: Cluster | None,
    controller: RankController,
    *,
    may_replace_vllm: bool = False,
) -> AsyncIterator[RolloutEngine]:
    """The engine for the duration of the block, in this process or on the cluster.

    It has a second copy of the model, or in this process the frozen weights of the trainer and its adapters.
    ``may_replace_vllm``: the embedded engine may take the place of a vLLM in this process that does not start.
    """
    opened: RolloutEngine
    if config.generators:
        assert cluster is not None
        if engine_name(config) == "torch":
            warn_of_embedded(processes(config).first_device, job.console)
        opened = await _open_fleet(config, model, job, cluster)
    else:
        devices = sampling_devices(config, cards=gpus())
        spec = _spec(config, model, devices).placed(devices, 0)
        if _samples_with_base_of_trainer(config, model):
            warn_of_embedded(spec.device, job.console)
            opened = open_adapted(spec, controller.frozen_weights())
        else:
            opened = _open_local(spec, job.console, may_replace=may_replace_vllm)
    try:
        yield opened
    finally:
        await opened.close()


def _open_local(spec: Spec, console: Console, *, may_replace: bool) -> TorchPolicy | VllmPolicy:
    """The engine in this process; ``may_replace``: the embedded one instead of a vLLM that does not start.

    An engine of adapters stays vLLM, as the trainer sends what vLLM takes.
    """
    try:
        return open_policy(spec, console)
    except EnvironmentFault as fault:
        if spec.engine != "vllm" or not may_replace or spec.lora_rank:
            raise
        console.warn(f"rl: {fault}; sampling with --engine torch instead")
        return open_policy(replace(spec, engine="torch", sleeps=False), console)


def samples_beside_trainer(config: Config, engine: RolloutEngine) -> bool:
    """Whether the engine works during updates: in processes of its own, unless it sleeps then."""
    return config.generators > 0 or not (isinstance(engine, TorchPolicy) or engine.sleeps)


async def _open_fleet(config: Config, model: Model, job: Job, cluster: Cluster) -> Fleet:
    """The generators, in processes of a Ray of this machine or of a cluster."""
    say = partial(_say, job.console)
    if not cluster.is_local:
        spec = _cluster_spec(_spec(config, model, (config.device,)), config)
        with job.console.waiting() as wait:
            return await Fleet.open(cluster, spec, config.generators, say=say, show=wait.show)
    cards = gpus()
    devices = sampling_devices(config, cards=cards)
    idle = sorted(set(first_cards(cards)) - set(devices) - set(processes(config).trainer_cards))
    if idle and config.device.startswith("cuda"):
        job.console.warn(f"rl: {', '.join(idle)} stay idle; more --generators would use them")
    if config.device.startswith("cuda"):
        torch.cuda.empty_cache()  # what repeated updates of a resumed run have freed: vLLM is another process
    spec = _spec(config, model, devices)
    with job.console.waiting() as wait:
        return await Fleet.open(cluster, spec, config.generators, devices=devices, say=say, show=wait.show)


def _cluster_spec(spec: Spec, config: Config) -> Spec:
    """The engine of a generator that may be on another machine, on the GPU that Ray gives it.

    Weights go there by a broadcast: a file in shared memory stays on its machine.
    """
    device = "cuda" if spec.device.startswith("cuda") else spec.device
    share = config.gpu_memory or ALONE
    return replace(spec, device=device, threads=1, transfer="broadcast", gpu_memory=share)


def _say(console: Console, text: str) -> None:
    console.say(f"rl: {text}")


def engine_name(config: Config) -> Literal["torch", "vllm"]:
    """The engine that samples rollouts."""
    return policy_engine(config.engine, processes(config).first_device, deterministic=config.schedule == "sync")


def sends_adapters(config: Config, model: Model) -> bool:
    """Whether the engines get LoRA adapters themselves; else the weights that they are merged into."""
    if not config.lora:
        return False
    if engine_name(config) != "vllm":
        return _samples_with_base_of_trainer(config, model)

    device = processes(config).first_device
    in_bf16 = dtype_of(config.dtype, model, device) == torch.bfloat16
    return accepts(config.lora, on_gpu=device.startswith("cuda"), bf16=in_bf16)


def _samples_with_base_of_trainer(config: Config, model: Model) -> bool:
    return engine_name(config) == "torch" and shares_base(config, model, on_gpu=config.device.startswith("cuda"))


def sampling_devices(config: Config, *, cards: int) -> Sequence[str]:
    """The devices of the engines' ranks, on a machine with this number of GPUs.

    Raises:
        UsageError: GPUs would be idle, or there are fewer than engines.
    """
    return processes(config).sampling_devices(cards)


def gpu_share(config: Config, devices: Sequence[str]) -> float:
    """The share of a GPU's memory that each vLLM engine takes."""
    return config.gpu_memory or processes(config).gpu_share(devices)


def _spec(config: Config, model: Model, devices: Sequence[str]) -> Spec:
    """The engine of each generator, with slots for the largest n_async; deterministic for --schedule sync."""
    most = max([config.n_async, *(options_in(stage, config).n_async for stage in config.stage)])
    exact = config.schedule == "sync"
    adapters = sends_adapters(config, model)
    return Spec(
        model,
        engine=engine_name(config),
        dtype=config.dtype,
        slots=-(-most // max(config.generators, 1)),  # generators share the completions; rounded up
        deterministic=exact,
        device=devices[0],
        threads=_share_threads(config.trainers, config.generators),
        transfer="file" if adapters else transfer_of(config),  # adapters are small
        source=config.device,
        gpu_memory=gpu_share(config, [numbered(name) for name in devices]),
        sleeps=config.vllm_sleep == "yes",
        lora_rank=config.lora if adapters else 0,
        lora_alpha=config.lora_alpha,
        tensor_parallel=config.tensor_parallel,
        eager=engines.starts_eager(config.vllm_eager, [_expected(config)], slots=most),
    )


def _expected(config: Config) -> engines.Expected:
    """The completions of all updates, and the most tokens of each."""
    tokens = max([config.max_tokens, *(options_in(stage, config).max_tokens for stage in config.stage)])
    return config.updates * config.n_batch, tokens


def _share_threads(ranks: int, generators: int) -> int:
    """Divide torch's threads among trainer ranks and generators; returns those of each generator, 0 without any.

    A single trainer is in this process, which gets what the generators leave. Several ranks are processes with
    threads of their own, and this one hardly computes.
    """
    if not generators:
        return 0
    threads = torch.get_num_threads()
    per_generator = trainers.share_threads(threads, ranks, generators)
    if ranks == 1:
        torch.set_num_threads(max(1, threads - per_generator * generators))
    return per_generator
