"""A model that `sft` and `rl` train, on one or several ranks: its options and checks."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal

from magcli.choices import AskedAttention, SaveDtype, Switch
from magcli.cluster.open import require_ray
from magcli.config import is_url, opt
from magcli.errors import usage
from magcli.run.trackers import Name as TrackerName
from magcli.run.trackers import require as require_tracker
from magcli.stages.shared import options
from magcli.stages.shared.options import CHECKPOINTS, CLUSTER, MODEL, TRAIN


@dataclass(frozen=True)
class RankOptions(options.TemplateOptions):
    """A model that is trained on one or several ranks."""

    model: str = opt("", "Model to train: a local folder or a hub id.", panel=MODEL)
    device: str = options.device(affects_rows=False)
    weight_decay: float = opt(0.0, "AdamW weight decay.", panel=TRAIN, ge=0)
    max_norm: float = opt(1.0, "Maximum gradient norm (gradient clipping).", panel=TRAIN, gt=0)
    bf16: Switch = opt(
        "auto",
        "Training matrix products in bf16; auto: where it is faster on this machine. Master weights are float32.",
        panel=TRAIN,
    )
    lora: int = opt(0, "LoRA rank, on all linear layers; 0 trains all weights.", panel=TRAIN, ge=0)
    lora_alpha: float = opt(32.0, "LoRA alpha: adapters are scaled by alpha / rank.", panel=TRAIN, gt=0)
    activation_checkpointing: Switch = opt(
        "auto",
        "Recompute layer activations in the backward pass: less memory, 1/3 more compute; auto: on a GPU on which the "
        "run might not fit else.",
        panel=TRAIN,
        affects_rows=False,
        former="recompute",
    )
    attention: AskedAttention = opt(
        "auto",
        "Attention in training: PyTorch's kernels for padded batches (sdpa), or FlashAttention without padding, in "
        "bf16 on a GPU (varlen); auto: varlen where it works.",
        panel=MODEL,
        affects_rows=False,
    )
    offload: Literal["none", "moments"] = opt(
        "none", "Keep AdamW's moments in host memory; in one process.", panel=TRAIN, affects_rows=False
    )
    card: str = opt(
        "",
        "Memory to check the run for, such as 24G: that of another GPU, or more where the forecast is wrong; default: "
        "that of --device.",
        panel=TRAIN,
        affects_rows=False,
    )
    save_dtype: SaveDtype = options.save_dtype()
    keep_checkpoints: int = opt(2, "Number of checkpoints to keep.", panel=CHECKPOINTS, affects_rows=False)
    track: tuple[TrackerName, ...] = opt(
        (),
        "Experiment trackers: tensorboard, wandb, trackio, or several.",
        panel=CHECKPOINTS,
        affects_rows=False,
    )
    trainers: int = opt(
        1,
        "Number of trainer ranks, which share weights and optimizer by FSDP2; more than 1 are processes under Ray.",
        panel=CLUSTER,
        affects_rows=False,
        ge=1,
    )
    fsdp_size: int = opt(
        0,
        "Number of ranks that share one copy of weights and optimizer state, such as the GPUs of a node (hybrid "
        "sharding); default: all --trainers.",
        panel=CLUSTER,
        affects_rows=False,
    )
    min_trainers: int = opt(
        0,
        "Fewest trainer ranks to go on with if no node replaces a lost one within two minutes; the number of "
        "--trainers waits for one; default: 2, or --fsdp-size.",
        panel=CLUSTER,
        affects_rows=False,
    )
    cluster: str = opt(
        "",
        "Where processes under Ray run: local (default) starts one on this machine; auto or HOST:PORT joins a cluster.",
        panel=CLUSTER,
        affects_rows=False,
    )


def check_training(stage: str, config: RankOptions) -> None:
    """A device, a model on this machine or the hub, trackers whose packages are installed, and a chat template."""
    options.check_device(stage, config.device)
    usage(bool(config.model), f"{stage}: --model is missing: a local folder or a hub id")
    usage(not is_url(config.model), f"{stage}: a server's weights cannot be trained; give a folder or a hub id")
    for tracker in config.track:
        require_tracker(stage, tracker)
    options.check_template(stage, config)


def check(stage: str, config: RankOptions, *, others: int = 0) -> None:
    """Refuse numbers and places of processes that contradict each other; ``others`` of the run are under Ray too.

    Raises:
        EnvironmentFault: Ray is needed and not installed.
    """
    _refuse_torchrun(stage)
    size = config.fsdp_size
    usage(
        # Copies of the weights are of equal size; one of a single rank would not be sharded.
        size == 0 or (size > 1 and config.trainers % size == 0),
        f"{stage}.fsdp_size: {size} must be 2 or more and divide the {config.trainers} ranks of --trainers",
    )
    least = config.min_trainers
    usage(
        least == 0 or 2 <= least <= config.trainers,
        f"{stage}.min_trainers: {least} must be 2 or more and at most the {config.trainers} ranks of --trainers",
    )
    # A single rank is in the process of the command.
    needs_ray = others > 0 or config.trainers > 1
    usage(needs_ray or not config.cluster, f"{stage}: --cluster has nothing to place; add --trainers 2 or more")
    alone = config.trainers == 1
    usage(alone or not config.lora, f"{stage}: --lora trains in one process; use --trainers 1, or leave --lora out")
    usage(
        alone or config.offload == "none",
        f"{stage}: --offload needs a single process; with --trainers, more ranks divide the moments instead",
    )
    if needs_ray:
        require_ray()


def check_attention(stage: str, config: RankOptions) -> None:
    """FlashAttention only where it has a kernel: on a GPU, in bf16."""
    if config.attention != "varlen":
        return
    device = config.device
    usage(device.startswith("cuda"), f"{stage}: --attention varlen needs a GPU, not --device {device}; leave it out")
    usage(config.bf16 != "no", f"{stage}: --attention varlen computes in bf16; leave --bf16 no out, or take sdpa")


def _refuse_torchrun(stage: str) -> None:
    """Refuse to be one of several processes that torchrun has started: they would all be the same run."""
    # Set by torchrun for each process that it starts.
    size = os.environ.get("WORLD_SIZE", "")
    is_one_of_several = "RANK" in os.environ and size.isdigit() and int(size) > 1
    text = f"{stage}: magcli starts its trainer ranks itself: leave torchrun out and give --trainers {size}"
    usage(not is_one_of_several, text)
