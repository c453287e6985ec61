"""The engine from which `magcli rl` samples: a second copy of the model, in this process or in generators."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Literal

from magcli.cluster.runtime import LOCAL, Demand, address_for
from magcli.errors import EnvironmentFault, usage
from magcli.stages.rl.config import Config, transfer_of
from magcli.stages.rl.sharing import shares_base
from magcli.stages.shared import engines, trainers
from magcli.stages.shared.run_sizes import options_in

if TYPE_CHECKING:
    from magcli.cluster.runtime import Cluster
    from magcli.console import Console
    from magcli.generate.fleet import Fleet
    from magcli.generate.torch_policy import TorchPolicy
    from magcli.generate.types import RolloutEngine
    from magcli.generate.vllm import VllmPolicy
    from magcli.generate.wire import Spec
    from magcli.model.model import Model
    from magcli.run.job import Job
    from magcli.train.controller import RankController


def check_devices(config: Config, cluster: Cluster | None) -> None:
    """Refuse engines for which this machine has too few GPUs, before a model is loaded.

    GPUs of a cluster are counted when processes are placed, and without any the trainer says that its own is missing.

    Raises:
        UsageError: as ``sampling_devices``.
    """
    import torch

    cards = torch.cuda.device_count()
    on_this_machine = cluster is None or cluster.is_local or not config.generators
    if cards and on_this_machine:
        sampling_devices(config, cards=cards)


def check_room(config: Config, console: Console, *, beside: Sequence[Demand]) -> None:
    """For --dry-run: refuse trainer ranks and processes beside them for which this machine or cluster has no room.

    Raises:
        UsageError: this machine has too few GPUs.
        EnvironmentFault: the nodes of the cluster have no room, or it cannot be joined.
    """
    import torch

    trainers.check_room("rl", config, console, beside=beside)
    on_this_machine = not config.generators or address_for(config.cluster) == LOCAL
    if on_this_machine and trainers.counts_cards(config):
        sampling_devices(config, cards=torch.cuda.device_count())


def generators_demand(config: Config) -> Demand | None:
    """The resources of a cluster that the generators of a run need; None without any."""
    from magcli.generate.parallel import engine_resources

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
    import torch

    from magcli.generate.open import open_adapted

    opened: RolloutEngine
    if config.generators:
        assert cluster is not None
        opened = await _open_fleet(config, model, job, cluster)
    else:
        devices = sampling_devices(config, cards=torch.cuda.device_count())
        spec = _spec(config, model, devices).placed(devices, 0)
        if _samples_with_base_of_trainer(config, model):
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
    from magcli.generate.open import open_policy

    try:
        return open_policy(spec, console)
    except EnvironmentFault as fault:
        if spec.engine != "vllm" or not may_replace or spec.lora_rank:
            raise
        console.warn(f"rl: {fault}; sampling with --engine torch instead")
        return open_policy(replace(spec, engine="torch", sleeps=False), console)


def samples_beside_trainer(config: Config, engine: RolloutEngine) -> bool:
    """Whether the engine works during updates: in processes of its own, unless it sleeps then."""
    from magcli.generate.torch_policy import TorchPolicy

    return config.generators > 0 or not (isinstance(engine, TorchPolicy) or engine.sleeps)


async def _open_fleet(config: Config, model: Model, job: Job, cluster: Cluster) -> Fleet:
    """The generators, in processes of a Ray of this machine or of a cluster."""
    import torch

    from magcli.generate.fleet import Fleet

    say = partial(_say, job.console)
    if not cluster.is_local:
        spec = _cluster_spec(_spec(config, model, (config.device,)), config)
        return await Fleet.open(cluster, spec, config.generators, say=say)
    cards = torch.cuda.device_count()
    devices = sampling_devices(config, cards=cards)
    idle = sorted(set(_cards(cards)) - set(devices) - set(_trainer_cards(config)))
    if idle and config.device.startswith("cuda"):
        job.console.warn(f"rl: {', '.join(idle)} stay idle; more --generators would use them")
    if config.device.startswith("cuda"):
        torch.cuda.empty_cache()  # what repeated updates of a resumed run have freed: vLLM is another process
    spec = _spec(config, model, devices)
    return await Fleet.open(cluster, spec, config.generators, devices=devices, say=say)


def _cluster_spec(spec: Spec, config: Config) -> Spec:
    """The engine of a generator that may be on another machine, on the GPU that Ray gives it.

    Weights go there by a broadcast: a file in shared memory stays on its machine.
    """
    device = "cuda" if spec.device.startswith("cuda") else spec.device
    share = config.gpu_memory or engines.ALONE
    return replace(spec, device=device, threads=1, transfer="broadcast", gpu_memory=share)


def _say(console: Console, text: str) -> None:
    console.say(f"rl: {text}")


def engine_name(config: Config) -> Literal["torch", "vllm"]:
    """The engine that samples rollouts."""
    from magcli.generate.open import policy_engine

    return policy_engine(config.engine, _first_device(config), deterministic=config.schedule == "sync")


def sends_adapters(config: Config, model: Model) -> bool:
    """Whether the engines get LoRA adapters themselves; else the weights that they are merged into."""
    if not config.lora:
        return False
    if engine_name(config) != "vllm":
        return _samples_with_base_of_trainer(config, model)
    import torch

    from magcli.generate.vllm_adapter import accepts
    from magcli.model.compute import dtype_of

    device = _first_device(config)
    in_bf16 = dtype_of(config.dtype, model, device) == torch.bfloat16
    return accepts(config.lora, on_gpu=device.startswith("cuda"), bf16=in_bf16)


def _samples_with_base_of_trainer(config: Config, model: Model) -> bool:
    return engine_name(config) == "torch" and shares_base(config, model, on_gpu=config.device.startswith("cuda"))


def _first_device(config: Config) -> str:
    return config.generator_devices[0] if config.generator_devices else config.device


def sampling_devices(config: Config, *, cards: int) -> Sequence[str]:
    """The devices of the engines' ranks: those that the user names, else a GPU each that has no trainer rank.

    Without generators they are the trainer's GPU, and for more ranks those after it. ``cards`` is the number of GPUs of
    this machine.

    Raises:
        UsageError: GPUs would be idle, or there are fewer than engines.
    """
    if config.generator_devices or not config.device.startswith("cuda"):
        return config.generator_devices or (config.device,)
    ranks = config.trainers
    if not config.generators:
        text = f"rl: with --generators 0 this process samples while {ranks} trainer ranks wait; use --generators"
        usage(ranks == 1, text)
        return _from(config.device, config.tensor_parallel)
    if cards == 1 and ranks == 1 and config.tensor_parallel == 1:
        return (config.device,)
    free = [card for card in _cards(cards) if card not in _trainer_cards(config)]
    usage(bool(free), f"rl: each of the {cards} GPUs has a trainer rank, and generators need others; lower --trainers")
    wanted = config.generators * config.tensor_parallel
    usage(wanted <= len(free), _too_few(config, len(free), cards))
    return free[:wanted]


def _from(device: str, number: int) -> Sequence[str]:
    """``number`` devices: this one and those after it."""
    from magcli.generate.wire import gpu_number

    if number == 1:
        return (device,)
    first = gpu_number(device)
    return [f"cuda:{card}" for card in range(first, first + number)]


def _too_few(config: Config, free: int, cards: int) -> str:
    """The message where fewer GPUs than the generators' ranks have no trainer rank, with what to change."""
    ranks = config.tensor_parallel
    gpus = f" of {ranks} GPUs each" if ranks > 1 else ""
    most = free // ranks
    advice = f"use --generators {most}, or name their GPUs with --generator-devices" if most else "lower it"
    if config.trainers > 1:
        advice += ", or lower --trainers"
    what = f"{config.generators} generators{gpus}" if most else f"one generator with --tensor-parallel {ranks}"
    return f"rl: {free} of {cards} GPUs have no trainer rank, too few for {what}; {advice}"


