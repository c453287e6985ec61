"""Reinforcement learning with verifiable rewards: GRPO as the Magistral recipe changes it.

Rows are problems; what comes out are all rollouts, with every reward part, the weights that made them, and where
they went. The run's folder holds metrics, checkpoints, float32 weights for the landscape and the resulting model.
The same command goes on with an interrupted run; with --schedule sync the resumed weights equal the unbroken run's
to the bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from magcli.config import opt
from magcli.run import options
from magcli.stages import setup

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from magcli.data.source import Rows
    from magcli.generate.torch import TorchPolicy
    from magcli.rl.progress import Records
    from magcli.rl.rollouts import Roller
    from magcli.rl.trainer import Trainer
    from magcli.run.job import Job
    from magcli.run.rundir import RunDir
    from magcli.verify.grader import Grader

INPUTS = "Problems: columns prompt, answer, id if there is one; - is stdin."
OUTPUT = "rollouts, one row each: file, folder or -; they are in the run's folder anyway."
DEFAULT_OUTPUT = None
EXAMPLE = (
    "magcli rl examples/problems.jsonl --model examples/model --run runs/rl --updates 3 --group 4 --n-async 16 "
    "--n-batch 8 --n-mini 8 --max-tokens 48 --max-length 48 --diverse-by reward "
    "--trajectory-every 1"
)

OBJECTIVE = "Objective"
TRAIN = "Training"
BATCH = "Batches (in completions) and schedule"


@dataclass(frozen=True)
class Config:
    """Options of `magcli rl`."""

    model: str = options.model()
    run: Path = opt(Path("runs/rl"), "Folder of the run; the same command goes on with it.")
    updates: int = opt(100, "Updates of the policy; each takes n-batch completions.", panel=BATCH)
    group: int = opt(16, "Completions of one problem: G.", panel=BATCH)
    n_async: int = opt(512, "Completions being generated at once.", panel=BATCH)
    n_batch: int = opt(256, "Completions of one update.", panel=BATCH)
    n_mini: int = opt(256, "Completions of one optimizer step.", panel=BATCH)
    schedule: Literal["async", "sync"] = opt("async", "sync is the deterministic baseline.", panel=BATCH)
    staleness: int = opt(1, "Updates that a group may wait: S of the admission rule.", panel=BATCH)
    clip_low: float = opt(0.2, "Lower clip of the ratio: 1 - this.", panel=OBJECTIVE)
    clip_high: float = opt(0.28, "Upper clip of the ratio: 1 + this.", panel=OBJECTIVE)
    advantage_norm: Literal["minibatch", "group", "none"] = opt(
        "minibatch", "What advantages are normalised over.", panel=OBJECTIVE
    )
    loss_norm: Literal["group", "token", "sample"] = opt(
        "group", "What a token's loss is divided by: its group's tokens, all, its sample's.", panel=OBJECTIVE
    )
    diverse_by: Literal["outcome", "reward"] = opt(
        "outcome", "Groups without two different outcomes (or rewards) do not train.", panel=OBJECTIVE
    )
    lr: float = opt(1e-6, "Learning rate after the warm-up.", panel=TRAIN)
    warmup: int = opt(0, "Updates over which the learning rate rises.", panel=TRAIN)
    weight_decay: float = opt(0.0, "AdamW weight decay.", panel=TRAIN)
    max_norm: float = opt(1.0, "Gradient norm to clip to.", panel=TRAIN)
    micro_tokens: int = opt(16384, "Tokens of one micro-batch, prompts included.", panel=TRAIN)
    bf16: bool = opt(True, "Matrix products of training in bf16; the weights are float32 always.", panel=TRAIN)
    checkpoint_every: int = opt(10, "Updates between two checkpoints.", panel=TRAIN)
    keep_checkpoints: int = opt(2, "Checkpoints to keep while the run lasts.", panel=TRAIN)
    trajectory_every: int = opt(0, "Updates between weights kept for the landscape; 0 keeps none.", panel=TRAIN)
    shuffle_rewards: bool = opt(False, "Control: rewards change hands at random within each group.", panel=TRAIN)
    max_tokens: int = options.max_tokens()
    temperature: float = options.temperature()
    system: Path | None = options.system()
    seed: int = options.seed()
    dtype: Literal["auto", "bf16", "fp32"] = options.dtype()
    device: str = options.device()
    max_length: int = options.max_length()
    cache_length: int = options.cache_length()
    language: bool = options.language()
    workers: int = options.workers()
    verify_deadline: float = options.verify_deadline()
    sandbox: Literal["full", "restricted", "auto", "dangerously-none"] = options.sandbox()
    reward: str = options.reward()
    num_tests: int = options.num_tests()
    partial: bool = options.partial()


PLACES = ("run", "keep_checkpoints", "checkpoint_every", "device", "workers")
"""Options that do not decide the weights."""


def reads(config: Config) -> tuple[str, ...]:
    """The columns that must be there."""
    return ("id", "prompt") if config.reward else ("id", "prompt", "answer|tests")


def check(config: Config) -> None:
    """Refuse options that contradict themselves, the batch sizes above all."""
    from magcli.run.job import usage

    usage(bool(config.model), "rl: --model is missing: a local folder or a hub id")
    usage(not config.model.startswith("http"), "rl: a server's weights cannot be trained; give a folder or a hub id")
    usage(config.group > 1, f"rl.group: {config.group} completions have nothing to compare; give at least 2")
    for name in ("n_async", "n_batch", "n_mini"):
        size = getattr(config, name)
        usage(size > 0 and size % config.group == 0, f"rl.{name}: {size} is not a multiple of group {config.group}")
    usage(config.n_batch % config.n_mini == 0, f"rl.n_mini: {config.n_mini} does not divide n_batch {config.n_batch}")
    for name in ("updates", "lr", "max_tokens", "micro_tokens", "temperature", "checkpoint_every"):
        usage(getattr(config, name) > 0, f"rl.{name}: {getattr(config, name)} is not positive")
    for name in ("staleness", "warmup", "trajectory_every"):
        usage(getattr(config, name) >= 0, f"rl.{name}: {getattr(config, name)} is negative")
    usage(0 < config.clip_low < 1 and config.clip_high > 0, "rl: clip_low must be in (0, 1) and clip_high above 0")
    usage(
        not (config.schedule == "sync" and config.dtype == "bf16"),
        "rl: --schedule sync is deterministic, which takes --dtype fp32",
    )
    setup.check_reward("rl", config)


def settings(config: Config) -> dict[str, Any]:
    """What else decides the weights: the bits of the model and of the system prompt."""
    return setup.model_bits(config.model, config.system) | setup.grader_bits(config, config.reward)


def beside(config: Config) -> tuple[Path, ...]:
    """The trained model."""
    return (config.run / "model",)


def schema(config: Config, given: pa.Schema) -> pa.Schema:
    """One row a rollout."""
    from magcli.rl.records import ROLLOUT

    return ROLLOUT


def run(config: Config, rows: Rows, job: Job) -> Rows:
    """Train, then give all rollouts out in the order of the updates."""
    from magcli.data import table
    from magcli.rl import loop

    problems = [row for batch in rows for row in batch.to_pylist()]
    with setup.run_folder("rl", config, settings(config), PLACES, job) as folder:
        if folder.finished:
            loop.clear(folder)
            job.console.say(f"rl: {folder.model} is finished", event="up-to-date")
        else:
            _train(config, problems, job, folder)
        for path in sorted((folder.path / "rollouts").glob("step-*.arrow")):
            yield from table.read(str(path)).rows


def _train(config: Config, problems: list[dict[str, Any]], job: Job, folder: RunDir) -> None:
    import contextlib

    from magcli.rl import loop
    from magcli.rl.ledger import Ledger, account, read
    from magcli.rl.progress import Records, load_checkpoint
    from magcli.rl.store import Store

    with contextlib.ExitStack() as held:
        grader = setup.open_grader(config, config.reward)
        held.callback(grader.shutdown)
        problems = setup.answerable(problems, config.model, setup.system_text(config.system), grader, job)
        trainer = _trainer(config)
        ledger = Ledger(folder.path / "ledger.jsonl")
        held.callback(ledger.close)
        every = config.checkpoint_every, config.keep_checkpoints, config.trajectory_every
        records = Records(folder, ledger, Store(folder.path), *every)
        load_checkpoint(trainer, records)
        _loop(config, trainer, records, problems, grader, job)
        ledger.sync()
    loop.finish(trainer, folder)
    job.console.say(f"rl: {account(read(folder.path / 'ledger.jsonl'))}", event="ledger")
    job.console.say(f"rl: model in {folder.model}", event="model", path=str(folder.model))


def _loop(
    config: Config, trainer: Trainer, records: Records, problems: list[dict[str, Any]], grader: Grader, job: Job
) -> None:
    import asyncio

    from magcli.rl import loop

    with job.console.progress(config.updates, "updates", "rl") as bar:

        def report(line: dict[str, Any]) -> None:
            bar.advance(note=_note(line))
            if job.console.as_json:
                job.console.say("", event="update", **line)

        if trainer.done or records.ledger.taken:
            told = f"rl: going on from update {trainer.done}, of {max(records.ledger.taken, default=0)} that were begun"
            job.console.say(told, event="resume", step=trainer.done)
        bar.advance(trainer.done, reused=True)
        loop.catch_up(trainer, records, report)
        asyncio.run(_generate_and_train(config, trainer, records, problems, grader, report))


async def _generate_and_train(
    config: Config,
    trainer: Trainer,
    records: Records,
    problems: list[dict[str, Any]],
    grader: Grader,
    report: Callable[[dict[str, Any]], None],
) -> None:
    from magcli.rl import loop
    from magcli.rl.flow import Flow, Problems

    policy = _policy(config)
    try:
        if trainer.done:
            await policy.load(trainer.model.state_dict(), trainer.done)
        flow = Flow(
            _roller(config, policy, grader, trainer),
            Problems(problems, config.seed),
            records.ledger,
            records.store,
            batch_groups=config.n_batch // config.group,
            async_groups=config.n_async // config.group,
            staleness=config.staleness,
            updates=config.updates,
        )
        await loop.train(
            trainer,
            flow,
            records,
            schedule=config.schedule,
            beside=False,
            generating=lambda: policy.seconds,
            report=report,
        )
    finally:
        await policy.close()


def _note(line: dict[str, Any]) -> str:
    dropped = sum(line["groups_dropped"].values())
    return (
        f"reward {line['reward']:.3f} correct {line['correct']:.3f} length {line['length_mean']:.0f} "
        f"groups {line['groups_trained']}+{dropped} entropy {line['entropy'] or 0:.2f} "
        f"{line['generate_tokens_per_s']:,.0f}+{line['train_tokens_per_s']:,.0f} tokens/s"
    )


def _trainer(config: Config) -> Trainer:
    import torch

    from magcli.model.load import load_model, load_tokenizer
    from magcli.rl.trainer import Trainer
    from magcli.rl.update import Objective
    from magcli.train import optim
    from magcli.train.attention import use_packed_attention

    tokenizer = load_tokenizer(config.model)
    model = load_model(config.model, dtype=torch.float32, device=config.device)
    use_packed_attention(model)
    return Trainer(
        model,
        optim.adamw(model, lr=config.lr, weight_decay=config.weight_decay),
        tokenizer,
        Objective(
            config.clip_low,
            config.clip_high,
            config.temperature,
            config.advantage_norm,
            config.loss_norm,
            config.max_norm,
            config.micro_tokens,
            config.bf16,
        ),
        groups_per_step=config.n_mini // config.group,
        updates=config.updates,
        lr=config.lr,
        warmup=config.warmup,
        shuffle_rewards=config.shuffle_rewards,
        seed=config.seed,
    )


def _policy(config: Config) -> TorchPolicy:
    """The generator's own copy of the model; the synchronous schedule samples to the bit."""
    from magcli.generate.open import open_policy

    exact = config.schedule == "sync"
    dtype = "fp32" if exact else config.dtype
    return open_policy(config.model, dtype=dtype, slots=config.n_async, deterministic=exact, device=config.device)


def _roller(config: Config, policy: TorchPolicy, grader: Grader, trainer: Trainer) -> Roller:
    from magcli.generate.types import Sampling
    from magcli.model.load import end_tokens
    from magcli.rl.rollouts import Roller

    return Roller(
        policy,
        grader,
        trainer.tokenizer,
        end_tokens(trainer.model, trainer.tokenizer),
        setup.system_text(config.system),
        Sampling(config.max_tokens, config.temperature),
        setup.reward_rule(config),
        config.group,
        config.diverse_by,
        config.seed,
    )
