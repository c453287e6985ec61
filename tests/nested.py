"""Tiny vision-language models of several families around random text models, with the tokenizer of the tests."""

from pathlib import Path

import torch
from transformers import (
    AutoModelForImageTextToText,
    AutoTokenizer,
    CLIPVisionConfig,
    Gemma3Config,
    Gemma3TextConfig,
    LlamaConfig,
    LlavaConfig,
    Mistral3Config,
    MistralConfig,
    PixtralVisionConfig,
    Qwen2_5_VLConfig,
    Qwen2VLConfig,
    Qwen3VLConfig,
    SiglipVisionConfig,
)

SIZES = {
    "vocab_size": 104,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-6,
    "bos_token_id": 1,
    "eos_token_id": 1,
    "pad_token_id": 1,
}
"""Of a text model whose vocabulary is that of the tests' tokenizer, and whose end token is its ``<|end|>``.

vLLM's attention on a CPU needs heads of at least 32.
"""

IMAGE = 0
"""The id of the image token: ``<unk>``, which no text of the tests has."""
ROPE = {"rope_type": "default", "rope_theta": 1_000_000.0}
VISION = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 32,
    "patch_size": 8,
}


def mistral3():
    """Like Mistral Small 3.1: an untied head, and heads wider than the hidden size over their number."""
    text = MistralConfig(**SIZES, head_dim=64, sliding_window=None, rope_parameters=ROPE, tie_word_embeddings=False)
    return Mistral3Config(
        text_config=text.to_dict(), vision_config=PixtralVisionConfig(**VISION).to_dict(), image_token_index=IMAGE,
        tie_word_embeddings=False,
    )  # fmt: skip


def gemma3():
    """Like Gemma 3 4B: tied, with windows in some layers."""
    text = Gemma3TextConfig(**SIZES, head_dim=32, sliding_window=512, tie_word_embeddings=True)
    return Gemma3Config(
        text_config=text.to_dict(), vision_config=SiglipVisionConfig(**VISION).to_dict(), mm_tokens_per_image=4,
        image_token_index=IMAGE, boi_token_index=IMAGE, eoi_token_index=IMAGE, tie_word_embeddings=True,
    )  # fmt: skip


def qwen2_5_vl():
    """Like Qwen2.5-VL 3B: tied."""
    vision = {"depth": 1, "hidden_size": 16, "out_hidden_size": 64, "num_heads": 2, "intermediate_size": 24}
    return Qwen2_5_VLConfig(
        text_config={**SIZES, "rope_parameters": {**ROPE, "mrope_section": [4, 6, 6]}},
        vision_config={**vision, "patch_size": 8, "fullatt_block_indexes": [0]},
        tie_word_embeddings=True, **_qwen_tokens(),
    )  # fmt: skip


def qwen2_vl():
    """Like Qwen2-VL 7B: untied."""
    vision = {"depth": 1, "embed_dim": 16, "hidden_size": 64, "num_heads": 2, "mlp_ratio": 2, "patch_size": 8}
    text = {**SIZES, "rope_parameters": {**ROPE, "mrope_section": [4, 6, 6]}}
    return Qwen2VLConfig(text_config=text, vision_config=vision, tie_word_embeddings=False, **_qwen_tokens())


def qwen3_vl():
    """Like Qwen3-VL 4B: tied."""
    rope = {**ROPE, "mrope_section": [8, 4, 4], "mrope_interleaved": True}
    vision = {"depth": 2, "hidden_size": 16, "out_hidden_size": 64, "num_heads": 2, "intermediate_size": 24}
    return Qwen3VLConfig(
        text_config={**SIZES, "head_dim": 32, "rope_parameters": rope},
        vision_config={**vision, "patch_size": 8, "num_position_embeddings": 16, "deepstack_visual_indexes": [0]},
        tie_word_embeddings=True, **_qwen_tokens(),
    )  # fmt: skip


def llava():
    """A Llama behind CLIP: untied."""
    text = LlamaConfig(**SIZES, rope_parameters=ROPE, tie_word_embeddings=False)
    return LlavaConfig(
        text_config=text.to_dict(), vision_config=CLIPVisionConfig(**VISION, projection_dim=16).to_dict(),
        image_token_id=IMAGE, tie_word_embeddings=False,
    )  # fmt: skip


def _qwen_tokens():
    names = ("image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id")
    return dict.fromkeys(names, IMAGE)


FAMILIES = {made.__name__: made for made in (gemma3, llava, mistral3, qwen2_vl, qwen2_5_vl, qwen3_vl)}


def make_nested(family: str, tokenizer: Path, folder: Path, dtype: torch.dtype = torch.float32) -> Path:
    """Write a random model of a family with the tokenizer of another folder; the same weights each time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        model = AutoModelForImageTextToText.from_config(FAMILIES[family]())
        for parameter in model.parameters():  # norms and biases are not random otherwise
            parameter.data += 0.02 * torch.randn_like(parameter)
    model.generation_config.eos_token_id = SIZES["eos_token_id"]
    model.to(dtype).save_pretrained(folder)
    AutoTokenizer.from_pretrained(tokenizer).save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text('{"image_processor_type": "tests"}\n', encoding="utf-8")
    return folder
