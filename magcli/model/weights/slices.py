"""Which models each rank can read its own slices of, straight from the safetensors files.

That takes files whose tensors are the parameters of the model one by one. Where transformers converts tensors as it
loads them (experts that it stacks, quantised weights, adapters that it merges), ranks load the whole model instead.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from magcli.model.weights import graft
from magcli.model.weights.peft import ADAPTER_CONFIG
from magcli.model.weights.tensors import FLOATS, Stored, has_weights, stored_tensors

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

    from magcli.model.model import Model


def has_slices(model: "Model") -> bool:
    """Whether ranks can read slices of a model, as far as it is known without downloading weights."""
    if not model.is_local or not has_weights(model.folder):
        return _is_loaded_as_stored(model)
    return bool(sliced_tensors(model))


def sliced_tensors(model: "Model") -> dict[str, Stored]:
    """The stored tensor of each parameter and persistent buffer, a tied one once; empty if slices cannot be read.

    Raises:
        DataError: a file is damaged.
    """
    if not _is_loaded_as_stored(model) or not has_weights(model.folder):
        return {}
    if (model.folder / ADAPTER_CONFIG).exists():
        return {}
    stored = stored_tensors(model.folder)
    is_tied = not model.is_nested and model.outline.config.tie_word_embeddings
    if is_tied and any(map(graft.is_head, stored)):  # transformers unties a head that differs from the embeddings
        return {}
    # Empty unless the text model is inside a larger one.
    stored_names: Mapping[str, str] = model.checkpoint_names
    tensors: dict[str, Stored] = {}
    for name, own in own_tensors(model.outline).items():
        tensor = stored.get(stored_names.get(name, name))
        if tensor is None or tensor.shape != tuple(own.shape):
            return {}
        if tensor.kind not in FLOATS:
            return {}
        tensors[name] = tensor
    return tensors


def own_tensors(model: "PreTrainedModel") -> "dict[str, Tensor]":
    """The parameters and persistent buffers of a model by name, a tied one under its first name."""
    # A tied parameter is listed under its first name only, but is in the state dict under all of them.
    first_names = {name for name, _ in (*model.named_parameters(), *model.named_buffers())}
    return {name: tensor for name, tensor in model.state_dict(keep_vars=True).items() if name in first_names}


def _is_loaded_as_stored(model: "Model") -> bool:
    """Whether transformers loads a family's tensors without changing or merging any."""
    from transformers.conversion_mapping import PrefixChange, get_model_conversion_mapping

    if getattr(model.config, "quantization_config", None):
        return False
    conversions = get_model_conversion_mapping(model.outline, add_legacy=False)
    # A change of prefix leaves the tensors as they are.
    return all(isinstance(conversion, PrefixChange) for conversion in conversions)
