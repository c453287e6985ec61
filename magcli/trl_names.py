"""What the options of TRL are called in magcli: the answer to a flag or a recipe key that someone knows from there.

Names are those of TRL's ``GRPOConfig``, ``SFTConfig``, ``ModelConfig`` and ``ScriptArguments`` and of transformers'
``TrainingArguments``, from which they inherit.
"""

from collections.abc import Callable, Collection
from typing import NamedTuple


class Ours(NamedTuple):
    """The options that do the same here, of which a stage has the first at most, and what differs."""

    options: tuple[str, ...]
    note: str = ""


OURS = {
    # The policy and its objective.
    "beta": Ours(("kl",)),
    "epsilon": Ours(("clip_low",)),
    "epsilon_high": Ours(("clip_high",)),
    "entropy_coef": Ours(("entropy_bonus",)),
    "loss_type": Ours(("loss",), "dr_grpo is dr-grpo; a name brings its paper's bounds and norms"),
    "importance_sampling_level": Ours(("loss",), "sequence is gspo"),
    "scale_rewards": Ours(("advantage_norm",), "batch is minibatch"),
    "reward_funcs": Ours(("reward",)),
    "reward_weights": Ours(("reward",), "as in a.py:f=0.7,b.py:g=0.3"),
    "vllm_importance_sampling_cap": Ours(("tis_cap",)),
    "vllm_importance_sampling_clip_max": Ours(("tis_cap",)),
    "num_iterations": Ours((), "a completion is trained once"),
    # Sampling.
    "num_generations": Ours(("group_size", "samples")),
    "num_generations_eval": Ours(("eval_samples",)),
    "max_completion_length": Ours(("max_tokens", "eval_max_tokens")),
    "max_new_tokens": Ours(("max_tokens", "eval_max_tokens")),
    "max_prompt_length": Ours((), "prompts are never cut, and those that the context has no room for are dropped"),
    "chat_template_path": Ours(("chat_template",)),
    "chat_template_kwargs": Ours(("template_args",)),
    "use_vllm": Ours(("engine",), "vllm"),
    "vllm_gpu_memory_utilization": Ours(("gpu_memory",)),
    "vllm_tensor_parallel_size": Ours(("tensor_parallel",)),
    "vllm_enable_sleep_mode": Ours(("vllm_sleep",), "yes"),
    # Sizes and steps.
    "max_steps": Ours(("updates",)),
    "num_train_epochs": Ours(("epochs", "updates"), "which of rl counts updates, not passes over the problems"),
    "per_device_train_batch_size": Ours(
        ("n_mini", "step_tokens"), "which counts a whole optimizer step: of rl completions, of sft tokens"
    ),
    "gradient_accumulation_steps": Ours(
        ("micro_tokens",), "the tokens of a micro-batch; how many make a step follows from the batch"
    ),
    "generation_batch_size": Ours(("n_batch",)),
    "steps_per_generation": Ours(("n_batch",), "n-batch / n-mini optimizer steps an update"),
    "max_length": Ours(("max_length", "max_tokens")),
    "max_seq_length": Ours(("max_length",)),
    "packing": Ours((), "sequences are always packed, without padding"),
    # The optimizer and the model.
    "learning_rate": Ours(("lr",)),
    "warmup_ratio": Ours(("warmup",), "of sft a share of the steps, of rl a number of updates"),
    "warmup_steps": Ours(("warmup",), "of sft a share of the steps, of rl a number of updates"),
    "max_grad_norm": Ours(("max_norm",)),
    "gradient_checkpointing": Ours(("activation_checkpointing",), "yes"),
    "attn_implementation": Ours(("attention",)),
    "model_name_or_path": Ours(("model",)),
    "torch_dtype": Ours(("dtype",)),
    "use_peft": Ours(("lora",), "a rank above 0"),
    "lora_r": Ours(("lora",)),
    "dataset_name": Ours((), "a table is an argument without a flag: a file, a folder or a hub id"),
    # The run.
    "output_dir": Ours(("run",)),
    "save_steps": Ours(("checkpoint_every",)),
    "save_total_limit": Ours(("keep_checkpoints",)),
    "eval_steps": Ours(("evaluate_every",)),
    "logging_steps": Ours((), "every step is logged"),
    "report_to": Ours(("track",)),
    "resume_from_checkpoint": Ours((), "the same command resumes its run"),
}


def answer(name: str, present: Collection[str], shown: Callable[[str], str]) -> str:
    """What a name of TRL is called here, to append to an error; empty if it is none, or nothing does the same.

    Args:
        name: an unknown option, spelled with underscores.
        present: the options that there are.
        shown: how an option is written where the answer appears, as a flag or as a key.
    """
    ours = OURS.get(name)
    if ours is None:
        return ""
    # Of several spellings, such as group_size of rl and samples of evaluate, the one of this stage.
    here = next((option for option in ours.options if option in present), None)
    if here is None:
        return f"; TRL's {name} has no option here: {ours.note}" if not ours.options else ""
    return f"; TRL's {name} is {shown(here)} here" + (f" ({ours.note})" if ours.note else "")
