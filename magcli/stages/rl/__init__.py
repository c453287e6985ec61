"""Reinforcement learning with verifiable rewards: GRPO with the changes of the Magistral recipe.

The input is a table of problems; the output is a table of all rollouts with their reward parts, the weight versions
that generated them, and whether they were trained on. The run's folder contains metrics, checkpoints, float32 weights
for the landscape and the trained model. The same command resumes an interrupted run; with --schedule sync the resumed
weights equal those of an uninterrupted run bit for bit.

A line each minute counts the finished groups, also while all are dropped. A run that cannot learn stops with the next
command: when 600 completions have no right one, or when the reward function fails for a whole batch. A function given
by --reward is tried on the first problem before anything is generated.
"""

from magcli.stages.rl.config import Config, check, defaults, reads, side_outputs

INPUTS = "Problems: columns prompt, answer, optional id; - is stdin."
OUTPUT = "the rollouts (also in the run's folder)"
EXAMPLE = (
    "magcli rl examples/problems.jsonl --model examples/model --system none "
    "--run runs/rl --updates 3 --group-size 4 --n-async 16 "
    "--n-batch 8 --n-mini 8 --max-tokens 48 --penalty-end 48 --diverse-by reward "
    "--trajectory-every 1"
)
FIRST = (
    "model", "run", "updates", "n_batch", "group_size", "max_tokens", "lr", "reward", "eval_table", "device",
)  # fmt: skip
"""The options that matter first."""

IN_RECIPE = (
    "clip_low", "clip_high", "advantage_norm", "loss_norm", "tis_cap", "entropy_bonus", "shuffle_rewards",
    "warmup", "weight_decay", "max_norm", "lora_alpha", "retire_after", "defer_after",
    "language", "num_tests", "partial", "verify_deadline",
    "evaluate_every", "eval_samples", "eval_max_tokens", "eval_temperature", "eval_slots",
    "offload", "fsdp_size", "min_trainers",
    "generator_devices", "transfer", "tensor_parallel", "vllm_sleep", "vllm_eager",
    "keep_checkpoints", "save_dtype", "template_args",
)  # fmt: skip
"""What a run decides by itself, or has a value of its paper, and nobody changes from one command to the next."""

__all__ = ["FIRST", "IN_RECIPE", "Config", "check", "defaults", "reads", "side_outputs"]
