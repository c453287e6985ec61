"""Plain model folders: Llama, Mistral and Qwen decoders that can be loaded without transformers.

Importing transformers' models takes longer than loading such a folder. Files are interpreted as transformers does;
functions return None for any other folder, which is left to transformers to load or reject. A file that is no JSON
object is an error here: transformers ignores some, and says of others only that they are nested too deeply.
"""

import json
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from magcli.data.inside import named_in
from magcli.errors import EnvironmentFault, first_line
from magcli.model.settings import INDEX, deciding_paths

FAMILIES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}
"""Model types and their architectures."""

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
IGNORED = (
    *("model_type", "architectures", "hidden_act", "dtype", "torch_dtype", "transformers_version", "use_cache"),
    *("initializer_range", "attention_dropout", "pretraining_tp", "sliding_window", "max_window_layers"),
    *("is_llama_config", "transformers.js_config"),
)
"""Settings that do not affect a plain decoder's logits or that ``_is_plain`` checks; token ids and private settings
never do."""
KNOWN = {*SIZES, *OTHERS, *ROPE, *IGNORED}

MISTRAL_WINDOW = 4096
"""The sliding window of a Mistral model whose configuration does not have it."""

TOKENIZERS = {
    ("llama", "TokenizersBackend"): "TokenizersBackend",
    ("llama", "PreTrainedTokenizer"): "TokenizersBackend",
    ("llama", "GPT2Tokenizer"): "GPT2Tokenizer",
    ("qwen2", "Qwen2Tokenizer"): "Qwen2Tokenizer",
    ("qwen3", "Qwen2Tokenizer"): "Qwen2Tokenizer",
    ("qwen3", "TokenizersBackend"): "TokenizersBackend",
}
"""AutoTokenizer's class, by model type and the tokenizer_class of the tokenizer's settings, without Fast."""


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """Sizes and features of a decoder, named as in transformers' configurations."""

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
    """The object in a JSON file of a model; None if there is no such file.

    Raises:
        EnvironmentFault: it is damaged, or not an object.
    """
    try:
        value = _parsed(path)
    except OSError:
        return None
    if not isinstance(value, dict):
        raise EnvironmentFault(f"{path} is not a JSON object; copy the model again")
    return value


def require_json(folder: Path) -> None:
    """Check that all JSON files that decide what a model samples, and the index of its shards, can be read.

    Raises:
        EnvironmentFault: one is damaged.
    """
    for path in [*deciding_paths(folder), *sorted(folder.glob(INDEX))]:
        if path.suffix == ".json":
            _parsed(path)


