"""One model over many ranks: FSDP2 shards its weights, gradients and optimizer state, each rank computes its share.

Losses are sums whose divisors are known before the split, so gradients are summed over ranks, never averaged, and the
number of ranks changes nothing but rounding.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.utils.checkpoint import checkpoint

from magcli.errors import EnvironmentFault
from magcli.train.distributed import Ranks
from magcli.train.packing import greedy_collate

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Result = TypeVar("Result")


class ShardedModel(nn.Module):
    """A model whose weights are whole while something is computed with it, wherever their shards lie.

    FSDP gathers weights around a module's ``forward``. Training calls the decoder and reads the LM head's weight, which
    a tied embedding shares; so all of that happens inside the ``forward`` of this root.
    """

    def __init__(self, model: "PreTrainedModel") -> None:
        super().__init__()
        self.model = model

    def forward(self, compute: "Callable[[PreTrainedModel], Result]") -> Result:
        """What ``compute`` makes of the model; a loss among it takes its gradient back to the shards."""
        return compute(self.model)


def shard(
    model: "PreTrainedModel", ranks: Ranks, *, bf16: bool = False, checkpoint_activations: bool = False
) -> ShardedModel:
    """Give each rank its share of a model that every rank has loaded alike; make the optimizer afterwards.

    Args:
        bf16: gather the weights of the decoder's layers in bf16, as autocast would round them: half the traffic, and no
            rounded copies that live until the backward pass. Shards, gradients and the LM head stay float32.
        checkpoint_activations: keep only the inputs of each layer, and compute it again in the backward pass.

    Raises:
        EnvironmentFault: the model has no list of layers.
    """
    whole, layers = ShardedModel(model), _layers(model)
    if checkpoint_activations:
        for layer in layers:
            layer.forward = functools.partial(checkpoint, layer.forward, use_reentrant=False)
    if ranks.mesh is not None:
        rounding = MixedPrecisionPolicy(torch.bfloat16, torch.float32, cast_forward_inputs=False)
        for layer in layers:
            _fully_shard(layer, ranks, rounding if bf16 else MixedPrecisionPolicy())
        _fully_shard(whole, ranks, MixedPrecisionPolicy())
    return whole


def full_weights(model: "PreTrainedModel", ranks: Ranks) -> dict[str, Tensor]:
    """The state of a sharded model on rank 0, in its CPU's memory; empty on the others, which must take part.

    Tensors are gathered one by one; tied ones are one tensor under each of their names. The state of a process by
    itself is its own, not copied.
    """
    if ranks.mesh is None:
        return dict(model.state_dict())
    gathered: dict[int, Tensor] = {}
    names: dict[str, int] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) not in gathered:
            gathered[id(tensor)] = _gathered(tensor.detach(), keep=ranks.rank == 0)
        names[name] = id(tensor)
    return {name: gathered[number] for name, number in names.items()} if ranks.rank == 0 else {}


def deal(lengths: Sequence[int], *, budget: int, size: int, hidden: int) -> list[list[list[int]]]:
    """Split sequences into micro-batches of at most ``budget`` tokens and deal these to ``size`` ranks.

    Returns the indices of each micro-batch of each rank. All ranks have equally many, since collectives wait for all;
    where there are too few sequences, the last of a rank are empty. Greedy collation says how many are needed; with
    as many, the longest sequence goes first into the one with least work that has room. The n-th micro-batches of
    all ranks, which run at the same time, are alike in work, and so are the ranks. One rank gets the greedy collation.

    ``hidden`` is the width of the model: attention adds length / (12 * hidden) to the work of a token.
    """
    batches = greedy_collate(lengths, budget)
    if size == 1:
        return [batches]
    costs = [length + length * length / (12 * hidden) for length in lengths]
    count = math.ceil(len(batches) / size) * size
    while (levelled := _level(lengths, costs, count, budget)) is None:
        count += size
    work = {number: sum(costs[index] for index in batch) for number, batch in enumerate(levelled)}
    order = sorted(work, key=lambda number: -work[number])
    dealt: list[list[list[int]]] = [[] for _ in range(size)]
    loads = [0.0] * size
    for start in range(0, count, size):
        ranks = sorted(range(size), key=lambda rank: loads[rank])
        for rank, number in zip(ranks, order[start : start + size], strict=True):
            dealt[rank].append(levelled[number])
            loads[rank] += work[number]
    return dealt


def width(model: "PreTrainedModel") -> int:
    """The width of a model's hidden states, as ``deal`` asks for it."""
    return int(model.config.get_text_config().hidden_size)


def _level(lengths: Sequence[int], costs: Sequence[float], count: int, budget: int) -> list[list[int]] | None:
    """Exactly ``count`` micro-batches of about equal work, or None if sequences do not fit so."""
    batches: list[list[int]] = [[] for _ in range(count)]
    tokens, work = [0] * count, [0.0] * count
    for index in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        room = [b for b in range(count) if not batches[b] or tokens[b] + lengths[index] <= budget]
        if not room:
            return None
        chosen = min(room, key=lambda b: work[b])
        batches[chosen].append(index)
        tokens[chosen] += lengths[index]
        work[chosen] += costs[index]
    return batches


def _layers(model: "PreTrainedModel") -> nn.ModuleList:
    layers = getattr(model.get_decoder(), "layers", None)
    if not isinstance(layers, nn.ModuleList):
        raise EnvironmentFault(f"{type(model).__name__} has no list of layers to shard; use a model like Llama or Qwen")
    return layers


def _fully_shard(module: nn.Module, ranks: Ranks, policy: MixedPrecisionPolicy) -> None:
    unit = fully_shard(module, mesh=ranks.mesh, reshard_after_forward=True, mp_policy=policy)
    assert isinstance(unit, FSDPModule)
    unit.set_gradient_divide_factor(1.0)
    unit.set_force_sum_reduction_for_comms(True)  # gloo knows no other reduction that leaves sums alone


def _gathered(tensor: Tensor, *, keep: bool) -> Tensor:
    whole: Any = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
    return whole.cpu() if keep else torch.empty(0)
