"""A model over slots: one forward pass for running sequences and new prompts together.

Numerics: with bfloat16 weights the output head is kept in float32, since logits rounded to 8 bits would change every
log-prob. With ``deterministic`` a row's bits depend on that row alone: decode passes always have the same number of
rows, attention runs in blocks of fixed size, and each prompt is computed alone, padded to a multiple of 16 tokens.
Otherwise linear layers on a CPU are packed: their weights are kept in oneDNN's blocked layout. A plain layer converts
its weights to that layout in every product, which with the few rows of a decode pass takes as long as the product
itself: a step of SmolLM2-135M over 16 sequences takes 20 ms instead of 31 in its layers, 7 instead of 22 in its head.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from magcli.errors import EnvironmentFault
from magcli.generate.torch.adapted import adapted_linears, load_adapters
from magcli.generate.torch.attention import CacheShape, SlotBatch, SlotCache, use_slot_attention
from magcli.generate.torch.decoder import Decoder
from magcli.generate.torch.ended import Past
from magcli.generate.types import Digests, Weights
from magcli.generate.weights.digest import PendingDigests
from magcli.generate.weights.matching import name_in, parameter_names

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


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt to compute. ``past`` has the keys and values of its first tokens, if they are computed already."""

    tokens: tuple[int, ...]
    past: Past | None = None

    @property
    def num_past(self) -> int:
        """Number of tokens that need not be computed, fewer than all."""
        if self.past is None:
            return 0
        keys, _ = self.past
        return keys.shape[2]


