"""Supervised fine-tuning on traces, or training from scratch.

Rows are conversations (messages) or problems with a completion. Sequences are packed without padding; weights
are float32 with bf16 matrix products; the run's folder holds metrics, checkpoints and the resulting model: the
best by --eval-table or --held-out, else the last. With --lora only adapters are trained; the model has them merged
in, and they are also in the folder adapter. The same command resumes an interrupted run exactly.

On many GPUs give each a trainer rank: `magcli sft ... --trainers 8`
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from magcli.choices import AskedFormat, EngineName
from magcli.config import opt
from magcli.errors import usage
from magcli.stages.shared import options, rank_options

INPUTS = "Traces: column messages, or prompt and completion; - is stdin."
OUTPUT = "the metrics of each step (also in the run's folder)"
EXAMPLE = (
    "magcli sft examples/traces.jsonl --model examples/model --system none --run runs/sft --epochs 2 --step-tokens 512"
)

FIRST = ("model", "run", "epochs", "lr", "step_tokens", "max_length", "lora", "held_out", "eval_table", "device")

IN_RECIPE = (
    "warmup", "floor", "weight_decay", "max_norm", "lora_alpha", "verify_deadline",
    "evaluate_every", "eval_samples", "eval_max_tokens", "eval_temperature", "eval_slots",
    "offload", "fsdp_size", "min_trainers", "keep_checkpoints", "save_dtype", "template_args",
)  # fmt: skip
"""What nobody changes from one command to the next."""

TRAIN, EVALUATION = options.TRAIN, options.EVALUATION


@dataclass(frozen=True)
class Config(options.GraderOptions, options.EvaluationOptions, rank_options.RankOptions):
    """Options of `magcli sft`."""

    run: Path = opt(
        Path("runs/sft"), "Folder of the run; the same command resumes it.", owned_dir=True, affects_rows=False
    )
    from_scratch: bool = opt(
        False,
        "Train from random initialization; the model folder needs only config and tokenizer.",
        panel=options.MODEL,
    )
    held_out: Path | None = opt(
        None, "Table of held-out traces; the checkpoint with the lowest loss on them is the result.", affects_rows=False
    )
    evaluate_every: int = opt(
        50, "Number of steps between evaluations on held-out traces or problems.", panel=EVALUATION, gt=0
    )
    epochs: int = opt(4, "Number of epochs.", panel=TRAIN, gt=0)
    max_steps: int = opt(0, "Maximum number of steps; 0 runs all epochs.", panel=TRAIN, ge=0)
    lr: float = opt(
        0.0,
        "Peak learning rate; cosine schedule. 0 chooses one by the number of weights: 1e-5 for 24B, 4e-5 for 1.5B, "
        "ten times that for LoRA.",
        panel=TRAIN,
        ge=0,
    )
    warmup: float = opt(
        0.05, "Warm-up: share of the steps over which the learning rate rises.", panel=TRAIN, ge=0, lt=1
    )
    floor: float = opt(0.1, "Final learning rate as a share of the peak.", panel=TRAIN, ge=0, le=1)
    step_tokens: int = opt(
        0,
        "Number of tokens per optimizer step; 0: 16384, or less where an epoch would have fewer than 8 steps.",
        panel=TRAIN,
        ge=0,
    )
    micro_tokens: int = opt(
        0,
        "Maximum number of tokens per micro-batch; 0: 8192, on a GPU as many as fit its memory.",
        panel=TRAIN,
        ge=0,
    )
    max_length: int = opt(
        32768,
        "Maximum number of tokens of a trace; longer ones, and those beyond the model's context, are dropped.",
        panel=TRAIN,
    )
    system: Path | None = options.system(TRAIN)
    checkpoint_every: int = opt(
        100, "Number of steps between checkpoints.", panel=options.CHECKPOINTS, affects_rows=False, gt=0
    )
    show_mask: int = opt(
        0,
        "Show this many sequences with their loss mask instead of training; needs no weights.",
        panel=TRAIN,
        preview_only=True,
        affects_rows=False,
    )
    seed: int = opt(0, "Seed of the data order, of random weights and of samples.", panel=TRAIN)
    engine: EngineName = opt("torch", "Engine that samples the problems of --eval-table.", panel=EVALUATION)
    dtype: AskedFormat = options.dtype(EVALUATION)


def check(config: Config) -> None:
    """Refuse options that are out of range or contradict each other."""
    rank_options.check_training("sft", config)
    options.check_vllm("sft", config.engine, deterministic=False)
    # Adapters change a model little; random weights under them would stay random.
    scratch = config.lora and config.from_scratch
    usage(not scratch, "sft: --lora needs a trained model; it cannot be combined with --from-scratch")
    rank_options.check("sft", config)
    rank_options.check_attention("sft", config)


def side_outputs(config: Config) -> tuple[Path, ...]:
    """The trained model and its adapters."""
    return (config.run / "model", *((config.run / "adapter",) if config.lora else ()))
