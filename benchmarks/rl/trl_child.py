"""One run of TRL's GRPOTrainer: ``python -m benchmarks.rl.trl_child SPEC.json``, with TRL on the path.

Writes a line of metrics before the first update and after each one. TRL is used as documented and unchanged, except
that two calls are timed.
"""

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from datasets import Dataset
from transformers import TrainerCallback

from benchmarks.downloads import hide_vllm
from magcli.model.chat.prompts import to_messages
from magcli.verify import Grader, RewardRule

if TYPE_CHECKING:
    from trl import GRPOConfig

Spec = Mapping[str, Any]


@dataclass
class Log:
    """Metrics of the current update, and the file to write them to."""

    path: Path
    started: float = 0.0
    metrics: dict[str, Any] = field(default_factory=dict)

    def timed(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a call so that its seconds are added to a metric."""

        def wrapped(*arguments: Any, **named: Any) -> Any:
            started = time.perf_counter()
            try:
                return call(*arguments, **named)
            finally:
                self.metrics[name] = self.metrics.get(name, 0.0) + time.perf_counter() - started

        return wrapped

    def write(self, step: int) -> None:
        """Write the metrics of an update; step 0 marks the beginning of the first."""
        now = time.perf_counter()
        line = {"step": step, "seconds": now - (self.started or now), **self.metrics}
        with open(self.path, "a") as file:
            file.write(json.dumps(line) + "\n")
        self.started, self.metrics = now, {}


class Lines(TrainerCallback):
    """Writes the log at the beginning and after each optimizer step."""

    def __init__(self, log: Log) -> None:
        self.log = log

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.log.write(0)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.log.write(state.global_step)


def reward(grader: Grader, rule: RewardRule, log: Log) -> Callable[..., list[float | None]]:
    """magcli's grader as a reward function of TRL; None for a completion that could not be graded."""

    def graded(
        prompts: Sequence[Any], completions: Sequence[Any], completion_ids: Sequence[Any], answer: Any, **_: Any
    ) -> list[float | None]:
        texts = [turns[-1]["content"] for turns in completions]
        rows = [{"prompt": turns[-1]["content"], "answer": gold} for turns, gold in zip(prompts, answer, strict=True)]
        lengths = [len(tokens) for tokens in completion_ids]
        rewards = log.timed("grade_seconds", grader.grade)(texts, rows, rule, num_tokens=lengths)
        totals = [reward.total for reward in rewards]
        correct = sum(reward.correct for reward in rewards) / len(rewards)
        log.metrics |= {"lengths": lengths, "reward": sum(totals) / len(totals), "correct": correct}
        return [reward.total if reward.trainable else None for reward in rewards]

    return graded


def options(spec: Spec) -> "GRPOConfig":
    """The settings as options of TRL."""
    from trl import GRPOConfig

    micro = spec["micro"]
    parts = spec["completions"] // micro
    return GRPOConfig(
        output_dir=spec["folder"],
        max_steps=spec["updates"],
        per_device_train_batch_size=micro,
        gradient_accumulation_steps=parts,
        steps_per_generation=parts,
        num_iterations=1,
        num_generations=spec["group"],
        max_completion_length=spec["limit"],
        temperature=spec["temperature"],
        top_p=1.0,
        top_k=0,
        beta=0.0,
        epsilon=spec["clip_low"],
        epsilon_high=spec["clip_high"],
        loss_type="dapo",
        scale_rewards="batch",
        mask_truncated_completions=False,
        learning_rate=spec["lr"],
        lr_scheduler_type="constant_with_warmup" if spec["lr_warmup"] else "constant",
        warmup_steps=spec["lr_warmup"],
        weight_decay=0.0,
        adam_beta2=0.95,
        max_grad_norm=1.0,
        gradient_checkpointing=spec.get("vllm", False),
        use_cpu=not spec.get("vllm", False),
        bf16=spec["bf16"],
        model_init_kwargs={"dtype": "bfloat16" if _has_bf16_base(spec) else "float32"},
        use_transformers_continuous_batching=spec["continuous"],
        transformers_continuous_batching_config={"num_blocks": spec["blocks"]} if spec["continuous"] else None,
        shuffle_dataset=spec.get("shuffle", False),
        seed=spec["seed"],
        save_strategy="no",
        logging_steps=1,
        report_to=[],
        disable_tqdm=True,
        dataloader_pin_memory=False,
        **_colocated(spec),
    )


def _has_bf16_base(spec: Spec) -> bool:
    """Whether the frozen weights are stored in bf16, as magcli stores them; adapters are float32 all the same."""
    return bool(spec.get("lora") and spec["bf16"])


def _adapters(spec: Spec) -> Any:
    """Adapters on all linear layers but the LM head, if the spec asks for them."""
    if not spec.get("lora"):
        return None
    from peft import LoraConfig

    return LoraConfig(r=spec["lora"], lora_alpha=spec["lora_alpha"], target_modules="all-linear", task_type="CAUSAL_LM")


def _colocated(spec: Spec) -> dict[str, Any]:
    """The options for vLLM on the trainer's GPU, if the spec asks for it."""
    if not spec.get("vllm"):
        return {}
    share, length = spec["gpu_memory"], spec["context"]
    return {
        "use_vllm": True,
        "vllm_mode": "colocate",
        "vllm_gpu_memory_utilization": share,
        "vllm_max_model_length": length,
    }


def main(path: str) -> None:
    """Train with a spec."""
    spec = json.loads(Path(path).read_text())
    if not spec.get("vllm"):
        hide_vllm()
    from trl import GRPOTrainer

    torch.set_num_threads(spec["threads"])
    Path(spec["folder"]).mkdir()
    log = Log(Path(spec["metrics"]))
    problems = [json.loads(line) for line in Path(spec["problems"]).read_text().splitlines()]
    rows = [{"prompt": to_messages(row["prompt"], spec["system"]), "answer": row["answer"]} for row in problems]
    with Grader(spec["workers"], function=spec["reward"]) as grader:
        trainer = GRPOTrainer(
            model=spec["model"],
            reward_funcs=reward(grader, RewardRule(**spec["rule"]), log),
            args=options(spec),
            peft_config=_adapters(spec),
            train_dataset=Dataset.from_list(rows),
            callbacks=[Lines(log)],
        )
        trainer._generate_single_turn = log.timed("generate_seconds", trainer._generate_single_turn)
        trainer._generate = _log_prompt_lengths(trainer._generate, log)
        trainer.train()
        print("weights:", next(trainer.model.parameters()).dtype, file=sys.stderr)


def _log_prompt_lengths(generate: Callable[..., Any], log: Log) -> Callable[..., Any]:
    """Wrap a call so that the lengths of its prompts are logged."""

    def wrapped(prompts: Any) -> Any:
        generated = generate(prompts)
        log.metrics["prompt_lengths"] = [len(prompt) for prompt in generated[0]]
        return generated

    return wrapped


if __name__ == "__main__":
    main(sys.argv[1])
