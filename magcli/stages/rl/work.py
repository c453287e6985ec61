"""Run `magcli rl`: build the parts of a run from the options, train, show its progress, and output the rollouts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from magcli.config import as_json
from magcli.data import table
from magcli.data.values import to_rows
from magcli.generate.text import SamplerText
from magcli.generate.types import Sampling
from magcli.model.compute import use_threads
from magcli.model.ends import unused_ends
from magcli.rl import loop
from magcli.rl.curriculum import Curriculum, StageProblems
from magcli.rl.evaluation import EvaluationTimes
from magcli.rl.layout import note_layout
from magcli.rl.ledger import Ledger, read
from magcli.rl.live import Curves
from magcli.rl.loop import Checkpointing, keep_last_checkpoint
from magcli.rl.rollouts import GroupSampler
from magcli.rl.scheduler import RolloutScheduler
from magcli.rl.shared_weights import remove_weights_in
from magcli.rl.store import RolloutStore
from magcli.rl.trackers import open_trackers
from magcli.rl.trainer import Trainer
from magcli.rl.training_stages import StageOptions, TrainingStages
from magcli.rl.types import Numerics, Objective, StageSettings
from magcli.run import validation
from magcli.run.units import AsyncRunner
from magcli.stages.rl.config import Config, has_own_reward, reads, transfer_of
from magcli.stages.rl.display import Display, say_pool, say_results, say_start
from magcli.stages.rl.environment import episodes_in, opened_environment
from magcli.stages.rl.identity import settings
from magcli.stages.rl.memory import as_planned, plan_memory
from magcli.stages.rl.models import check_teacher, open_state
from magcli.stages.rl.output import rollouts_of, schema, show_masks, with_problems
from magcli.stages.rl.sampling_engine import (
    build_engine,
    check_devices,
    check_room,
    engine_name,
    generators_demand,
    ranks_send_weights,
    samples_beside_trainer,
    sends_adapters,
)
from magcli.stages.rl.verifiers import open_verifiers, verifiers_demand
from magcli.stages.shared import engines, environments, forms, graders, heldout, tables, templates, trainers, training
from magcli.stages.shared import forecast as forecasts
from magcli.stages.shared import preview as previews
from magcli.stages.shared.run_sizes import options_in
from magcli.train.optim import RL_LR, default_lr

if TYPE_CHECKING:
    from pathlib import Path

    from magcli.cluster.runtime import Cluster, Demand
    from magcli.console import Console
    from magcli.data.source import Rows
    from magcli.environments.workers import Environment
    from magcli.generate.types import RolloutEngine
    from magcli.model.model import Model
    from magcli.model.thoughts import ThoughtForm
    from magcli.rl.curriculum import Row
    from magcli.rl.evaluation import Measure
    from magcli.rl.loop import RepeatedUpdate
    from magcli.rl.trackers import LogLines
    from magcli.run.job import Job
    from magcli.run.rundir import RunDir
    from magcli.stages.shared.heldout import HeldOut
    from magcli.train.controller import RankController
    from magcli.verify.grader import CompletionGrader, Grader


__all__ = ["forecast", "preview", "run", "schema", "settings", "trial"]

ALIASES = tables.ALIASES
layouts = tables.problem_layouts(reads)


def trial(config: Config) -> Callable[[Mapping[str, Any]], None] | None:
    """Tries a custom reward function and an environment on the first problem."""
    both = graders.reward_trial(config), environments.environment_trial(config, config.environment)
    tries = [try_it for try_it in both if try_it is not None]

    def attempt(row: Mapping[str, Any]) -> None:
        for try_it in tries:
            try_it(row)

    return attempt if tries else None


def preview(config: Config, rows: Rows, job: Job) -> int:
    """The number of usable problems of the input, for --dry-run; checks the tables of stages and --eval-table too."""
    check_room(config, job.console, beside=_beside(config))
    model = previews.open_readable(config.model, config, config.system, job)
    pools = [[row for batch in rows for row in to_rows(batch)], *stage_rows(config, reads(config), job)]
    tables.check_ids("rl", chain(*pools), custom_reward=has_own_reward(config))
    with graders.open_grader(config, config.reward, config.environment) as grader:
        if config.eval_table is not None:
            heldout.check_table("rl", config.eval_table, config.system, model, grader)
        pools = [previews.fitting(pool, model, config.system, job) for pool in pools]
        usable = [previews.gradable(pool, grader, job) for pool in pools]
    stage_curriculum(config, usable)
    say_pool(config, usable[0], job.console)
    if model is None:
        _announce_memory(config, templates.open_model(config.model, config), job.console)
    else:
        check_teacher(config, model)
        problems = [row for pool in usable for row in pool]
        _announce_memory(config, model, job.console, _longest_prompt(config, model, problems))
    return len(usable[0])


def forecast(config: Config, console: Console) -> None:
    """Announce the memory and devices that a run needs, as far as they are known without its problems."""
    check_room(config, console, beside=_beside(config))
    _announce_memory(config, templates.open_model(config.model, config), console)


def _announce_memory(
    config: Config, model: Model, console: Console, longest_prompt: int = forecasts.UNKNOWN_PROMPT
) -> None:
    """Announce the memory that a run needs."""
    make_forecast = partial(plan_memory, config, model, longest_prompt)
    forecasts.announce(make_forecast, model, console, stage="rl", folder=config.run)


def _longest_prompt(config: Config, model: Model, problems: Sequence[Row]) -> int:
    """Tokens of the longest prompt, system prompt included."""
    return forecasts.longest_prompt(problems, model, engines.system_text(config.system, model.thoughts))


def run(config: Config, rows: Rows, job: Job) -> Rows:
    """Train, then return all rollouts in the order of the updates."""
    model = templates.open_model(config.model, config)
    if config.show_mask:
        show_masks(config, model)
        return
    check_teacher(config, model)
    with ExitStack() as stack:
        problems = [row for batch in rows for row in to_rows(batch)]
        folder = stack.enter_context(training.run_folder("rl", config, job, ["updates"]))
        with tracked(config, folder, job) as log_lines:
            config = training.resolve_formats(config, model, folder, job, exact=config.schedule == "sync")
            pools = [problems, *stage_rows(config, reads(config), job)]
            tables.check_ids("rl", chain(*pools), custom_reward=has_own_reward(config))
            if folder.finished:
                keep_last_checkpoint(folder)
                log_lines(folder.metrics())
                job.chosen |= {name: value for name, value in folder.notes.items() if name == forms.THOUGHTS}
                job.console.say(f"rl: {folder.model} is finished", event="up-to-date")
            else:
                say_pool(config, problems, job.console)
                train = partial(_train, config, model, pools, job, folder, log_lines)
                trainers.again_when_lost("rl", train, folder, job.console)
        assert job.schema is not None
        columns = schema(config, job.schema)
        by_id = {row["id"]: row for pool in reversed(pools) for row in pool}  # of equal ids the run's own problem
        for path in RolloutStore(folder.path).tables():
            for batch in table.read(str(path)).rows:
                yield with_problems(batch, by_id, columns)


def _train(
    config: Config,
    model: Model,
    problems: Sequence[Sequence[dict[str, Any]]],
    job: Job,
    folder: RunDir,
    log_lines: LogLines,
    after_loss: bool,
) -> None:
    """Train from the last update in the folder to the end, and write the model.

    ``problems`` are those of the run, then of each stage with its own table; ``after_loss`` as in ``trainers.opened``.

    Raises:
        Stopped: the run cannot learn any more; the message says why.
    """
    with ExitStack() as stack:
        processes = _opened_processes(config, model, folder, job.console, after_loss)
        cluster, controller, config = stack.enter_context(processes)
        grader = graders.open_grader(config, config.reward, config.environment)
        stack.callback(grader.shutdown)
        model = templates.with_date(model, job, [folder], system=config.system)
        forms.record(model.thoughts, job, [folder])
        system = engines.system_text(config.system, model.thoughts)
        rows = [engines.answerable(part, model, system, grader, job) for part in problems]
        environment = stack.enter_context(opened_environment(config, model))
        held_out = _open_held_out(config, model, grader, environment)
        usable = [row for part in rows for row in part]
        may_replace_vllm = _may_replace_vllm(config, model, usable)
        config = _check_memory(config, model, usable, folder, job.console)
        trainer = _open_trainer(config, model, controller, cluster, folder)
        stages = build_stages(config, model.thoughts)
        controller.try_saving(folder.model)
        ledger = Ledger(folder.ledger)
        stack.callback(ledger.close)
        checkpointing = _open_checkpointing(config, folder, ledger, model.thoughts, evaluates=held_out is not None)
        checkpointing.resume(trainer)
        curves = Curves([checkpointing.initial, *checkpointing.lines[: trainer.done]])
        log_lines(checkpointing.complete_lines())
        with job.console.progress(config.updates, "updates", "rl", curves.draw) as bar:
            monitor = Display(config, checkpointing, bar, curves, log_lines, job.console)
            say_start(config, ledger, trainer, job.console)
            bar.advance(trainer.done, reused=True)
            repeated = loop.repeat_updates(trainer, stages, checkpointing, monitor)
            engine = build_engine(config, model, job, cluster, controller, may_replace_vllm=may_replace_vllm)
            verifiers = open_verifiers(config, grader, usable, cluster, job.console)
            run_from = partial(_loop, config, model, engine, trainer, stages, checkpointing, repeated)
            run = run_from(rows, verifiers, environment, held_out, monitor)
            with AsyncRunner() as events:
                ended = events.run(run)
        if ended:
            job.console.say(ended, event="ended-early")
        checkpointing.finish(trainer)
    say_results(folder, job.console)


def _beside(config: Config) -> list[Demand]:
    """The processes of the run under Ray besides its trainer ranks."""
    demands = [generators_demand(config), verifiers_demand(config)]
    return [demand for demand in demands if demand is not None]


@contextmanager
def _opened_processes(
    config: Config, model: Model, folder: RunDir, console: Console, after_loss: bool
) -> Iterator[tuple[Cluster | None, RankController, Config]]:
    """The run's cluster, the controller of its ranks, and the options with their number, which is noted in the folder.

    Refuses engines for which this machine has too few GPUs.
    """

    def fits(ranks: int) -> bool:
        return plan_memory(replace(config, trainers=ranks), model).fits

    opened = trainers.opened("rl", config, console, beside=_beside(config), after_loss=after_loss, fits=fits)
    with opened as (cluster, controller):
        check_devices(config, cluster)
        note_layout(
            folder,
            trainers=controller.size,
            tensor_parallel=config.tensor_parallel,
            fsdp_size=config.fsdp_size,
        )
        yield cluster, controller, replace(config, trainers=controller.size)


def _open_held_out(config: Config, model: Model, grader: Grader, environment: Environment | None) -> HeldOut | None:
    """The held-out problems of --eval-table; None without it."""
    if config.eval_table is None:
        return None
    return heldout.open_held_out(
        "rl", config, model, grader, system=config.system, seed=config.seed, environment=environment
    )


def _open_trainer(
    config: Config, model: Model, controller: RankController, cluster: Cluster | None, folder: RunDir
) -> Trainer:
    """The policy to train, and how its ranks send their weights."""
    trainer = build_trainer(config, model, controller)
    trainer.ranks_send = ranks_send_weights(config, cluster)
    trainer.weights_folder = _weights_folder(cluster, folder)
    return trainer


def _weights_folder(cluster: Cluster | None, folder: RunDir) -> Path | None:
    """Where trainer ranks put weights for this process: of a cluster in the run's folder, which all nodes share."""
    if cluster is None or cluster.is_local:
        return None
    remove_weights_in(folder.path)
    return folder.path


