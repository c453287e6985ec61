"""Llama, Mistral, Qwen2 and Qwen3 decoders for the embedded engine.

The same operations in the same order as in transformers' models, hence the same bits, with the same parameter names.
Importing transformers' models takes longer than everything else before the first token.
"""

from types import SimpleNamespace

import torch
from torch import Tensor, nn
from torch.nn.functional import silu

from magcli.generate.torch.attention import CacheShape, SlotBatch, slot_attention
from magcli.model.load import prepare_device
from magcli.model.model import Model
from magcli.model.weights.plain import DecoderConfig, decoder_config, read_weights

TYPES = (torch.bfloat16, torch.float16, torch.float32)

Rotation = tuple[Tensor, Tensor]
"""Cosines and sines by token, ``[1, 1, tokens, head_dim]``."""


def open_decoder(source: Model, *, dtype: torch.dtype, device: str) -> "Decoder | None":
    """Load the decoder of a plain model in evaluation mode; None for any other model.

    Also None if its weights are missing, damaged or do not match the configuration, or if they do not fit the device:
    loading with transformers then raises the error.
    """
    config = source.plain or decoder_config(source.folder)  # of a hub id, whose weights are needed now anyway
    weights = read_weights(source.folder) if config else None
    if config is None or weights is None or any(tensor.dtype not in TYPES for tensor in weights.values()):
        return None
    prepare_device(device)
    # No memory, and no random numbers, for weights that are replaced.
    with torch.device("meta"):
        model = Decoder(config)
    shapes = {name: tensor.shape for name, tensor in model.state_dict().items()}
    if config.tie_word_embeddings:
        del shapes["lm_head.weight"]
    # Transformers says what is missing, superfluous or of another shape.
    if shapes != {name: tensor.shape for name, tensor in weights.items()}:
        return None
    try:
        moved = {name: tensor.to(device, dtype) for name, tensor in weights.items()}
    except (RuntimeError, AssertionError):  # no such device, out of memory, or (AssertionError) no CUDA in this build
        return None
    # Not strict, since a tied head is not among the weights.
    model.load_state_dict(moved, strict=False, assign=True)
    if config.tie_word_embeddings:
        model.lm_head.weight = model.model.embed_tokens.weight
    # The rotary frequencies are still on the CPU.
    return model.to(device).eval()


class Decoder(nn.Module):
    """A causal language model."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.config = config
        self.model = Layers(config)
        self.lm_head: nn.Module = nn.Linear(config.hidden_size, config.vocab_size, bias=False)

    @property
    def cache_shape(self) -> CacheShape:
        """What its attention stores for each token."""
        config = self.config
        return CacheShape(config.num_hidden_layers, config.num_key_value_heads, config.head_dim, config.head_dim)

    @property
    def dtype(self) -> torch.dtype:
        """The weights' type."""
        return self.model.embed_tokens.weight.dtype

    @property
    def device(self) -> torch.device:
        """The weights' device."""
        return self.model.embed_tokens.weight.device

    def get_output_embeddings(self) -> nn.Module:
        """The output head."""
        return self.lm_head

    def set_output_embeddings(self, head: nn.Module) -> None:
        """Replace the output head."""
        self.lm_head = head

    def forward(
        self,
        *,
        input_ids: Tensor,
        position_ids: Tensor,
        slot_batch: SlotBatch,
        logits_to_keep: Tensor | int = 0,
        use_cache: bool = False,
    ) -> SimpleNamespace:
        """``logits`` ``[1, tokens, vocab]`` of ``input_ids`` ``[1, tokens]``, or only of ``logits_to_keep``."""
        hidden = self.model(input_ids, position_ids, slot_batch)
        # As in transformers: a number counts from the end (0: all), a tensor has indices.
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        return SimpleNamespace(logits=self.lm_head(hidden[:, kept, :]))


class Layers(nn.Module):
    """Embedding, layers and final norm. The rotary ``frequencies`` stay in float32."""

    frequencies: Tensor

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        size = config.vocab_size, config.hidden_size
        # Without a weight it would be initialised at random, which takes long.
        self.embed_tokens = nn.Embedding(*size, _weight=torch.empty(size))
        self.layers = nn.ModuleList([Layer(config, index) for index in range(config.num_hidden_layers)])
        self.norm = Norm(config.hidden_size, config.rms_norm_eps)
        # Pair i of a head rotates by theta^(-2i / head_dim) at each position. On the CPU, also if the rest is on meta.
        even = torch.arange(0, config.head_dim, 2, dtype=torch.float, device="cpu")
        exponents = even / config.head_dim
        frequencies = 1.0 / (config.rope_theta**exponents)
        self.register_buffer("frequencies", frequencies, persistent=False)

    def forward(self, tokens: Tensor, positions: Tensor, batch: SlotBatch) -> Tensor:
        """Hidden states ``[1, tokens, hidden]``."""
        hidden: Tensor = self.embed_tokens(tokens)
        rotation = self._rotation(positions, hidden.dtype)
        for layer in self.layers:
            hidden = layer(hidden, rotation, batch)
        normed: Tensor = self.norm(hidden)
        return normed

    def _rotation(self, positions: Tensor, dtype: torch.dtype) -> Rotation:
        angles = positions[..., None].float() * self.frequencies
        # A pair is one value of each half of a head, not two neighbours.
        both = torch.cat((angles, angles), dim=-1)
        return both.cos().to(dtype)[:, None], both.sin().to(dtype)[:, None]