def gpu_share(config: Config, devices: Sequence[str]) -> float:
    """The share of a GPU's memory that each vLLM engine takes; engines on one GPU divide it."""
    if config.gpu_memory:
        return config.gpu_memory
    with_trainer = set(devices) & set(_trainer_cards(config))
    share = engines.BESIDE_TRAINER if with_trainer else engines.ALONE
    ranks_on_gpus = max(config.generators, 1) * config.tensor_parallel
    engines_per_card = -(-ranks_on_gpus // len(set(devices)))
    return share / engines_per_card


def _cards(number: int) -> list[str]:
    return [f"cuda:{index}" for index in range(number)]


def _trainer_cards(config: Config) -> list[str]:
    """The GPUs of the trainer ranks: of several the first ones."""
    if config.trainers > 1:
        return _cards(config.trainers)
    return ["cuda:0" if config.device == "cuda" else config.device]


def _spec(config: Config, model: Model, devices: Sequence[str]) -> Spec:
    """The engine of each generator, with slots for the largest n_async; deterministic for --schedule sync."""
    from magcli.generate.wire import Spec

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
        gpu_memory=gpu_share(config, ["cuda:0" if name == "cuda" else name for name in devices]),
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
    import torch

    if not generators:
        return 0
    threads = torch.get_num_threads()
    per_generator = trainers.share_threads(threads, ranks, generators)
    if ranks == 1:
        torch.set_num_threads(max(1, threads - per_generator * generators))
    return per_generator