def _check_memory(config: Config, model: Model, problems: Sequence[Row], folder: RunDir, console: Console) -> Config:
    """Refuse a run on these problems that does not fit its GPU; warn if disk or shared memory has too little space.

    Returns the options with what the forecast decides.

    Raises:
        EnvironmentFault: it does not fit its GPU.
    """
    forecast = plan_memory(config, model, _longest_prompt(config, model, problems))
    forecasts.check(forecast, folder.path, console)
    if config.generators and transfer_of(config) == "file" and not sends_adapters(config, model):
        weights = 4 * forecast.plan.training.shape.parameters
        forecasts.warn_of_small_shared_memory(weights, console, stage="rl")
    return as_planned(config, forecast)


def _may_replace_vllm(config: Config, model: Model, problems: Sequence[Row]) -> bool:
    """Whether vLLM is the choice of ``auto``, and the run would fit with the embedded engine in its place."""
    if config.engine != "auto" or engine_name(config) == "torch" or config.tensor_parallel > 1:
        return False
    return plan_memory(replace(config, engine="torch"), model, _longest_prompt(config, model, problems)).fits


def _open_checkpointing(
    config: Config, folder: RunDir, ledger: Ledger, thoughts: ThoughtForm, *, evaluates: bool
) -> Checkpointing:
    every = config.checkpoint_every, config.keep_checkpoints, config.trajectory_every
    store = RolloutStore(folder.path, {forms.THOUGHTS: thoughts.name}, rollouts_of(config))
    times = EvaluationTimes(config.evaluate_every if evaluates else 0, config.updates)
    return Checkpointing(folder, ledger, store, *every, times)


