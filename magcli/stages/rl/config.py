"""Options of `magcli rl` and their checks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from magcli.choices import AdvantageNorm, AskedEngine, AskedFormat, AskedTransfer, DiverseBy, LossNorm, Switch
from magcli.cluster.open import address_for
from magcli.cluster.types import LOCAL
from magcli.config import check_bounds, is_url, opt
from magcli.errors import usage
from magcli.plan.machine import gpu_number
from magcli.plan.ranks import Processes
from magcli.rl.training_stages import StageOptions
from magcli.rl.types import is_own_function
from magcli.stages.rl.replayed import options_of_replayed
from magcli.stages.shared import (
    options,
    parallel,
    rank_options,
    run_sizes,
    vllm_options,
)
from magcli.stages.shared.environment_check import check_environment
from magcli.stages.shared.options import CHECKPOINTS, CLUSTER, CURRICULUM, EVALUATION, GENERATORS, OBJECTIVE, TRAIN
from magcli.stages.shared.run_sizes import RunSizes

if TYPE_CHECKING:
    from magcli.rl.losses import Loss

MAGISTRAL = "magistral"
"""The loss of the recipe, whose values of other options are their defaults."""

WITH_LOSS = {"clip_low": 0.2, "clip_high": 0.28, "advantage_norm": "minibatch", "loss_norm": "group"}
"""The options whose values a loss brings, with those of the recipe's."""


