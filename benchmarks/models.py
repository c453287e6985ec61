"""Llamas with random weights, so that no comparison has to download a model."""

from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

SMOLLM2_135M = {
    "vocab_size": 49152,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
}
"""The shape of SmolLM2-135M."""


def random_llama(**config: Any) -> LlamaForCausalLM:
    """A Llama with tied embeddings, seed 0, and no special tokens but those that ``config`` names."""
    special = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**special | {"tie_word_embeddings": True} | config)).eval()
