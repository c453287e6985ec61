"""What a replay takes over from the run whose rollouts it trains on. Light to import."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from magcli.run.settings import CHOSEN
from magcli.stages.shared import run_options

OF_MODEL = ("model", "chat_template", "template_args", "thoughts", "stop", "lora", "lora_alpha", "save_dtype")
OF_ROLLOUTS = ("group_size", "n_batch", "n_async", "max_tokens", "temperature", "reward", "environment", "seed")
OF_TRAINING = (
    "schedule", "n_mini", "micro_tokens", "lr", "warmup", "weight_decay", "max_norm",
    "loss", "clip_low", "clip_high", "advantage_norm", "loss_norm", "advantage", "teacher", "diverse_by",
    "tis_cap", "kl", "entropy_bonus", "shuffle_rewards",
)  # fmt: skip
CHOOSES_PROBLEMS = ("data", "band")
"""Options of a stage of training that have no meaning without problems."""


def options_of_replayed(place: Path) -> dict[str, Any]:
    """The options of a stored run that its replay has too, unless others are given.

    Only the number of updates for a table of rollouts without a history.

    Raises:
        DataError: it is neither the folder of a run with rollouts nor a table that can be read.
    """
    from magcli.rl.stored import StoredRollouts  # with PyTorch, which --help does without

    stored = StoredRollouts(place)
    recorded = run_options.record(place) if stored.is_run else stored.history("rl")
    names = (*OF_MODEL, *OF_ROLLOUTS, *OF_TRAINING)
    # Runs of earlier versions lack some of them.
    options = {name: recorded[name] for name in names if recorded.get(name) is not None}
    bf16 = recorded.get(CHOSEN, {}).get("bf16")
    if bf16:
        # What ``auto`` meant there, as a replay may be on another machine.
        options["bf16"] = bf16
    stages = recorded.get("stage")
    if stages:
        options["stage"] = [_without_problems(stage) for stage in stages]
    options["updates"] = stored.count()
    return options


def _without_problems(stage: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in stage.items() if value is not None and name not in CHOOSES_PROBLEMS}
