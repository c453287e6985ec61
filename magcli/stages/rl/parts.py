"""The parts of a run of `magcli rl`: what its options, its model and its plan open and build."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager, closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from magcli.environments.episodes import Episodes
from magcli.generate.text import SamplerText
from magcli.generate.types import Sampling
from magcli.model.chat.ends import unused_ends
from magcli.model.compute import use_threads
from magcli.rl.checkpointing import Checkpointing
from magcli.rl.curriculum import Curriculum, StageProblems
from magcli.rl.evaluation import EvaluationTimes
from magcli.rl.ledger import Ledger, read
from magcli.rl.live import Curves
from magcli.rl.rollouts import GroupSampler
from magcli.rl.scheduler import RolloutScheduler, Schedule
from magcli.rl.shared_weights import remove_weights_in
from magcli.rl.store import RolloutStore
from magcli.rl.trainer import Trainer
from magcli.rl.training_stages import StageOptions, TrainingStages
from magcli.rl.types import Numerics, Objective, StageSettings
from magcli.stages.rl.config import Config, has_own_reward
from magcli.stages.rl.display import Display, say_resumed
from magcli.stages.rl.models import open_state
from magcli.stages.rl.output import rollouts_of
from magcli.stages.rl.sampling_engine import opened_engine, samples_beside_trainer
from magcli.stages.shared import engines, environments, forms, graders
from magcli.stages.shared.run_sizes import options_in
from magcli.train.optim import RL_LR, default_lr

if TYPE_CHECKING:
    from pathlib import Path

    from magcli.cluster.runtime import Cluster
    from magcli.environments.environment import Environment
    from magcli.generate.types import RolloutEngine
    from magcli.model.chat.thoughts import ThoughtForm
    from magcli.model.model import Model
    from magcli.plan.formats import Formats
    from magcli.rl.curriculum import Row
    from magcli.rl.evaluation import Measure
    from magcli.run.job import Job
    from magcli.run.rundir import RunDir
    from magcli.run.trackers import LogLines
    from magcli.stages.rl.plan import RunPlan
    from magcli.stages.rl.verifiers import Verifiers
    from magcli.stages.shared.heldout import HeldOut
    from magcli.train.controller import RankController
    from magcli.verify.grader import CompletionGrader


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a run starts from, the first time and when its ranks were lost.

    ``problems`` are those of the run, then of each stage with its own table.
    """

    config: Config
    model: Model
    formats: Formats
    problems: Sequence[Sequence[dict[str, Any]]]
    job: Job
    folder: RunDir
    log_lines: LogLines


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a run finds or opens before it is planned: its processes, what grades, and the problems that are usable.

    ``curriculum`` is that of a run that has not begun; verifiers are opened in the event loop.
    """

    cluster: Cluster | None
    controller: RankController
    model: Model
    usable: Sequence[Row]
    curriculum: Curriculum
    opened_verifiers: AbstractAsyncContextManager[Verifiers]
    held_out: HeldOut | None


@dataclass(frozen=True, slots=True)
class Parts:
    """What trains; the engine is opened in the event loop."""

    inputs: Inputs
    plan: RunPlan
    around: Surroundings
    trainer: Trainer
    stages: TrainingStages
    checkpointing: Checkpointing
    opened_engine: AbstractAsyncContextManager[RolloutEngine]

    def scheduler(self, engine: RolloutEngine, verifiers: Verifiers) -> RolloutScheduler:
        """What samples groups of completions and hands out batches of them."""
        config, around, checkpointing = self.inputs.config, self.around, self.checkpointing
        # The choice of problems goes on where an interrupted run stopped.
        for event in read(checkpointing.ledger.path):
            around.curriculum.replay(event)
        return RolloutScheduler(
            self._sampler(engine, verifiers),
            around.curriculum,
            checkpointing.ledger,
            checkpointing.store,
            self.stages,
            Schedule(
                synchronous=config.schedule == "sync",
                staleness=config.staleness,
                updates=config.updates,
                generates_during_updates=samples_beside_trainer(self.plan.engines, engine),
            ),
            custom_reward=has_own_reward(config),
        )

    def _sampler(self, engine: RolloutEngine, verifiers: Verifiers) -> GroupSampler:
        """What samples groups, or episodes in an environment."""
        config, model = self.inputs.config, self.around.model
        grader, environment = verifiers
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
            None if environment is None else _episodes(environment, config.system, model, engine),
        )


@contextmanager
def opened(plan: RunPlan, inputs: Inputs, around: Surroundings) -> Iterator[Parts]:
    """The parts of a run, resumed from the last checkpoint of its folder."""
    config, folder, console = inputs.config, inputs.folder, inputs.job.console
    trainer = build_trainer(config, around.model, plan, around.controller)
    trainer.weights_folder = _weights_folder(around.cluster, folder)
    stages = build_stages(config, around.model.thoughts)
    # A disk that cannot take the model is found before the training, not after it.
    around.controller.try_saving(folder.model)
    with closing(Ledger(folder.ledger)) as ledger:
        checkpointing = build_checkpointing(inputs, ledger, around.model, evaluates=around.held_out is not None)
        checkpointing.resume(trainer)
        engine = opened_engine(plan, around.model, around.cluster, trainer, console)
        yield Parts(inputs, plan, around, trainer, stages, checkpointing, engine)


@contextmanager
def shown(inputs: Inputs, trainer: Trainer, checkpointing: Checkpointing) -> Iterator[Display]:
    """Shows the progress of a run, from the update on from which it is resumed."""
    config, console = inputs.config, inputs.job.console
    # Lines after the checkpoint are of updates that are repeated, and drawn then.
    curves = Curves([checkpointing.initial, *checkpointing.lines[: trainer.done]])
    inputs.log_lines(checkpointing.complete_lines())
    with console.progress(config.updates, "updates", "rl", curves.draw) as bar:
        groups = config.n_batch // config.group_size
        display = Display(groups, checkpointing, bar, curves, inputs.log_lines, console)
        if not config.lr:
            console.say(f"rl: lr {trainer.lr:.1e} for a model of this size", event="lr", lr=trainer.lr)
        say_resumed(checkpointing.ledger, trainer, console)
        # Not counted in the rate.
        bar.advance(trainer.done, reused=True)
        yield display


def _weights_folder(cluster: Cluster | None, folder: RunDir) -> Path | None:
    """Where trainer ranks put weights for this process: of a cluster in the run's folder, which all nodes share."""
    if cluster is None or cluster.is_local:
        return None
    # What a killed process has left.
    remove_weights_in(folder.path)
    return folder.path


