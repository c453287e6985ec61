"""Causal attention with what models add to it: sliding windows, soft caps and sinks.

A window of W lets a token attend to itself and the W - 1 tokens before it. A soft cap C replaces a score s by
C tanh(s / C). A sink is one more score of each head that takes part in the softmax and adds nothing to the output.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout as drop
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

from magcli.errors import EnvironmentFault

WINDOW = "magcli_window"
"""Attribute of attention modules: their sliding window, None for all earlier tokens. ``magcli.model.probe`` sets it."""

UNSUPPORTED = ("position_bias",)
"""Arguments of some models' attention functions that ours would ignore."""

QUERY_BLOCK = 512
"""Queries computed at once where PyTorch's causal kernels cannot be used: memory is linear in the sequence length."""


class UnsupportedAttention(EnvironmentFault):
    """An attention layer does what ours cannot."""


@dataclass(frozen=True, slots=True)
class Scores:
    """How a layer makes weights from products of queries and keys: ``sinks`` has one score per head, ``[H]``."""

    scale: float
    window: int | None = None
    softcap: float | None = None
    sinks: Tensor | None = None

    @property
    def is_plain(self) -> bool:
        """Whether PyTorch's kernels compute it, perhaps with a mask."""
        return self.softcap is None and self.sinks is None

    def sees_all(self, length: int) -> bool:
        """Whether the last token of a sequence attends to the first."""
        return self.window is None or length <= self.window

    def capped(self, scores: Tensor) -> Tensor:
        """Scaled products under the soft cap."""
        if self.softcap is None:
            return scores
        return torch.tanh(scores / self.softcap) * self.softcap


def scores_of(module: nn.Module, query: Tensor, scaling: float | None, others: Mapping[str, Any]) -> Scores:
    """What an attention function of transformers is asked for by its arguments, of which ``others`` are the rest.

    Raises UnsupportedAttention for an argument that ours would ignore.
    """
    unsupported = [name for name in UNSUPPORTED if others.get(name) is not None]
    if unsupported:
        raise UnsupportedAttention(f"its attention has a {unsupported[0]}")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    return Scores(scale, getattr(module, WINDOW, None), others.get("softcap"), others.get("s_aux"))


def causal_attention(query: Tensor, key: Tensor, value: Tensor, kind: Scores, dropout: float = 0.0) -> Tensor:
    """Attention of a batch of sequences: ``[N, H, L, D]`` and ``[N, H_kv, M, ...]`` to ``[N, H, L, ...]``.

    The queries are those of the last L of M tokens; with L = M, padding may come last, where no token of the sequence
    sees it.
    """
    length, total = query.shape[2], key.shape[2]
    past = total - length
    if past == 0 and kind.is_plain and kind.sees_all(length):
        return _kernel(query, key, value, kind, dropout, is_causal=True)

    # Positions from ``past`` on are those of queries; from ``first`` on those of the keys that a block sees.
    blocks = []
    for start in range(past, total, QUERY_BLOCK):
        stop = min(start + QUERY_BLOCK, total)
        first = 0 if kind.window is None else max(0, start - kind.window + 1)
        # Slices of keys and values are views: nothing is copied.
        queries = query[:, :, start - past : stop - past]
        keys = key[:, :, first:stop]
        values = value[:, :, first:stop]
        mask = _mask(range(start, stop), range(first, stop), kind.window, query.device)
        blocks.append(_masked(queries, keys, values, mask, kind, dropout))
    return torch.cat(blocks, dim=2)


def _kernel(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    kind: Scores,
    dropout: float,
    *,
    mask: Tensor | None = None,
    is_causal: bool = False,
) -> Tensor:
    """PyTorch's kernel, for scores without soft cap and sinks."""
    is_grouped = query.shape[1] != key.shape[1]
    return scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=mask,
        is_causal=is_causal,
        scale=kind.scale,
        dropout_p=dropout,
        enable_gqa=is_grouped,
    )


def _mask(rows: range, columns: range, window: int | None, device: torch.device) -> Tensor:
    """Which tokens ``columns`` the tokens ``rows`` attend to: bool ``[rows, columns]``."""
    row = torch.arange(rows.start, rows.stop, device=device)[:, None]
    column = torch.arange(columns.start, columns.stop, device=device)
    seen = column <= row
    return seen if window is None else seen & (column > row - window)


def _masked(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, kind: Scores, dropout: float) -> Tensor:
    if kind.is_plain:
        return _kernel(query, key, value, kind, dropout, mask=mask)
    if not torch.is_grad_enabled():
        return _weighted(query, key, value, mask, kind, dropout)
    output: Tensor = checkpoint(_weighted, query, key, value, mask, kind, dropout, use_reentrant=False)
    return output


def _weighted(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, kind: Scores, dropout: float) -> Tensor:
    """Attention step by step; the backward pass recomputes it, so that no weights are stored."""
    count, heads, rows, width = query.shape
    kv_heads = key.shape[1]
    # Query heads that share keys and values are the rows of one product: ``[N, H_kv, groups * rows, width]``.
    queries = query.reshape(count, kv_heads, -1, width)
    # Scaled before the product, which has more values than the queries.
    products = (queries * kind.scale @ key.transpose(2, 3)).float()
    scores = kind.capped(products).view(count, kv_heads, heads // kv_heads, rows, -1)
    scores = scores.masked_fill(~mask, -torch.inf)
    weights = softmax_with_sinks(scores, kind.sinks).to(value.dtype)
    weights = drop(weights, dropout).flatten(2, 3)  # [N, H_kv, groups * rows, M]
    output = weights @ value
    return output.view(count, heads, rows, -1)


def softmax_with_sinks(scores: Tensor, sinks: Tensor | None) -> Tensor:
    """Softmax over the last dimension of ``[N, H_kv, groups, ..., columns]``, with one sink ``[H]`` for each head."""
    if sinks is None:
        return scores.softmax(dim=-1)
    trailing = (1,) * (scores.dim() - 3)
    by_head = sinks.float().view(1, *scores.shape[1:3], *trailing)  # [1, H_kv, groups, 1, ...]
    column = by_head.expand(*scores.shape[:-1], 1)
    weights = torch.cat((scores, column), dim=-1).softmax(dim=-1)
    return weights[..., :-1]
