"""One run of TRL's SFTTrainer: ``python -m benchmarks.sft_trl_child SPEC.json``, with TRL on the path.

Writes a line of metrics after each optimizer step, the last one with the held-out loss. Traces are tokenised by magcli,
so that both sides train on the same tokens, and packed by TRL, which is unchanged.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from datasets import Dataset
from transformers import TrainerCallback

from benchmarks.downloads import hide_vllm
from magcli.model.chat.prompts import to_messages
from magcli.model.chat.targets import examples
from magcli.model.load import load_tokenizer

if TYPE_CHECKING:
    from trl import SFTConfig

Spec = Mapping[str, Any]
IGNORED = -100


class Lines(TrainerCallback):
    """Writes loss and tokens of each step; TRL logs tokens as a running total."""

    def __init__(self, spec: Spec) -> None:
        self.spec, self.total = spec, 0
        self.trainer: Any = None

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        """Write a step's metrics; evaluate after the last one."""
        if not logs or "loss" not in logs:
            return
        line = {"step": state.global_step, "loss": logs["loss"], "tokens": int(logs["num_tokens"]) - self.total}
        self.total = int(logs["num_tokens"])
        if state.global_step == self.spec["steps"]:
            line["held_out_loss"] = held_out_loss(self.trainer.model, self.spec)
        with open(self.spec["metrics"], "a") as file:
            file.write(json.dumps(line) + "\n")


def rows(path: str, model: str) -> list[dict[str, list[int]]]:
    """Tokens and labels of traces, the same as in ``magcli sft``."""
    tokenizer, encoded = load_tokenizer(model), []
    for line in Path(path).read_text().splitlines():
        row = json.loads(line)
        turns = [*to_messages(row["prompt"], None), {"role": "assistant", "content": row["completion"]}]
        ((tokens, mask),) = examples(tokenizer, turns)
        labels = [token if on else IGNORED for token, on in zip(tokens, mask, strict=True)]
        encoded.append({"input_ids": tokens, "labels": labels})
    return encoded


@torch.no_grad()
def held_out_loss(model: Any, spec: Spec) -> float:
    """Mean loss per target token, one trace at a time."""
    total, count = 0.0, 0
    model.eval()
    for row in rows(spec["held_out"], spec["model"]):
        ids, labels = torch.tensor([row["input_ids"]]), torch.tensor(row["labels"])
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=spec["bf16"]):
            logits = model(input_ids=ids).logits[0, :-1].float()
        losses = torch.nn.functional.cross_entropy(logits, labels[1:], ignore_index=IGNORED, reduction="sum")
        total = total + losses.item()
        count = count + int((labels[1:] != IGNORED).sum())
    model.train()
    return total / count


def options(spec: Spec, mean_length: float) -> "SFTConfig":
    """The settings as options of TRL."""
    from trl import SFTConfig

    row_tokens = spec["rows"] * (spec["length"] or mean_length)
    return SFTConfig(
        output_dir=spec["folder"],
        max_steps=spec["steps"],
        per_device_train_batch_size=spec["rows"],
        gradient_accumulation_steps=max(1, round(spec["step_tokens"] / row_tokens)),
        packing=bool(spec["length"]),
        padding_free=not spec["length"],
        max_length=spec["length"] or None,
        learning_rate=spec["lr"],
        lr_scheduler_type="constant",
        warmup_steps=0,
        weight_decay=0.0,
        adam_beta2=spec["beta2"],
        max_grad_norm=spec["max_norm"],
        gradient_checkpointing=False,
        use_cpu=True,
        bf16=spec["bf16"],
        model_init_kwargs={"dtype": "float32"},
        seed=spec["seed"],
        save_strategy="no",
        logging_steps=1,
        report_to=[],
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )


def main(path: str) -> None:
    """Train with a spec."""
    hide_vllm()
    from trl import SFTTrainer

    spec = json.loads(Path(path).read_text())
    torch.set_num_threads(spec["threads"])
    Path(spec["folder"]).mkdir()
    data, lines = rows(spec["traces"], spec["model"]), Lines(spec)
    trainer = SFTTrainer(
        model=spec["model"],
        args=options(spec, sum(len(row["input_ids"]) for row in data) / len(data)),
        train_dataset=Dataset.from_list(data),
        processing_class=load_tokenizer(spec["model"]),
        callbacks=[lines],
    )
    lines.trainer = trainer
    trainer.train()


if __name__ == "__main__":
    main(sys.argv[1])