def build_checkpointing(inputs: Inputs, ledger: Ledger, model: Model, *, evaluates: bool) -> Checkpointing:
    """What reads and writes the folder of a run."""
    config, folder = inputs.config, inputs.folder
    every = config.checkpoint_every, config.keep_checkpoints, config.trajectory_every
    store = RolloutStore(folder.path, {forms.THOUGHTS: model.thoughts.name}, rollouts_of(config))
    times = EvaluationTimes(config.evaluate_every if evaluates else 0, config.updates)
    return Checkpointing(folder, ledger, store, *every, times)


def build_measure(
    around: Surroundings, engine: RolloutEngine, grader: CompletionGrader, scheduler: RolloutScheduler
) -> Measure | None:
    """The function that evaluates the weights of the run's engine on held-out problems; None without --eval-table."""
    model, held_out = around.model, around.held_out
    if held_out is None:
        return None
    started, ended = scheduler.evaluation_started, scheduler.evaluation_ended
    generator = SamplerText(engine, model.tokenizer, model.ends, model.thoughts, started, ended)
    # Graded where the run's completions are, perhaps on the cluster.
    return partial(replace(held_out, grader=grader).accuracy, generator)


def build_trainer(config: Config, model: Model, plan: RunPlan, controller: RankController) -> Trainer:
    """The policy to train, on all ranks."""
    use_threads(model, config.n_async)
    numerics = Numerics(plan.trainer.micro_tokens, config.max_norm, bf16=plan.trainer.bf16)
    controller.open(open_state(config, model, plan.trainer), bf16=plan.trainer.bf16)
    return Trainer(
        controller,
        updates=config.updates,
        lr=config.lr or default_lr(controller.facts.weights, at_24b=RL_LR, lora=bool(config.lora)),
        warmup=config.warmup,
        shuffle_rewards=config.shuffle_rewards,
        seed=config.seed,
        numerics=numerics,
        unused_ends=unused_ends(model.tokenizer, model.ends),
        sends_adapters=plan.engines.adapter_rank > 0,
    )


def build_stages(config: Config, thoughts: ThoughtForm) -> TrainingStages:
    """The stages of the recipe, or a single one, for a model with this form of thoughts."""
    # A run without stages is one stage that changes nothing.
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
        # Options count completions, the loop counts groups; ``run_sizes.check`` has seen that they divide.
        groups_per_step=config.n_mini // config.group_size,
        batch_groups=config.n_batch // config.group_size,
        async_groups=config.n_async // config.group_size,
        sampling=Sampling(config.max_tokens, config.temperature, continues=bool(config.environment)),
        rule=graders.reward_rule(config, thoughts),
    )


def stage_curriculum(config: Config, rows: Sequence[Sequence[Row]]) -> Curriculum:
    """The curriculum of a run that has not begun.

    Raises:
        DataError: a stage has no problem, or no pass rates for its band.
    """
    remaining_pools = iter(rows)
    pool = next(remaining_pools)
    stages = []
    for stage in config.stage or (StageOptions(),):
        # A stage without a table goes on with the problems of the one before it.
        if stage.data is not None:
            pool = next(remaining_pools)
        stages.append(StageProblems(pool, stage.band))
    any_scale = has_own_reward(config) and config.diverse_by == "reward"
    rules = {"retire_after": config.retire_after, "defer_after": config.defer_after}
    return Curriculum(stages, config.seed, any_scale=any_scale, **rules)


def _episodes(environment: Environment, system: Path | None, model: Model, engine: RolloutEngine) -> Episodes:
    """Continues first turns of an engine to episodes in an environment."""
    renderer = environments.turn_renderer(model, system)
    return Episodes(engine, environment, renderer, model.tokenizer, model.ends, model.thoughts)