async def _loop(
    config: Config,
    model: Model,
    opened_engine: AbstractAsyncContextManager[RolloutEngine],
    trainer: Trainer,
    stages: TrainingStages,
    checkpointing: Checkpointing,
    repeated: RepeatedUpdate | None,
    rows: Sequence[Sequence[Row]],
    opened_verifiers: AbstractAsyncContextManager[CompletionGrader],
    environment: Environment | None,
    held_out: HeldOut | None,
    monitor: Display,
) -> str | None:
    """Generate and train; returns why the run ended early, or None."""
    async with opened_engine as engine, opened_verifiers as grader:
        if trainer.done or trainer.sends_adapters:
            delivered = await loop.deliver(trainer, engine, loop.inline)
            if repeated:
                await loop.record_repeated(repeated, delivered, trainer, engine, checkpointing, monitor)
        scheduler = RolloutScheduler(
            build_sampler(config, model, engine, grader, environment),
            build_curriculum(config, rows, checkpointing.ledger),
            checkpointing.ledger,
            checkpointing.store,
            stages,
            synchronous=config.schedule == "sync",
            staleness=config.staleness,
            updates=config.updates,
            custom_reward=has_own_reward(config),
            generates_during_updates=samples_beside_trainer(config, engine),
        )
        measure = build_measure(held_out, model, engine, grader, scheduler)
        return await loop.train(trainer, engine, scheduler, stages, checkpointing, monitor, measure)


