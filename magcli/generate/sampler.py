"""Drawing tokens: from logits to the distribution that is really sampled, and one token a row from it.

Pure functions over rows, vectorised; a row's result depends on that row alone. Randomness comes in as one uniform
number a row, so a sequence's tokens are a function of its own logits and its own seed.
"""

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

BLOCK = 256
"""Tokens whose probabilities are added up first: sums of a whole vocabulary in float64 take longer than the softmax."""
BELOW_ONE = 1 - 2**-53


def uniforms(seed: int, count: int) -> Tensor:
    """The uniform numbers in [0, 1) that draw a sequence's tokens, by position: float64 ``[count]``.

    Counter-based (Philox), so a longer request with the same seed starts with the same numbers.
    """
    generator = np.random.Generator(np.random.Philox(key=seed))
    return torch.from_numpy(generator.random(count))


def log_distribution(logits: Tensor, temperature: Tensor) -> Tensor:
    """Log-probs after temperature, in float32: ``logits`` ``[rows, vocab]``, ``temperature`` ``[rows]``, above 0."""
    return torch.log_softmax(logits.float() / temperature[:, None], dim=-1)


def truncate(logprobs: Tensor, top_p: Tensor, top_k: Tensor) -> Tensor:
    """Keep the ``top_k`` most likely tokens (0: all) and of these the smallest set of mass ``top_p``; renormalise.

    ``logprobs`` ``[rows, vocab]``; ``top_p`` and ``top_k`` ``[rows]``. Dropped tokens get minus infinity; the most
    likely token always stays, and rows that want no truncation keep their bits.
    """
    if (top_k == 1).all():  # greedy: sorting the vocabulary would take longer than the model
        return torch.full_like(logprobs, -torch.inf).scatter_(1, logprobs.argmax(-1, keepdim=True), 0.0)
    ordered, order = logprobs.sort(dim=-1, descending=True, stable=True)
    rank = torch.arange(logprobs.shape[-1], device=logprobs.device)
    within_k = (top_k[:, None] == 0) | (rank < top_k[:, None])
    ordered = ordered.masked_fill(~within_k, -torch.inf).log_softmax(dim=-1)
    mass_before = ordered.exp().cumsum(dim=-1).roll(1, dims=-1)
    mass_before[:, 0] = -1.0
    ordered = ordered.masked_fill(mass_before >= top_p[:, None], -torch.inf).log_softmax(dim=-1)
    truncated = torch.empty_like(logprobs).scatter_(1, order, ordered)
    return torch.where(((top_p < 1) | (top_k > 0))[:, None], truncated, logprobs)


def draw(logprobs: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """One token a row by inverting the cumulative distribution: first the block of tokens, then the token in it.

    ``logprobs`` ``[rows, vocab]``, ``uniform`` float64 ``[rows]`` in [0, 1). Returns the tokens (int64) and their
    log-probs (float32), both ``[rows]``. A token of probability 0 is never drawn.
    """
    probs, missing = logprobs.exp(), -logprobs.shape[1] % BLOCK
    probs = (pad(probs, (0, missing)) if missing else probs).view(len(probs), -1, BLOCK)
    block, rest = _inverted(probs.sum(-1), uniform)
    within, _ = _inverted(probs[torch.arange(len(probs), device=probs.device), block], rest)
    tokens = block * BLOCK + within
    return tokens, logprobs.gather(1, tokens[:, None])[:, 0]


def _inverted(masses: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """For each row the first index whose cumulative mass exceeds a share of the total, and the share of its own mass.

    ``masses`` ``[rows, n]``, not normalised. Indices without mass are never found.
    """
    own = masses.double()
    cumulative = own.cumsum(dim=-1)
    target = uniform[:, None] * cumulative[:, -1:]
    found = torch.searchsorted(cumulative, target, right=True).clamp_(max=own.shape[1] - 1)
    mass = own.gather(1, found)
    share = (target - cumulative.gather(1, found) + mass) / mass
    return found[:, 0], share[:, 0].clamp(0.0, BELOW_ONE)
