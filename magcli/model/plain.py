"""Plain model folders: decoders of the Llama and Qwen families whose files alone say all there is to know.

transformers takes longer to import its models than such a folder takes to load. What is read here is read as
transformers reads it; None stands for a folder that is not plain, which is then transformers' to open or to refuse.
"""

import json
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FAMILIES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
"""Model types and what their models are called."""

SIZES = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "max_position_embeddings",
)
OTHERS = ("head_dim", "attention_bias", "mlp_bias", "tie_word_embeddings", "rms_norm_eps")
ROPE = ("rope_theta", "rope_scaling", "rope_parameters", "rope_interleaved", "use_sliding_window", "layer_types")
IDLE = (
    *("model_type", "architectures", "hidden_act", "dtype", "torch_dtype", "transformers_version", "use_cache"),
    *("initializer_range", "attention_dropout", "pretraining_tp", "sliding_window", "max_window_layers"),
    *("is_llama_config", "transformers.js_config"),
)
"""Settings that do not decide a plain decoder's logits, as names of tokens and private ones never do, or that
``_is_plain`` has seen to."""
KNOWN = {*SIZES, *OTHERS, *ROPE, *IDLE}

TOKENIZERS = {
    ("llama", "TokenizersBackend"): "TokenizersBackend",
    ("llama", "PreTrainedTokenizer"): "TokenizersBackend",
    ("llama", "GPT2Tokenizer"): "GPT2Tokenizer",
    ("qwen2", "Qwen2Tokenizer"): "Qwen2Tokenizer",
    ("qwen3", "Qwen2Tokenizer"): "Qwen2Tokenizer",
    ("qwen3", "TokenizersBackend"): "TokenizersBackend",
}
"""By model type and the class that the tokenizer's settings name, without Fast: the class that AutoTokenizer takes."""


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """Sizes and kinds of a decoder, named as in transformers' configurations."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    max_position_embeddings: int
    rms_norm_eps: float
    rope_theta: float
    tie_word_embeddings: bool
    qkv_bias: bool
    output_bias: bool
    mlp_bias: bool
    qk_norm: bool


def read_json(path: Path) -> dict[str, Any] | None:
    """What a JSON file holds; None where it is missing, damaged or no object."""
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return told if isinstance(told, dict) else None


def decoder_config(folder: Path) -> DecoderConfig | None:
    """The configuration of a plain folder's decoder."""
    told = read_json(folder / "config.json")
    if told is None or not _is_plain(told) or (folder / "adapter_config.json").exists():
        return None
    family, hidden, heads = told["model_type"], told["hidden_size"], told["num_attention_heads"]
    bias = bool(told.get("attention_bias"))
    return DecoderConfig(
        **{name: told[name] for name in SIZES},
        head_dim=told.get("head_dim") or hidden // heads,
        rms_norm_eps=told["rms_norm_eps"],
        rope_theta=float((told.get("rope_parameters") or told)["rope_theta"]),
        tie_word_embeddings=bool(told.get("tie_word_embeddings")),
        qkv_bias=bias or family == "qwen2",
        output_bias=bias,
        mlp_bias=bool(told.get("mlp_bias")),
        qk_norm=family == "qwen3",
    )


def _is_plain(told: dict[str, Any]) -> bool:
    family = told.get("model_type")
    sizes = [*SIZES, *(["head_dim"] if family == "qwen3" or told.get("head_dim") is not None else [])]
    return (
        family in FAMILIES
        and told.get("architectures") == [FAMILIES[family]]
        and {name for name in told if not name.startswith("_") and not name.endswith("_token_id")} <= KNOWN
        and all(isinstance(told.get(name), int) and told[name] > 0 for name in sizes)
        and isinstance(told.get("rms_norm_eps"), float)
        and told["hidden_size"] % told["num_attention_heads"] == 0
        and told.get("hidden_act", "silu") == "silu"
        and not any(told.get(name) for name in ("rope_scaling", "rope_interleaved", "use_sliding_window"))
        and told.get("layer_types") in (None, ["full_attention"] * told["num_hidden_layers"])
        and (family == "llama" or not told.get("mlp_bias"))
        and (family != "qwen2" or not told.get("attention_bias"))
        and _has_default_rope(told)
    )


def _has_default_rope(told: dict[str, Any]) -> bool:
    rope = told.get("rope_parameters", {"rope_type": "default", "rope_theta": told.get("rope_theta")})
    return (
        isinstance(rope, dict)
        and rope.keys() == {"rope_theta", "rope_type"}
        and rope["rope_type"] == "default"
        and isinstance(rope["rope_theta"], int | float)
        and rope["rope_theta"] > 0
        and ("rope_parameters" in told) != ("rope_theta" in told)
    )


def end_token(folder: Path) -> int | list[int] | None:
    """What ends a sequence by the generation settings or, where there are none, by the model's."""
    told = read_json(folder / "generation_config.json")
    told = read_json(folder / "config.json") if told is None else told
    end: int | list[int] | None = (told or {}).get("eos_token_id")
    return end


def read_weights(folder: Path) -> dict[str, Any] | None:
    """The tensors of a folder's safetensors files, one file or the shards that an index names."""
    from safetensors import SafetensorError, safe_open

    single = folder / "model.safetensors"
    index = None if single.is_file() else read_json(folder / "model.safetensors.index.json")
    names: dict[str, str] = (index or {}).get("weight_map", {})
    found = {}
    try:
        with ExitStack() as stack:
            for path in {folder / name for name in names.values()} or {single}:
                file = stack.enter_context(safe_open(path, framework="pt"))
                found.update({name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118
    except (OSError, SafetensorError):
        return None
    return found if not names or found.keys() == names.keys() else None


def tokenizer_class(folder: Path) -> str | None:
    """The name of the class of a plain folder's tokenizer, which needs its ``tokenizer.json`` only."""
    settings, model = read_json(folder / "tokenizer_config.json"), read_json(folder / "config.json")
    if settings is None or model is None or "auto_map" in settings or not (folder / "tokenizer.json").is_file():
        return None
    named = settings.get("tokenizer_class")
    if not isinstance(named, str):
        return None
    return TOKENIZERS.get((model.get("model_type", ""), named.removesuffix("Fast")))
