"""The parts of a run of `magcli rl`: what its options, its model and its plan open and build."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager, closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from magcli.environments.episodes import Episodes
from magcli.generate.text import SamplerText
from magcli.model.chat.ends import unused_ends
from magcli.model.compute import use_threads
from magcli.rl.checkpointing import Checkpointing
from magcli.rl.evaluation import EvaluationTimes
from magcli.rl.ledger import Ledger, read
from magcli.rl.live import Curves
from magcli.rl.rollouts import GroupSampler
from magcli.rl.scheduler import RolloutScheduler
from magcli.rl.shared_weights import remove_weights_in
from magcli.rl.store import RolloutStore
from magcli.rl.trainer import Trainer
from magcli.rl.training_stages import TrainingStages
from magcli.rl.types import Numerics
from magcli.stages.rl.display import Display, say_resumed
from magcli.stages.rl.models import open_state
from magcli.stages.rl.output import rollouts_of
from magcli.stages.rl.sampling_engine import opened_engine, samples_beside_trainer
from magcli.stages.shared import engines, environments, forms
from magcli.train.optim import RL_LR, default_lr

if TYPE_CHECKING:
    from pathlib import Path

    from magcli.cluster.runtime import Cluster
    from magcli.environments.environment import Environment
    from magcli.generate.types import RolloutEngine
    from magcli.model.chat.thoughts import ThoughtForm
    from magcli.model.model import Model
    from magcli.plan.formats import Formats
    from magcli.rl.curriculum import Curriculum, Row
    from magcli.rl.evaluation import Measure
    from magcli.run.job import Job
    from magcli.run.rundir import RunDir
    from magcli.run.trackers import LogLines
    from magcli.stages.rl.plan import RunPlan
    from magcli.stages.rl.spec import RunSpec
    from magcli.stages.rl.verifiers import Verifiers
    from magcli.stages.shared.heldout import HeldOut
    from magcli.train.controller import RankController
    from magcli.verify.grader import CompletionGrader


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a run starts from, the first time and when its ranks were lost.

    ``problems`` are those of the run, then of each stage with its own table.
    """

    spec: RunSpec
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
        spec, around, checkpointing = self.inputs.spec, self.around, self.checkpointing
        # The choice of problems goes on where an interrupted run stopped.
        for event in read(checkpointing.ledger.path):
            around.curriculum.replay(event)
        return RolloutScheduler(
            self._sampler(engine, verifiers),
            around.curriculum,
            checkpointing.ledger,
            checkpointing.store,
            self.stages,
            replace(spec.schedule, generates_during_updates=samples_beside_trainer(self.plan.engines, engine)),
            custom_reward=spec.own_reward,
        )

    def _sampler(self, engine: RolloutEngine, verifiers: Verifiers) -> GroupSampler:
        """What samples groups, or episodes in an environment."""
        spec, model = self.inputs.spec, self.around.model
        grader, environment = verifiers
        return GroupSampler(
            engine,
            grader,
            model.tokenizer,
            model.ends,
            engines.system_text(spec.system, model.thoughts),
            model.thoughts,
            spec.group_size,
            spec.diverse_by,
            spec.seed,
            None if environment is None else _episodes(environment, spec.system, model, engine),
        )


@contextmanager
def opened(plan: RunPlan, inputs: Inputs, around: Surroundings) -> Iterator[Parts]:
    """The parts of a run, resumed from the last checkpoint of its folder."""
    spec, folder, console = inputs.spec, inputs.folder, inputs.job.console
    trainer = build_trainer(spec, around.model, plan, around.controller)
    trainer.weights_folder = _weights_folder(around.cluster, folder)
    stages = stages_for(spec.stages, around.model.thoughts)
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
    spec, console = inputs.spec, inputs.job.console
    # Lines after the checkpoint are of updates that are repeated, and drawn then.
    curves = Curves([checkpointing.initial, *checkpointing.lines[: trainer.done]])
    inputs.log_lines(checkpointing.complete_lines())
    with console.progress(spec.updates, "updates", "rl", curves.draw) as bar:
        groups = spec.batch_groups
        display = Display(groups, checkpointing, bar, curves, inputs.log_lines, console)
        if spec.policy.lr is None:
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
    spec, folder, storage = inputs.spec, inputs.folder, inputs.spec.storage
    columns = rollouts_of(spec.replay, spec.judging.reward, spec.judging.environment)
    store = RolloutStore(folder.path, {forms.THOUGHTS: model.thoughts.name}, columns)
    times = EvaluationTimes(storage.evaluate_every if evaluates else 0, spec.updates)
    every = storage.checkpoint_every, storage.kept, storage.trajectory_every
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


def build_trainer(spec: RunSpec, model: Model, plan: RunPlan, controller: RankController) -> Trainer:
    """The policy to train, on all ranks."""
    policy, trains = spec.policy, plan.trainer
    use_threads(model, spec.concurrency)
    controller.open(open_state(policy, model, trains), bf16=trains.bf16)
    return Trainer(
        controller,
        updates=spec.updates,
        lr=policy.lr or default_lr(controller.facts.weights, at_24b=RL_LR, lora=trains.lora_rank > 0),
        warmup=policy.warmup,
        shuffle_rewards=policy.shuffle_rewards,
        seed=policy.seed,
        numerics=Numerics(trains.micro_tokens, policy.max_norm, bf16=trains.bf16),
        unused_ends=unused_ends(model.tokenizer, model.ends),
        sends_adapters=plan.engines.adapter_rank > 0,
    )


def stages_for(stages: TrainingStages, thoughts: ThoughtForm) -> TrainingStages:
    """The stages of a run, for a model with this form of thoughts."""
    rules = [replace(settings.rule, thoughts=thoughts) for settings in stages.settings]
    settings = [replace(of_stage, rule=rule) for of_stage, rule in zip(stages.settings, rules, strict=True)]
    return TrainingStages(stages.options, settings)


def _episodes(environment: Environment, system: Path | None, model: Model, engine: RolloutEngine) -> Episodes:
    """Continues first turns of an engine to episodes in an environment."""
    renderer = environments.turn_renderer(model, system)
    return Episodes(engine, environment, renderer, model.tokenizer, model.ends, model.thoughts)
