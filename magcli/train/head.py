"""The LM head and the softmax over its logits as one differentiable step, in float32 and block by block.

Made of PyTorch's own operations it would hold the logits of all tokens several times over: as they come, normalised,
exponentiated, and the gradient of each. Here they lie in a buffer of a block or, if they are kept for the backward
pass, once as a whole, and their gradient takes their place. What is done to them row by row is done to so few rows at
once that they stay in the cache.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from magcli.errors import MagError

CACHE_BYTES = 1 << 21
"""Of a processor's cache, for rows of logits."""


@dataclass(frozen=True, slots=True)
class Way:
    """How rows are scored: so many at once, their logits kept for the backward pass or computed again there.

    ``entropy_grad`` asks for a gradient of the entropies. ``products`` is the dtype of the backward pass's matrix
    products, float32 or bfloat16 (the small slopes of a loss are nothing in float16); sums over blocks are float32.
    """

    block: int
    keep: bool
    entropy_grad: bool = False
    products: torch.dtype = torch.float32


def score_rows(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, temperature: Tensor, way: Way
) -> tuple[Tensor, Tensor]:
    """Log-probabilities and entropies, float32 ``[N]``, of targets under softmax((hidden weight^T + bias) / T).

    ``hidden`` ``[N, hidden]``, ``weight`` ``[vocabulary, hidden]``, ``bias`` ``[vocabulary]`` and ``temperature``
    ``[N]`` are float32, ``targets`` int64 ``[N]``. Temperatures get no gradient.
    """
    scored: tuple[Tensor, Tensor] = _Score.apply(hidden, weight, bias, targets, temperature, way)  # type: ignore[no-untyped-call]
    return scored


class _Score(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, temperature: Tensor, way: Way
    ) -> tuple[Tensor, Tensor]:
        rows, few = len(hidden), _few(weight)
        logits = hidden.new_empty(rows if way.keep else min(way.block, rows), len(weight))
        spare = hidden.new_empty(min(few, rows), len(weight))
        values, entropies, above = (hidden.new_empty(rows) for _ in range(3))
        with _float32(hidden):
            for part in _parts(0, rows, way.block):
                block = logits[part] if way.keep else logits[: part.stop - part.start]
                _write_logits(hidden[part], weight, bias, temperature[part], out=block)
                for piece in _parts(part.start, part.stop, few):
                    own = block[piece.start - part.start : piece.stop - part.start]
                    top = own.amax(-1)
                    shares = torch.exp(own.sub_(top[:, None]), out=spare[: len(own)])
                    total = shares.sum(-1)
                    values[piece] = own.gather(-1, targets[piece, None])[:, 0] - total.log()
                    entropies[piece] = total.log() - shares.mul_(own).sum(-1) / total
                    above[piece] = total.log() if way.keep else total.log() + top
        ctx.save_for_backward(
            hidden, weight, bias, targets, temperature, above, entropies, logits if way.keep else None
        )
        ctx.way, ctx.done = way, False
        if not way.entropy_grad:
            ctx.mark_non_differentiable(entropies)
        return values, entropies

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slopes: Tensor, entropy_slopes: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, targets, temperature, above, entropies, kept = ctx.saved_tensors
        if ctx.done:
            raise MagError("the logits that were kept for one backward pass are gone; retain_graph is not supported")
        ctx.done = True
        way, (for_hidden, for_weight, for_bias, *_) = ctx.way, ctx.needs_input_grad
        rows, slopes, entropy_slopes = len(hidden), slopes / temperature, entropy_slopes / temperature
        few, block = _few(weight), max(1, rows) if kept is not None else min(way.block, rows)
        logits = hidden.new_empty(block, len(weight)) if kept is None else kept
        spare = hidden.new_empty(min(few, rows), len(weight))
        factor, inputs = weight.to(way.products), hidden.to(way.products)
        by_hidden = torch.empty_like(hidden) if for_hidden else None
        by_weight = torch.zeros_like(weight) if for_weight and block != rows else None
        by_bias = torch.zeros_like(bias) if for_bias else None
        with _float32(hidden):
            for part in _parts(0, rows, block):
                if kept is None:
                    _write_logits(hidden[part], weight, bias, temperature[part], out=logits[: part.stop - part.start])
                gradient = _in_place(logits, part.stop - part.start, way.products)
                for piece in _parts(part.start, part.stop, few):
                    own = slice(piece.start - part.start, piece.stop - part.start)
                    logprobs = torch.sub(logits[own], above[piece, None], out=spare[: own.stop - own.start])
                    bonus = entropy_slopes[piece] if way.entropy_grad else None
                    exact = _of_logits(logprobs, targets[piece], slopes[piece], entropies[piece], bonus)
                    if by_bias is not None:
                        by_bias += exact.sum(0)
                    gradient[own] = exact
                if by_hidden is not None:
                    by_hidden[part] = gradient @ factor
                if for_weight:
                    added = (gradient.T @ inputs[part]).to(weight.dtype)
                    by_weight = added if by_weight is None else by_weight.add_(added)
        return by_hidden, by_weight, by_bias, None, None, None


def _in_place(logits: Tensor, rows: int, dtype: torch.dtype) -> Tensor:
    """Room for ``rows`` rows of another type where the float32 logits lie, which are read before they are written over.

    Row by row: what is written of the first rows ends before the next row that is still to be read.
    """
    return logits.view(-1).view(dtype)[: rows * logits.shape[1]].view(rows, logits.shape[1])


def _of_logits(logprobs: Tensor, targets: Tensor, slopes: Tensor, entropies: Tensor, bonus: Tensor | None) -> Tensor:
    """The gradient of a block's logits, in the place of its log-probabilities where only these have one.

    d log p(target) / d logits is one-hot(target) - p, d entropy / d logits is -p (log p + entropy).
    """
    if bonus is None:
        gradient = logprobs.exp_().mul_(-slopes[:, None])
    else:
        fall = (logprobs + entropies[:, None]).mul_(bonus[:, None]).add_(slopes[:, None])
        gradient = logprobs.exp_().mul_(fall.neg_())
    return gradient.scatter_add_(-1, targets[:, None], slopes[:, None])


def _float32(tensor: Tensor) -> torch.autocast:
    return torch.autocast(tensor.device.type, enabled=False)


def _parts(start: int, end: int, size: int) -> Iterator[slice]:
    return (slice(first, min(first + size, end)) for first in range(start, end, size))


def _few(weight: Tensor) -> int:
    """Rows of logits that stay in the cache of a CPU; a GPU is given all of a block."""
    return max(1, CACHE_BYTES // (4 * len(weight))) if weight.device.type == "cpu" else 1 << 30


def _write_logits(hidden: Tensor, weight: Tensor, bias: Tensor | None, temperature: Tensor, *, out: Tensor) -> None:
    torch.mm(hidden / temperature[:, None], weight.T, out=out)
    if bias is not None:
        out.addr_(temperature.reciprocal(), bias)