class Layer(nn.Module):
    """Attention and feed-forward network, each with a pre-norm and a residual connection."""

    def __init__(self, config: DecoderConfig, index: int) -> None:
        super().__init__()
        self.self_attn = Attention(config, index)
        self.mlp = FeedForward(config)
        self.input_layernorm = Norm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = Norm(config.hidden_size, config.rms_norm_eps)

    def forward(self, hidden: Tensor, rotation: Rotation, batch: SlotBatch) -> Tensor:
        """Hidden states ``[1, tokens, hidden]`` in and out."""
        hidden = hidden + self.self_attn(self.input_layernorm(hidden), rotation, batch)
        output: Tensor = self.mlp(self.post_attention_layernorm(hidden))
        return hidden + output


class Attention(nn.Module):
    """Grouped-query attention with rotary embeddings; Qwen3 normalises queries and keys of each head."""

    def __init__(self, config: DecoderConfig, index: int) -> None:
        super().__init__()
        hidden, width = config.hidden_size, config.head_dim
        queries = config.num_attention_heads * width
        keys = config.num_key_value_heads * width
        self.layer_idx = index
        self._width = width
        self.q_proj = nn.Linear(hidden, queries, bias=config.qkv_bias)
        self.k_proj = nn.Linear(hidden, keys, bias=config.qkv_bias)
        self.v_proj = nn.Linear(hidden, keys, bias=config.qkv_bias)
        self.o_proj = nn.Linear(queries, hidden, bias=config.output_bias)
        # Only Qwen3 has these norms.
        self.q_norm: nn.Module = nn.Identity()
        self.k_norm: nn.Module = nn.Identity()
        if config.qk_norm:
            self.q_norm = Norm(width, config.rms_norm_eps)
            self.k_norm = Norm(width, config.rms_norm_eps)

    def forward(self, hidden: Tensor, rotation: Rotation, batch: SlotBatch) -> Tensor:
        """``[1, tokens, hidden]`` in and out."""
        # ``[1, tokens, heads, head_dim]``, with fewer heads for keys and values.
        shape = (*hidden.shape[:-1], -1, self._width)
        query = self.q_norm(self.q_proj(hidden).view(shape)).transpose(1, 2)
        key = self.k_norm(self.k_proj(hidden).view(shape)).transpose(1, 2)
        value = self.v_proj(hidden).view(shape).transpose(1, 2)
        mixed, _ = slot_attention(
            self,
            _rotated(query, rotation),
            _rotated(key, rotation),
            value,
            None,
            scaling=self._width**-0.5,
            slot_batch=batch,
        )
        output: Tensor = self.o_proj(mixed.reshape(*hidden.shape[:-1], -1).contiguous())
        return output


class FeedForward(nn.Module):
    """The gated feed-forward network."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=config.mlp_bias)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=config.mlp_bias)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=config.mlp_bias)

    def forward(self, hidden: Tensor) -> Tensor:
        """``[1, tokens, hidden]`` in and out."""
        output: Tensor = self.down_proj(silu(self.gate_proj(hidden)) * self.up_proj(hidden))
        return output


class Norm(nn.Module):
    """RMS norm, computed in float32."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size))
        self._eps = eps

    def forward(self, hidden: Tensor) -> Tensor:
        """``[..., size]`` in and out."""
        exact = hidden.to(torch.float32)
        exact = exact * torch.rsqrt(exact.pow(2).mean(-1, keepdim=True) + self._eps)
        # Rounded before the weight is applied, as in transformers: the order decides the bits.
        return self.weight * exact.to(hidden.dtype)


def _rotated(heads: Tensor, rotation: Rotation) -> Tensor:
    """Rotary embedding of queries or keys ``[1, heads, tokens, head_dim]``."""
    cos, sin = rotation
    first = heads[..., : heads.shape[-1] // 2]
    second = heads[..., heads.shape[-1] // 2 :]
    return heads * cos + torch.cat((-second, first), dim=-1) * sin
