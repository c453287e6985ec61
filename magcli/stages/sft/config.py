"""Options of `magcli sft`, what contradicts in them, and what else decides the weights."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from magcli.config import opt
from magcli.errors import usage
from magcli.run import options
from magcli.stages.parts import checks, setup

TRAIN = options.TRAIN
EXAM = "Evaluation on problems"


@dataclass(frozen=True)
class Config:
    """Options of `magcli sft`."""

    model: str = options.trained_model()
    run: Path = opt(Path("runs/sft"), "Folder of the run; the same command resumes it.")
    from_scratch: bool = opt(
        False, "Initialise the weights at random; the model folder needs only config and tokenizer."
    )
    held_out: Path | None = opt(
        None, "Table of held-out traces; the checkpoint with the lowest loss on them is the result."
    )
    evaluate_every: int = opt(50, "Number of steps between evaluations on held-out traces or problems.")
    epochs: int = opt(4, "Number of epochs.", panel=TRAIN)
    max_steps: int = opt(0, "Maximum number of steps; 0 runs all epochs.", panel=TRAIN)
    lr: float = opt(1e-5, "Peak learning rate; cosine schedule.", panel=TRAIN)
    warmup: float = opt(0.05, "Warm-up: share of the steps over which the learning rate rises.", panel=TRAIN)
    floor: float = opt(0.1, "Final learning rate as a share of the peak.", panel=TRAIN)
    weight_decay: float = opt(0.0, "AdamW weight decay.", panel=TRAIN)
    max_norm: float = opt(1.0, "Maximum gradient norm (gradient clipping).", panel=TRAIN)
    step_tokens: int = opt(16384, "Number of tokens per optimizer step.", panel=TRAIN)
    micro_tokens: int = opt(8192, "Maximum number of tokens per micro-batch.", panel=TRAIN)
    max_length: int = opt(
        32768,
        "Maximum number of tokens of a trace; longer ones, and those beyond the model's context, are dropped.",
        panel=TRAIN,
    )
    bf16: options.Bf16 = options.bf16()
    recompute: bool = options.recompute()
    lora: int = opt(0, "LoRA rank, on all linear layers; 0 trains all weights.", panel=TRAIN)
    lora_alpha: float = opt(32.0, "LoRA alpha: adapters are scaled by alpha / rank.", panel=TRAIN)
    system: Path | None = options.system()
    checkpoint_every: int = opt(100, "Number of steps between checkpoints.", panel=TRAIN)
    keep_checkpoints: int = opt(2, "Number of checkpoints to keep.", panel=TRAIN)
    show_mask: int = opt(0, "With --dry-run: show this many traces with their loss mask.")
    device: str = options.device()
    seed: int = opt(0, "Seed of the data order, of random weights and of samples.", panel=TRAIN)
    eval_table: Path | None = opt(
        None,
        "Table of problems to sample and grade; the checkpoint with the highest accuracy is the result.",
        panel=EXAM,
    )
    eval_samples: int = opt(4, "Number of samples per problem.", panel=EXAM)
    eval_max_tokens: int = opt(1024, "Maximum new tokens per completion.", panel=EXAM)
    eval_temperature: float = opt(0.7, "Sampling temperature.", panel=EXAM)
    eval_slots: int = opt(64, "Maximum number of concurrent sequences.", panel=EXAM)
    workers: int = options.workers()
    verify_deadline: float = options.verify_deadline()
    sandbox: options.Sandbox = options.sandbox()


RUNTIME = ("run", "held_out", "eval_table", "show_mask", "keep_checkpoints", "checkpoint_every", "device", "workers")
"""Options that do not decide the weights."""
POSITIVE = ("max_norm", "lora_alpha", "eval_samples", "eval_max_tokens", "eval_slots")


def reads(config: Config) -> tuple[str, ...]:
    """Nothing by name: either of two sets of columns will do, which ``run`` checks."""
    return ()


def looks(config: Config) -> bool:
    """Whether a dry run must read its table."""
    return config.show_mask > 0


def check(config: Config) -> None:
    """Refuse options that make no sense."""
    checks.trained_model("sft", config.model, config.device)
    for name in ("epochs", "lr", "step_tokens", "micro_tokens", "evaluate_every", "checkpoint_every", *POSITIVE):
        usage(getattr(config, name) > 0, f"sft.{name}: {getattr(config, name)} is not positive")
    usage(0 <= config.warmup < 1, f"sft.warmup: {config.warmup} is not in [0, 1)")
    usage(0 <= config.floor <= 1, f"sft.floor: {config.floor} is not in [0, 1]")
    usage(config.eval_temperature >= 0, f"sft.eval_temperature: {config.eval_temperature} is negative")
    usage(config.lora >= 0, f"sft.lora: {config.lora} is negative")
    checks.grader("sft", config)
    if config.lora:
        _check_lora(config)


def _check_lora(config: Config) -> None:
    from magcli.train.lora import require_peft

    usage(not config.from_scratch, "sft: --lora needs a trained model; it does not go with --from-scratch")
    alone = os.environ.get("WORLD_SIZE", "1") == "1"
    usage(alone, "sft: --lora trains in one process; start it without torchrun, or leave --lora out")
    require_peft()


def settings(config: Config) -> dict[str, Any]:
    """What else decides the weights: the digests of the model, of the system prompt and of what it is evaluated on."""
    told = setup.model_identity(config.model, config.system, weights=not config.from_scratch)
    told |= setup.table_identity("held_out", config.held_out) | setup.table_identity("eval_table", config.eval_table)
    return told | (setup.grader_identity(config) if config.eval_table else {})


def beside(config: Config) -> tuple[Path, ...]:
    """The trained model, and its adapters."""
    return (config.run / "model", *((config.run / "adapter",) if config.lora else ()))


def makes(config: Config) -> Path | None:
    """The run's folder."""
    return config.run