@dataclass(frozen=True)
class Config(
    options.RewardOptions,
    options.EnvironmentOptions,
    options.EvaluationOptions,
    options.GenerationOptions,
    rank_options.RankOptions,
    RunSizes,
):
    """Options of `magcli rl`."""

    run: Path = opt(
        Path("runs/rl"), "Folder of the run; the same command resumes it.", owned_dir=True, affects_rows=False
    )
    generators: int = opt(
        0, "Number of generator processes; 0: the trainer samples itself, on its own device.", panel=GENERATORS, ge=0
    )
    engine: AskedEngine = opt(
        "auto", "Engine that samples rollouts; auto: vllm on a GPU if it is installed, else torch.", panel=GENERATORS
    )
    gpu_memory: float = vllm_options.gpu_memory(GENERATORS, "0 is 0.35 beside a trainer, else 0.9")
    vllm_sleep: Switch = opt(
        "auto",
        "Free vLLM's memory on the trainer's GPU during updates; auto: if engine and trainer do not fit at once.",
        panel=GENERATORS,
        affects_rows=False,
    )
    vllm_eager: Switch = vllm_options.vllm_eager(GENERATORS)
    generator_devices: tuple[str, ...] = opt(
        (),
        "Devices of the generators, assigned in turn: cuda:1,cuda:2; default: GPUs without a trainer, or --device.",
        panel=GENERATORS,
        affects_rows=False,
    )
    tensor_parallel: int = vllm_options.tensor_parallel(GENERATORS)
    transfer: AskedTransfer = opt(
        "auto",
        "Weight sync to generators: file in shared memory, or broadcast (NCCL, on CPUs gloo), as always on a cluster; "
        "auto: broadcast from several trainer ranks on GPUs, else file.",
        panel=GENERATORS,
        affects_rows=False,
    )
    verifiers: int = opt(
        0,
        "Number of verifier processes on the nodes of --cluster, each with --workers workers; 0: this process grades.",
        panel=CLUSTER,
        affects_rows=False,
        ge=0,
    )
    retire_after: int = opt(
        0, "Stop sampling a problem after this many consecutive all-correct groups; 0: never.", panel=CURRICULUM, ge=0
    )
    defer_after: int = opt(
        0, "Postpone a problem after this many consecutive all-wrong groups; 0: never.", panel=CURRICULUM, ge=0
    )
    loss: str = opt(
        MAGISTRAL,
        "Policy loss: magistral, grpo, dr-grpo, dapo, gspo, cispo, rloo or reinforce++, with the paper's clip_low, "
        "clip_high, advantage_norm and loss_norm where a recipe does not give them; or your own, as module:function or "
        "file.py:function.",
        panel=OBJECTIVE,
    )
    clip_low: float = opt(
        0.2, "Lower clipping bound of the importance ratio: 1 - clip-low.", panel=OBJECTIVE, gt=0, le=1
    )
    clip_high: float = opt(
        0.28, "Upper clipping bound of the importance ratio (clip-higher): 1 + clip-high.", panel=OBJECTIVE, gt=0
    )
    advantage_norm: AdvantageNorm = opt(
        "minibatch",
        "Standard deviation that advantages are divided by: of the mini-batch, of the group, or none; leave-one-out: "
        "none, and the baseline is the mean of the others; global: no baseline, over the mini-batch's tokens.",
        panel=OBJECTIVE,
    )
    loss_norm: LossNorm = opt(
        "group",
        "Normalisation of the loss: by the tokens of the group, of the mini-batch, or of the sample, or by max-tokens.",
        panel=OBJECTIVE,
    )
    advantage: str = opt(
        "", "Custom advantages that replace the built-in ones: module:function or file.py:function.", panel=OBJECTIVE
    )
    teacher: str = opt(
        "",
        "Distill a model with the same tokenizer: the advantage of each token is its log-prob under the teacher minus "
        "that under the policy. Rewards are only recorded.",
        panel=OBJECTIVE,
    )
    diverse_by: DiverseBy = opt(
        "outcome",
        "Drop groups without two different outcomes (or rewards); none, as with --teacher, keeps them.",
        panel=OBJECTIVE,
    )
    tis_cap: float = opt(
        0.0,
        "Cap of the truncated importance sampling weight, trainer / engine probability; 0 disables it.",
        panel=OBJECTIVE,
        former="is_cap",
        ge=0,
    )
    kl: float = opt(
        0.0, "Coefficient of a KL penalty towards the initial weights; the recipe has none.", panel=OBJECTIVE, ge=0
    )
    entropy_bonus: float = opt(0.0, "Coefficient of an entropy bonus; the recipe has none.", panel=OBJECTIVE, ge=0)
    lr: float = opt(
        0.0,
        "Learning rate after the warm-up. 0 chooses one by the number of weights: 1e-6 for 24B, 4e-6 for 1.5B, ten "
        "times that for LoRA.",
        panel=TRAIN,
        ge=0,
    )
    warmup: int = opt(0, "Warm-up: number of updates over which the learning rate rises.", panel=TRAIN, ge=0)
    micro_tokens: int = opt(
        0,
        "Maximum number of tokens per micro-batch, prompts included; 0: 16384, on a GPU as many as fit its memory.",
        panel=TRAIN,
        ge=0,
    )
    checkpoint_every: int = opt(
        10, "Number of updates between checkpoints.", panel=CHECKPOINTS, affects_rows=False, gt=0
    )
    trajectory_every: int = opt(
        0, "Number of updates between weights stored for the landscape; 0 stores none.", panel=CHECKPOINTS, ge=0
    )
    shuffle_rewards: bool = opt(False, "Control experiment: shuffle rewards within each group.", panel=OBJECTIVE)
    evaluate_every: int = opt(
        10,
        "Number of updates between evaluations; also before the first and after the last update.",
        panel=EVALUATION,
        gt=0,
    )
    replay: Path | None = opt(
        None,
        "Train again on the rollouts of an rl run, its folder or a table of them, with another loss, advantage or lr: "
        "off-policy, without problems, engines and graders. What is not given is as in that run.",
        panel=TRAIN,
    )
    show_mask: int = opt(
        0,
        "Show this many rollouts of the run's newest update with their loss mask instead of training.",
        panel=TRAIN,
        preview_only=True,
        affects_rows=False,
        ge=0,
    )
    temperature: float = options.temperature(greedy=False)
    system: Path | None = options.system()
    dtype: AskedFormat = options.dtype()


GENERATOR_DEVICE = re.compile(r"cpu|cuda(:\d+)?")


def reads(config: Config) -> tuple[str, ...] | None:
    """The required columns; None for a replay, which reads no problems."""
    if config.replay is not None:
        return None
    return ("id", "prompt") if has_own_reward(config) else ("id", "prompt", "answer|tests")


def has_own_reward(config: Config) -> bool:
    """Whether the reward is not the recipe's, and may be on any scale."""
    return bool(config.reward) or options.environment_judges(config.environment)


def defaults(config: Config) -> dict[str, Any]:
    """The sizes that follow from the batch, what belongs to the loss, and of a replay what the earlier run had."""
    values = run_sizes.defaults(config)
    if config.replay is None:
        values |= _defaults_of_loss(config.loss)
    else:
        earlier = options_of_replayed(config.replay)
        values |= earlier
        if config.loss != earlier.get("loss", MAGISTRAL):
            # Another loss than the run's brings its own values in place of the recorded ones.
            values |= {**WITH_LOSS, **_defaults_of_loss(config.loss)}
    if config.teacher:
        # Each token has an advantage of its own, so groups of equal outcomes teach too.
        values["diverse_by"] = "none"
    return values


