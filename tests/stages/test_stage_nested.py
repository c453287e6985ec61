"""Text models inside vision-language models through sft, generate, rl and export; vision encoders stay as they are."""

import json
from pathlib import Path

import pytest
import torch
from calling import call_stage
from nested import make_nested
from safetensors.torch import load_file
from transformers import AutoModelForImageTextToText

from magcli.data import table
from magcli.run.rundir import RunDir
from magcli.stages.rl import plan, sampling_engine

TRACES = [
    {"id": str(n), "prompt": f"{n}+1?", "completion": f"<think>one more</think>\\boxed{{{n + 1}}}"} for n in range(8)
]
PROBLEMS = [{"id": str(n), "prompt": f"{n}+2?", "answer": str(n + 2)} for n in range(4)]
TOKENS = torch.arange(8, 100)[None]


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def is_text(name):
    return "vision" not in name and "visual" not in name and "projector" not in name


def check_saved(source, saved):
    """The text weights are new; every other tensor and every other file is the source's, byte for byte."""
    before, after = load_file(source / "model.safetensors"), load_file(saved / "model.safetensors")
    assert before.keys() == after.keys()
    for name, tensor in before.items():
        assert tensor.dtype == after[name].dtype
        if not is_text(name):
            assert torch.equal(tensor.view(torch.uint8), after[name].view(torch.uint8)), name
    assert any(not torch.equal(before[name], after[name]) for name in before if is_text(name))
    for name in ("config.json", "preprocessor_config.json", "tokenizer.json", "tokenizer_config.json"):
        assert (source / name).read_bytes() == (saved / name).read_bytes()


def logits_of(folder):
    with torch.no_grad():
        return AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32).eval()(TOKENS).logits


def reinforce(model, run, problems, engine, **options):
    """Two updates from a reward that every completion gets differently, so that the weights change."""
    reward = write_reward(run.parent)
    call_stage(
        "rl", problems, model=str(model), run=run, updates=2, group_size=4, n_async=8, n_batch=8, n_mini=8,
        max_tokens=8, lr=1e-3, bf16="no", dtype="fp32", system=Path("none"), engine=engine, reward=reward,
        diverse_by="reward", **options,
    )  # fmt: skip


def write_reward(folder):
    code = "def reward(completion, row):\n    return (len(completion) + sum(map(ord, completion))) % 7 / 7\n"
    (folder / "scored.py").write_text(code, encoding="utf-8")
    return f"{folder / 'scored.py'}:reward"


@pytest.mark.parametrize("family", ["mistral3", "gemma3", "qwen2_5_vl"])
def test_a_nested_text_model_goes_through_the_pipeline(family, tiny_model_dir, tmp_path):
    source = make_nested(family, tiny_model_dir, tmp_path / "source", torch.bfloat16)
    traces, problems = write(tmp_path / "t.jsonl", TRACES), write(tmp_path / "p.jsonl", PROBLEMS)
    call_stage(
        "sft", traces, model=str(source), run=tmp_path / "sft", epochs=2, step_tokens=128, lr=1e-3, system=Path("none"),
        bf16="no",
    )  # fmt: skip
    trained = tmp_path / "sft" / "model"
    check_saved(source, trained)
    sampling = {"system": Path("none"), "samples": 2, "max_tokens": 8, "dtype": "fp32", "engine": "torch"}
    call_stage("generate", problems, model=str(trained), output=tmp_path / "g.arrow", **sampling)
    assert len([row for batch in table.read(str(tmp_path / "g.arrow")).rows for row in batch.to_pylist()]) == 8
    reinforce(trained, tmp_path / "rl", problems, "torch", schedule="sync")
    check_saved(source, tmp_path / "rl" / "model")
    assert not torch.equal(logits_of(trained), logits_of(tmp_path / "rl" / "model"))
    call_stage("export", run=tmp_path / "rl", out=tmp_path / "out")
    check_saved(source, tmp_path / "out")
    torch.testing.assert_close(logits_of(tmp_path / "out"), logits_of(tmp_path / "rl" / "model"), rtol=0, atol=0)


def test_the_engine_shares_the_frozen_weights_of_a_nested_text_model(tiny_model_dir, tmp_path, monkeypatch):
    monkeypatch.setattr(plan, "_shares_base", lambda given, rank, *, on_gpu: True)  # as on a GPU
    opened = []
    monkeypatch.setattr(sampling_engine, "open_policy", lambda spec: opened.append(spec))
    source = make_nested("mistral3", tiny_model_dir, tmp_path / "source")
    problems, run = write(tmp_path / "p.jsonl", PROBLEMS), tmp_path / "rl"
    reinforce(source, run, problems, "torch", lora=4)
    lines = RunDir(run).metrics()
    assert len({line["weights_digest"] for line in lines}) == len(lines) > 1
    assert all(line["mismatch_p99"] < 1e-3 for line in lines if line["mismatch_tokens"])
    assert any(line["mismatch_tokens"] for line in lines)
    assert opened == [], "the engine has a copy of the weights"
    check_saved(source, run / "model")


@pytest.mark.slow
@pytest.mark.parametrize("family", ["mistral3", "gemma3", "qwen2_5_vl"])
def test_a_nested_text_model_is_reinforced_with_vllm(family, tiny_model_dir, tmp_path):
    source = make_nested(family, tiny_model_dir, tmp_path / "source")
    problems = write(tmp_path / "p.jsonl", PROBLEMS)
    reinforce(source, tmp_path / "rl", problems, "vllm", generators=1)
    check_saved(source, tmp_path / "rl" / "model")
    assert not torch.equal(logits_of(source), logits_of(tmp_path / "rl" / "model"))
