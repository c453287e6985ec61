"""The engine's decoder equals transformers' model bit for bit, or leaves the folder to transformers."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    LlamaConfig,
    MistralConfig,
    Qwen2Config,
    Qwen3Config,
)

from magcli.errors import EnvironmentFault
from magcli.generate.open import open_policy
from magcli.generate.spec import Spec
from magcli.generate.torch.decoder import Decoder, open_decoder
from magcli.generate.torch.engine import Engine
from magcli.generate.types import Sampling
from magcli.model.chat.ends import end_tokens
from magcli.model.load import load_model
from magcli.model.model import Model
from magcli.model.weights.plain import read_json

SIZES = {
    "vocab_size": 104,
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "initializer_range": 0.15,
    "bos_token_id": None,
    "eos_token_id": 1,
    "pad_token_id": 1,
}
CONFIGS = {
    "llama": LlamaConfig(**SIZES),
    "llama-tied": LlamaConfig(**SIZES, tie_word_embeddings=True, rms_norm_eps=1e-5),
    "llama-biases": LlamaConfig(**SIZES, attention_bias=True, mlp_bias=True),
    "llama-rope": LlamaConfig(**SIZES, head_dim=20, rope_parameters={"rope_type": "default", "rope_theta": 500_000.0}),
    "mistral": MistralConfig(**SIZES, sliding_window=None),
    "mistral-head": MistralConfig(**SIZES, sliding_window=None, head_dim=20),
    "qwen2": Qwen2Config(**SIZES),
    "qwen2-tied": Qwen2Config(**SIZES, tie_word_embeddings=True),
    "qwen3": Qwen3Config(**SIZES, head_dim=16),
    "qwen3-biases": Qwen3Config(**SIZES, head_dim=16, attention_bias=True),
}


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A model folder of each configuration; biases and norms are random too, unlike transformers' defaults."""
    return {name: saved(config, tmp_path_factory.mktemp("plain") / name) for name, config in CONFIGS.items()}


def saved(config, folder: Path) -> Path:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias") or "norm" in name:
                parameter.add_(torch.randn_like(parameter) * 0.2)
    model.save_pretrained(folder)
    return folder


def rewrite(folder: Path, name: str = "config.json", **changes: object) -> None:
    """Change settings in a folder's JSON file; None removes one."""
    changed = {
        key: value for key, value in (json.loads((folder / name).read_text()) | changes).items() if value != "drop"
    }
    (folder / name).write_text(json.dumps(changed))


def sampled(model, *, deterministic: bool) -> list[tuple[tuple[int, ...], tuple[float, ...]]]:
    engine = Engine(model, slots=5, ends=[1], deterministic=deterministic)
    for length in (1, 2, 16, 33, 100):
        engine.submit([2 + i % 100 for i in range(length)], Sampling(40), [length, length + 1])
    found = {}
    while engine.busy:
        found |= {(request, rollout.index): (rollout.tokens, rollout.logprobs) for request, rollout in engine.step()}
    return [found[key] for key in sorted(found)]


@pytest.mark.parametrize(("dtype", "deterministic"), [("float32", False), ("float32", True), ("bfloat16", False)])
@pytest.mark.parametrize("name", CONFIGS)
def test_samples_and_logprobs_are_those_of_transformers_model(folders, name, dtype, deterministic):
    decoder = open_decoder(Model.open(folders[name]), dtype=getattr(torch, dtype), device="cpu")
    theirs = load_model(str(folders[name]), dtype=getattr(torch, dtype))
    assert isinstance(decoder, Decoder)
    assert sampled(decoder, deterministic=deterministic) == sampled(theirs, deterministic=deterministic)


@pytest.mark.parametrize("name", CONFIGS)
def test_parameter_names_and_ties_match_transformers(folders, name):
    decoder = open_decoder(Model.open(folders[name]), dtype=torch.bfloat16, device="cpu")
    theirs = load_model(str(folders[name]), dtype=torch.bfloat16)
    own, other = decoder.state_dict(), theirs.state_dict()
    assert own.keys() == other.keys()
    assert all(torch.equal(own[key], other[key]) and own[key].dtype == torch.bfloat16 for key in own)
    assert len(list(decoder.parameters())) == len(list(theirs.parameters()))
    assert not decoder.training


