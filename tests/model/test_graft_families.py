"""Text models of several families in the vision-language models that transformers has for them."""

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    Gemma3Config,
    Gemma3TextConfig,
    Mistral3Config,
    MistralConfig,
    PixtralVisionConfig,
    Qwen2Config,
    Qwen2VLConfig,
    Qwen2VLTextConfig,
    SiglipVisionConfig,
)

from magcli.errors import DataError
from magcli.model.load import load_config
from magcli.model.weights import graft
from magcli.model.weights.tensors import stored_tensors, weight_files

SIZES = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}


def mistral3():
    """Like Mistral Small, with an untied head although its configuration says tied."""
    text = {**SIZES, "head_dim": 8, "tie_word_embeddings": False}
    vision = PixtralVisionConfig(
        hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2, image_size=32, patch_size=8
    )
    whole = Mistral3Config(
        text_config=MistralConfig(**text), vision_config=vision, image_token_index=5, tie_word_embeddings=False
    )
    return MistralConfig(**text), whole


def qwen2_vl():
    rope = {"rope_type": "default", "rope_theta": 10000.0}
    text = {**SIZES, "rms_norm_eps": 1e-6, "tie_word_embeddings": True}
    vision = {"depth": 1, "embed_dim": 16, "hidden_size": 32, "num_heads": 2, "mlp_ratio": 2, "patch_size": 8}
    own = Qwen2VLTextConfig(**text, rope_parameters={**rope, "mrope_section": [1, 1, 2]})
    whole = Qwen2VLConfig(text_config=own.to_dict(), vision_config=vision, tie_word_embeddings=True)
    return Qwen2Config(**text, rope_parameters=rope), whole


def gemma3():
    text = Gemma3TextConfig(**SIZES, head_dim=8, sliding_window=16, tie_word_embeddings=True)
    vision = SiglipVisionConfig(
        hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2, image_size=32, patch_size=8
    )
    whole = Gemma3Config(
        text_config=text.to_dict(), vision_config=vision, mm_tokens_per_image=4, image_token_index=5,
        boi_token_index=6, eoi_token_index=7, tie_word_embeddings=True,
    )  # fmt: skip
    return text, whole


@pytest.mark.parametrize("family", [mistral3, qwen2_vl, gemma3])
def test_the_grafted_text_has_the_logits_of_the_text_model(family, tmp_path):
    ours, theirs = family()
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(ours).save_pretrained(tmp_path / "text")
    AutoModelForImageTextToText.from_config(theirs).save_pretrained(tmp_path / "vlm")
    AutoModelForImageTextToText.from_config(theirs).save_pretrained(tmp_path / "out")
    graft.check_settings(load_config(str(tmp_path / "text")), load_config(str(tmp_path / "vlm")))
    planned = graft.plan(stored_tensors(tmp_path / "text"), stored_tensors(tmp_path / "vlm"))
    for file in weight_files(tmp_path / "vlm"):
        graft.write_shard(file, tmp_path / "out" / file.name, planned)
    tokens = torch.arange(8, 60)[None]
    with torch.no_grad():
        expected = AutoModelForCausalLM.from_pretrained(tmp_path / "text").eval()(tokens).logits
        made = AutoModelForImageTextToText.from_pretrained(tmp_path / "out").eval()(tokens).logits
    torch.testing.assert_close(made, expected, rtol=1e-5, atol=1e-5)


def test_settings_not_visible_in_shapes_are_compared():
    text, whole = mistral3()
    text.num_key_value_heads = 4
    with pytest.raises(DataError, match="text model has num_key_value_heads 4, the vision-language model 2"):
        graft.check_settings(text, whole)
    text, whole = mistral3()
    text.rope_parameters = {"rope_type": "default", "rope_theta": 5.0}
    with pytest.raises(DataError, match=r"rope_theta 5\.0"):
        graft.check_settings(text, whole)


@pytest.mark.parametrize(
    ("family", "name", "value", "message"),
    [
        (mistral3, "rope_parameters", {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0}, "rope_type yarn"),
        (mistral3, "sliding_window", 7, "sliding_window 7"),
        (gemma3, "layer_types", ["full_attention"] * 2, "layer_types"),
        (gemma3, "query_pre_attn_scalar", 8, "query_pre_attn_scalar 8"),
        (gemma3, "attn_logit_softcapping", 5.0, r"attn_logit_softcapping 5\.0"),
        (gemma3, "final_logit_softcapping", 5.0, r"final_logit_softcapping 5\.0"),
    ],
)
def test_settings_of_some_model_families_are_compared(family, name, value, message):
    text, whole = family()
    graft.check_settings(text, whole)
    setattr(text, name, value)
    with pytest.raises(DataError, match=f"the text model has {message}"):
        graft.check_settings(text, whole)


def test_rope_parameters_per_layer_type_are_compared():
    text, whole = gemma3()
    text.rope_parameters["sliding_attention"]["rope_theta"] = 5.0
    with pytest.raises(DataError, match=r"the text model has sliding_attention\.rope_theta 5\.0"):
        graft.check_settings(text, whole)
