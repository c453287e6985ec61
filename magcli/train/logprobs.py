"""Log-probabilities of the tokens of packed sequences, in float32 and in little memory.

The LM head and the softmax over its logits are one differentiable step. They always run in float32, whatever autocast
says: bf16 logits change importance ratios as much as a different engine does. Only the matrix products of their
backward pass follow autocast, and on a GPU the factors of the head's product: bf16 hidden states and weights, as an
engine in bf16 has them, with exact products and float32 sums, in a tenth of the time.

PyTorch's own operations would hold the logits of all tokens several times: raw, normalised, exponentiated, and the
gradient of each. Here they are in a buffer of one block, recomputed in the backward pass, or, if there are few enough,
stored once and overwritten by their gradient. Row-wise work runs on blocks of rows that fit the cache.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from magcli.errors import MagError
from magcli.plan import memory
from magcli.train.attention import Packing, forward_packed
from magcli.train.head import Head, with_head
from magcli.train.moving import moved
from magcli.train.packing import Packed

if TYPE_CHECKING:
    from transformers import PreTrainedModel

BLOCK_BYTES = {"cpu": memory.CPU_BLOCK_BYTES, "cuda": memory.GPU_BLOCK_BYTES}
"""Float32 logits computed at once. On a GPU the gradient of the head, which each block reads and writes, would take
longer than the products of small blocks."""


class LogProbs(NamedTuple):
    """For each token of a pack, float32 ``[T]``.

    ``values[t]`` is the log-probability of token ``t`` given the earlier tokens of its sequence, under the softmax of
    logits / temperature; ``entropy[t]`` is the entropy in nats of that distribution, over the whole vocabulary. Both
    are 0 for the first token of a sequence and for tokens not in ``where``.
    """

    values: Tensor
    entropy: Tensor


@dataclass(frozen=True, slots=True)
class Scored:
    """Which tokens of a pack are scored: their indices ``tokens``, int64 ``[N]``, and those of the tokens before each.

    Found on the host, since the number of tokens depends on values: on a GPU that would wait for the device.
    """

    tokens: Tensor
    before: Tensor

    def to(self, device: torch.device | str) -> "Scored":
        """The same indices on another device."""
        return Scored(moved(self.tokens, device), moved(self.before, device))


def scored_tokens(packed: Packed, where: Tensor | None = None) -> Scored:
    """The tokens of a pack that ``where``, bool ``[T]``, selects (None: all) and that have a token before them.

    Indices on the host; of a pack that is on a GPU they are read from it.
    """
    before = packed.before()
    tokens = _predicted(before, None if where is None else where.cpu())
    return Scored(tokens, before[tokens])


def token_logprobs(
    model: "PreTrainedModel",
    packed: Packed,
    *,
    temperature: float | Tensor = 1.0,
    chunk: int | None = None,
    where: Tensor | Scored | None = None,
    entropy_grad: bool = False,
    packing: Packing | None = None,
) -> LogProbs:
    """Log-probabilities and entropies of the tokens of a pack, from a model under ``use_packed_attention``.

    ``temperature`` is a scalar, or ``[T]``, the sampling temperature of each token. ``where``, bool ``[T]`` or the
    ``scored_tokens`` of it, selects the tokens to score (those that are trained on); the LM head skips the others. Up
    to ``chunk`` rows of logits are stored (None: as many as fit in ``memory.LOGITS_BYTES``); with more, all are
    recomputed in the backward pass. Entropies are differentiable if ``entropy_grad``. ``packing``: see
    ``forward_packed``.
    """
    scored = where if isinstance(where, Scored) else scored_tokens(packed, where).to(packed.input_ids.device)
    # The hidden state of a token predicts the next one.
    hidden = forward_packed(model, packed, packing).index_select(0, scored.before)
    targets = packed.input_ids[0, scored.tokens]
    if not isinstance(temperature, Tensor):
        temperature = torch.full((), temperature, device=hidden.device)
    # A view: one temperature is not copied to each token.
    temperatures = temperature.expand(packed.num_tokens).index_select(0, scored.tokens)

    def score(head: Head, hidden: Tensor) -> tuple[Tensor, Tensor]:
        plan = _plan(len(targets), head, chunk, entropy_grad)
        return _score_with(head, hidden, targets, temperatures, plan)

    values, entropies = with_head(model, score, hidden)
    # Tokens that are not scored have 0, without a gradient.
    zeros = torch.zeros(packed.num_tokens, dtype=torch.float32, device=hidden.device)
    index = (scored.tokens,)
    return LogProbs(zeros.index_put(index, values), zeros.index_put(index, entropies))


def _score_with(
    head: Head, hidden: Tensor, targets: Tensor, temperatures: Tensor, plan: "ScorePlan"
) -> tuple[Tensor, Tensor]:
    """``score_rows`` with a model's head."""
    scaled, bias = hidden.float(), head.bias
    if head.scale != 1.0:  # cheaper than to scale the logits
        scaled = scaled * head.scale
        bias = None if bias is None else bias * head.scale
    weight = head.weight if plan.factors == head.weight.dtype else head.weight.float()
    return score_rows(scaled, weight, bias, targets, temperatures, plan)


