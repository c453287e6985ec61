"""The engine from which `magcli rl` samples: a second copy of the model, in this process or in generators."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from magcli.stages.rl.config import Config
from magcli.stages.shared.run_sizes import options_in

if TYPE_CHECKING:
    from magcli.generate.types import RolloutEngine
    from magcli.generate.wire import Spec
    from magcli.model.model import Model
    from magcli.run.job import Job


@asynccontextmanager
async def build_engine(config: Config, model: Model, job: Job) -> AsyncIterator[RolloutEngine]:
    """The engine for the duration of the block: a second copy of the model, in this process or in generators."""
    from magcli.generate.engine import TorchPolicy
    from magcli.generate.fleet import Fleet
    from magcli.generate.open import open_policy

    spec = _spec(config, model)
    opened: RolloutEngine
    if config.generators:
        opened = await Fleet.open(
            spec,
            config.generators,
            devices=config.generator_devices,
            say=lambda text: job.console.say(f"rl: {text}"),
        )
    else:
        policy = open_policy(spec)
        assert isinstance(policy, TorchPolicy), "vLLM runs in generators only"
        opened = policy
    try:
        yield opened
    finally:
        await opened.close()


def _spec(config: Config, model: Model) -> Spec:
    """The engine of each generator, with slots for the largest n_async; deterministic for --schedule sync."""
    from magcli.generate.wire import Spec

    most = max([config.n_async, *(options_in(stage, config).n_async for stage in config.stage)])
    exact = config.schedule == "sync"
    return Spec(
        model,
        engine=config.engine,
        dtype=config.dtype,
        slots=-(-most // max(config.generators, 1)),
        deterministic=exact,
        device=config.generator_devices[0] if config.generator_devices else config.device,
        threads=_share_threads(config.generators),
        transfer=config.transfer,
        source=config.device,
    )


def _share_threads(generators: int) -> int:
    """Divide torch's threads among trainer and generators; returns those of each generator, 0 without any.

    With more threads than cores, threads would wait for others that are not running.
    """
    import torch

    if not generators:
        return 0
    threads = torch.get_num_threads()
    each = max(1, threads // (generators + 1))
    torch.set_num_threads(max(1, threads - each * generators))
    return each
