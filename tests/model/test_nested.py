"""Text models inside larger ones: loaded alone they compute what the whole model computes without images."""

import pytest
import torch
from nested import FAMILIES, make_nested
from safetensors.torch import load_file
from transformers import AutoModelForImageTextToText

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
