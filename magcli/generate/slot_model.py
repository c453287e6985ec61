"""A model over slots: one forward pass for running sequences and new prompts together.

Numerics: with bfloat16 weights the output head is kept in float32, since logits rounded to 8 bits would change every
log-prob. With ``deterministic`` a row's bits depend on that row alone: decode passes always have the same number of
rows, attention runs in blocks of fixed size, and each prompt is computed alone, padded to a multiple of 16 tokens.
Otherwise linear layers on a CPU are packed: their weights are kept in oneDNN's blocked layout. A plain layer converts
its weights to that layout in every product, which with the few rows of a decode pass takes as long as the product
itself: a step of SmolLM2-135M over 16 sequences takes 20 ms instead of 31 in its layers, 7 instead of 22 in its head.
"""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from magcli.errors import EnvironmentFault
from magcli.generate.attention import SlotBatch, SlotCache, use_slot_attention
from magcli.generate.decoder import Decoder
from magcli.generate.digest import digest
from magcli.generate.types import Digests, Weights
from magcli.generate.weights import name_in, parameter_names

if TYPE_CHECKING:
    from transformers import PreTrainedModel

ROW_MULTIPLE = 16
"""Matrix products of very few rows use other kernels, with other rounding."""

SPAN_MULTIPLE = 16
BLOCK = 64
"""Positions per block of deterministic attention."""

PACKED_ROWS = 32
"""The number of rows that the packed layout is optimised for; it works for any other."""


@dataclass(slots=True)
class Prefix:
    """A computed prompt: keys and values ``[layers, kv_heads, length, head_dim]`` and its last logits ``[vocab]``."""

    keys: Tensor
    values: Tensor
    logits: Tensor


