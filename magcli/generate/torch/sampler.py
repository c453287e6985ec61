"""Sampling tokens from logits, and the sampling state of each slot.

The functions are vectorised over rows, and a row's result depends on that row alone. Randomness comes in as one uniform
number per row, so a sequence's tokens are a function of its own logits and its own seed.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from magcli.generate.types import Sampling

BLOCK = 256
"""Tokens whose probabilities are summed first: float64 sums over a whole vocabulary take longer than the softmax."""
BELOW_ONE = 1 - 2**-53


def uniforms(seed: int, count: int) -> Tensor:
    """The uniform numbers in [0, 1) that select a sequence's tokens, by position: float64 ``[count]``.

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
    likely token is always kept, and rows without truncation are returned bit for bit.
    """
    if (top_k == 1).all():  # greedy: sorting the vocabulary takes longer than the model
        most_likely = logprobs.argmax(-1, keepdim=True)
        return torch.full_like(logprobs, -torch.inf).scatter_(1, most_likely, 0.0)

    ordered, order = logprobs.sort(dim=-1, descending=True, stable=True)
    rank = torch.arange(logprobs.shape[-1], device=logprobs.device)
    k = top_k[:, None]
    beyond_k = (k > 0) & (rank >= k)
    ordered = ordered.masked_fill(beyond_k, -torch.inf).log_softmax(dim=-1)

    # A token is kept if those before it have less mass than top_p; the first one always is.
    mass_before = ordered.exp().cumsum(dim=-1).roll(1, dims=-1)
    mass_before[:, 0] = -1.0
    ordered = ordered.masked_fill(mass_before >= top_p[:, None], -torch.inf).log_softmax(dim=-1)

    # Back into the order of the vocabulary.
    truncated = torch.empty_like(logprobs).scatter_(1, order, ordered)
    is_truncated = (top_p < 1) | (top_k > 0)
    return torch.where(is_truncated[:, None], truncated, logprobs)


def draw(logprobs: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """Sample one token per row by inverting the cumulative distribution: first a block of tokens, then a token in it.

    ``logprobs`` ``[rows, vocab]``, ``uniform`` float64 ``[rows]`` in [0, 1). Returns the tokens (int64) and their
    log-probs (float32), both ``[rows]``. A token of probability 0 is never sampled.
    """
    probs = logprobs.exp()
    # Padding has probability 0, and is never sampled.
    padding = -logprobs.shape[1] % BLOCK
    if padding:
        probs = pad(probs, (0, padding))
    blocks = probs.view(len(probs), -1, BLOCK)
    block, rest = _inverted(blocks.sum(-1), uniform)

    # What is left of the uniform number within a block is uniform again, and selects the token in it.
    rows = torch.arange(len(blocks), device=blocks.device)
    chosen_blocks = blocks[rows, block]
    within, _ = _inverted(chosen_blocks, rest)
    tokens = block * BLOCK + within
    return tokens, logprobs.gather(1, tokens[:, None])[:, 0]


def _inverted(masses: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """For each row the first index whose cumulative mass exceeds ``uniform`` times the total, and the position in it.

    ``masses`` ``[rows, n]``, not normalised; the position is a fraction of the mass of that index. Indices without mass
    are never returned.
    """
    exact = masses.double()
    cumulative = exact.cumsum(dim=-1)
    target = uniform[:, None] * cumulative[:, -1:]
    # ``right``: the first sum above the target, not at it, so never an index that adds nothing.
    index = torch.searchsorted(cumulative, target, right=True).clamp_(max=exact.shape[1] - 1)
    mass = exact.gather(1, index)
    # The index begins at cumulative - mass. Rounding may give a fraction below 0 or 1 itself.
    fraction = (target - cumulative.gather(1, index) + mass) / mass
    in_range = fraction.clamp(0.0, BELOW_ONE)
    return index[:, 0], in_range[:, 0]


class SlotState:
    """Tensors by slot: ``tokens``, ``logprobs`` and ``uniforms`` are ``[slots, longest]``, the others ``[slots]``.

    ``position`` is the newest token's position in the sequence, ``made`` the number of tokens generated.
    """

    def __init__(self, slots: int, device: torch.device) -> None:
        zeros = torch.zeros(slots, dtype=torch.long, device=device)
        ones = torch.ones(slots, device=device)
        self.made = zeros.clone()
        self.position = zeros.clone()
        self.newest = zeros.clone()
        self.limit = zeros + 1

        # The sampling parameters of those that do not truncate.
        self.temperature = ones.clone()
        self.top_p = ones.clone()
        self.top_k = zeros.clone()

        # No columns until a request says how long it may become.
        self.tokens = torch.zeros(slots, 0, dtype=torch.long, device=device)
        self.logprobs = torch.zeros(slots, 0, device=device)
        self.uniforms = torch.zeros(slots, 0, dtype=torch.float64, device=device)
        self._slots = torch.arange(slots, device=device)

    def start(
        self, slots: Sequence[int], sampling: Sampling, prompt_length: int, limit: int, seeds: Sequence[int]
    ) -> None:
        """Prepare slots for new samples of one prompt, one per seed; greedy decoding is a top-k of 1."""
        is_greedy = sampling.temperature == 0
        index = torch.tensor(slots, device=self.made.device)
        # Tensors grow only here, never during a step.
        self._reserve(limit)
        self.made[index] = 0
        self.position[index] = prompt_length - 1
        self.limit[index] = limit
        self.temperature[index] = 1.0 if is_greedy else sampling.temperature
        self.top_p[index] = sampling.top_p
        self.top_k[index] = 1 if is_greedy else sampling.top_k
        # All numbers of a sequence at once; a step only looks its own up.
        noise = torch.stack([uniforms(seed, limit) for seed in seeds])
        self.uniforms[index, :limit] = noise.to(self.uniforms.device)

    def _reserve(self, longest: int) -> None:
        more = longest - self.tokens.shape[1]
        if more > 0:
            self.tokens = pad(self.tokens, (0, more))
            self.logprobs = pad(self.logprobs, (0, more))
            self.uniforms = pad(self.uniforms, (0, more))

    def sample(self, logits: Tensor, *, truncated: bool) -> Tensor:
        """Sample the next token of the first ``rows`` slots from ``logits`` ``[rows, vocab]``, record and return it."""
        rows = len(logits)
        slots = self._slots[:rows]
        column = self.made[:rows]
        logprobs = log_distribution(logits, self.temperature[:rows])
        if truncated:
            logprobs = truncate(logprobs, self.top_p[:rows], self.top_k[:rows])
        # Column ``made`` has the number that belongs to the next token.
        tokens, token_logprobs = draw(logprobs, self.uniforms[slots, column])
        self.tokens[slots, column] = tokens
        self.logprobs[slots, column] = token_logprobs
        self.newest[:rows] = tokens
        self.position[:rows] += 1
        self.made[:rows] += 1
        return tokens

    def move(self, source: int, target: int) -> None:
        """Copy the state of a slot to another one."""
        for name, tensor in vars(self).items():
            if name != "_slots":
                tensor[target] = tensor[source]
