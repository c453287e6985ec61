"""How long a sequence of a model may be."""

from typing import Any

DYNAMIC, LONGROPE = "dynamic", "longrope"
"""Kinds of rotary embedding whose frequencies change for all tokens of a sequence that gets longer than a limit.

Keys in a cache, and shorter sequences in the same forward pass, would be rotated by the wrong frequencies.
"""


def context_length(config: Any) -> int:
    """The maximum sequence length, prompt and completion together, from a configuration of a text model.

    Rotary embeddings that change with the length end the context where they change.
    """
    longest = int(config.max_position_embeddings)
    limit = rotary_limit(config)
    return longest if limit is None else min(longest, limit)


def rotary_limit(config: Any) -> int | None:
    """The length beyond which rotary frequencies change; None if they never do."""
    rope = getattr(config, "rope_parameters", None) or {}
    # Some families have other parameters for each type of layer.
    by_layer_type = [part for part in rope.values() if isinstance(part, dict)]
    limits = [_limit(part, config) for part in by_layer_type or [rope]]
    return min((limit for limit in limits if limit is not None), default=None)


def _limit(rope: dict[str, Any], config: Any) -> int | None:
    kind = rope.get("rope_type", "default")
    if DYNAMIC in kind:
        return int(config.max_position_embeddings)
    if kind == LONGROPE:
        return int(rope.get("original_max_position_embeddings") or config.max_position_embeddings)
    return None
