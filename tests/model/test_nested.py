"""Text models inside larger ones: loaded alone they compute what the whole model computes without images."""

import json
import re
import shutil

import pytest
import torch
from nested import FAMILIES, make_nested
from safetensors.torch import load_file, save_file
from transformers import AutoModelForImageTextToText

from magcli.errors import DataError, EnvironmentFault, UsageError
from magcli.model.chat.prompts import render_text
from magcli.model.chat.targets import examples
from magcli.model.model import Model

TOKENS = torch.arange(8, 100)[None]


@pytest.fixture(scope="module", params=FAMILIES)
def folder(request, tiny_model_dir, tmp_path_factory):
    return make_nested(request.param, tiny_model_dir, tmp_path_factory.mktemp("nested") / request.param)


def logits_of(model):
    with torch.no_grad():
        return model.eval()(TOKENS).logits


def test_the_text_model_has_the_logits_of_the_whole_model(folder):
    whole = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32)
    text = Model.open(folder).load(dtype=torch.float32)
    torch.testing.assert_close(logits_of(text), logits_of(whole), rtol=1e-5, atol=1e-5)


def test_only_the_text_model_is_loaded(folder):
    opened = Model.open(folder)
    text = opened.load(dtype=torch.bfloat16)
    assert {parameter.dtype for parameter in text.parameters()} == {torch.bfloat16}
    stored = load_file(folder / "model.safetensors")
    names = opened.checkpoint_names
    assert names.keys() == dict(text.named_parameters()).keys()
    assert sum(p.numel() for p in text.parameters()) < sum(tensor.numel() for tensor in stored.values())
    for name, parameter in text.named_parameters():
        torch.testing.assert_close(parameter, stored[names[name]].to(torch.bfloat16), rtol=0, atol=0)


def test_checkpoints_of_newer_names_are_read(folder, tmp_path):
    """transformers 4.52 to 4.57 saved the text model as ``model.language_model`` and the head as ``lm_head``."""
    shutil.copytree(folder, tmp_path / "renamed")
    stored = load_file(folder / "model.safetensors")
    save_file({newer(name): tensor for name, tensor in stored.items()}, tmp_path / "renamed" / "model.safetensors")
    opened = Model.open(tmp_path / "renamed")
    assert opened.checkpoint_names["model.norm.weight"] == "model.language_model.norm.weight"
    expected = logits_of(Model.open(folder).load(dtype=torch.float32))
    torch.testing.assert_close(logits_of(opened.load(dtype=torch.float32)), expected, rtol=0, atol=0)


def newer(name):
    text = re.sub(r"^(language_model\.model|model\.language_model|model)\.(?!visual)", "model.language_model.", name)
    return re.sub(r"^language_model\.lm_head\.", "lm_head.", text)


def test_a_nested_text_model_is_not_trained_from_scratch(folder):
    with pytest.raises(UsageError, match="its vision encoder would have no weights"):
        Model.open(folder).load(dtype=torch.float32, from_scratch=True)


def test_a_damaged_checkpoint_is_an_error(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "short")
    stored = load_file(folder / "model.safetensors")
    lost = Model.open(folder).checkpoint_names["model.layers.1.mlp.up_proj.weight"]
    save_file({name: tensor for name, tensor in stored.items() if name != lost}, tmp_path / "short/model.safetensors")
    with pytest.raises(DataError, match=r"has no tensor .*layers\.1\.mlp\.up_proj\.weight"):
        Model.open(tmp_path / "short").load(dtype=torch.float32)


PARTS_ONLY = (
    "{% for message in messages %}<|{{ message['role'] }}|>"
    "{% for part in message['content'] %}{% if part['type'] == 'text' %}{{ part['text'] }}{% endif %}{% endfor %}"
    "<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def test_the_template_of_a_processor_that_reads_only_parts_is_rendered(tiny_model_dir, tmp_path):
    folder = make_nested("mistral3", tiny_model_dir, tmp_path / "model")
    (folder / "chat_template.jinja").unlink()
    (folder / "chat_template.json").write_text(json.dumps({"chat_template": PARTS_ONLY}), encoding="utf-8")
    opened = Model.open(folder)
    text = render_text(opened.tokenizer, [{"role": "user", "content": "1+1?"}], add_generation_prompt=True)
    assert text == "<|user|>1+1?<|end|><|assistant|>"
    assert opened.ends == {1}
    turns = [{"role": "user", "content": "1+1?"}, {"role": "assistant", "content": "two"}]
    (example,) = examples(opened.tokenizer, turns)
    target = [token for token, on in zip(example.tokens, example.mask, strict=True) if on]
    assert opened.tokenizer.decode(target, skip_special_tokens=False) == "two<|end|>"


def test_a_tokenizer_in_mistrals_own_format_is_an_error(tiny_model_dir, tmp_path):
    folder = make_nested("mistral3", tiny_model_dir, tmp_path / "model")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    (folder / "tekken.json").write_text("{}", encoding="utf-8")
    with pytest.raises(EnvironmentFault, match=r"only in tekken\.json.*copy tokenizer\.json"):
        _ = Model.open(folder).tokenizer
