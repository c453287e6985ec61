"""Text models inside larger ones: the decoder of a vision-language model, trained and sampled as a causal model.

A vision-language model has its text model under another prefix, with a configuration inside its own. The text model is
built by transformers as the causal model of that configuration, from the text tensors alone, so the vision encoder
takes no memory. ``places`` maps its parameters to the names in the checkpoint, for loading, saving and vLLM.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import transformers
from safetensors import safe_open

from magcli.model.weights import graft
from magcli.model.weights.tensors import Stored, check_floats, stored_tensors

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

FAMILIES = ("gemma3", "llava", "mistral3", "qwen2_vl", "qwen2_5_vl", "qwen3_vl")
"""Model types whose text model computes what the whole model computes without images, which a test shows of each."""

SAME_AS = {"qwen2_vl_text": "qwen2", "qwen2_5_vl_text": "qwen2", "qwen3_vl_text": "qwen3"}
"""Text models without a causal model of their own in transformers, and the family that they are without images.

Their rotary embedding has three positions a token (time, height, width), which are equal in text.
"""
IMAGE_ROPE = ("mrope_section", "mrope_interleaved")
"""Settings of such a rotary embedding that have no effect on text."""


@dataclass(frozen=True, slots=True)
class Shaped:
    """A parameter of a text model, as far as its place in a checkpoint depends on it."""

    name: str
    shape: tuple[int, ...]


def is_nested(config: Any) -> bool:
    """Whether a transformers configuration is that of a larger model, whose text model can be used by itself."""
    return config.model_type in FAMILIES


def text_config(config: Any, stored: Mapping[str, Stored] | None = None) -> Any:
    """The configuration of the causal text model inside a larger model's.

    ``stored`` has the tensors of its checkpoint: a head that differs from the embeddings is not tied to them, whatever
    the configuration says, as in transformers.
    """
    text = config.get_text_config()
    settings = text.to_dict()
    family = SAME_AS.get(text.model_type)
    if family:
        settings["rope_parameters"] = _text_rope(text.rope_parameters)
    settings["tie_word_embeddings"] = config.tie_word_embeddings and not graft.has_own_head(stored or {})
    # The class of the configuration stands for it.
    settings.pop("model_type")
    settings.pop("architectures", None)
    return transformers.CONFIG_MAPPING[family or text.model_type](**settings)


def _text_rope(parameters: Mapping[str, Any]) -> dict[str, Any]:
    rope = {name: value for name, value in parameters.items() if name not in IMAGE_ROPE}
    if rope.get("rope_type") == "mrope":
        rope["rope_type"] = "default"
    return rope


def places(model: "PreTrainedModel", stored: Mapping[str, Stored]) -> dict[str, str]:
    """The parameter of a text model, which may be on the meta device, for each text tensor of a larger checkpoint.

    A head that is stored although it is tied to the embeddings has the same parameter as these.

    Raises:
        DataError: the checkpoint lacks a parameter, has it in another shape, or has text tensors besides.
    """
    # Only names and shapes decide: the model may be on the meta device.
    parameters = {name: Shaped(name, tuple(tensor.shape)) for name, tensor in model.named_parameters()}
    by_stored_name = graft.places(parameters, stored)
    return {name: parameter.name for name, parameter in by_stored_name.items()}


def checkpoint_names(stored_places: Mapping[str, str]) -> dict[str, str]:
    """For each parameter of a text model its name in the checkpoint: that of the embeddings, for a tied head too."""
    names: dict[str, str] = {}
    for name in sorted(stored_places, key=graft.is_head):  # heads come last
        # The first name of a parameter stays.
        names.setdefault(stored_places[name], name)
    return names


def load_text_model(config: Any, folder: Path, dtype: Any) -> "PreTrainedModel":
    """The text model of a larger model's ``folder`` on the CPU, from ``config``, that of the larger model.

    Raises:
        DataError: a file of weights is damaged, or the text model is not found among its tensors.
    """
    # Headers alone; values are read below.
    stored = stored_tensors(folder)
    text = text_config(config, stored)
    model_class: Any = transformers.AutoModelForCausalLM._model_mapping[type(text)]
    names = checkpoint_names(places(outline(text), stored))
    weights = read_tensors(folder, names)
    loaded: PreTrainedModel = model_class.from_pretrained(
        None, config=text, state_dict=weights, dtype=dtype, trust_remote_code=False
    )
    return loaded


def outline(text: Any, dtype: Any = None) -> "PreTrainedModel":
    """The causal model of a text configuration on the meta device; ``dtype`` None: that of the configuration."""

    options = {} if dtype is None else {"dtype": dtype}
    with torch.device("meta"):
        model: PreTrainedModel = transformers.AutoModelForCausalLM.from_config(text, trust_remote_code=False, **options)
    return model


def read_tensors(folder: Path, names: Mapping[str, str]) -> "dict[str, Tensor]":
    """Tensors of a model folder, mapped from their files, by parameter; ``names`` are those in the checkpoint.

    Raises:
        DataError: a file is damaged, or a tensor is quantised.
    """
    stored = stored_tensors(folder)
    tensors = {parameter: stored[name] for parameter, name in names.items()}
    check_floats(tensors.values())
    # Each file is opened once.
    by_file: dict[Path, dict[str, Stored]] = {}
    for parameter, tensor in tensors.items():
        by_file.setdefault(tensor.file, {})[parameter] = tensor
    loaded: dict[str, Tensor] = {}
    for file, in_file in sorted(by_file.items()):
        loaded |= _read_file(file, in_file)
    return loaded


def _read_file(file: Path, tensors: Mapping[str, Stored]) -> "dict[str, Tensor]":
    with safe_open(file, framework="pt") as opened:
        return {name: opened.get_tensor(stored.name) for name, stored in tensors.items()}
