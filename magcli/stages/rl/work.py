"""Run `magcli rl`: plan a run from its options, train, and output the rollouts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from magcli.data import table
from magcli.data.values import all_rows
from magcli.rl import loop
from magcli.rl.checkpointing import keep_last_checkpoint
from magcli.rl.layout import note_layout
from magcli.rl.probe import inline
from magcli.rl.samples import samples_of
from magcli.rl.store import RolloutStore
from magcli.run import validation
from magcli.run.units import AsyncRunner
from magcli.stages.rl.config import Config, reads
from magcli.stages.rl.display import say_pool, say_results
from magcli.stages.rl.identity import settings
from magcli.stages.rl.models import check_teacher
from magcli.stages.rl.output import schema, show_masks, with_problems
from magcli.stages.rl.parts import Inputs, Parts, Surroundings, build_measure, opened, shown
from magcli.stages.rl.replay import check_stored, train_replay
from magcli.stages.rl.sampling_engine import check_devices, check_room, generators_demand
from magcli.stages.rl.spec import RunSpec
from magcli.stages.rl.verifiers import Verifiers, open_verifiers
from magcli.stages.shared import engines, environments, forms, graders, tables, templates, trainer_ranks
from magcli.stages.shared import forecast as forecasts
from magcli.stages.shared import preview as previews

if TYPE_CHECKING:
    from pathlib import Path

    from magcli.cluster.runtime import Cluster
    from magcli.cluster.types import Demand
    from magcli.console import Console
    from magcli.data.source import Rows
    from magcli.environments.environment import Environment
    from magcli.model.model import Model
    from magcli.plan.machine import Machine
    from magcli.rl.curriculum import Row
    from magcli.rl.loop import RepeatedUpdate
    from magcli.rl.training_stages import StageOptions
    from magcli.run.job import Job
    from magcli.run.rundir import RunDir
    from magcli.stages.rl.display import Display
    from magcli.stages.rl.plan import RunPlan
    from magcli.train.controller import RankController


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
    spec = RunSpec.of(config)
    _check_room(spec, job.console)
    model = previews.open_readable(config, job)
    pools = _pools(spec, all_rows(rows), job)
    with spec.judging.open_grader() as grader:
        if spec.held_out is not None:
            spec.held_out.check(model, grader)
        pools = [previews.fitting(pool, model, spec.system, job) for pool in pools]
        usable = [list(engines.gradable(pool, grader, job)) for pool in pools]
    for pool in usable:
        engines.require_usable(pool, job)

    # Made to be checked: it refuses a stage whose band has no problem.
    spec.curriculum.build(usable)
    say_pool(spec, usable[0], job.console)
    if model is None:
        _announce_memory(spec, spec.model.open(), job.console)
    else:
        check_teacher(spec.policy.teacher, model)
        problems = list(chain.from_iterable(usable))
        longest = _longest_prompt(spec.system, model, problems)
        _announce_memory(spec, model, job.console, longest)
    return len(usable[0])


def forecast(config: Config, console: Console) -> None:
    """Announce the memory and devices that a run needs, as far as they are known without its problems.

    Of a replay the stored rollouts are checked.
    """
    spec = RunSpec.of(config)
    model = spec.model.open()
    if spec.replay is None:
        _check_room(spec, console)
        _announce_memory(spec, model, console)
    else:
        trainer_ranks.check_room(spec.ranks, console)
        stored = check_stored(spec, model)
        _announce_memory(spec, model, console, stored.longest_prompt)


def _check_room(spec: RunSpec, console: Console) -> None:
    """Refuse a run for whose processes this machine or the cluster has no room."""
    check_room(spec.ranks, spec.processes, console, beside=_beside(spec))


def _announce_memory(
    spec: RunSpec, model: Model, console: Console, longest_prompt: int = forecasts.UNKNOWN_PROMPT
) -> None:
    """Announce the plan of a run and the memory that it needs."""

    def planned() -> RunPlan:
        return spec.plan_on(model, spec.ranks.machine(planned=True), longest_prompt=longest_prompt)

    forecasts.announce(planned, model, spec.folder.path, console, stage="rl")


def _longest_prompt(system: Path | None, model: Model, problems: Sequence[Row]) -> int:
    """Tokens of the longest prompt, system prompt included."""
    return forecasts.longest_prompt(problems, model, engines.system_text(system, model.thoughts))


def run(config: Config, rows: Rows, job: Job) -> Rows:
    """Train, then return all rollouts in the order of the updates."""
    spec = RunSpec.of(config)
    model = spec.model.open()
    if config.show_mask:
        show_masks(spec.folder.path, model, config.show_mask)
        return
    check_teacher(spec.policy.teacher, model)
    problems = all_rows(rows)  # to the end, as the run's folder needs the digest of a pipe
    with spec.folder.opened(model, job) as (folder, formats):
        # Closed before the output: a run whose rollouts nobody reads has still succeeded.
        with spec.folder.tracked(folder, job, partial(samples_of, folder.path)) as log_lines:
            inputs = Inputs(spec, model, formats, _pools(spec, problems, job), job, folder, log_lines)
            if folder.finished:
                _keep_finished(inputs)
            else:
                _train_to_end(inputs)
        yield from _rollouts(inputs)


def _pools(spec: RunSpec, problems: list[dict[str, Any]], job: Job) -> list[list[dict[str, Any]]]:
    """The problems of the input, then those of the stages that have their own; none for a replay.

    Raises:
        DataError: as ``stage_rows``, or problems that are not the same have one id.
    """
    if spec.columns is None:
        return []
    pools = [problems, *stage_rows(spec.curriculum.stages, spec.columns, job)]
    tables.check_ids("rl", chain(*pools), custom_reward=spec.own_reward)
    return pools


def _train_to_end(inputs: Inputs) -> None:
    """Train, again from the last checkpoint with the same inputs when ranks are lost."""
    spec, console = inputs.spec, inputs.job.console
    train_once = _train
    if spec.replay is None:
        say_pool(spec, inputs.problems[0], console)
    else:
        train_once = train_replay
    trainer_ranks.again_when_lost("rl", partial(train_once, inputs), inputs.folder, console)


def _keep_finished(inputs: Inputs) -> None:
    """Leave a finished run as it is; its trackers get what they lack."""
    folder, job = inputs.folder, inputs.job
    keep_last_checkpoint(folder)
    inputs.log_lines(folder.metrics())
    job.chosen |= {name: value for name, value in folder.notes.items() if name == forms.THOUGHTS}
    job.console.say(f"rl: {folder.model} is finished", event="up-to-date")


def _rollouts(inputs: Inputs) -> Rows:
    """All rollouts of a run with the columns of their problems."""
    by_id: dict[str, Row] = {}
    for pool in reversed(inputs.problems):  # of equal ids the run's own problem, which comes last
        by_id |= {row["id"]: row for row in pool}
    # One by one, as all rollouts may not fit into memory.
    for path in RolloutStore(inputs.folder.path).tables():
        for batch in table.read(str(path)).rows:
            yield with_problems(batch, by_id, inputs.job.output_schema)


def _train(inputs: Inputs, after_loss: bool) -> None:
    """Train from the last update in the folder to the end, and write the model.

    ``after_loss``: as in ``trainer_ranks.opened``.

    Raises:
        Stopped: the run cannot learn any more; the message says why.
    """
    spec, folder, console = inputs.spec, inputs.folder, inputs.job.console
    machine = spec.ranks.machine()
    with _surroundings(inputs, machine, after_loss) as around:
        prompt = _longest_prompt(spec.system, around.model, around.usable)
        ranks = around.controller.size
        plan = spec.plan_on(around.model, machine, formats=inputs.formats, longest_prompt=prompt, ranks=ranks)
        _check_plan(plan, folder, console)
        with opened(plan, inputs, around) as parts:
            ended = train(parts)
            if ended:
                console.say(ended, event="ended-early")
            parts.checkpointing.finish(parts.trainer)
    say_results(folder, console)


def train(parts: Parts) -> str | None:
    """Repeat what an earlier process began, then run the other updates; returns why the run ended early, or None."""
    with shown(parts.inputs, parts.trainer, parts.checkpointing) as display:
        repeated = loop.repeat_updates(parts.trainer, parts.stages, parts.checkpointing, display)
        with AsyncRunner() as events:
            return events.run(_loop(parts, repeated, display))


async def _loop(parts: Parts, repeated: RepeatedUpdate | None, display: Display) -> str | None:
    """Generate and train; returns why the run ended early, or None."""
    trainer, checkpointing = parts.trainer, parts.checkpointing
    async with parts.opened_engine as engine, parts.around.opened_verifiers as verifiers:
        # A fresh engine has the initial weights already, but no adapters.
        if trainer.done or trainer.sends_adapters:
            delivered = await loop.deliver(trainer, engine, inline)
            if repeated:
                await loop.record_repeated(repeated, delivered, trainer, engine, checkpointing, display)
        scheduler = parts.scheduler(engine, verifiers)
        measure = build_measure(parts.around, engine, verifiers.grader, scheduler)
        return await loop.train(trainer, engine, scheduler, parts.stages, checkpointing, display, measure)


def _check_plan(plan: RunPlan, folder: RunDir, console: Console) -> None:
    """Refuse a run that does not fit its GPU; warn if disk or shared memory has too little space; note its sizes.

    Raises:
        EnvironmentFault: it does not fit its GPU.
    """
    forecasts.check(plan, folder, console)
    if plan.engines.by_file:
        # Bytes in float32.
        weights = 4 * plan.forecast.plan.training.shape.parameters
        forecasts.warn_of_small_shared_memory(weights, console)


def _beside(spec: RunSpec) -> list[Demand]:
    """The processes of the run under Ray besides its trainer ranks."""
    demands = [generators_demand(spec.processes), spec.judging.demand]
    return [demand for demand in demands if demand is not None]


@contextmanager
def _surroundings(inputs: Inputs, machine: Machine, after_loss: bool) -> Iterator[Surroundings]:
    """The processes of a run, what grades its completions, and its usable problems."""
    spec, job = inputs.spec, inputs.job
    notes = [inputs.folder]
    with ExitStack() as stack:
        cluster, controller = stack.enter_context(_opened_processes(inputs, machine, after_loss))
        grader = stack.enter_context(spec.judging.open_grader())
        model = templates.with_date(inputs.model, job, notes, system=spec.system)
        forms.record(model.thoughts, job, notes)
        system = engines.system_text(spec.system, model.thoughts)
        # By the prompts as they are rendered, with date and form of thoughts.
        pools = [engines.answerable(pool, model, system, grader, job) for pool in inputs.problems]
        curriculum = spec.curriculum.build(pools)
        environment = _entered_environment(spec, model, stack)
        own = Verifiers(grader, environment)
        usable = list(chain.from_iterable(pools))
        verifiers = open_verifiers(spec.judging, own, usable, cluster, job.console)
        held_out = spec.held_out.open(model, grader, environment) if spec.held_out is not None else None
        yield Surroundings(cluster, controller, model, usable, curriculum, verifiers, held_out)


@contextmanager
def _opened_processes(
    inputs: Inputs, machine: Machine, after_loss: bool
) -> Iterator[tuple[Cluster | None, RankController]]:
    """The run's cluster and the controller of its ranks, whose number is noted in the folder.

    Refuses engines for which this machine has too few GPUs.
    """
    spec, console = inputs.spec, inputs.job.console
    planned = partial(spec.plan_on, inputs.model, machine, formats=inputs.formats)
    opening = trainer_ranks.opened(spec.ranks, console, beside=_beside(spec), after_loss=after_loss, planned=planned)
    with opening as (cluster, controller):
        check_devices(spec.processes, cluster)
        note_layout(
            inputs.folder,
            trainers=controller.size,
            tensor_parallel=spec.processes.tensor_parallel,
            fsdp_size=spec.ranks.copy_size,
        )
        yield cluster, controller


def _entered_environment(spec: RunSpec, model: Model, stack: ExitStack) -> Environment | None:
    """The run's environment, if the model's chat template can show its turns; None without one.

    Raises:
        UsageError: it cannot.
    """
    judging = spec.judging
    if not judging.environment:
        return None
    environment = stack.enter_context(environments.open_environment(judging.grading, judging.environment))
    # Before anything is sampled: not each chat template has a place for what an environment says.
    environments.turn_renderer(model, spec.system).check(environment.terms.roles)
    return environment


def stage_rows(stages: Sequence[StageOptions], needs: Sequence[str], job: Job) -> list[list[dict[str, Any]]]:
    """The problems of each stage that has its own table, in the order of the stages.

    Raises:
        DataError: a table lacks a column, or has no usable row.
    """
    pools = []
    for stage in stages:
        if stage.data is None:
            continue
        path = str(stage.data)
        source = tables.read_table(path, tables.PROBLEM_ROLES)
        _, rows = validation.validate_rows(needs, source.schema, source.rows, job, path, tables.ALIASES)
        pools.append(all_rows(rows))
    return pools