def _predicted(before: Tensor, where: Tensor | None) -> Tensor:
    """Indices of the tokens to score: those selected that have a token before them."""
    is_scored = before >= 0
    if where is not None:
        is_scored = is_scored & where
    return is_scored.nonzero().squeeze(1)


def _plan(rows: int, head: Head, chunk: int | None, entropy_grad: bool) -> "ScorePlan":
    """How this number of rows is scored; ``chunk``: the most whose logits are stored, by default what memory allows."""
    device = head.weight.device.type
    row_bytes = memory.FP32 * len(head.weight)
    block_bytes = BLOCK_BYTES.get(device, BLOCK_BYTES["cuda"])
    # At least one row, however large the vocabulary.
    most_stored = chunk or max(1, memory.LOGITS_BYTES // row_bytes)
    products = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else torch.float32
    return ScorePlan(
        block=min(most_stored, max(1, block_bytes // row_bytes)),
        store=rows <= most_stored and torch.is_grad_enabled(),
        entropy_grad=entropy_grad,
        products=products,
        softcap=head.softcap,
        factors=_factors(device, products),
    )


def _factors(device: str, products: torch.dtype) -> torch.dtype:
    """The type of the factors of the head's product; a CPU has no such product, and computes float32 as fast."""
    return torch.bfloat16 if device == "cuda" and products == torch.bfloat16 else torch.float32


@dataclass(frozen=True, slots=True)
class ScorePlan:
    """How rows are scored: ``block`` rows at a time, their logits stored for the backward pass or recomputed there.

    ``entropy_grad``: entropies are differentiable. ``products`` is the dtype of the backward pass's matrix products,
    float32 or bfloat16 (small gradients underflow in float16); sums over blocks are float32. ``softcap``: see ``Head``.
    ``factors`` is the dtype to which hidden states and weights are rounded for the logits, which are float32.
    """

    block: int
    store: bool
    entropy_grad: bool = False
    products: torch.dtype = torch.float32
    softcap: float | None = None
    factors: torch.dtype = torch.float32


def score_rows(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, temperature: Tensor, plan: ScorePlan
) -> tuple[Tensor, Tensor]:
    """Log-probabilities and entropies, float32 ``[N]``, of targets under softmax((hidden weight^T + bias) / T).

    A soft cap is applied before the division by T. ``hidden`` ``[N, hidden]``, ``weight`` ``[vocabulary, hidden]``,
    ``bias`` ``[vocabulary]`` and ``temperature`` ``[N]`` are float32, ``targets`` int64 ``[N]``. Temperatures get no
    gradient. Frozen weights may be of the type of ``plan.factors``.
    """
    scored: tuple[Tensor, Tensor] = _Score.apply(hidden, weight, bias, targets, temperature, plan)  # type: ignore[no-untyped-call]
    return scored


class _Score(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        temperature: Tensor,
        plan: ScorePlan,
    ) -> tuple[Tensor, Tensor]:
        rows, vocabulary = len(hidden), len(weight)
        step = _rows_at_once(weight, plan)
        logits = hidden.new_empty(rows if plan.store else min(plan.block, rows), vocabulary)
        spare = hidden.new_empty(min(step, rows), vocabulary)
        values, entropies, normalizer, peak = (hidden.new_empty(rows) for _ in range(4))
        factor = weight.to(plan.factors)
        # A block of logits at a time, and of these as many rows as ``spare`` has.
        with _float32(hidden):
            for part in _parts(0, rows, plan.block):
                block = logits[part] if plan.store else logits[: part.stop - part.start]
                _write_logits(hidden[part], factor, bias, temperature[part], plan.softcap, out=block)
                for piece in _parts(part.start, part.stop, step):
                    # Softmax of logits z, shifted by their maximum: s = z - max z, log Z = log sum exp(s),
                    # log p = s - log Z, and entropy = log Z - sum(exp(s) s) / Z.
                    inside = slice(piece.start - part.start, piece.stop - part.start)
                    shifted = block[inside]
                    top = shifted.amax(-1)
                    exponentials = torch.exp(shifted.sub_(top[:, None]), out=spare[: len(shifted)])
                    total = exponentials.sum(-1)
                    log_total = total.log()
                    of_targets = shifted.gather(-1, targets[piece, None])[:, 0]
                    values[piece] = of_targets - log_total
                    entropies[piece] = log_total - exponentials.mul_(shifted).sum(-1) / total
                    # What the backward pass subtracts: stored logits are shifted, recomputed ones are not.
                    normalizer[piece] = log_total if plan.store else log_total + top
                    peak[piece] = top if plan.store else 0.0

        stored = logits if plan.store else None
        ctx.save_for_backward(hidden, weight, bias, targets, temperature, normalizer, entropies, peak, stored)
        ctx.plan = plan
        # The backward pass overwrites stored logits, so there can be only one.
        ctx.done = False
        if not plan.entropy_grad:
            ctx.mark_non_differentiable(entropies)
        return values, entropies

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_values: Tensor, grad_entropies: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, targets, temperature, normalizer, entropies, peak, stored = ctx.saved_tensors
        if ctx.done:
            raise MagError("a second backward pass: the stored logits were overwritten; retain_graph is not supported")
        ctx.done = True
        plan = ctx.plan
        for_hidden, for_weight, for_bias, *_ = ctx.needs_input_grad
        rows, vocabulary = len(hidden), len(weight)
        # Of z, where the logits are z / temperature.
        grad_values = grad_values / temperature
        grad_entropies = grad_entropies / temperature
        step = _rows_at_once(weight, plan)
        # All stored logits are one block.
        block = min(plan.block, rows) if stored is None else max(1, rows)
        logits = hidden.new_empty(block, vocabulary) if stored is None else stored
        spare = hidden.new_empty(min(step, rows), vocabulary)
        cast_weight, cast_hidden = weight.to(plan.products), hidden.to(plan.products)
        # One copy of the weights where both types are the same.
        factor = cast_weight if plan.factors == plan.products else weight.to(plan.factors)
        grad_hidden = torch.empty_like(hidden) if for_hidden else None
        # With a single block there is nothing to add up: its product is the gradient.
        grad_weight = torch.zeros_like(weight) if for_weight and block != rows else None
        grad_bias = torch.zeros_like(bias) if for_bias else None

        with _float32(hidden):
            for part in _parts(0, rows, block):
                if stored is None:
                    # The buffer of one block serves all blocks in turn.
                    block_logits = logits[: part.stop - part.start]
                    _write_logits(hidden[part], factor, bias, temperature[part], plan.softcap, out=block_logits)
                # The gradient takes the memory of the logits, a piece after that piece has been read.
                gradient = _in_place(logits, part.stop - part.start, plan.products)
                for piece in _parts(part.start, part.stop, step):
                    inside = slice(piece.start - part.start, piece.stop - part.start)
                    slope = _slope_of_cap(logits[inside], peak[piece], temperature[piece], plan.softcap)
                    unused = spare[: inside.stop - inside.start]
                    logprobs = torch.sub(logits[inside], normalizer[piece, None], out=unused)
                    grad_entropy = grad_entropies[piece] if plan.entropy_grad else None
                    grad_logits = _of_logits(
                        logprobs, targets[piece], grad_values[piece], entropies[piece], grad_entropy
                    )
                    if slope is not None:
                        grad_logits *= slope
                    if grad_bias is not None:
                        grad_bias += grad_logits.sum(0)
                    gradient[inside] = grad_logits
                if grad_hidden is not None:
                    grad_hidden[part] = gradient @ cast_weight
                if for_weight:
                    grad_weight = _added(grad_weight, gradient.T @ cast_hidden[part])
        return grad_hidden, grad_weight, grad_bias, None, None, None


def _added(total: Tensor | None, product: Tensor) -> Tensor:
    """The float32 sum of the products so far and one more, which no variable keeps while the next is computed."""
    return product.float() if total is None else total.add_(product)


def _in_place(logits: Tensor, rows: int, dtype: torch.dtype) -> Tensor:
    """A view of the float32 logits' memory as ``rows`` rows of another type, for their gradient.

    Rows are read before they are overwritten: the first rows written end before the next row to be read.
    """
    vocabulary = logits.shape[1]
    memory_as_type = logits.view(-1).view(dtype)
    return memory_as_type[: rows * vocabulary].view(rows, vocabulary)


def _of_logits(
    logprobs: Tensor, targets: Tensor, grad_values: Tensor, entropies: Tensor, grad_entropy: Tensor | None
) -> Tensor:
    """The gradient of a block's logits; overwrites its log-probabilities.

    d log p(target) / d logits is one-hot(target) - p, d entropy / d logits is -p (log p + entropy).
    """
    if grad_entropy is None:
        gradient = logprobs.exp_().mul_(-grad_values[:, None])
    else:
        slope = (logprobs + entropies[:, None]).mul_(grad_entropy[:, None]).add_(grad_values[:, None])
        gradient = logprobs.exp_().mul_(slope.neg_())
    return gradient.scatter_add_(-1, targets[:, None], grad_values[:, None])


def _slope_of_cap(logits: Tensor, peak: Tensor, temperature: Tensor, softcap: float | None) -> Tensor | None:
    """The derivative 1 - (z / C)^2 of capped logits z, given as z / T - ``peak``; None without a cap."""
    if softcap is None:
        return None
    capped_over_cap = (logits + peak[:, None]) * (temperature / softcap)[:, None]  # z / C
    return 1.0 - capped_over_cap.square_()


def _float32(tensor: Tensor) -> torch.autocast:
    return torch.autocast(tensor.device.type, enabled=False)


def _parts(start: int, end: int, size: int) -> Iterator[slice]:
    return (slice(first, min(first + size, end)) for first in range(start, end, size))


def _rows_at_once(weight: Tensor, plan: ScorePlan) -> int:
    """Rows of logits for row-wise work, for which there is a buffer: those that fit a CPU's cache, or fill a GPU."""
    piece_bytes = memory.CPU_PIECE_BYTES if _is_cpu(weight) else memory.GPU_PIECE_BYTES
    row_bytes = memory.FP32 * len(weight)
    return max(1, min(piece_bytes // row_bytes, plan.block))


def _is_cpu(tensor: Tensor) -> bool:
    return tensor.device.type == "cpu"


def _write_logits(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, temperature: Tensor, softcap: float | None, *, out: Tensor
) -> None:
    """Write float32 logits / temperature; ``weight`` has the type of the product's factors."""
    if softcap is None and weight.dtype == torch.float32:
        # (h W^T + b) / T = (h / T) W^T + (1 / T) b: no pass over the logits to divide them.
        torch.mm(hidden / temperature[:, None], weight.T, out=out)
        if bias is not None:
            out.addr_(temperature.reciprocal(), bias)
        return
    _write_product(hidden, weight, out=out)
    if bias is not None:
        out.add_(bias)
    if softcap is None:
        out.div_(temperature[:, None])
    else:
        out.div_(softcap).tanh_().mul_((softcap / temperature)[:, None])


def _write_product(hidden: Tensor, weight: Tensor, *, out: Tensor) -> None:
    """hidden weight^T with float32 sums; the factors are rounded to the type of ``weight``."""
    rounded = hidden.to(weight.dtype)
    if weight.dtype == torch.float32 or _is_cpu(weight):  # of bf16 factors float32 products are exact
        torch.mm(rounded.float(), weight.float().T, out=out)
    else:
        torch.mm(rounded, weight.T, out_dtype=torch.float32, out=out)
