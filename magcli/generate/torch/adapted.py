"""LoRA in the embedded engine on top of the trainer's frozen weights, so that a GPU has them once.

New weights are adapters alone: the engine keeps a copy of them in its own type, and never changes what it shares.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from magcli.generate.torch.decoder import Decoder
from magcli.generate.types import Digests, Weights
from magcli.generate.weights.digest import WeightsFault, digests
from magcli.model.weights.peft import stored_name
from magcli.model.weights.plain import DecoderConfig


class AdaptedLinear(nn.Module):
    """A linear layer W x + b plus scale * B A x.

    ``weight`` ``[outputs, inputs]`` and ``bias`` are those of ``base``. A ``[rank, inputs]`` and B ``[outputs, rank]``
    have their type and are 0 until ``set_adapter``.
    """

    lora_a: Tensor
    lora_b: Tensor

    def __init__(self, base: nn.Linear, *, rank: int, alpha: float) -> None:
        super().__init__()
        self.weight, self.bias = base.weight, base.bias
        self._scale = alpha / rank
        outputs, inputs = base.weight.shape
        self.register_buffer("lora_a", base.weight.new_zeros(rank, inputs), persistent=False)
        self.register_buffer("lora_b", base.weight.new_zeros(outputs, rank), persistent=False)

    def forward(self, inputs: Tensor) -> Tensor:
        """``[..., inputs]`` to ``[..., outputs]``."""
        frozen = linear(inputs, self.weight, self.bias)
        # First to the rank, then to the outputs: B A would be as large as W.
        return frozen + linear(linear(inputs, self.lora_a), self.lora_b) * self._scale


def adapted_decoder(config: DecoderConfig, frozen: Weights, *, rank: int, alpha: float) -> Decoder:
    """A decoder whose weights are those that LoRA trains on top of, not copies, with an adapter in every layer of it.

    Args:
        config: of the model.
        frozen: its weights by name, all of one type and on one device.
        rank, alpha: of the adapters, whose scale is alpha / rank.
    """
    with torch.device("meta"):
        model = Decoder(config)
    model.load_state_dict(dict(frozen), assign=True)  # the same tensors
    if config.tie_word_embeddings:
        model.lm_head.weight = model.model.embed_tokens.weight
    layers = model.model.layers
    for name, module in list(layers.named_modules()):  # a list, since modules are replaced on the way
        if isinstance(module, nn.Linear):
            layers.set_submodule(name, AdaptedLinear(module, rank=rank, alpha=alpha))
    return model.to(model.device).eval()


def adapted_linears(model: nn.Module) -> Mapping[str, AdaptedLinear]:
    """The layers with an adapter, by name; none of any other model."""
    return {name: module for name, module in model.named_modules() if isinstance(module, AdaptedLinear)}


@torch.no_grad()
def load_adapters(layers: Mapping[str, AdaptedLinear], weights: Weights) -> Digests:
    """Copy new adapters, which have their names in peft's files; returns the digest of each matrix as it was read.

    Raises:
        WeightsFault: a matrix is missing or has another shape; nothing has been changed.
    """
    targets: dict[str, Tensor] = {}
    for name, layer in layers.items():
        targets[stored_name(name, "lora_a")] = layer.lora_a
        targets[stored_name(name, "lora_b")] = layer.lora_b
    # All are checked before the first one changes.
    for name, target in targets.items():
        if name not in weights:
            raise WeightsFault(f"new adapters lack {name}, which the engine's model has")
        shape = tuple(weights[name].shape)
        expected = tuple(target.shape)
        if shape != expected:
            raise WeightsFault(f"new adapters: {name} is {shape}, the engine's is {expected}")
    for name, target in targets.items():
        target.copy_(weights[name])
    return digests({name: weights[name] for name in targets})
