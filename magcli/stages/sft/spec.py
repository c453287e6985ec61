"""What a run of `magcli sft` is, from its options alone: a part for each component. Its plan says where it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from magcli.config import as_json
from magcli.stages.sft.plan import RunPlan
from magcli.stages.shared.heldout import HeldOutSpec
from magcli.stages.shared.options import GraderOptions
from magcli.stages.shared.run_folder import FolderSpec
from magcli.stages.shared.templates import ModelSpec
from magcli.stages.shared.trainer_ranks import RankSpec

if TYPE_CHECKING:
    from pathlib import Path

    from magcli.choices import EngineName, SaveDtype
    from magcli.stages.sft import Config


LENGTHS = ("epochs", "max_steps")
"""Options of which a larger value prolongs a run."""


@dataclass(frozen=True, slots=True)
class RunSpec:
    """What a run is.

    Attributes:
        folder: that of the run, and what is recorded in it.
        model: what is trained.
        traces: what is made of the rows.
        evaluation: problems that are evaluated at intervals, if any.
        ranks: what is asked of a machine or a cluster.
        step_tokens: tokens of an optimizer step; None is decided by those of all traces.
        checkpoint_every, evaluate_every: numbers of steps.
        plan_on: its plan, for a model and a machine; takes the other arguments of ``RunPlan.of``.
    """

    folder: FolderSpec
    model: ModelSpec
    traces: TraceSpec
    evaluation: EvaluationSpec | None
    ranks: RankSpec
    policy: PolicySpec
    step_tokens: int | None
    checkpoint_every: int
    keep_checkpoints: int
    evaluate_every: int
    plan_on: Callable[..., RunPlan]

    @classmethod
    def of(cls, config: Config) -> RunSpec:
        """The run that options describe."""
        formats: dict[str, str] = {"bf16": config.bf16}
        evaluation = EvaluationSpec.of(config)
        if evaluation is not None:
            formats["dtype"] = config.dtype  # of the evaluating engine
        return cls(
            folder=FolderSpec("sft", config.run, as_json(config), LENGTHS, config.track, formats, config.device),
            model=ModelSpec.of(config),
            traces=TraceSpec(config.system, config.max_length, config.held_out),
            evaluation=evaluation,
            ranks=RankSpec.of("sft", config),
            policy=PolicySpec.of(config),
            step_tokens=config.step_tokens or None,
            checkpoint_every=config.checkpoint_every,
            keep_checkpoints=config.keep_checkpoints,
            evaluate_every=config.evaluate_every,
            plan_on=partial(RunPlan.of, config),
        )


@dataclass(frozen=True, slots=True)
class TraceSpec:
    """What is made of traces: their system prompt, the most tokens of an example, and the table that is held out."""

    system: Path | None
    max_length: int
    held_out: Path | None


@dataclass(frozen=True, slots=True)
class PolicySpec:
    """How the weights are trained.

    ``lr`` is None where the number of weights decides, and ``max_steps`` where all epochs are run. ``warmup`` is a
    share of the steps, ``floor`` one of the rate.
    """

    from_scratch: bool
    epochs: int
    max_steps: int | None
    lr: float | None
    warmup: float
    floor: float
    max_norm: float
    seed: int
    save_dtype: SaveDtype

    @classmethod
    def of(cls, config: Config) -> PolicySpec:
        """That of a run's options."""
        return cls(
            config.from_scratch,
            config.epochs,
            config.max_steps or None,
            config.lr or None,
            config.warmup,
            config.floor,
            config.max_norm,
            config.seed,
            config.save_dtype,
        )


@dataclass(frozen=True, slots=True)
class EvaluationSpec:
    """Held-out problems, what samples them and what grades the samples."""

    problems: HeldOutSpec
    engine: EngineName
    device: str
    grading: GraderOptions

    @classmethod
    def of(cls, config: Config) -> EvaluationSpec | None:
        """That of a run's options; None without --eval-table."""
        problems = HeldOutSpec.of("sft", config, seed=config.seed, system=config.system)
        if problems is None:
            return None
        grading = GraderOptions(config.workers, config.verify_deadline, config.sandbox)
        return cls(problems, config.engine, config.device, grading)