def _defaults_of_loss(name: str) -> dict[str, Any]:
    """Clipping, advantages and normalisation of a loss other than the recipe's.

    Raises:
        UsageError: there is no such loss.
    """
    if name == MAGISTRAL:
        return {}  # without torch, which losses need
    loss = _loss_of(name)
    return {option: getattr(loss, option) for option in WITH_LOSS}


def _loss_of(name: str) -> Loss:
    from magcli.rl.losses import loss_of  # with PyTorch, which --help does without

    return loss_of(name)


def check(config: Config) -> None:
    """Refuse options that are out of range or contradict each other."""
    rank_options.check_training("rl", config)
    _check_sizes("rl", config)
    usage(config.tis_cap == 0 or config.tis_cap >= 1, f"rl.tis_cap: {config.tis_cap} is neither 0 (off) nor at least 1")
    rank_options.check_attention("rl", config)
    if config.replay is None:
        _check_engine(config)
        _check_stages(config)
        options.check_reward("rl", config)
        check_environment("rl", config, config.environment, config.reward)
    else:
        _check_replay(config, config.replay)
    _check_teacher(config)
    _check_functions(config)


def _check_replay(config: Config, replayed: Path) -> None:
    """Refuse a replay that is to sample or to grade, or that would write into what it reads."""
    usage(config.run.resolve() != replayed.resolve(), f"rl: --replay reads {replayed}; give another folder with --run")
    samples_or_grades = {
        "generators": config.generators,
        "verifiers": config.verifiers,
        "eval-table": config.eval_table,
    }
    for option, value in samples_or_grades.items():
        usage(not value, f"rl: --replay samples and grades nothing: leave --{option} out")
    earlier = options_of_replayed(replayed)
    for option in ("reward", "environment"):
        # What the run had may be named again, as in a recipe of both.
        is_stored = getattr(config, option) in ("", earlier.get(option, ""))
        again = f"magcli grade ROLLOUTS --{option} ... -o AGAIN, with the table of its run's -o, and --replay AGAIN"
        usage(is_stored, f"rl: --replay trains on the stored rewards: leave --{option} out, or grade again: {again}")
    # A table without a history does not say it.
    of_run = earlier.get("n_batch", config.n_batch)
    usage(config.n_batch == of_run, f"rl: --replay takes the batches of its run: leave --n-batch out (it had {of_run})")
    rank_options.check("rl", config)


def _check_engine(config: Config) -> None:
    exact = config.schedule == "sync"
    usage(not (exact and config.dtype == "bf16"), "rl: --schedule sync is deterministic, which takes --dtype fp32")
    on_gpu = config.device.startswith("cuda") or bool(config.card)  # a planned card, for a forecast
    # An engine in a process of its own samples during updates, so it never sleeps.
    may_have_vllm = on_gpu and not config.generators and config.engine != "torch"
    usage(config.vllm_sleep != "yes" or may_have_vllm, "rl: --vllm-sleep yes needs vLLM on the trainer's GPU")
    options.check_vllm("rl", config.engine, deterministic=exact)
    _check_generator_devices(config.generator_devices, config.generators, config.tensor_parallel)
    usage(not (config.cluster and config.generator_devices), "rl: with --cluster Ray chooses the devices")
    _check_split(config, exact=exact)
    rank_options.check("rl", config, others=config.generators + config.verifiers)
    on_nodes = address_for(config.cluster) != LOCAL
    usage(on_nodes or not config.verifiers, "rl: --verifiers needs a --cluster; on this machine use --workers")
    if config.transfer == "broadcast":
        _check_broadcast(processes(config))


def _check_split(config: Config, *, exact: bool) -> None:
    """Refuse engines that cannot be split over --tensor-parallel ranks."""
    device = config.generator_devices[0] if config.generator_devices else config.device
    ranks = config.tensor_parallel
    parallel.check_ranks("rl", ranks, engine=config.engine, device=device, deterministic=exact, model=config.model)
    # A cluster's GPUs are counted when it is joined.
    on_this_machine = not config.generators or address_for(config.cluster) == LOCAL
    if on_this_machine and not config.generator_devices:
        # Generators take any free GPUs, the trainer's process those from its own device on.
        first = "cuda" if config.generators and device.startswith("cuda") else device
        parallel.check_cards("rl", ranks, first)


