"""Reinforcement learning with verifiable rewards: GRPO as the Magistral recipe changes it.

The input is problems; the output is all rollouts, with every reward part, the weight versions that made them, and
whether they were trained on. The run's folder holds metrics, checkpoints, float32 weights for the landscape and the
resulting model. The same command resumes an interrupted run; with --schedule sync the resumed weights equal those of an
uninterrupted run bit for bit.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from magcli.config import opt
from magcli.errors import usage
from magcli.rl.phase import Phase
from magcli.rl.trackers import Name as TrackerName
from magcli.stages.shared import engines, grading, options, rl_setup, rl_train, tables, training

if TYPE_CHECKING:
    import pyarrow as pa

    from magcli.data.source import Rows
    from magcli.run.job import Job

INPUTS = "Problems: columns prompt, answer, optional id; - is stdin."
OUTPUT = "the rollouts (also in the run's folder)"
ALIASES = tables.ALIASES
EXAMPLE = (
    "magcli rl examples/problems.jsonl --model examples/model --run runs/rl --updates 3 --group 4 --n-async 16 "
    "--n-batch 8 --n-mini 8 --max-tokens 48 --max-length 48 --diverse-by reward "
    "--trajectory-every 1"
)

OBJECTIVE = "Objective"
TRAIN = options.TRAIN
BATCH = "Batches (in completions) and schedule"


@dataclass(frozen=True)
class Config(options.RewardOptions, options.GenerationOptions, options.TrainingOptions):
    """Options of `magcli rl`."""

    run: Path = opt(
        Path("runs/rl"), "Folder of the run; the same command resumes it.", owned_dir=True, affects_rows=False
    )
    updates: int = opt(100, "Number of policy updates, each on n-batch completions.", panel=BATCH)
    group: int = opt(16, "Group size G: completions per problem.", panel=BATCH)
    n_async: int = opt(512, "Maximum number of concurrent completions.", panel=BATCH)
    n_batch: int = opt(256, "Batch size: completions per update.", panel=BATCH)
    n_mini: int = opt(256, "Mini-batch size: completions per optimizer step.", panel=BATCH)
    schedule: Literal["async", "sync"] = opt(
        "async", "async overlaps generation and training; sync is the deterministic baseline.", panel=BATCH
    )
    staleness: int = opt(1, "Maximum staleness S in updates (admission rule).", panel=BATCH)
    generators: int = opt(
        0,
        "Number of generator processes; 0: generator and trainer take turns in one process, on one device.",
        panel=BATCH,
    )
    engine: Literal["torch", "vllm"] = opt("torch", "Engine of the generators; vllm needs --generators.", panel=BATCH)
    generator_devices: tuple[str, ...] = opt(
        (),
        "Devices of the generators, assigned in turn: cuda:1,cuda:2; default: --device.",
        panel=BATCH,
        affects_rows=False,
    )
    transfer: Literal["file", "broadcast"] = opt(
        "file",
        "Weight sync to vLLM: file in shared memory, or broadcast by NCCL (between CPUs by gloo).",
        panel=BATCH,
        affects_rows=False,
    )
    retire_after: int = opt(0, "Retire a problem after this many all-correct groups in a row; 0 is never.", panel=BATCH)
    defer_after: int = opt(0, "Defer a problem after this many all-wrong groups in a row; 0 is never.", panel=BATCH)
    stage: tuple[Phase, ...] = opt((), "Stages of the run, one [[rl.stage]] table of the recipe each.", panel=BATCH)
    clip_low: float = opt(0.2, "Lower clipping bound of the importance ratio: 1 - clip-low.", panel=OBJECTIVE)
    clip_high: float = opt(
        0.28, "Upper clipping bound of the importance ratio (clip-higher): 1 + clip-high.", panel=OBJECTIVE
    )
    advantage_norm: Literal["minibatch", "group", "none"] = opt(
        "minibatch", "Normalisation of advantages.", panel=OBJECTIVE
    )
    loss_norm: Literal["group", "token", "sample"] = opt(
        "group",
        "Normalisation of the loss: by the tokens of the group, of the mini-batch, or of the sample.",
        panel=OBJECTIVE,
    )
    advantage: str = opt(
        "", "Your own advantage in place of --advantage-norm: module:function or file.py:function.", panel=OBJECTIVE
    )
    loss: str = opt(
        "", "Your own policy loss in place of the clipped one: module:function or file.py:function.", panel=OBJECTIVE
    )
    diverse_by: Literal["outcome", "reward"] = opt(
        "outcome", "Drop groups without two different outcomes (or rewards).", panel=OBJECTIVE
    )
    simulate: Path | None = opt(
        None,
        "Only predict the run, on the machine described by this TOML file or by a finished run's folder.",
        panel=BATCH,
        affects_rows=False,
    )
    is_cap: float = opt(
        0.0,
        "Cap of truncated importance sampling between engine and trainer; 0 is off.",
        panel=OBJECTIVE,
    )
    kl: float = opt(
        0.0, "Coefficient of a KL penalty towards the initial weights; the recipe has none.", panel=OBJECTIVE
    )
    entropy_bonus: float = opt(0.0, "Coefficient of an entropy bonus; the recipe has none.", panel=OBJECTIVE)
    lr: float = opt(1e-6, "Learning rate after the warm-up.", panel=TRAIN)
    warmup: int = opt(0, "Warm-up: number of updates over which the learning rate rises.", panel=TRAIN)
    micro_tokens: int = opt(16384, "Maximum number of tokens per micro-batch, prompts included.", panel=TRAIN)
    checkpoint_every: int = opt(10, "Number of updates between checkpoints.", panel=TRAIN, affects_rows=False)
    trajectory_every: int = opt(
        0, "Number of updates between weights stored for the landscape; 0 stores none.", panel=TRAIN
    )
    shuffle_rewards: bool = opt(False, "Control experiment: shuffle rewards within each group.", panel=TRAIN)
    track: tuple[TrackerName, ...] = opt(
        (),
        "Experiment trackers: tensorboard, wandb, trackio, or several.",
        panel=TRAIN,
        affects_rows=False,
    )
    temperature: float = options.temperature(greedy=False)
    system: Path | None = options.system()
    dtype: options.DType = options.dtype()


NOT_NEGATIVE = (
    "staleness", "warmup", "trajectory_every", "generators", "retire_after", "defer_after", "is_cap", "kl",
    "entropy_bonus",
)  # fmt: skip


def reads(config: Config) -> tuple[str, ...] | None:
    """The columns that must be there; a simulation has no problems."""
    if config.simulate:
        return None
    return ("id", "prompt") if config.reward else ("id", "prompt", "answer|tests")


def check(config: Config) -> None:
    """Refuse options that contradict themselves, the batch sizes above all."""
    from magcli.rl import phase
    from magcli.rl.trackers import require

    options.check_training("rl", config.model, config.device, needed=config.simulate is None)
    usage(config.group > 1, f"rl.group: {config.group} completions have nothing to compare; give at least 2")
    phase.check_sizes("rl", config)
    for name in ("updates", "lr", "max_norm", "micro_tokens", "checkpoint_every"):
        usage(getattr(config, name) > 0, f"rl.{name}: {getattr(config, name)} is not positive")
    for name in NOT_NEGATIVE:
        usage(getattr(config, name) >= 0, f"rl.{name}: {getattr(config, name)} is negative")
    usage(0 < config.clip_low < 1, f"rl.clip_low: {config.clip_low} is not between 0 and 1")
    usage(config.is_cap == 0 or config.is_cap >= 1, f"rl.is_cap: {config.is_cap} is neither 0 (off) nor at least 1")
    exact = config.schedule == "sync"
    usage(not (exact and config.dtype == "bf16"), "rl: --schedule sync is deterministic, which takes --dtype fp32")
    usage(config.engine == "torch" or config.generators > 0, "rl: --engine vllm needs --generators 1 or more")
    options.check_vllm("rl", config.engine, deterministic=exact)
    options.check_generator_devices("rl", config.generator_devices, config.generators)
    if config.transfer == "broadcast":
        usage(config.engine == "vllm", "rl: --transfer broadcast needs --engine vllm")
        options.check_broadcast("rl", config.device, config.generator_devices or (config.device,))
    phase.check(config.stage, config)
    options.check_reward("rl", config)
    if config.advantage or config.loss:
        from magcli.rl import custom

        custom.check(config.advantage, config.loss)
    for tracker in config.track:
        require(tracker)


def settings(config: Config) -> dict[str, Any]:
    """What else decides the weights: the digests of the model, the system prompt and the user's own functions."""
    if config.simulate:
        return {}
    identity = engines.model_identity(config.model, config.system) | grading.grader_identity(config, config.reward)
    identity |= grading.function_identity(advantage=config.advantage, loss=config.loss)
    for number, phase in enumerate(config.stage, 1):
        identity |= tables.table_identity(f"stage_{number}_data", phase.data)
    return identity