def test_sharded_weights_are_read(folders, tmp_path):
    model = AutoModelForCausalLM.from_pretrained(folders["qwen3"])
    model.save_pretrained(tmp_path, max_shard_size="40KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    decoder = open_decoder(Model.open(tmp_path), dtype=torch.float32, device="cpu")
    whole = open_decoder(Model.open(folders["qwen3"]), dtype=torch.float32, device="cpu")
    assert all(torch.equal(a, b) for a, b in zip(decoder.parameters(), whole.parameters(), strict=True))


def test_new_weights_replace_the_old_ones(folders):
    def loaded(model):
        engine = Engine(model, slots=2, ends=[1])
        engine.load({name: tensor * 1.5 for name, tensor in before.items()}, 1)
        engine.submit([5, 6, 7], Sampling(30), [1, 2])
        return [rollout.tokens for _ in range(30) for _, rollout in engine.step()]

    before = load_file(folders["llama-tied"] / "model.safetensors")
    decoder = open_decoder(Model.open(folders["llama-tied"]), dtype=torch.float32, device="cpu")
    assert loaded(decoder) == loaded(load_model(str(folders["llama-tied"]), dtype=torch.float32))


@pytest.mark.parametrize("eos", [7, [7, 9], None, "drop", "no file"])
def test_end_tokens_come_from_the_generation_config(folders, tmp_path, tiny_model_dir, eos):
    folder = Path(shutil.copytree(folders["llama"], tmp_path / "model"))
    if eos == "no file":
        (folder / "generation_config.json").unlink()
    else:
        rewrite(folder, "generation_config.json", eos_token_id=eos)
    tokenizer = AutoTokenizer.from_pretrained(tiny_model_dir)
    theirs = end_tokens(load_model(str(folder), dtype=torch.float32), tokenizer)
    assert Model.open(folder).plain
    assert end_tokens(Model.open(folder), tokenizer) == theirs
    rewrite(folder, "config.json", some_setting=1)
    assert not Model.open(folder).plain, "transformers reads it"
    assert end_tokens(Model.open(folder), tokenizer) == theirs


OLD = {
    "rope_parameters": "drop",
    "rope_theta": 10_000.0,
    "rope_scaling": None,
    "dtype": "drop",
    "torch_dtype": "float32",
}


def test_settings_of_older_transformers_versions_are_read(folders, tmp_path):
    folder = Path(shutil.copytree(folders["llama"], tmp_path / "model"))
    rewrite(folder, **OLD)
    decoder = open_decoder(Model.open(folder), dtype=torch.float32, device="cpu")
    theirs = load_model(str(folder), dtype=torch.float32)
    assert sampled(decoder, deterministic=False) == sampled(theirs, deterministic=False)


STRANGE = {
    "another family": {"model_type": "phi3", "architectures": ["Phi3ForCausalLM"]},
    "sliding windows by default": {"model_type": "mistral", "architectures": ["MistralForCausalLM"]},
    "another task": {"architectures": ["LlamaForSequenceClassification"]},
    "an unknown setting": {"partial_rotary_factor": 0.5},
    "quantised": {"quantization_config": {"quant_method": "gptq", "bits": 4}},
    "scaled positions": {"rope_parameters": {"rope_theta": 1e4, "rope_type": "linear", "factor": 2.0}},
    "old scaled positions": OLD | {"rope_scaling": {"type": "linear", "factor": 2.0}},
    "no base of the positions": {"rope_parameters": "drop"},
    "another activation": {"hidden_act": "gelu"},
    "a size is missing": {"num_key_value_heads": "drop"},
    "a size is no number": {"hidden_size": "48"},
    "positions are no table": {"rope_parameters": [1]},
    "a layer of another kind": {"layer_types": ["full_attention", "sliding_attention"]},
    "sizes are not the weights'": {"intermediate_size": 96},
    "fewer layers than weights": {"num_hidden_layers": 1},
    "more layers than weights": {"num_hidden_layers": 3},
    "tied, with a head of its own": {"tie_word_embeddings": True},
    "sliding windows": {"use_sliding_window": True},
}


@pytest.mark.parametrize("changes", STRANGE.values(), ids=STRANGE)
def test_unusual_models_are_left_to_transformers(folders, tmp_path, changes):
    folder = Path(shutil.copytree(folders["llama"], tmp_path / "model"))
    rewrite(folder, **changes)
    assert open_decoder(Model.open(folder), dtype=torch.float32, device="cpu") is None


def test_folders_with_adapters_are_left_to_transformers(folders, tmp_path):
    folder = Path(shutil.copytree(folders["llama"], tmp_path / "model"))
    assert open_decoder(Model.open(folder), dtype=torch.float32, device="cpu") is not None
    (folder / "adapter_config.json").write_text("{}")
    assert open_decoder(Model.open(folder), dtype=torch.float32, device="cpu") is None


def test_a_missing_device_gives_transformers_error(tiny_model_dir):
    assert open_decoder(Model.open(tiny_model_dir), dtype=torch.float32, device="cuda:77") is None
    with pytest.raises(EnvironmentFault, match="cannot be loaded"):
        open_policy(Spec(Model.open(tiny_model_dir), engine="torch", dtype="fp32", device="cuda:77"))


def test_damaged_and_missing_files_give_transformers_error(folders, tmp_path, tiny_model_dir):
    folder = Path(shutil.copytree(folders["llama"], tmp_path / "model"))
    for file in tiny_model_dir.glob("*token*"):
        shutil.copy(file, folder)
    shutil.copy(tiny_model_dir / "chat_template.jinja", folder)
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:2000])
    with pytest.raises(EnvironmentFault, match="cannot be loaded"):
        open_policy(Spec(Model.open(folder), engine="torch", dtype="fp32"))
    weights.unlink()
    with pytest.raises(EnvironmentFault, match="no safetensors weights"):
        open_policy(Spec(Model.open(folder), engine="torch", dtype="fp32"))
    with pytest.raises(EnvironmentFault, match="model some/hub-id: no such folder, and not available from the hub"):
        open_decoder(Model.open("some/hub-id"), dtype=torch.float32, device="cpu")


