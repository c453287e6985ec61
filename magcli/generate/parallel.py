"""Tensor parallelism: vLLM splits the matrices of a model over several ranks, each with a device of its own.

vLLM's ``mp`` backend starts the ranks as processes of one machine. Attention is split by heads: with fewer key-value
heads than ranks, several ranks have the same one.
"""

from typing import Any

from magcli.cluster.types import Resources
from magcli.errors import UsageError
from magcli.model.model import Model


def engine_resources(device: str, ranks: int) -> Resources:
    """What an engine of so many ranks takes of a node of a cluster: a GPU each, or on CPUs a CPU each."""
    if device.startswith("cuda"):
        return Resources(cpus=1, gpus=ranks)
    return Resources(cpus=ranks)


def kv_heads_per_rank(config: Any, ranks: int) -> int:
    """The key-value heads whose cache a rank holds."""
    return max(1, kv_heads(config) // ranks)


def kv_heads(config: Any) -> int:
    """The key-value heads of a model, by its text configuration."""
    return int(getattr(config, "num_key_value_heads", None) or config.num_attention_heads)


def check_split_of(name: str, ranks: int) -> None:
    """As ``check_split``, by the name of a model."""
    check_split(Model.open(name), ranks)


def check_split(model: Model, ranks: int) -> None:
    """Refuse a number of ranks over which a model cannot be split.

    Raises:
        UsageError: attention heads or the widths of its matrices do not divide evenly.
        EnvironmentFault: the model's configuration is missing or damaged.
    """
    if ranks == 1:
        return
    config = model.text_config
    # What vLLM divides among the ranks: each has whole heads, and its columns of the wide matrices.
    parts = {"attention heads": int(config.num_attention_heads), "inner features": model.widths[1]}
    for what, number in parts.items():
        if number % ranks:
            raise UsageError(f"--tensor-parallel {ranks} does not divide the {number} {what} of {model.name}")
    shared = kv_heads(config)
    # With more ranks than key-value heads each head is on ranks / heads of them.
    if shared % ranks and ranks % shared:
        text = f"--tensor-parallel {ranks} is neither a divisor nor a multiple of the {shared} key-value heads"
        raise UsageError(f"{text} of {model.name}")
