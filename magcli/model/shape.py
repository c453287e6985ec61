"""The sizes of a decoder that determine its memory, from its configuration alone."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from magcli.model.model import Model


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Sizes of a decoder.

    ``hidden`` is the width of the residual stream, ``inner`` that of the feed-forward network (of the active experts
    together in a mixture), ``kv_heads`` the number of key-value heads. ``parameters`` counts all weights, tied ones
    once; ``linear`` those of linear layers and experts without the LM head. ``tied``: embedding and head are one.
    """

    hidden: int
    inner: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    parameters: int
    linear: int
    tied: bool

    @property
    def queries(self) -> int:
        """The width of the queries of a token."""
        return self.heads * self.head_dim

    @property
    def keys(self) -> int:
        """The width of the keys of a token; that of the values is the same."""
        return self.kv_heads * self.head_dim

    @property
    def head(self) -> int:
        """Number of weights of the LM head."""
        return self.vocabulary * self.hidden

    @property
    def cached(self) -> int:
        """Number of values that a KV cache stores for a token."""
        return 2 * self.layers * self.keys


def shape_of(model: "Model") -> ModelShape:
    """The sizes of a model, whose weights need not be there.

    Raises:
        EnvironmentFault: its configuration is missing or damaged.
    """
    config, outline = model.text_config, model.outline
    hidden = int(config.hidden_size)
    # Models without attention have no heads; 64 is the usual width of one.
    heads = int(getattr(config, "num_attention_heads", None) or max(1, hidden // 64))
    head, embedding = outline.get_output_embeddings(), outline.get_input_embeddings()
    # A tied head is the embedding itself.
    outside = {id(head.weight), id(embedding.weight)}
    all_weights = linear_weights = 0
    for parameter in outline.parameters():  # a tied one comes once
        all_weights += parameter.numel()
        if id(parameter) not in outside:
            # Biases and norms are vectors; experts are stacked matrices.
            linear_weights += parameter.numel() if parameter.ndim > 1 else 0
    return ModelShape(
        hidden=hidden,
        inner=_active_inner(config, hidden),
        layers=int(config.num_hidden_layers),
        heads=heads,
        kv_heads=int(getattr(config, "num_key_value_heads", None) or heads),
        head_dim=int(getattr(config, "head_dim", None) or hidden // heads),
        vocabulary=int(config.vocab_size),
        parameters=all_weights,
        linear=linear_weights,
        tied=bool(getattr(config, "tie_word_embeddings", False)),
    )


def _active_inner(config: Any, hidden: int) -> int:
    """The width of the feed-forward network for one token: of a mixture, that of all experts that it goes through."""
    expert = getattr(config, "moe_intermediate_size", None) or getattr(config, "intermediate_size", None)
    experts = getattr(config, "num_experts_per_tok", None) or 1
    return int(expert or 4 * hidden) * int(experts)
