"""Log-probabilities of the tokens of packed sequences, in float32 and in little memory.

The LM head and the softmax always run in float32, whatever autocast says: bf16 logits move importance ratios as much as
a different engine does. Only the matrix products of their backward pass, which give gradients, are autocast's. The
logits of more tokens than one chunk are computed again in the backward pass, so no ``[T, vocabulary]`` tensor is held.
"""

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from magcli.errors import EnvironmentFault
from magcli.train.attention import forward_packed
from magcli.train.head import Way, score_rows
from magcli.train.packing import Packed

if TYPE_CHECKING:
    from transformers import PreTrainedModel

RESCALED_LOGITS = ("final_logit_softcapping", "logit_scale", "logits_scaling")
"""Settings of models whose logits are not just the LM head's output."""

LOGITS_BYTES = 1 << 30
"""Float32 logits that are kept for the backward pass: 5,461 rows for a vocabulary of 49,152."""

BLOCK_BYTES = 1 << 27
"""Float32 logits that are computed at once, 682 such rows: more make matrix products no faster."""


class LogProbs(NamedTuple):
    """For each token of a pack, float32 ``[T]``.

    ``values[t]`` is the log-probability of token ``t`` given the tokens of its sequence before it, under the softmax
    of logits / temperature; ``entropy[t]`` is the entropy in nats of the distribution it was drawn from, over the whole
    vocabulary. Both are 0 for the first token of a sequence and for tokens that were not asked for.
    """

    values: Tensor
    entropy: Tensor


def token_logprobs(
    model: "PreTrainedModel",
    packed: Packed,
    *,
    temperature: float | Tensor = 1.0,
    chunk: int | None = None,
    where: Tensor | None = None,
    entropy_grad: bool = False,
) -> LogProbs:
    """Log-probabilities and entropies of the tokens of a pack, by a model under ``use_packed_attention``.

    ``temperature`` is one for all tokens, or ``[T]``, that at which each token was drawn. ``where``, bool ``[T]``, asks
    for some tokens only (those that train): the LM head skips the others. At most ``chunk`` rows of logits are kept
    (None: as many as ``LOGITS_BYTES`` hold), beside a block that is worked on; those of a pack that asks for no more
    are not computed twice. Entropies have a gradient if ``entropy_grad``.
    """
    before = packed.before()
    predicted = _predicted(before, where)
    hidden = forward_packed(model, packed).index_select(0, before[predicted])
    weight, bias = _head(model)
    targets = packed.input_ids[0, predicted]
    heat = torch.as_tensor(temperature, dtype=torch.float32, device=hidden.device).expand(packed.num_tokens)[predicted]
    way = _way(len(predicted), weight, chunk, entropy_grad)
    values, entropies = score_rows(hidden.float(), weight.float(), bias, targets, heat, way)
    empty = torch.zeros(packed.num_tokens, dtype=torch.float32, device=hidden.device)
    return LogProbs(empty.index_put((predicted,), values), empty.index_put((predicted,), entropies))


def _predicted(before: Tensor, where: Tensor | None) -> Tensor:
    """Indices of the tokens to score: those asked for that have a token before them."""
    asked = before >= 0
    return (asked if where is None else asked & where).nonzero().squeeze(1)


def _way(rows: int, weight: Tensor, chunk: int | None, entropy_grad: bool) -> Way:
    """How so many rows are scored, with the gradient in the precision of the autocast that is on."""
    row, device = 4 * len(weight), weight.device.type
    most = chunk or max(1, LOGITS_BYTES // row)
    products = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else torch.float32
    block = min(most, max(1, BLOCK_BYTES // row))
    return Way(block, rows <= most and torch.is_grad_enabled(), entropy_grad, products)


def _head(model: "PreTrainedModel") -> tuple[Tensor, Tensor | None]:
    """Weight ``[vocabulary, hidden]`` and bias of the LM head."""
    config = model.config.get_text_config()
    rescaled = [name for name in RESCALED_LOGITS if getattr(config, name, None) not in (None, 1, 1.0)]
    if rescaled:
        raise EnvironmentFault(f"{type(model).__name__} changes its logits by {rescaled[0]}, which training lacks")
    head = model.get_output_embeddings()
    bias = getattr(head, "bias", None)
    return head.weight, None if bias is None else bias.float()
