"""What the embedded engine keeps of each slot on the device: how to sample, how far it is, what it has written."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from magcli.generate.sampler import draw, log_distribution, truncate, uniforms
from magcli.generate.types import Sampling


class SlotState:
    """Tensors by slot: ``tokens``, ``logprobs`` and ``uniforms`` are ``[slots, room]``, the others ``[slots]``.

    ``position`` is the newest token's place in the sequence, ``made`` the number of tokens written.
    """

    def __init__(self, slots: int, device: torch.device) -> None:
        self.made = torch.zeros(slots, dtype=torch.long, device=device)
        self.position = torch.zeros(slots, dtype=torch.long, device=device)
        self.newest = torch.zeros(slots, dtype=torch.long, device=device)
        self.limit = torch.ones(slots, dtype=torch.long, device=device)
        self.temperature = torch.ones(slots, device=device)
        self.top_p = torch.ones(slots, device=device)
        self.top_k = torch.zeros(slots, dtype=torch.long, device=device)
        self.tokens = torch.zeros(slots, 0, dtype=torch.long, device=device)
        self.logprobs = torch.zeros(slots, 0, device=device)
        self.uniforms = torch.zeros(slots, 0, dtype=torch.float64, device=device)
        self._slots = torch.arange(slots, device=device)

    def start(
        self, slots: Sequence[int], sampling: Sampling, prompt_length: int, limit: int, seeds: Sequence[int]
    ) -> None:
        """Prepare slots for new samples of one prompt, one a seed; greedy decoding is a top-k of 1."""
        index = torch.tensor(slots, device=self.made.device)
        self._reserve(limit)
        self.made[index] = 0
        self.position[index] = prompt_length - 1
        self.limit[index] = limit
        self.temperature[index] = sampling.temperature or 1.0
        self.top_p[index] = sampling.top_p
        self.top_k[index] = sampling.top_k if sampling.temperature else 1
        noise = torch.stack([uniforms(seed, limit) for seed in seeds])
        self.uniforms[index, :limit] = noise.to(self.uniforms.device)

    def _reserve(self, room: int) -> None:
        more = room - self.tokens.shape[1]
        if more > 0:
            self.tokens, self.logprobs = pad(self.tokens, (0, more)), pad(self.logprobs, (0, more))
            self.uniforms = pad(self.uniforms, (0, more))

    def sample(self, logits: Tensor, *, truncated: bool) -> Tensor:
        """Draw the next token of the first ``rows`` slots from ``logits`` ``[rows, vocab]``, record and return it."""
        rows = len(logits)
        slots, column = self._slots[:rows], self.made[:rows]
        logprobs = log_distribution(logits, self.temperature[:rows])
        if truncated:
            logprobs = truncate(logprobs, self.top_p[:rows], self.top_k[:rows])
        tokens, chosen = draw(logprobs, self.uniforms[slots, column])
        self.tokens[slots, column] = tokens
        self.logprobs[slots, column] = chosen
        self.newest[:rows] = tokens
        self.position[:rows] += 1
        self.made[:rows] += 1
        return tokens

    def move(self, source: int, target: int) -> None:
        """Copy all that belongs to a slot to another one."""
        for name, tensor in vars(self).items():
            if name != "_slots":
                tensor[target] = tensor[source]