def build_measure(
    held_out: HeldOut | None,
    model: Model,
    engine: RolloutEngine,
    grader: CompletionGrader,
    scheduler: RolloutScheduler,
) -> Measure | None:
    """The function that evaluates the weights of the run's engine on held-out problems; None without --eval-table."""
    if held_out is None:
        return None
    started, ended = scheduler.evaluation_started, scheduler.evaluation_ended
    generator = SamplerText(engine, model.tokenizer, model.ends, model.thoughts, started, ended)
    return partial(replace(held_out, grader=grader).accuracy, generator)


def build_trainer(config: Config, model: Model, controller: RankController) -> Trainer:
    """The policy to train, on all ranks."""
    use_threads(model, config.n_async)
    numerics = Numerics(config.micro_tokens, config.max_norm, bf16=config.bf16 == "yes")
    controller.open(open_state(config, model), bf16=numerics.bf16)
    return Trainer(
        controller,
        updates=config.updates,
        lr=config.lr or default_lr(controller.facts.weights, at_24b=RL_LR, lora=bool(config.lora)),
        warmup=config.warmup,
        shuffle_rewards=config.shuffle_rewards,
        seed=config.seed,
        numerics=numerics,
        unused_ends=unused_ends(model.tokenizer, model.ends),
        sends_adapters=sends_adapters(config, model),
    )