def _check_generator_devices(devices: Sequence[str], generators: int, ranks: int) -> None:
    """Devices that generators can use, no more of them than their ranks."""
    for name in devices:
        valid = bool(GENERATOR_DEVICE.fullmatch(name))
        usage(valid, f"rl: --generator-devices must be cpu, cuda or cuda:N, not {name}")
    most = generators
    if ranks > 1 and any(name.startswith("cuda") for name in devices):
        text = f"rl: --tensor-parallel {ranks} takes {ranks} of --generator-devices for each generator, not"
        are_distinct = len(set(devices)) == len(devices)
        are_whole = len(devices) % ranks == 0
        usage(are_distinct and are_whole, f"{text} {','.join(devices)}")
        usage("cpu" not in devices, f"{text} CPUs beside GPUs")
        most = generators * ranks
    # Devices are dealt to the generators in turn, so surplus ones would be idle.
    text = f"rl: {len(devices)} --generator-devices need at least as many --generators, not {most}"
    usage(len(devices) <= most, text)


def processes(config: Config, ranks: int = 0) -> Processes:
    """The processes that the options ask for, with this number of trainer ranks, or all."""
    trainers = ranks or config.trainers
    devices = config.generator_devices
    return Processes(config.device, trainers, config.generators, config.tensor_parallel, devices)


def _check_broadcast(asked: Processes) -> None:
    """Devices between which weights can be broadcast."""
    source = asked.source
    for target in asked.targets:
        # NCCL connects GPUs, gloo CPUs.
        same_type = target.partition(":")[0] == source.partition(":")[0]
        usage(same_type, f"rl: {source} cannot broadcast to {target}; use --transfer file")
        # Two processes may share the CPU, but NCCL refuses two on one GPU.
        distinct = target.startswith("cpu") or gpu_number(target) != gpu_number(source)
        usage(distinct, f"rl: a GPU cannot broadcast to itself ({target}); use --transfer file, or other devices")


def _check_sizes(prefix: str, config: Config) -> None:
    """Refuse invalid batches, lengths and rates, of the run or of one of its stages."""
    # Once more for a stage of the run, whose values ``resolve`` has not seen.
    check_bounds(prefix, config)
    run_sizes.check(prefix, config)
    options.check_length_penalty(prefix, config)


def _check_stages(config: Config) -> None:
    """Refuse stages that contradict the run's options."""
    for number, stage in enumerate(config.stage, 1):
        prefix = f"rl.stage {number}"
        _check_band(prefix, stage)
        _check_sizes(prefix, run_sizes.options_in(stage, config))
        usage(
            # The rule counts groups that are dropped as all-correct.
            stage.until != "data-easy" or config.diverse_by == "outcome",
            f"{prefix}.until: all-correct groups are not counted with diverse_by '{config.diverse_by}'",
        )
    run_sizes.check_ends(config.stage, config.updates)


def _check_band(prefix: str, stage: StageOptions) -> None:
    if stage.band is None:
        return
    is_band = len(stage.band) == 2 and 0 <= stage.band[0] <= stage.band[1] <= 1
    usage(is_band, f"{prefix}.band: {list(stage.band)} is not a lowest and a highest pass rate within 0 to 1")


def _check_functions(config: Config) -> None:
    """Try the user's own functions before anything is generated."""
    loss = own_loss(config)
    if config.advantage or loss:
        from magcli.rl import algorithm

        usage(
            not (config.advantage and _has_own_norm(config)),
            "rl: --advantage replaces --advantage-norm; give one of them",
        )
        algorithm.check_custom(config.advantage, loss)


def _has_own_norm(config: Config) -> bool:
    """Whether advantages are normalised in another way than the loss brings."""
    return config.advantage_norm != _loss_of(config.loss).advantage_norm


def _check_teacher(config: Config) -> None:
    """A model on this machine or the hub, and no other source of advantages."""
    if not config.teacher:
        return
    usage(not is_url(config.teacher), "rl: --teacher scores in the trainer, not on a server; give a folder or a hub id")
    others = config.advantage or _has_own_norm(config) or config.shuffle_rewards
    usage(not others, "rl: --teacher replaces --advantage, --advantage-norm and --shuffle-rewards; leave them out")


def without_grading(config: Config) -> Config:
    """The options of a replay without the reward and the environment of its run, which it does not load."""
    return replace(config, reward="", environment="")


def own_loss(config: Config) -> str:
    """The user's own function of --loss; empty for a loss that has a name."""
    return config.loss if is_own_function(config.loss) else ""


def side_outputs(config: Config) -> tuple[Path, ...]:
    """The trained model and its adapters."""
    model, adapter = config.run / "model", config.run / "adapter"
    return (model, adapter) if config.lora else (model,)
