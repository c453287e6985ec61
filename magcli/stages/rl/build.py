"""Build the parts of a run from the options of `magcli rl`: trainer, schedule, curriculum, engine, sampler."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any

from magcli.rl.schedule import StageOptions
from magcli.stages.shared import engines, grading, tables
from magcli.stages.shared.run_sizes import options_in

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from magcli.generate.types import Sampler
    from magcli.generate.wire import Spec
    from magcli.rl.curriculum import Curriculum, Row
    from magcli.rl.ledger import Ledger
    from magcli.rl.rollouts import GroupSampler
    from magcli.rl.schedule import Schedule, StageSettings
    from magcli.rl.trackers import LogLines
    from magcli.rl.trainer import Trainer
    from magcli.run.job import Job
    from magcli.run.rundir import RunDir
    from magcli.stages.rl.config import Config
    from magcli.train.controller import OpenState, RankController, RankState
    from magcli.train.distributed import Ranks
    from magcli.verify.grader import Grader


def trainer(config: Config, controller: RankController) -> Trainer:
    """The policy to train, on all ranks that torchrun started."""
    from magcli.model.compute import use_threads
    from magcli.rl.trainer import Trainer

    use_threads(config.model, config.n_async)
    controller.open(open_state(config), bf16=config.bf16 == "yes")
    return Trainer(
        controller,
        updates=config.updates,
        lr=config.lr,
        warmup=config.warmup,
        shuffle_rewards=config.shuffle_rewards,
        seed=config.seed,
    )


def open_state(config: Config) -> OpenState:
    """The function that loads a rank's state: float32 weights, optimizer, and the reference model of a KL penalty."""
    import torch

    from magcli.model.load import load_model, load_tokenizer
    from magcli.train import optim
    from magcli.train.controller import RankState
    from magcli.train.packing import use_packed_attention
    from magcli.train.shard import shard

    def model(ranks: Ranks) -> PreTrainedModel:
        loaded = load_model(config.model, dtype=torch.float32, device=str(ranks.device))
        use_packed_attention(loaded)
        return loaded

    def opened(ranks: Ranks, bf16: bool) -> RankState:
        sharded = shard(model(ranks), ranks, bf16=bf16, checkpoint_activations=config.recompute)
        return RankState(
            ranks,
            sharded,
            optim.adamw(sharded.model, lr=config.lr, weight_decay=config.weight_decay),
            load_tokenizer(config.model),
            reference=model(ranks).eval().requires_grad_(False) if config.kl else None,
        )

    return opened


def schedule(config: Config) -> Schedule:
    """The stages of the recipe, or a single one."""
    from magcli.rl.schedule import Schedule

    stages = config.stage or (StageOptions(),)
    return Schedule(stages, [_settings(options_in(stage, config)) for stage in stages])


def _settings(config: Config) -> StageSettings:
    from magcli.generate.types import Sampling
    from magcli.rl.objective import Objective
    from magcli.rl.schedule import StageSettings

    objective = Objective(
        clip_low=config.clip_low,
        clip_high=config.clip_high,
        advantage_norm=config.advantage_norm,
        loss_norm=config.loss_norm,
        max_norm=config.max_norm,
        micro_tokens=config.micro_tokens,
        bf16=config.bf16 == "yes",
        is_cap=config.is_cap,
        kl=config.kl,
        entropy_bonus=config.entropy_bonus,
        advantage=config.advantage,
        loss=config.loss,
    )
    return StageSettings(
        objective,
        groups_per_step=config.n_mini // config.group,
        batch_groups=config.n_batch // config.group,
        async_groups=config.n_async // config.group,
        sampling=Sampling(config.max_tokens, config.temperature),
        rule=grading.reward_rule(config),
    )


def stage_rows(config: Config, needs: Sequence[str], job: Job) -> list[list[dict[str, Any]]]:
    """The problems of each stage that has its own table, in the order of the stages.

    Raises:
        DataError: a table lacks a column, or has no usable row.
    """
    from magcli.data import table
    from magcli.run import validation

    found = []
    for path in (str(stage.data) for stage in config.stage if stage.data is not None):
        source = table.read(path)
        _, rows = validation.validate_rows(needs, source.schema, source.rows, job, path, tables.ALIASES)
        found.append([row for batch in rows for row in batch.to_pylist()])
    return found


def curriculum(config: Config, rows: Sequence[Sequence[Row]], ledger: Ledger) -> Curriculum:
    """The curriculum in the state of the ledger. ``rows``: the run's problems, then ``stage_rows``."""
    from magcli.rl.curriculum import Curriculum, StageProblems
    from magcli.rl.ledger import read

    tables, stages = iter(rows), []
    current = next(tables)
    for stage in config.stage or (StageOptions(),):
        current = next(tables) if stage.data is not None else current
        stages.append(StageProblems(current, stage.band))
    found = Curriculum(stages, config.seed, retire_after=config.retire_after, defer_after=config.defer_after)
    for event in read(ledger.path):
        found.replay(event)
    return found


@asynccontextmanager
async def engine(config: Config, job: Job) -> AsyncIterator[Sampler]:
    """The engine for the duration of the block: a second copy of the model, in this process or in generators."""
    from magcli.generate.fleet import Fleet
    from magcli.generate.open import open_policy

    spec = _spec(config)
    opened: Sampler
    if config.generators:
        opened = await Fleet.open(
            spec,
            config.generators,
            devices=config.generator_devices,
            say=lambda text: job.console.say(f"rl: {text}"),
        )
    else:
        opened = open_policy(
            spec.model,
            engine=spec.engine,
            dtype=spec.dtype,
            slots=spec.slots,
            deterministic=spec.deterministic,
            device=spec.device,
        )
    try:
        yield opened
    finally:
        await opened.close()


def _spec(config: Config) -> Spec:
    """The engine of each generator, with slots for the largest n_async; deterministic for --schedule sync."""
    from magcli.generate.wire import Spec

    most = max([config.n_async, *(options_in(stage, config).n_async for stage in config.stage)])
    exact = config.schedule == "sync"
    return Spec(
        config.model,
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


def group_sampler(config: Config, engine: Sampler, grader: Grader, trainer: Trainer) -> GroupSampler:
    """The sampler of groups."""
    from magcli.model.load import end_tokens
    from magcli.rl.rollouts import GroupSampler

    state = trainer.controller.state
    return GroupSampler(
        engine,
        grader,
        state.tokenizer,
        end_tokens(state.model, state.tokenizer),
        engines.system_text(config.system),
        config.group,
        config.diverse_by,
        config.seed,
    )


def tracked(config: Config, folder: RunDir, job: Job) -> AbstractContextManager[LogLines]:
    """The run's trackers (``--track``), resumed if they have this run already."""
    from magcli.config import as_json
    from magcli.rl.trackers import open_trackers

    return open_trackers(config.track, folder.path, as_json(config), job.console, resumed=bool(folder.metrics()))
