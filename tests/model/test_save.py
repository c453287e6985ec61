"""A saved model differs from its original by its weights, and by what an option changed."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, Qwen2MoeConfig, Qwen2MoeForCausalLM

from magcli.errors import EnvironmentFault
from magcli.model.load import load_model
from magcli.model.weights.save import open_original, save_model, try_saving
from magcli.model.weights.sums import SUMS

OLD_CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 104,
    "hidden_size": 48,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-06,
    "rope_theta": 1000000.0,
    "tie_word_embeddings": True,
    "bos_token_id": None,
    "eos_token_id": 1,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.46.0",
    "for_another_reader": {"kept": True},
}
"""As older versions of transformers wrote it."""
BAD_GENERATION = '{"do_sample": false, "temperature": 0.6, "eos_token_id": 1}'
"""transformers reads it, and refuses to save it."""


@pytest.fixture
def source(tiny_model_dir: Path, tmp_path: Path) -> Path:
    """The tiny model in bf16, with files of an older writer."""
    folder = tmp_path / "source"
    shutil.copytree(tiny_model_dir, folder)
    (folder / "config.json").write_text(json.dumps(OLD_CONFIG, indent=1))
    (folder / "generation_config.json").write_text(BAD_GENERATION)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"tokenizer_class": "PreTrainedTokenizerFast"}))
    (folder / "LICENSE").write_text("free")
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "tools.jinja").write_text("{{ messages }}")
    weights = load_file(folder / "model.safetensors")
    rounded = {name: tensor.bfloat16() for name, tensor in weights.items()}
    save_file(rounded, folder / "model.safetensors", {"format": "pt"})
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    files = (file for file in folder.rglob("*") if file.is_file() and file.name != SUMS)
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in files}


def moved(source: Path, step: float = 0.01):
    """The model after some training in float32."""
    model = load_model(str(source), dtype=torch.float32)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += step
    return model


def test_a_model_that_did_not_train_is_saved_byte_by_byte(source, tmp_path):
    save_model(load_model(str(source), dtype=torch.float32), open_original(str(source)), tmp_path / "saved")
    assert contents(tmp_path / "saved") == contents(source)


def test_training_changes_the_weights_and_nothing_else(source, tmp_path):
    save_model(moved(source), open_original(str(source)), tmp_path / "saved")
    before, after = contents(source), contents(tmp_path / "saved")
    assert {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)} == {
        "model.safetensors"
    }
    weights = load_file(tmp_path / "saved" / "model.safetensors")
    old = load_file(source / "model.safetensors")
    assert weights.keys() == old.keys()
    assert all(torch.equal(weights[name], (tensor.float() + 0.01).bfloat16()) for name, tensor in old.items())


def test_another_dtype_changes_one_key_of_the_config(source, tmp_path):
    save_model(moved(source), open_original(str(source), dtype="fp32"), tmp_path / "saved")
    config = json.loads((tmp_path / "saved" / "config.json").read_text())
    assert list(config) == list(OLD_CONFIG)
    assert config == OLD_CONFIG | {"torch_dtype": "float32"}
    assert {tensor.dtype for tensor in load_file(tmp_path / "saved" / "model.safetensors").values()} == {torch.float32}


def test_more_end_tokens_change_one_key_of_the_generation_config(source, tmp_path):
    original = open_original(str(source), ends=[3, 1])
    save_model(moved(source), original, tmp_path / "saved")
    before, after = contents(source), contents(tmp_path / "saved")
    assert {name for name in before if before[name] != after[name]} == {"generation_config.json", "model.safetensors"}
    assert json.loads(after["generation_config.json"]) == json.loads(BAD_GENERATION) | {"eos_token_id": [1, 3]}
    (source / "generation_config.json").unlink()
    save_model(moved(source), open_original(str(source), ends=[3]), tmp_path / "new")
    assert json.loads((tmp_path / "new" / "generation_config.json").read_text()) == {"eos_token_id": [1, 3]}


@pytest.mark.parametrize("names", ["both", "second"])
def test_tied_tensors_keep_the_names_that_the_source_stores(source, tmp_path, names):
    weights = load_file(source / "model.safetensors")
    embedding = "model.embed_tokens.weight"
    weights["lm_head.weight"] = weights[embedding].clone()
    if names == "second":
        del weights[embedding]
    save_file(weights, source / "model.safetensors", {"format": "pt"})
    model, original = moved(source), open_original(str(source))
    try_saving(model, original, tmp_path / "saved")
    save_model(model, original, tmp_path / "saved")
    saved = load_file(tmp_path / "saved" / "model.safetensors")
    assert saved.keys() == weights.keys()
    assert torch.equal(saved["lm_head.weight"].float(), model.lm_head.weight.bfloat16().float())


def test_tensors_that_transformers_ignores_are_copied(source, tmp_path):
    weights = load_file(source / "model.safetensors")
    weights["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.arange(6.0)
    save_file(weights, source / "model.safetensors", {"format": "pt"})
    save_model(moved(source), open_original(str(source)), tmp_path / "saved")
    saved = load_file(tmp_path / "saved" / "model.safetensors")
    assert torch.equal(saved["model.layers.0.self_attn.rotary_emb.inv_freq"], torch.arange(6.0))
    assert saved.keys() == weights.keys()


def test_shards_and_their_index_are_those_of_the_source(source, tmp_path):
    (source / "generation_config.json").unlink()
    load_model(str(source), dtype=torch.bfloat16).save_pretrained(tmp_path / "shards", max_shard_size="40KB")
    (source / "model.safetensors").unlink()
    for file in (tmp_path / "shards").glob("model*"):
        shutil.copy(file, source)
    model = moved(source)
    save_model(model, open_original(str(source)), tmp_path / "saved")
    assert contents(source).keys() == contents(tmp_path / "saved").keys()
    index = "model.safetensors.index.json"
    assert (tmp_path / "saved" / index).read_bytes() == (source / index).read_bytes()
    again = load_model(str(tmp_path / "saved"), dtype=torch.float32)
    assert torch.equal(again.lm_head.weight, model.lm_head.weight.bfloat16().float())


def test_large_new_models_are_sharded(source, tmp_path, monkeypatch):
    monkeypatch.setattr("magcli.model.weights.save.SHARD_BYTES", 40_000)
    model = load_model(str(source), dtype=torch.float32, from_scratch=True)
    save_model(model, open_original(str(source), from_scratch=True), tmp_path / "saved")
    assert len(list((tmp_path / "saved").glob("model-*.safetensors"))) > 1
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "saved", dtype="auto")
    assert again.dtype == torch.bfloat16
    assert torch.equal(again.lm_head.weight, model.lm_head.weight.bfloat16())


def test_tensors_that_transformers_fuses_keep_their_own_names(tiny_model_dir, tmp_path):
    config = Qwen2MoeConfig(
        vocab_size=104, hidden_size=16, intermediate_size=16, moe_intermediate_size=16, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=2, num_experts=4, num_experts_per_tok=2,
        shared_expert_intermediate_size=16,
    )  # fmt: skip
    folder = Path(shutil.copytree(tiny_model_dir, tmp_path / "source"))
    Qwen2MoeForCausalLM(config).save_pretrained(folder)
    names = load_file(folder / "model.safetensors").keys()
    assert any(".experts.3." in name for name in names)
    model, original = load_model(str(folder), dtype=torch.float32), open_original(str(folder))
    try_saving(model, original, tmp_path / "saved")
    save_model(model, original, tmp_path / "saved")
    assert load_file(tmp_path / "saved" / "model.safetensors").keys() == names
    assert contents(tmp_path / "saved") == contents(folder)


def test_what_would_fail_at_the_end_fails_at_the_start(source, tmp_path, monkeypatch):
    model, original = load_model(str(source), dtype=torch.float32), open_original(str(source))
    try_saving(model, original, tmp_path / "runs" / "model")
    assert list((tmp_path / "runs").iterdir()) == []
    with pytest.raises(EnvironmentFault, match=r"take 1000000.00 GB, but only .* GB of the disk are free"):
        try_saving(model, original, tmp_path / "runs" / "model", more_bytes=10**15)
    (tmp_path / "file").touch()
    with pytest.raises(EnvironmentFault, match="cannot write"):
        try_saving(model, original, tmp_path / "file" / "model")
    (source / "generation_config.json").write_text("{")
    with pytest.raises(EnvironmentFault, match=r"generation_config.json is not a JSON object"):
        open_original(str(source))


READ = """
import sys, torch
from transformers import AutoModelForCausalLM, AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32)
ids = tokenizer("the quick brown fox jumps", return_tensors="pt").input_ids
with torch.no_grad():
    torch.save({"ids": ids, "logits": model(ids).logits}, sys.argv[2])
"""


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_transformers_4_and_5_read_the_same_model(source, tmp_path):
    """In an environment of its own: theta, dtype and tokenizer are those of the source in both."""
    save_model(moved(source), open_original(str(source)), tmp_path / "saved")
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "old"], check=True)
    old = tmp_path / "old" / "bin" / "python"
    packages = [f"torch=={torch.__version__.partition('+')[0]}", "transformers==4.57.3", "safetensors"]
    subprocess.run([old, "-m", "pip", "install", "-q", *packages], check=True)
    for number, python in enumerate([old, sys.executable]):
        result = tmp_path / f"{number}.pt"
        subprocess.run([python, "-c", READ, tmp_path / "saved", result], check=True)
    four, five = (torch.load(tmp_path / f"{number}.pt") for number in (0, 1))
    assert torch.equal(four["ids"], five["ids"])
    assert torch.equal(four["logits"], five["logits"])