def build_stages(config: Config, thoughts: ThoughtForm) -> TrainingStages:
    """The stages of the recipe, or a single one, for a model with this form of thoughts."""
    options = config.stage or (StageOptions(),)
    settings = [_settings(options_in(stage, config), thoughts) for stage in options]
    return TrainingStages(options, settings)


def _settings(config: Config, thoughts: ThoughtForm) -> StageSettings:
    objective = Objective(
        clip_low=config.clip_low,
        clip_high=config.clip_high,
        advantage_norm=config.advantage_norm,
        loss_norm=config.loss_norm,
        tis_cap=config.tis_cap,
        kl=config.kl,
        entropy_bonus=config.entropy_bonus,
        advantage=config.advantage,
        loss=config.loss,
        max_tokens=config.max_tokens,
        teacher=bool(config.teacher),
    )
    return StageSettings(
        objective,
        groups_per_step=config.n_mini // config.group_size,
        batch_groups=config.n_batch // config.group_size,
        async_groups=config.n_async // config.group_size,
        sampling=Sampling(config.max_tokens, config.temperature),
        rule=graders.reward_rule(config, thoughts),
    )


def stage_rows(config: Config, needs: Sequence[str], job: Job) -> list[list[dict[str, Any]]]:
    """The problems of each stage that has its own table, in the order of the stages.

    Raises:
        DataError: a table lacks a column, or has no usable row.
    """
    pools = []
    paths = [str(stage.data) for stage in config.stage if stage.data is not None]
    for path in paths:
        source = tables.read_table(path, tables.PROBLEM_ROLES)
        _, rows = validation.validate_rows(needs, source.schema, source.rows, job, path, tables.ALIASES)
        pools.append([row for batch in rows for row in to_rows(batch)])
    return pools


def build_curriculum(config: Config, rows: Sequence[Sequence[Row]], ledger: Ledger) -> Curriculum:
    """The curriculum in the state of the ledger. ``rows``: the run's problems, then ``stage_rows``."""
    curriculum = stage_curriculum(config, rows)
    for event in read(ledger.path):
        curriculum.replay(event)
    return curriculum


def stage_curriculum(config: Config, rows: Sequence[Sequence[Row]]) -> Curriculum:
    """The curriculum of a run that has not begun.

    Raises:
        DataError: a stage has no problem, or no pass rates for its band.
    """
    remaining_pools = iter(rows)
    pool = next(remaining_pools)
    stages = []
    for stage in config.stage or (StageOptions(),):
        if stage.data is not None:
            pool = next(remaining_pools)
        stages.append(StageProblems(pool, stage.band))
    any_scale = has_own_reward(config) and config.diverse_by == "reward"
    rules = {"retire_after": config.retire_after, "defer_after": config.defer_after}
    return Curriculum(stages, config.seed, any_scale=any_scale, **rules)


def build_sampler(
    config: Config,
    model: Model,
    engine: RolloutEngine,
    grader: CompletionGrader,
    environment: Environment | None = None,
) -> GroupSampler:
    """The sampler of groups, or of episodes in an environment."""
    return GroupSampler(
        engine,
        grader,
        model.tokenizer,
        model.ends,
        engines.system_text(config.system, model.thoughts),
        model.thoughts,
        config.group_size,
        config.diverse_by,
        config.seed,
        None if environment is None else episodes_in(environment, config, model, engine),
    )


def tracked(config: Config, folder: RunDir, job: Job) -> AbstractContextManager[LogLines]:
    """The run's trackers (``--track``), resumed if they have this run already."""
    return open_trackers(config.track, folder.path, as_json(config), job.console, resumed=bool(folder.metrics()))