class SlotModel:
    """A model and its cache. It owns the model: config, attention, head and weights are changed in place."""

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
        """The model's device."""
        return self.cache.keys.device

    def forward(
        self, tokens: Tensor, positions: Tensor, span: int, prompts: Sequence[tuple[int, ...]]
    ) -> tuple[Tensor | None, list[Prefix]]:
        """One step: the next logits of the first slots, and the prefixes of new prompts.

        Args:
            tokens: newest token of each slot, ``[rows]``; may be empty.
            positions: their positions, ``[rows]``.
            span: number of positions that attention covers, the longest sequence's length.
            prompts: token ids of new prompts.

        Returns:
            logits ``[rows, vocab]`` in float32 (None without rows) and one prefix per prompt.
        """
        if self._deterministic:
            return self._decode(tokens, positions, span), [self._prefill(prompt) for prompt in prompts]
        if not prompts:
            return self._decode(tokens, positions, span), []
        return self._mixed(tokens, positions, span, prompts)

    def score(self, context: Sequence[int], tokens: Sequence[int]) -> Tensor:
        """The log-probs ``[tokens]`` of tokens after a context, in float32; no slot changes."""
        sequence = torch.tensor([*context, *tokens], device=self.device)
        steps = torch.arange(len(sequence) - 1, device=self.device)
        batch = self._batch(steps[:0], 0, [len(steps)])
        logits = self._run(sequence[:-1], steps, batch, steps[len(context) - 1 :])
        return logits.log_softmax(-1).gather(1, sequence[len(context) :, None])[:, 0]

    def _decode(self, tokens: Tensor, positions: Tensor, span: int) -> Tensor | None:
        return self._run(tokens, positions, self._batch(positions, span, [])) if len(tokens) else None

    def _mixed(
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

    def _prefill(self, prompt: tuple[int, ...]) -> Prefix:
        """A prompt alone, right-padded (which causal attention never sees) to a multiple of 16 tokens."""
        length = len(prompt)
        padding = -length % ROW_MULTIPLE
        tokens = torch.tensor(prompt + prompt[-1:] * padding, device=self.device)
        steps = torch.arange(length + padding, device=self.device)
        batch = self._batch(steps[:0], 0, [length + padding])
        logits = self._run(tokens, steps, batch, steps[-ROW_MULTIPLE:])
        keys, values = torch.stack(batch.keys), torch.stack(batch.values)
        return Prefix(keys[:, :, :length], values[:, :, :length], logits[ROW_MULTIPLE - 1 - padding])

    def _run(self, tokens: Tensor, positions: Tensor, batch: SlotBatch, keep: Tensor | int = 0) -> Tensor:
        output = self._model(
            input_ids=tokens[None], position_ids=positions[None], use_cache=False, logits_to_keep=keep, slot_batch=batch
        )
        logits: Tensor = output.logits[0].float()
        return logits

    def _batch(self, positions: Tensor, span: int, lengths: list[int]) -> SlotBatch:
        block = BLOCK if self._deterministic else None
        multiple = block or SPAN_MULTIPLE
        span = -(-span // multiple) * multiple
        self.cache.grow(span)
        columns = torch.arange(span, device=self.device)
        mask = torch.zeros(len(positions), span, device=self.device)
        mask.masked_fill_(columns > positions[:, None], -torch.inf)
        return SlotBatch(self.cache, positions, mask[:, None, None], block, lengths)

    @torch.no_grad()
    def load(self, weights: Weights) -> Digests:
        """Copy new weights in place, cast to the engine's types; of tied parameters any one name is enough.

        Returns the digest of each tensor as it was read.

        Raises:
            WeightsFault: a parameter is missing or has another shape; nothing has been changed.
        """
        parameters = dict(self._model.named_parameters())
        sources = {name: name_in(weights, self._names[name], parameter) for name, parameter in parameters.items()}
        arrived: dict[str, int] = {}
        for name, parameter in parameters.items():
            tensor = weights[sources[name]]
            arrived[sources[name]] = digest(tensor)
            if parameter.is_meta:
                self._packed_layers[name.removesuffix(".weight")].pack(tensor)
            else:
                parameter.copy_(tensor)
        return arrived


def _prepare(model: "PreTrainedModel | Decoder") -> "PreTrainedModel | Decoder":
    model.eval().requires_grad_(False)
    if not isinstance(model, Decoder):
        use_slot_attention(model)
    if model.dtype != torch.float32:
        head = deepcopy(model.get_output_embeddings()).float()
        head.register_forward_pre_hook(lambda _, inputs: (inputs[0].float(),))
        model.set_output_embeddings(head)
    return model


class PackedLinear(nn.Module):
    """A linear layer that holds its weights only in the blocked layout; ``weight`` has their shape and type."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty_like(linear.weight, device="meta"), requires_grad=False)
        self.bias = linear.bias
        self.pack(linear.weight)

    @torch.no_grad()
    def pack(self, weight: Tensor) -> None:
        """Set new weights ``[outputs, inputs]`` of any type and from any device."""
        plain = weight.to("cpu", self.weight.dtype).contiguous()
        self._packed = torch.ops.mkldnn._reorder_linear_weight(plain, PACKED_ROWS)

    def forward(self, inputs: Tensor) -> Tensor:
        """The product with the weights ``[..., inputs]`` to ``[..., outputs]``, in their type."""
        rows = inputs.to(self.weight.dtype)
        output: Tensor = torch.ops.mkldnn._linear_pointwise(rows, self._packed, self.bias, "none", [], "")
        return output


def pack_linears(model: "PreTrainedModel | Decoder") -> dict[str, PackedLinear]:
    """Replace a model's linear layers by packed ones in place, where oneDNN has a layout; returns them by name.

    Such a model can be neither copied nor saved.
    """
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return {}
    packed = {}
    for name in [name for name, module in model.named_modules() if _can_pack(module)]:
        linear = model.get_submodule(name)
        assert isinstance(linear, nn.Linear)
        packed[name] = PackedLinear(linear)
        model.set_submodule(name, packed[name])
    return packed


def _can_pack(module: nn.Module) -> bool:
    if type(module) is not nn.Linear or module.weight.device.type != "cpu":
        return False
    takes_bf16: bool = torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return module.weight.dtype == torch.float32 or (module.weight.dtype == torch.bfloat16 and takes_bf16)
