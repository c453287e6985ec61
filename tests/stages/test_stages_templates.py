"""Models with chat templates in eight styles: SFT, sampling, RL, export and loading elsewhere."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from calling import call_stage
from templates import SPECIAL, STYLES
from thinking import save_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from magcli.data import table

EOS = "</s>"
TOKENS = ("<unk>", EOS, *(token for token in SPECIAL if token != EOS))
NO_SYSTEM = {"system": Path("none")}
SFT = {"epochs": 12, "step_tokens": 512, "lr": 5e-3, "bf16": "no"}
RL = {
    "group": 8,
    "n_async": 32,
    "n_batch": 16,
    "n_mini": 16,
    "max_tokens": 64,
    "updates": 1,
    "bf16": "no",
    "dtype": "fp32",
}


def answer(choose: random.Random, with_thoughts: bool) -> str:
    """A boxed number of 1 to 4, after one to three dots of thoughts."""
    thoughts = "<think>" + "." * choose.randrange(1, 4) + "</think>"
    boxed = f"\\boxed{{{choose.choice('1234')}}}"
    return thoughts + boxed if with_thoughts else boxed


def conversations(count: int) -> Iterator[dict[str, Any]]:
    """Conversations of one turn and of two about letters; one in four has no thoughts."""
    choose = random.Random(0)
    for number in range(count):
        with_thoughts = number % 4 != 0
        turns = 1 + number // 4 % 2
        messages = []
        for _ in range(turns):
            messages.append({"role": "user", "content": f"{choose.choice('abcdefgh')}?"})
            messages.append({"role": "assistant", "content": answer(choose, with_thoughts)})
        yield {"messages": messages}


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [row for batch in table.read(str(path)).rows for row in batch.to_pylist()]


def logits(folder: Path) -> torch.Tensor:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.inference_mode():
        return model(torch.arange(40, 80)[None]).logits


@pytest.mark.parametrize("style", STYLES)
def test_a_model_of_each_style_is_trained_sampled_and_loaded_elsewhere(
    style: str, letters: Path, tmp_path: Path
) -> None:
    template, end_of_turn = STYLES[style]
    save_model(tmp_path / "random", TOKENS, template)
    traces = tmp_path / "traces.jsonl"
    traces.write_text("".join(json.dumps(row) + "\n" for row in conversations(240)))
    sft, rl, exported = tmp_path / "sft", tmp_path / "rl", tmp_path / "exported"

    call_stage(
        "sft", traces, model=str(tmp_path / "random"), run=sft, dropped=tmp_path / "dropped.jsonl", **SFT, **NO_SYSTEM
    )
    assert rows_of(tmp_path / "dropped.jsonl") == []

    sampled = tmp_path / "sampled.arrow"
    options = {"samples": 8, "max_tokens": 64, "output": sampled}
    call_stage("generate", letters, model=str(sft / "model"), **options, **NO_SYSTEM)
    samples = rows_of(sampled)
    stopped = [row for row in samples if row["finish"] == "stop"]
    assert len(stopped) > 0.9 * len(samples)
    assert not any(end_of_turn in row["completion"] for row in samples)
    thoughtful = [row for row in samples if "</think>" in row["completion"]]
    assert len(thoughtful) > 0.5 * len(samples)

    call_stage("rl", letters, model=str(sft / "model"), run=rl, language=False, **RL, **NO_SYSTEM)
    call_stage("export", run=rl, out=exported)
    assert torch.equal(logits(exported), logits(rl / "model"))
    assert not torch.equal(logits(exported), logits(sft / "model"))

    tokenizer = AutoTokenizer.from_pretrained(exported)
    assert tokenizer.chat_template == template
    ends = json.loads((exported / "generation_config.json").read_text())["eos_token_id"]
    assert tokenizer.convert_tokens_to_ids(end_of_turn) in (ends if isinstance(ends, list) else [ends])
