"""Models are loaded, saved and identified; errors are one line that says what to do."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from magcli.errors import EnvironmentFault
from magcli.model.chat.ends import end_tokens
from magcli.model.load import fingerprint, load_model, load_tokenizer
from magcli.model.weights.save import open_original, save_model


@pytest.fixture
def copy(tiny_model_dir: Path, tmp_path: Path) -> Path:
    """A copy of the tiny model, to damage."""
    return Path(shutil.copytree(tiny_model_dir, tmp_path / "copy"))


def edit(path: Path, **changes: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def fault(call) -> str:
    """The one-line message of the EnvironmentFault that a call must raise."""
    with pytest.raises(EnvironmentFault) as caught:
        call()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_loading_and_saving_print_nothing(tiny_model_dir, tmp_path, capfd):
    model = load_model(str(tiny_model_dir), dtype=torch.bfloat16)
    save_model(model, open_original(str(tiny_model_dir)), tmp_path / "saved")
    assert capfd.readouterr() == ("", "")
    assert model.dtype == torch.bfloat16
    assert not model.training
    assert model.config.max_position_embeddings == 512


@pytest.mark.parametrize("tied", [True, False])
def test_saved_models_load_with_transformers(tiny_model_dir, tmp_path, tied):
    torch.manual_seed(1)
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=104, tie_word_embeddings=tied, **sizes))
    shutil.copytree(tiny_model_dir, tmp_path / "source")
    model.save_pretrained(tmp_path / "source")
    before = model.config.dtype
    save_model(model, open_original(str(tmp_path / "source")), tmp_path / "m")
    ids = torch.tensor([[5, 6, 7]])
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "m", dtype=torch.float32)
    assert torch.equal(again(ids).logits, model(ids).logits)
    assert (again.lm_head.weight is again.model.embed_tokens.weight) == tied
    assert model.config.dtype == before
    assert load_tokenizer(str(tmp_path / "m")).eos_token_id == 1


@pytest.mark.parametrize("from_scratch", [False, True])
def test_rotary_frequencies_stay_in_float32(tiny_model_dir, from_scratch):
    """In bfloat16 they would rotate distant positions by angles not seen in training."""
    models = [
        load_model(str(tiny_model_dir), dtype=dtype, from_scratch=from_scratch)
        for dtype in (torch.bfloat16, torch.float32)
    ]
    own, exact = (model.model.rotary_emb.inv_freq for model in models)
    assert own.dtype == torch.float32
    assert torch.equal(own, exact)
    assert all(parameter.dtype == torch.bfloat16 for parameter in models[0].parameters())


def test_saving_casts_and_replaces_the_folder_atomically(tiny_model_dir, tmp_path):
    original, folder = open_original(str(tiny_model_dir)), tmp_path / "runs" / "m"
    model = load_model(str(tiny_model_dir), dtype=torch.float32)
    save_model(model, original, folder)
    (folder / "stale").touch()
    save_model(model, original, folder, dtype="bf16")
    assert not (folder / "stale").exists()
    assert json.loads((folder / "config.json").read_text())["dtype"] == "bfloat16"
    assert AutoModelForCausalLM.from_pretrained(folder).dtype == torch.bfloat16
    assert [path.name for path in folder.parent.iterdir()] == ["m"]


def test_from_scratch_needs_only_the_config_and_depends_on_the_seed(tiny_model_dir, tmp_path):
    shutil.copy(tiny_model_dir / "config.json", tmp_path)
    one, same, two = (
        load_model(str(tmp_path), dtype=torch.float32, from_scratch=True, seed=seed) for seed in (1, 1, 2)
    )
    weight = "model.layers.0.mlp.up_proj.weight"
    assert torch.equal(one.state_dict()[weight], same.state_dict()[weight])
    assert not torch.equal(one.state_dict()[weight], two.state_dict()[weight])
    state = torch.random.get_rng_state()
    load_model(str(tmp_path), dtype=torch.bfloat16, from_scratch=True)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_missing_models_are_one_line_errors(copy, tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    for name, reason in ((str(tmp_path / "nowhere"), "no such folder"), ("nobody/no-such-model", "hub")):
        for call in (load_tokenizer, lambda name: load_model(name, dtype=torch.float32)):
            message = fault(lambda call=call, name=name: call(name))
            assert name in message
            assert reason in message
    (copy / "model.safetensors").unlink()
    assert "no safetensors weights" in fault(lambda: load_model(str(copy), dtype=torch.float32))
    (copy / "config.json").unlink()
    assert "no config.json" in fault(lambda: load_model(str(copy), dtype=torch.float32))
    assert "no config.json" in fault(lambda: load_model(str(copy), dtype=torch.float32, from_scratch=True))


def test_damage_is_a_one_line_error(copy):
    whole = (copy / "model.safetensors").read_bytes()
    (copy / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    assert str(copy) in fault(lambda: load_model(str(copy), dtype=torch.float32))
    (copy / "config.json").write_text("{")
    assert str(copy) in fault(lambda: load_model(str(copy), dtype=torch.float32))


def test_an_unknown_device_is_a_one_line_error(tiny_model_dir):
    assert "cuda" in fault(lambda: load_model(str(tiny_model_dir), dtype=torch.float32, device="cuda:99")).lower()


def test_a_tokenizer_without_template_or_end_token_is_rejected(copy):
    (copy / "chat_template.jinja").unlink()
    message = fault(lambda: load_tokenizer(str(copy)))
    assert str(copy) in message
    assert "chat template" in message
    (copy / "chat_template.jinja").write_text("{{ messages }}")
    edit(copy / "tokenizer_config.json", eos_token=None)
    message = fault(lambda: load_tokenizer(str(copy)))
    assert str(copy) in message
    assert "eos_token" in message


def test_every_end_token_counts(tiny_model_dir):
    model, tokenizer = load_model(str(tiny_model_dir), dtype=torch.float32), load_tokenizer(str(tiny_model_dir))
    assert end_tokens(model, tokenizer) == {1}
    model.generation_config.eos_token_id = [1, 3]
    assert end_tokens(model, tokenizer) == {1, 3}
    model.generation_config.eos_token_id = None
    assert end_tokens(model, tokenizer) == {1}


def test_the_fingerprint_depends_only_on_config_and_weights(copy, tiny_model_dir):
    first = fingerprint(tiny_model_dir)
    (copy / "tokenizer.json").touch()
    (copy / "notes.txt").write_text("anything")
    assert fingerprint(copy) == first
    data = bytearray((copy / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (copy / "model.safetensors").write_bytes(data)
    assert fingerprint(copy) != first
    edit(copy / "config.json", rms_norm_eps=1e-5)
    assert len({first, fingerprint(copy)}) == 2
    (copy / "model.safetensors").unlink()
    assert "weights" in fault(lambda: fingerprint(copy))
