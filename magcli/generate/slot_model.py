"""A model that runs over slots: one forward pass for running sequences and new prompts together.

Numerics: with bfloat16 weights the output head is kept in float32, since logits rounded to 8 bits would move every
log-prob. With ``deterministic`` a row's bits depend on that row alone: decode passes always have the same number of
rows, attention goes in blocks of fixed size, and each prompt is computed alone at a multiple of 16 tokens. Otherwise
linear layers on a CPU are packed.
"""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from magcli.errors import EnvironmentFault
from magcli.generate.attention import PackedBatch, SlotCache, use_slot_attention
from magcli.generate.decoder import Decoder
from magcli.generate.fit import name_in, parameter_names
from magcli.generate.packed import pack_linears
from magcli.generate.types import Weights

if TYPE_CHECKING:
    from transformers import PreTrainedModel

ROW_MULTIPLE = 16
"""Matrix products of very few rows run through other kernels, with other bits."""

SPAN_MULTIPLE = 16
BLOCK = 64
"""Positions that deterministic attention takes at once."""


@dataclass(slots=True)
class Prefix:
    """A computed prompt: keys and values ``[layers, kv_heads, length, head_dim]`` and its last logits ``[vocab]``."""

    keys: Tensor
    values: Tensor
    logits: Tensor


class SlotModel:
    """A model and its cache. It takes the model over: its config, attention, head and weights are changed in place."""

    def __init__(self, model: "PreTrainedModel | Decoder", slots: int, *, deterministic: bool) -> None:
        if not model._supports_attention_backend:
            raise EnvironmentFault(
                f"{type(model).__name__} does not use transformers' attention interface, which the embedded engine "
                "needs; serve this model with an OpenAI-compatible server and pass its URL"
            )
        self._names = parameter_names(model)
        self._model = _prepare(model)
        self._packed_layers = {} if deterministic else pack_linears(self._model)
        self._deterministic = deterministic
        self.cache = SlotCache(model.config, slots, dtype=model.dtype, device=model.device)

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.cache.keys.device

    def forward(
        self, tokens: Tensor, positions: Tensor, span: int, prompts: Sequence[tuple[int, ...]]
    ) -> tuple[Tensor | None, list[Prefix]]:
        """One step: the next logits of the first slots, and what new prompts come to.

        Args:
            tokens: newest token of each slot, ``[rows]``; may be empty.
            positions: their positions, ``[rows]``.
            span: positions that attention must reach, the longest sequence's length.
            prompts: token ids of new prompts.

        Returns:
            logits ``[rows, vocab]`` in float32 (None without rows) and one prefix a prompt.
        """
        if self._deterministic:
            return self._decode(tokens, positions, span), [self._alone(prompt) for prompt in prompts]
        if not prompts:
            return self._decode(tokens, positions, span), []
        return self._packed(tokens, positions, span, prompts)

    def _decode(self, tokens: Tensor, positions: Tensor, span: int) -> Tensor | None:
        return self._run(tokens, positions, self._batch(positions, span, [])) if len(tokens) else None

    def _packed(
        self, tokens: Tensor, positions: Tensor, span: int, prompts: Sequence[tuple[int, ...]]
    ) -> tuple[Tensor | None, list[Prefix]]:
        rows, lengths = len(tokens), [len(prompt) for prompt in prompts]
        batch = self._batch(positions, span, lengths)
        flat = torch.tensor([token for prompt in prompts for token in prompt], device=self.device)
        steps = torch.cat([torch.arange(length, device=self.device) for length in lengths])
        ends = rows - 1 + torch.tensor(lengths, device=self.device).cumsum(0)
        keep = torch.cat([torch.arange(rows, device=self.device), ends])
        logits = self._run(torch.cat([tokens, flat]), torch.cat([positions, steps]), batch, keep)
        keys = torch.split(torch.stack(batch.keys), lengths, dim=2)
        values = torch.split(torch.stack(batch.values), lengths, dim=2)
        parts = zip(keys, values, logits[rows:], strict=True)
        return logits[:rows] if rows else None, [Prefix(*part) for part in parts]

    def _alone(self, prompt: tuple[int, ...]) -> Prefix:
        """A prompt by itself, padded at the right (which causal attention never sees) to a multiple of 16 tokens."""
        length = len(prompt)
        padding = -length % ROW_MULTIPLE
        tokens = torch.tensor(prompt + prompt[-1:] * padding, device=self.device)
        steps = torch.arange(length + padding, device=self.device)
        batch = self._batch(steps[:0], 0, [length + padding])
        logits = self._run(tokens, steps, batch, steps[-ROW_MULTIPLE:])
        keys, values = torch.stack(batch.keys), torch.stack(batch.values)
        return Prefix(keys[:, :, :length], values[:, :, :length], logits[ROW_MULTIPLE - 1 - padding])

    def _run(self, tokens: Tensor, positions: Tensor, batch: PackedBatch, keep: Tensor | int = 0) -> Tensor:
        output = self._model(
            input_ids=tokens[None],
            position_ids=positions[None],
            use_cache=False,
            logits_to_keep=keep,
            slot_batch=batch,
        )
        logits: Tensor = output.logits[0].float()
        return logits

    def _batch(self, positions: Tensor, span: int, lengths: list[int]) -> PackedBatch:
        block = BLOCK if self._deterministic else None
        multiple = block or SPAN_MULTIPLE
        span = -(-span // multiple) * multiple
        self.cache.grow(span)
        columns = torch.arange(span, device=self.device)
        mask = torch.zeros(len(positions), span, device=self.device)
        mask.masked_fill_(columns > positions[:, None], -torch.inf)
        return PackedBatch(self.cache, positions, mask[:, None, None], block, lengths)

    @torch.no_grad()
    def load(self, weights: Weights) -> None:
        """Copy new weights in place, cast to the engine's types; of tied parameters any one name is enough.

        Raises:
            MagError: a parameter is missing or has another shape; nothing has been changed then.
        """
        own = dict(self._model.named_parameters())
        sources = {name: name_in(weights, self._names[name], parameter) for name, parameter in own.items()}
        for name, parameter in own.items():
            if not parameter.is_meta:
                parameter.copy_(weights[sources[name]])
        for name, layer in self._packed_layers.items():
            layer.take(weights[sources[f"{name}.weight"]])


def _prepare(model: "PreTrainedModel | Decoder") -> "PreTrainedModel | Decoder":
    model.eval().requires_grad_(False)
    if not isinstance(model, Decoder):
        use_slot_attention(model)
    if model.dtype != torch.float32:
        head = deepcopy(model.get_output_embeddings()).float()
        head.register_forward_pre_hook(lambda _, inputs: (inputs[0].float(),))
        model.set_output_embeddings(head)
    return model
