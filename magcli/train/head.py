"""The output head of a model: from hidden states to logits."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import register_fsdp_forward_method

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Result = TypeVar("Result")

APPLY = "magcli_apply"
"""The method of a sharded head that runs a function on hidden states while its weights are gathered."""


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
        if self.bias is not None:
            raw = raw + self.bias
        raw = raw * self.scale
        if self.softcap is None:
            return raw
        return torch.tanh(raw / self.softcap) * self.softcap


def head_of(model: "PreTrainedModel") -> Head:
    """A model's head; the settings are those of Cohere, of Granite and of Gemma."""
    config, linear = model.config.get_text_config(), model.get_output_embeddings()
    # 0 and None both mean that the logits stay as they are.
    factor = getattr(config, "logit_scale", None) or 1.0  # Cohere
    divisor = getattr(config, "logits_scaling", None) or 1.0  # Granite
    softcap = getattr(config, "final_logit_softcapping", None)  # Gemma
    bias = getattr(linear, "bias", None)
    if bias is not None:
        bias = bias.float()
    return Head(linear.weight, bias, scale=factor / divisor, softcap=softcap)


def with_head(model: "PreTrainedModel", compute: Callable[[Head, Tensor], Result], hidden: Tensor) -> Result:
    """``compute(head, hidden)``, the only place where the weights of a sharded head may be used.

    The tensors that it returns lead the backward pass through the head, which is gathered for it again.
    """

    def compute_on(states: Tensor) -> Result:
        return compute(head_of(model), states)

    head = model.get_output_embeddings()
    # A head that is not sharded by itself has its weights at hand.
    apply: Callable[[Callable[[Tensor], Result], Tensor], Result] = getattr(head, APPLY, _apply)
    return apply(compute_on, hidden)


def let_head_be_gathered(linear: nn.Module) -> None:
    """Make a head that FSDP shards by itself known to ``with_head``."""
    setattr(linear, APPLY, _apply)
    register_fsdp_forward_method(linear, APPLY)


def _apply(compute: Callable[[Tensor], Any], hidden: Tensor) -> Any:
    """FSDP's hooks run around this call: they see the hidden states and the result."""
    return compute(hidden)