def _parsed(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise EnvironmentFault(f"{path} is not JSON ({first_line(error)}); copy the model again") from None


def decoder_config(folder: Path) -> DecoderConfig | None:
    """The configuration of a plain folder's decoder."""
    config = read_json(folder / "config.json")
    if config is None or (folder / "adapter_config.json").exists():
        return None
    return _decoder_config(config)


def nested_decoder_config(folder: Path, *, tied: bool) -> DecoderConfig | None:
    """The configuration of the plain decoder in a larger model, as of Mistral 3; ``tied``: its head to its embeddings.

    Its weights are not in the folder under the names of a plain decoder.
    """
    text = (read_json(folder / "config.json") or {}).get("text_config")
    if not isinstance(text, dict) or text.get("model_type") not in FAMILIES:
        return None
    return _decoder_config({**text, "architectures": [FAMILIES[text["model_type"]]], "tie_word_embeddings": tied})


def _decoder_config(config: dict[str, Any]) -> DecoderConfig | None:
    if not _is_plain(config):
        return None
    family = config["model_type"]
    hidden = config["hidden_size"]
    heads = config["num_attention_heads"]
    bias = bool(config.get("attention_bias"))
    return DecoderConfig(
        **{name: config[name] for name in SIZES},
        head_dim=config.get("head_dim") or hidden // heads,
        rms_norm_eps=config["rms_norm_eps"],
        # Newer configurations have a table, older ones the value itself.
        rope_theta=float((config.get("rope_parameters") or config)["rope_theta"]),
        tie_word_embeddings=bool(config.get("tie_word_embeddings")),
        qkv_bias=bias or family == "qwen2",
        output_bias=bias,
        mlp_bias=bool(config.get("mlp_bias")),
        qk_norm=family == "qwen3",
    )


def _is_plain(config: dict[str, Any]) -> bool:
    family = config.get("model_type")
    if family not in FAMILIES or config.get("architectures") != [FAMILIES[family]]:
        return False
    # Private settings and token ids do not change what is computed.
    settings = {name for name in config if not name.startswith("_") and not name.endswith("_token_id")}
    if not settings <= KNOWN:  # one that is not known may change what the model computes
        return False
    return _has_sizes(config) and _computes_as_decoder(config) and _has_default_rope(config)


def _has_sizes(config: dict[str, Any]) -> bool:
    sizes = [*SIZES]
    if config["model_type"] == "qwen3" or config.get("head_dim") is not None:
        sizes.append("head_dim")
    for name in sizes:
        size = config.get(name)
        if not isinstance(size, int) or size <= 0:
            return False
    if not isinstance(config.get("rms_norm_eps"), float):
        return False
    return bool(config["hidden_size"] % config["num_attention_heads"] == 0)


def _computes_as_decoder(config: dict[str, Any]) -> bool:
    """Whether no setting makes a model of a plain family compute anything else; its sizes are checked."""
    family = config["model_type"]
    if config.get("hidden_act", "silu") != "silu":
        return False
    if any(config.get(name) for name in ("rope_scaling", "rope_interleaved", "use_sliding_window")):
        return False
    if config.get("layer_types") not in (None, ["full_attention"] * config["num_hidden_layers"]):
        return False
    # transformers ignores these biases in some families and has them in others.
    if family != "llama" and config.get("mlp_bias"):
        return False
    if family in ("mistral", "qwen2") and config.get("attention_bias"):
        return False
    # Without the key, Mistral has a window.
    return family != "mistral" or config.get("sliding_window", MISTRAL_WINDOW) is None


def _has_default_rope(config: dict[str, Any]) -> bool:
    """Whether the rotary embedding is unscaled: ``rope_theta`` alone, or the table of newer configurations."""
    # Neither or both: what transformers would take is not for us to guess.
    if ("rope_parameters" in config) == ("rope_theta" in config):
        return False
    rope = config.get("rope_parameters", {"rope_type": "default", "rope_theta": config.get("rope_theta")})
    if not isinstance(rope, dict) or rope.keys() != {"rope_theta", "rope_type"}:
        return False
    theta = rope["rope_theta"]
    return rope["rope_type"] == "default" and isinstance(theta, int | float) and theta > 0


def end_token(folder: Path) -> int | list[int] | None:
    """The end tokens of the generation config or, without one, of the model config."""
    config = read_json(folder / "generation_config.json")
    # The generation config alone counts where there is one, even without ends.
    config = read_json(folder / "config.json") if config is None else config
    end: int | list[int] | None = (config or {}).get("eos_token_id")
    return end


def read_weights(folder: Path) -> dict[str, Any] | None:
    """The tensors of a folder's safetensors file, or of the shards listed in its index."""
    from safetensors import SafetensorError, safe_open

    single = folder / "model.safetensors"
    index_file = folder / "model.safetensors.index.json"
    index = None if single.is_file() else read_json(index_file)
    file_of: dict[str, str] = (index or {}).get("weight_map", {})
    if not isinstance(file_of, dict):
        return None
    # A name in the index must not lead out of the folder.
    paths = {named_in(folder, name, index_file) for name in file_of.values()} or {single}
    tensors = {}
    try:
        with ExitStack() as stack:
            for path in paths:
                file = stack.enter_context(safe_open(path, framework="pt"))
                tensors.update({name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118
    except (OSError, SafetensorError):
        return None
    # A shard may be missing, or have more than the index says.
    is_complete = not file_of or tensors.keys() == file_of.keys()
    return tensors if is_complete else None


def tokenizer_class(folder: Path) -> str | None:
    """The class name of a plain folder's tokenizer, which needs only its ``tokenizer.json``."""
    settings = read_json(folder / "tokenizer_config.json")
    model = read_json(folder / "config.json")
    if settings is None or model is None or "auto_map" in settings or not (folder / "tokenizer.json").is_file():
        return None
    named = settings.get("tokenizer_class")
    if not isinstance(named, str):
        return None
    return TOKENIZERS.get((model.get("model_type", ""), named.removesuffix("Fast")))