class SlotModel:
    """A model and its cache. It owns the model: config, attention, head and weights are changed in place."""

    def __init__(self, model: "PreTrainedModel | Decoder", slots: int, *, deterministic: bool) -> None:
        self._names = parameter_names(model)
        self._model, self._deterministic = model, deterministic
        self._packed_layers: dict[str, PackedLinear] = {}
        self._adapted = adapted_linears(model)
        with _way_out():
            shape = _prepare(model)
            if not isinstance(model, Decoder):
                self._check_and_pack(shape, model)
            elif not deterministic:
                self._packed_layers = pack_linears(model)
        self.cache = SlotCache(shape, slots, dtype=model.dtype, device=model.device)

    @property
    def device(self) -> torch.device:
        """The model's device."""
        return self.cache.keys.device

    def forward(
        self, tokens: Tensor, positions: Tensor, span: int, prompts: Sequence[Prompt]
    ) -> tuple[Tensor | None, list[Prefix]]:
        """One step: the next logits of the first slots, and the prefixes of new prompts.

        Args:
            tokens: newest token of each slot, ``[rows]``; may be empty.
            positions: their positions, ``[rows]``.
            span: number of positions that attention covers, the longest sequence's length.
            prompts: new prompts; with ``deterministic`` none has a past.

        Returns:
            logits ``[rows, vocab]`` in float32 (None without rows) and one prefix per prompt.
        """
        if prompts and not self._deterministic:
            return self._mixed(tokens, positions, span, prompts)
        # Deterministic: a pass for the slots and one for each prompt, so that none depends on the others.
        logits = self._decode(tokens, positions, span)
        return logits, [self._prefill(prompt.tokens) for prompt in prompts]

    def score(self, context: Sequence[int], tokens: Sequence[int]) -> Tensor:
        """The log-probs ``[tokens]`` of tokens after a context, in float32; no slot changes."""
        sequence = torch.tensor([*context, *tokens], device=self.device)
        inputs = sequence[:-1]
        targets = sequence[len(context) :]
        positions = torch.arange(len(inputs), device=self.device)
        no_slots = positions[:0]
        batch = self._batch(no_slots, span=0, lengths=[len(inputs)])

        # A token is predicted at the position before it.
        before_targets = positions[len(context) - 1 :]
        logits = self._run(inputs, positions, batch, before_targets)  # [tokens, vocab]
        logprobs = logits.log_softmax(-1)
        return logprobs.gather(1, targets[:, None])[:, 0]

    def _decode(self, tokens: Tensor, positions: Tensor, span: int) -> Tensor | None:
        if not len(tokens):
            return None
        batch = self._batch(positions, span, lengths=[])
        return self._run(tokens, positions, batch)

    def _mixed(
        self, tokens: Tensor, positions: Tensor, span: int, prompts: Sequence[Prompt]
    ) -> tuple[Tensor | None, list[Prefix]]:
        """One token of each slot and the prompts behind them, in one row: logits of the slots, and the prompts' ends.

        Of a prompt only the last position has logits.
        """
        num_slots = len(tokens)
        lengths = [len(prompt.tokens) - prompt.num_past for prompt in prompts]
        batch = self._batch(positions, span, lengths)
        if any(prompt.num_past for prompt in prompts):
            batch.pasts = [prompt.past for prompt in prompts]

        new_tokens: list[int] = []
        new_positions = []
        for prompt in prompts:
            first_new = prompt.num_past
            new_tokens += prompt.tokens[first_new:]
            new_positions.append(torch.arange(first_new, len(prompt.tokens), device=self.device))
        slot_rows = torch.arange(num_slots, device=self.device)
        # The last token of each prompt, counted over the whole row.
        last_rows = num_slots - 1 + torch.tensor(lengths, device=self.device).cumsum(0)
        logits = self._run(
            torch.cat([tokens, torch.tensor(new_tokens, device=self.device)]),
            torch.cat([positions, *new_positions]),
            batch,
            torch.cat([slot_rows, last_rows]),
        )

        # [layers, kv_heads, sum(lengths), head_dim], split into those of one prompt
        keys = torch.split(torch.stack(batch.keys), lengths, dim=2)
        values = torch.split(torch.stack(batch.values), lengths, dim=2)
        prefixes = []
        for prompt, new_keys, new_values, last in zip(prompts, keys, values, logits[num_slots:], strict=True):
            all_keys, all_values = _after(prompt.past, new_keys, new_values)
            prefixes.append(Prefix(all_keys, all_values, last))
        return logits[:num_slots] if num_slots else None, prefixes

    def _prefill(self, prompt: tuple[int, ...]) -> Prefix:
        """A prompt alone, right-padded (which causal attention never sees) to a multiple of 16 tokens."""
        length = len(prompt)
        padding = -length % ROW_MULTIPLE
        padded = prompt + prompt[-1:] * padding
        tokens = torch.tensor(padded, device=self.device)
        positions = torch.arange(len(padded), device=self.device)
        no_slots = positions[:0]
        batch = self._batch(no_slots, span=0, lengths=[len(padded)])

        # The head too gets 16 rows; that of the prompt's last token is followed by the padding.
        logits = self._run(tokens, positions, batch, positions[-ROW_MULTIPLE:])
        last = logits[ROW_MULTIPLE - 1 - padding]
        keys = torch.stack(batch.keys)[:, :, :length]
        values = torch.stack(batch.values)[:, :, :length]
        return Prefix(keys, values, last)

    def _run(self, tokens: Tensor, positions: Tensor, batch: SlotBatch, keep: Tensor | int = 0) -> Tensor:
        output = self._model(
            input_ids=tokens[None], position_ids=positions[None], use_cache=False, logits_to_keep=keep, slot_batch=batch
        )
        logits: Tensor = output.logits[0].float()
        return logits

    def _batch(self, positions: Tensor, span: int, lengths: list[int]) -> SlotBatch:
        """The layout of a pass, with room in the cache; ``span`` is rounded up, ``lengths`` are those of prompts."""
        block = BLOCK if self._deterministic else None
        multiple = block or SPAN_MULTIPLE
        num_multiples = -(-span // multiple)  # rounded up
        span = num_multiples * multiple
        self.cache.grow(span)

        # A slot sees the positions up to its newest token.
        columns = torch.arange(span, device=self.device)
        mask = torch.zeros(len(positions), span, device=self.device)
        mask.masked_fill_(columns > positions[:, None], -torch.inf)
        return SlotBatch(self.cache, positions, mask[:, None, None], block, lengths)

    def _check_and_pack(self, shape: CacheShape, model: "PreTrainedModel") -> None:
        """Raise EnvironmentFault unless slots give the logits of the model's own code, with packed layers too.

        Rounding to 16 bits hides small differences: then a copy of the model in float32 decides. Only layers that are
        called are packed: others are read by the model's code, which would find no weights.
        """
        from magcli.model.probe import agree, different, explained, own_logits, probe_tokens, spread_of

        engine_name = "the embedded engine"
        with explained(model), _called_linears(model) as called:
            theirs = own_logits(model)
            tokens = probe_tokens(model)
            plain = self._probe(shape, model, tokens)
        # The probe's last token is decoded, and its other tokens are the prompt that predicts it.
        expected, spread = theirs[:, -2:], spread_of(theirs)
        if not agree(plain, expected, spread, model.dtype):
            if model.dtype == torch.float32:
                raise different(model, plain, expected, spread, engine_name)
            # Raises an error if they differ there, too.
            SlotModel(deepcopy(model).float(), 1, deterministic=self._deterministic)
        if self._deterministic:
            return
        self._packed_layers = pack_linears(model, called)
        with explained(model):
            packed = self._probe(shape, model, tokens)
        if not agree(packed, plain, spread, model.dtype):
            raise different(model, packed, plain, spread, engine_name)

    @torch.no_grad()
    def _probe(self, shape: CacheShape, model: "PreTrainedModel", tokens: Tensor) -> Tensor:
        """Logits ``[prompts, 2, vocab]`` of the probe's last two tokens: those of prompts, then of a decode step."""
        count, length = tokens.shape
        self.cache = SlotCache(shape, count, dtype=model.dtype, device=model.device)

        # All tokens but the last, as prompts.
        prompts = [Prompt(tuple(prompt)) for prompt in tokens[:, :-1].tolist()]
        no_slots = torch.zeros(0, dtype=torch.long, device=model.device)
        _, prefixes = self._mixed(no_slots, no_slots, 0, prompts)
        for slot, prefix in enumerate(prefixes):
            self.cache.write([slot], prefix.keys, prefix.values)
        prefilled = torch.stack([prefix.logits for prefix in prefixes])

        # The last token of all, in one decode step.
        last = tokens[:, -1]
        positions = torch.full_like(last, length - 1)
        decoded = self._decode(last, positions, length)
        assert decoded is not None
        return torch.stack((prefilled, decoded), dim=1)

    @torch.no_grad()
    def load(self, weights: Weights) -> Digests:
        """Copy new weights in place, cast to the engine's types; of tied parameters any one name is enough.

        For a model with adapters these are the new weights.

        Returns the digest of each tensor as it was read.

        Raises:
            WeightsFault: a parameter is missing or has another shape; nothing has been changed.
        """
        if self._adapted:
            return load_adapters(self._adapted, weights)
        parameters = dict(self._model.named_parameters())
        # All names are resolved, and all shapes checked, before the first parameter changes.
        sources = {name: name_in(weights, self._names[name], parameter) for name, parameter in parameters.items()}
        arrived = PendingDigests()
        for name, parameter in parameters.items():
            source = sources[name]
            tensor = weights[source]
            arrived.add(source, tensor)
            if parameter.is_meta:  # of a packed layer, which has its weights in another layout
                self._packed_layers[name.removesuffix(".weight")].pack(tensor)
            else:
                parameter.copy_(tensor)
        return arrived.fetch()


def _after(past: Past | None, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Keys and values of a whole prompt, ``[layers, kv_heads, length, head_dim]``."""
    if past is None:
        return keys, values
    past_keys, past_values = past
    return torch.cat((past_keys, keys), dim=2), torch.cat((past_values, values), dim=2)


def _prepare(model: "PreTrainedModel | Decoder") -> CacheShape:
    model.eval().requires_grad_(False)
    shape = model.cache_shape if isinstance(model, Decoder) else use_slot_attention(model)
    if model.dtype != torch.float32:
        # A copy, since the embeddings may have the same weights.
        head = deepcopy(model.get_output_embeddings()).float()
        head.register_forward_pre_hook(lambda _, inputs: (inputs[0].float(),))
        model.set_output_embeddings(head)
    return shape


@contextmanager
def _way_out() -> Iterator[None]:
    """Add to a refusal what to do instead."""
    try:
        yield
    except EnvironmentFault as error:
        raise EnvironmentFault(f"{error}; use --engine vllm, or (not in rl) the URL of a server") from error


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


@contextmanager
def _called_linears(model: nn.Module) -> Iterator[set[str]]:
    """The names of the linear layers that are called in the block."""
    called: set[str] = set()
    linears = [(name, module) for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    # ``name=name`` binds the name of this round of the loop.
    hooks = [linear.register_forward_hook(lambda *_, name=name: called.add(name)) for name, linear in linears]
    try:
        yield called
    finally:
        for hook in hooks:
            hook.remove()


def pack_linears(model: "PreTrainedModel | Decoder", names: Collection[str] | None = None) -> dict[str, PackedLinear]:
    """Replace a model's linear layers by packed ones in place, where oneDNN has a layout; returns them by name.

    ``names`` are the layers to replace, by default all. Such a model can be neither copied nor saved.
    """
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return {}
    chosen = []
    for name, module in model.named_modules():
        if _can_pack(module) and (names is None or name in names):
            chosen.append(name)
    packed = {}
    for name in chosen:  # no list of the layers, which would keep their weights until all are packed
        linear = model.get_submodule(name)
        assert isinstance(linear, nn.Linear)
        packed[name] = PackedLinear(linear)
        model.set_submodule(name, packed[name])
    return packed


def _can_pack(module: nn.Module) -> bool:
    # A subclass may compute something else.
    if type(module) is not nn.Linear or module.weight.device.type != "cpu":
        return False
    if module.weight.dtype == torch.bfloat16:
        takes_bf16: bool = torch.ops.mkldnn._is_mkldnn_bf16_supported()
        return takes_bf16
    return module.weight.dtype == torch.float32