def side_outputs(config: Config) -> tuple[Path, ...]:
    """The trained model."""
    return () if config.simulate else (config.run / "model",)


def schema(config: Config, given: pa.Schema) -> pa.Schema:
    """One row a rollout."""
    from magcli.rl.records import ROLLOUT

    return ROLLOUT


def serve_rank(config: Config) -> bool:
    """Run as a non-zero torchrun rank; False where this process is the first rank."""
    return training.serve_rank(config.device, lambda: rl_setup.open_state(config), needed=config.simulate is None)


def run(config: Config, rows: Rows, job: Job) -> Rows:
    """Train, then give all rollouts out in the order of the updates."""
    from magcli.data import table
    from magcli.rl import loop
    from magcli.rl.store import Store
    from magcli.train.controller import RankController
    from magcli.train.distributed import open_ranks

    if config.simulate:
        rl_setup.predict(config, config.simulate, job)
        return
    with contextlib.ExitStack() as held:
        controller = RankController(open_ranks(config.device))
        held.callback(controller.stop)
        problems = [row for batch in rows for row in batch.to_pylist()]
        folder = held.enter_context(training.run_folder("rl", config, settings(config), job))
        with rl_setup.tracked(config, folder, job) as tell:
            config = training.resolve_formats(config, folder, job, exact=config.schedule == "sync")
            if folder.finished:
                loop.clear(folder)
                tell(folder.metrics())
                job.console.say(f"rl: {folder.model} is finished", event="up-to-date")
            else:
                pools = [problems, *rl_setup.stage_rows(config, reads(config) or (), job)]
                rl_train.train(config, pools, job, folder, controller, tell)
        for path in Store(folder.path).written():
            yield from table.read(str(path)).rows
