"""Options of `magcli sft`, their checks, and what determines the weights besides them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from magcli.config import opt
from magcli.errors import usage
from magcli.stages.shared import engines, grading, options, tables

TRAIN, EVALUATION = options.TRAIN, options.EVALUATION


@dataclass(frozen=True)
class Config(options.GraderOptions, options.TrainingOptions):
    """Options of `magcli sft`."""

    run: Path = opt(
        Path("runs/sft"), "Folder of the run; the same command resumes it.", owned_dir=True, affects_rows=False
    )
    from_scratch: bool = opt(
        False, "Train from random initialization; the model folder needs only config and tokenizer."
    )
    held_out: Path | None = opt(
        None, "Table of held-out traces; the checkpoint with the lowest loss on them is the result.", affects_rows=False
    )
    evaluate_every: int = opt(50, "Number of steps between evaluations on held-out traces or problems.")
    epochs: int = opt(4, "Number of epochs.", panel=TRAIN)
    max_steps: int = opt(0, "Maximum number of steps; 0 runs all epochs.", panel=TRAIN)
    lr: float = opt(1e-5, "Peak learning rate; cosine schedule.", panel=TRAIN)
    warmup: float = opt(0.05, "Warm-up: share of the steps over which the learning rate rises.", panel=TRAIN)
    floor: float = opt(0.1, "Final learning rate as a share of the peak.", panel=TRAIN)
    step_tokens: int = opt(16384, "Number of tokens per optimizer step.", panel=TRAIN)
    micro_tokens: int = opt(8192, "Maximum number of tokens per micro-batch.", panel=TRAIN)
    max_length: int = opt(
        32768,
        "Maximum number of tokens of a trace; longer ones, and those beyond the model's context, are dropped.",
        panel=TRAIN,
    )
    lora: int = opt(0, "LoRA rank, on all linear layers; 0 trains all weights.", panel=TRAIN)
    lora_alpha: float = opt(32.0, "LoRA alpha: adapters are scaled by alpha / rank.", panel=TRAIN)
    system: Path | None = options.system(TRAIN)
    checkpoint_every: int = opt(
        100, "Number of steps between checkpoints.", panel=options.CHECKPOINTS, affects_rows=False
    )
    show_mask: int = opt(
        0, "With --dry-run: show this many traces with their loss mask.", preview_only=True, affects_rows=False
    )
    seed: int = opt(0, "Seed of the data order, of random weights and of samples.", panel=TRAIN)
    eval_table: Path | None = opt(
        None,
        "Table of problems to sample and grade; the checkpoint with the highest accuracy is the result.",
        panel=EVALUATION,
        affects_rows=False,
    )
    eval_samples: int = opt(4, "Number of samples per problem.", panel=EVALUATION)
    eval_max_tokens: int = opt(1024, "Maximum new tokens per completion.", panel=EVALUATION)
    eval_temperature: float = opt(0.7, "Sampling temperature.", panel=EVALUATION)
    eval_slots: int = opt(64, "Maximum number of concurrent sequences.", panel=EVALUATION)


POSITIVE = (
    "epochs", "lr", "step_tokens", "micro_tokens", "evaluate_every", "checkpoint_every", "max_norm", "lora_alpha",
    "eval_samples", "eval_max_tokens", "eval_slots",
)  # fmt: skip


def check(config: Config) -> None:
    """Refuse options that are out of range or contradict each other."""
    options.check_training("sft", config.model, config.device)
    options.check_positive("sft", config, POSITIVE)
    usage(0 <= config.warmup < 1, f"sft.warmup: {config.warmup} is not in [0, 1)")
    usage(0 <= config.floor <= 1, f"sft.floor: {config.floor} is not in [0, 1]")
    options.check_not_negative("sft", config, ("eval_temperature", "lora"))
    options.check_grader("sft", config)
    if config.lora:
        _check_lora(config)


def _check_lora(config: Config) -> None:
    from magcli.train.lora import require_peft

    usage(not config.from_scratch, "sft: --lora needs a trained model; it cannot be combined with --from-scratch")
    alone = os.environ.get("WORLD_SIZE", "1") == "1"
    usage(alone, "sft: --lora trains in one process; start it without torchrun, or leave --lora out")
    require_peft()


def settings(config: Config) -> dict[str, Any]:
    """Digests of the model, of the system prompt and of the evaluation tables."""
    found = engines.model_identity(config.model, config.system, weights=not config.from_scratch)
    found |= tables.table_identity("held_out", config.held_out)
    found |= tables.table_identity("eval_table", config.eval_table)
    return found | (grading.grader_identity(config) if config.eval_table else {})


def side_outputs(config: Config) -> tuple[Path, ...]:
    """The trained model and its adapters."""
    return (config.run / "model", *((config.run / "adapter",) if config.lora else ()))
