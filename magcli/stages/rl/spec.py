"""What a run of `magcli rl` is, from its options alone: a part for each component. Its plan says where it runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from magcli.config import as_json
from magcli.generate.types import Sampling
from magcli.rl.curriculum import Curriculum, StageProblems
from magcli.rl.scheduler import Schedule
from magcli.rl.training_stages import StageOptions, TrainingStages
from magcli.rl.types import Objective, StageSettings
from magcli.stages.rl.config import Config, has_own_reward, processes, reads, without_grading
from magcli.stages.rl.plan import RunPlan
from magcli.stages.rl.verifiers import Judging
from magcli.stages.shared import graders
from magcli.stages.shared.heldout import HeldOutSpec
from magcli.stages.shared.run_folder import FolderSpec
from magcli.stages.shared.run_sizes import options_in
from magcli.stages.shared.templates import ModelSpec
from magcli.stages.shared.trainer_ranks import RankSpec

if TYPE_CHECKING:
    from pathlib import Path

    from magcli.choices import DiverseBy, SaveDtype
    from magcli.plan.ranks import Processes
    from magcli.rl.curriculum import Row


LENGTHS = ("updates",)
"""Options of which a larger value prolongs a run."""


@dataclass(frozen=True, slots=True)
class RunSpec:
    """What a run is.

    Attributes:
        folder: that of the run, and what is recorded in it.
        replay: the rollouts that are trained again; None samples new ones.
        columns: those that its problems must have; None for a replay, which has no problems.
        model: what is trained.
        system: the file of the system prompt, ``none`` for none; None is magcli's own.
        judging: what judges completions.
        own_reward: whether the reward is not the recipe's, and may be on any scale.
        held_out: problems that are evaluated at intervals, if any.
        processes, ranks: what is asked of a machine or a cluster.
        group_size: completions of a problem.
        batch_groups: groups of an update, where a stage does not have another number.
        concurrency: completions that are sampled at once, at most.
        diverse_by: which groups train.
        seed: of samples and of the order of problems.
        plan_on: its plan, for a model and a machine; takes the other arguments of ``RunPlan.of``.
    """

    folder: FolderSpec
    replay: Path | None
    columns: Sequence[str] | None
    model: ModelSpec
    system: Path | None
    judging: Judging
    own_reward: bool
    held_out: HeldOutSpec | None
    processes: Processes
    ranks: RankSpec
    schedule: Schedule
    stages: TrainingStages
    curriculum: CurriculumSpec
    policy: PolicySpec
    storage: StorageSpec
    group_size: int
    batch_groups: int
    concurrency: int
    diverse_by: DiverseBy
    seed: int
    plan_on: Callable[..., RunPlan]

    @classmethod
    def of(cls, config: Config) -> RunSpec:
        """The run that options describe. A replay grades nothing: it has neither the reward nor the environment."""
        if config.replay is not None:
            config = without_grading(config)
        own_reward = has_own_reward(config)
        return cls(
            folder=_folder(config),
            replay=config.replay,
            columns=reads(config),
            model=ModelSpec.of(config),
            system=config.system,
            judging=Judging.of(config),
            own_reward=own_reward,
            held_out=HeldOutSpec.of("rl", config, seed=config.seed, system=config.system),
            processes=processes(config),
            ranks=RankSpec.of("rl", config),
            schedule=Schedule(config.schedule == "sync", config.staleness, config.updates),
            stages=_stages(config),
            curriculum=CurriculumSpec.of(config, any_scale=own_reward and config.diverse_by == "reward"),
            policy=PolicySpec.of(config),
            storage=StorageSpec.of(config),
            group_size=config.group_size,
            batch_groups=config.n_batch // config.group_size,
            concurrency=config.n_async,
            diverse_by=config.diverse_by,
            seed=config.seed,
            plan_on=partial(RunPlan.of, config),
        )

    @property
    def updates(self) -> int:
        """The number of policy updates."""
        return self.schedule.updates


@dataclass(frozen=True, slots=True)
class PolicySpec:
    """How the weights are trained.

    ``lr`` is None where the number of weights decides; ``warmup`` is in updates. ``has_reference``: a KL penalty keeps
    the policy near its initial weights. An empty ``teacher`` is none.
    """

    lr: float | None
    warmup: int
    max_norm: float
    shuffle_rewards: bool
    has_reference: bool
    teacher: str
    seed: int
    save_dtype: SaveDtype

    @classmethod
    def of(cls, config: Config) -> PolicySpec:
        """That of a run's options."""
        return cls(
            config.lr or None,
            config.warmup,
            config.max_norm,
            config.shuffle_rewards,
            config.kl > 0,
            config.teacher,
            config.seed,
            config.save_dtype,
        )


@dataclass(frozen=True, slots=True)
class StorageSpec:
    """Numbers of updates between checkpoints, of which ``kept`` stay, weights for the landscape, and evaluations."""

    checkpoint_every: int
    kept: int
    trajectory_every: int
    evaluate_every: int

    @classmethod
    def of(cls, config: Config) -> StorageSpec:
        """That of a run's options."""
        return cls(config.checkpoint_every, config.keep_checkpoints, config.trajectory_every, config.evaluate_every)


@dataclass(frozen=True, slots=True)
class CurriculumSpec:
    """Which problems are sampled when: the rules of ``Curriculum``."""

    stages: Sequence[StageOptions]
    seed: int
    retire_after: int
    defer_after: int
    any_scale: bool

    @classmethod
    def of(cls, config: Config, *, any_scale: bool) -> CurriculumSpec:
        """That of a run's options."""
        return cls(_tables(config), config.seed, config.retire_after, config.defer_after, any_scale)

    def build(self, pools: Sequence[Sequence[Row]]) -> Curriculum:
        """The curriculum of a run that has not begun; ``pools`` are the run's problems, then those of stages.

        Raises:
            DataError: a stage has no problem, or no pass rates for its band.
        """
        remaining_pools = iter(pools)
        pool = next(remaining_pools)
        stages = []
        for stage in self.stages:
            # A stage without a table goes on with the problems of the one before it.
            if stage.data is not None:
                pool = next(remaining_pools)
            stages.append(StageProblems(pool, stage.band))
        rules = {"retire_after": self.retire_after, "defer_after": self.defer_after}
        return Curriculum(stages, self.seed, any_scale=self.any_scale, **rules)


def _folder(config: Config) -> FolderSpec:
    """The folder of a run; a synchronous run computes in float32."""
    formats = {"bf16": config.bf16, "dtype": config.dtype}
    exact = config.schedule == "sync"
    return FolderSpec(
        "rl", config.run, as_json(config), LENGTHS, config.track, formats, device=config.device, exact=exact
    )


def _tables(config: Config) -> Sequence[StageOptions]:
    """The tables of a run's stages; a run without any is one stage that changes nothing."""
    return config.stage or (StageOptions(),)


def _stages(config: Config) -> TrainingStages:
    """The stages of a run, for a model whose thoughts have the usual form."""
    tables = _tables(config)
    return TrainingStages(tables, [_settings(options_in(table, config)) for table in tables])


def _settings(config: Config) -> StageSettings:
    """The settings of a stage, from the options as they are in it."""
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
        rule=graders.reward_rule(config),
    )
