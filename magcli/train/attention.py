"""Causal attention within each sequence of a pack, in place of a transformers model's own.

It is registered with transformers under two names, for padded batches and for rows without padding; where the sequences
of a pack are is a keyword argument of the model's forward. All other layers see ``[1, T]`` tokens.
"""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface

from magcli.choices import Attention
from magcli.errors import DataError, EnvironmentFault, MagError
from magcli.model.attention import scores_of
from magcli.model.context import rotary_limit
from magcli.model.probe import (
    agree,
    different,
    explained,
    own_logits,
    probe_tokens,
    record_attention,
    refusal,
    spread_of,
)
from magcli.train import padded, varlen
from magcli.train.head import Head, with_head
from magcli.train.packing import Packed, pack

if TYPE_CHECKING:
    from transformers import PreTrainedModel

NAME, VARLEN_NAME = "magcli_packed", "magcli_varlen"
"""The names under which transformers knows our attention."""

LAYERS = {"full_attention", "sliding_attention"}
"""Layer types that mix tokens by attention only; recurrent ones would leak from one sequence into the next."""

Packing = padded.Buckets | varlen.Segments
"""How attention finds the sequences of a pack, for each of the two kinds of attention."""


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    packing: Packing | None = None,
    dropout: float = 0.0,
    **others: Any,
) -> tuple[Tensor, None]:
    """The attention function that transformers calls.

    q is ``[1, H, T, D]``, k and v are ``[1, H_kv, T, D]``, the result is ``[1, T, H, D]``.
    """
    if packing is None:
        raise MagError("packed attention was called without sequence boundaries: use forward_packed")
    kind = scores_of(module, query, scaling, others)
    queries, keys, values = (tensor[0].transpose(0, 1) for tensor in (query, key, value))  # [T, H, D]
    # The kernels get the types that they are best in, which autocast would change.
    with torch.autocast(value.device.type, enabled=False):
        output = packing.attend(queries, keys, values, kind, dropout)
    return output.to(value.dtype)[None], None


def packing_of(model: "PreTrainedModel", packed: Packed) -> Packing:
    """How the attention of a model finds the sequences of a pack; all of it follows from their lengths."""
    return varlen.segments(packed) if _uses_varlen(model) else padded.buckets(packed)


def use_packed_attention(model: "PreTrainedModel", attention: Attention = "sdpa") -> None:
    """Switch a transformers model to packed attention permanently: afterwards only ``forward_packed`` works.

    Raises EnvironmentFault for a model whose layers cannot keep packed sequences separate, or whose hidden states would
    not be its own, and for a device that has no such attention.
    """
    if attention == "fastest":
        _use_fastest(model)
        return
    if attention == "varlen":
        varlen.require(model.device)
    kinds = set(getattr(model.config.get_text_config(), "layer_types", None) or LAYERS)
    mixing = kinds - LAYERS
    if mixing:
        raise _unsupported(refusal(model, f"layers of type {min(mixing)} would mix packed sequences"))
    try:
        record_attention(model)
        set_packed_attention(model, attention)
        _check(model)
    except EnvironmentFault as error:
        raise _unsupported(error) from error


def _use_fastest(model: "PreTrainedModel") -> None:
    """Attention without padding if it can be used, for example if the model has no soft caps, else with padding."""
    if varlen.is_available(model.device):
        try:
            use_packed_attention(model, "varlen")
        except EnvironmentFault:
            pass  # the other kind says what is wrong with the model, if anything is
        else:
            return
    use_packed_attention(model, "sdpa")


def set_packed_attention(model: "PreTrainedModel", attention: Attention = "sdpa") -> None:
    """The same without looking at the model, whose weights need not have values: for families known to work."""
    for name in (NAME, VARLEN_NAME):
        AttentionInterface.register(name, attend)
    model.set_attn_implementation(VARLEN_NAME if attention == "varlen" else NAME)


def _uses_varlen(model: "PreTrainedModel") -> bool:
    return bool(model.config._attn_implementation == VARLEN_NAME)


def _unsupported(error: EnvironmentFault) -> EnvironmentFault:
    return EnvironmentFault(f"{error}; train a model of another family (docs/models.md has a table)")


@torch.no_grad()
def _check(model: "PreTrainedModel") -> None:
    """Raise EnvironmentFault unless packed sequences have the logits of the model's own code."""
    with explained(model):
        theirs = own_logits(model).flatten(0, 1)
        packed = pack(probe_tokens(model).tolist())
        hidden = forward_packed(model, packed.to(model.device))
        ours = with_head(model, Head.logits, hidden)
    spread = spread_of(theirs)
    is_rounded = torch.is_autocast_enabled(model.device.type) or _uses_varlen(model)
    dtype = torch.bfloat16 if is_rounded else model.dtype
    if not agree(ours, theirs, spread, dtype):
        raise different(model, ours, theirs, spread, "training")


def forward_packed(model: "PreTrainedModel", packed: Packed, packing: Packing | None = None) -> Tensor:
    """Hidden states ``[T, hidden]`` after the final norm, the input of the LM head.

    ``packing`` is ``packing_of`` this model and pack; None: it is computed here.

    Raises DataError for a sequence beyond a length at which rotary frequencies change.
    """
    limit = rotary_limit(model.config.get_text_config())
    longest = max(packed.full_lengths, default=0)
    if limit is not None and longest > limit:
        raise DataError(f"a sequence of {longest} tokens: from {limit} on, this model's rotary embedding changes")
    decoder = model.get_decoder()
    output = decoder(
        input_ids=packed.input_ids,
        position_ids=packed.position_ids,
        use_cache=False,
        packing=packing_of(model, packed) if packing is None else packing,
    )
    hidden: Tensor = output.last_hidden_state
    return hidden[0]