def test_weights_of_other_types_are_left_to_transformers(folders, tmp_path):
    folder = Path(shutil.copytree(folders["llama"], tmp_path / "model"))
    weights = {name: tensor.to(torch.float8_e4m3fn) for name, tensor in load_file(folder / "model.safetensors").items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    assert open_decoder(Model.open(folder), dtype=torch.float32, device="cpu") is None


def test_other_families_still_run(tmp_path, tiny_model_dir):
    folder = saved(MistralConfig(**SIZES, sliding_window=8), tmp_path / "mistral")
    assert read_json(folder / "generation_config.json") is not None
    assert GenerationConfig.from_pretrained(folder).eos_token_id == 1
    assert open_decoder(Model.open(folder), dtype=torch.float32, device="cpu") is None
    assert len(sampled(load_model(str(folder), dtype=torch.float32), deterministic=False)) == 10


def test_a_hub_id_gets_the_decoder_too(folders, tmp_path, monkeypatch):
    snapshot = tmp_path / "models--org--tiny" / "snapshots" / ("0" * 40)
    snapshot.parent.mkdir(parents=True)
    shutil.copytree(folders["qwen3"], snapshot)
    refs = tmp_path / "models--org--tiny" / "refs"
    refs.mkdir()
    (refs / "main").write_text("0" * 40)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.chdir(tmp_path)
    decoder = open_decoder(Model.open("org/tiny"), dtype=torch.float32, device="cpu")
    assert isinstance(decoder, Decoder)
