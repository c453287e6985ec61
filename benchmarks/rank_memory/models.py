"""The shapes of published models, from their ``config.json``."""

from transformers import AutoConfig, PretrainedConfig

SHAPES = {
    "1.5B": {
        "model_type": "qwen2", "vocab_size": 151936, "hidden_size": 1536, "intermediate_size": 8960,
        "num_hidden_layers": 28, "num_attention_heads": 12, "num_key_value_heads": 2, "tie_word_embeddings": True,
    },
    "7B": {
        "model_type": "qwen2", "vocab_size": 152064, "hidden_size": 3584, "intermediate_size": 18944,
        "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4, "tie_word_embeddings": False,
    },
    "24B": {
        "model_type": "mistral", "vocab_size": 131072, "hidden_size": 5120, "intermediate_size": 32768,
        "num_hidden_layers": 40, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
        "tie_word_embeddings": False, "max_position_embeddings": 131072, "sliding_window": None,
    },
}  # fmt: skip
"""Qwen2.5-1.5B, Qwen2.5-7B, and the text model of Mistral-Small-3.1-24B."""


def config_of(name: str) -> PretrainedConfig:
    """The configuration of one of these models."""
    shape = dict(SHAPES[name])
    config: PretrainedConfig = AutoConfig.for_model(**shape)
    return config
