"""The output head of a model: from hidden states to logits."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True, slots=True)
class Head:
    """Logits are z = scale (hidden weight^T + bias) or, with a ``softcap`` C, C tanh(z / C).

    ``weight`` is ``[vocabulary, hidden]``, ``bias`` ``[vocabulary]`` in float32.
    """

    weight: Tensor
    bias: Tensor | None
    scale: float = 1.0
    softcap: float | None = None

    def logits(self, hidden: Tensor) -> Tensor:
        """Float32 logits ``[N, vocabulary]`` of hidden states ``[N, hidden]``."""
        raw = hidden.float() @ self.weight.float().T
        raw = (raw if self.bias is None else raw + self.bias) * self.scale
        return raw if self.softcap is None else torch.tanh(raw / self.softcap) * self.softcap


def head_of(model: "PreTrainedModel") -> Head:
    """A model's head; the settings are those of Cohere, of Granite and of Gemma."""
    config, linear = model.config.get_text_config(), model.get_output_embeddings()
    scale = (getattr(config, "logit_scale", None) or 1.0) / (getattr(config, "logits_scaling", None) or 1.0)
    bias = getattr(linear, "bias", None)
    softcap = getattr(config, "final_logit_softcapping", None)
    return Head(linear.weight, None if bias is None else bias.float(), scale, softcap)
