"""One model on many ranks: FSDP2 shards weights, gradients and optimizer state; sequences are split over the ranks.

Losses are sums whose divisors are known before the split, so gradients are summed over ranks, never averaged, and the
number of ranks changes results by rounding only.
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
from magcli.train.compiled import LateCompiler
from magcli.train.distributed import Ranks
from magcli.train.head import let_head_be_gathered
from magcli.train.held import HeldWeights
from magcli.train.packing import greedy_collate

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Result = TypeVar("Result")


class ShardedModel(nn.Module):
    """The FSDP root around a model, whose full weights are available inside its ``forward``.

    FSDP gathers weights around a module's ``forward``: those of layers, of the embedding and of the LM head while they
    are used, all others, such as a head that is tied to the embedding, while this root is. So all that training
    computes must happen inside the ``forward`` of this root.
    """

    def __init__(
        self, model: "PreTrainedModel", held: HeldWeights | None = None, compiler: LateCompiler | None = None
    ) -> None:
        super().__init__()
        self.model = model
        self._held = held or HeldWeights()
        self._compiler = compiler

    def forward(self, compute: "Callable[[PreTrainedModel], Result]") -> Result:
        """The result of ``compute`` on the model; a loss in it backpropagates to the shards."""
        # Nothing to do within an optimizer step: the weights are the same for its micro-batches.
        self._held.refresh()
        if self._compiler is not None:
            self._compiler.compile_if_due()
        return compute(self.model)

    def backward(self, loss: Tensor, *, is_last: bool) -> None:
        """Add the gradients of a micro-batch's loss to those before it.

        Each group of ranks that shares a copy of the weights reduces them at once. The copies of hybrid sharding add
        them up after the last micro-batch of an optimizer step only, so that gradients cross the nodes once a step.

        Args:
            loss: what ``forward`` returned.
            is_last: no micro-batch of the optimizer step follows.
        """
        if isinstance(self, FSDPModule):
            self.set_requires_all_reduce(is_last)
        loss.backward()  # type: ignore[no-untyped-call]
        if is_last:
            self._held.will_change()


def shard(
    model: "PreTrainedModel", ranks: Ranks, *, bf16: bool = False, checkpoint_activations: bool = False
) -> ShardedModel:
    """Shard a model that every rank has loaded identically; create the optimizer afterwards.

    Args:
        bf16: the weights of the decoder's layers are used in bf16, as autocast would round them. Several ranks gather
            them so: half the traffic, and no bf16 copies kept until the backward pass. One process holds copies for all
            micro-batches of an update. Shards, gradients and the LM head stay float32.
        checkpoint_activations: recompute layer activations in the backward pass. To save memory, bf16 copies are not
            held then.

    Raises:
        EnvironmentFault: the model has no list of layers.
    """
    layers = _layers(model)
    is_alone = ranks.mesh is None
    copies = HeldWeights(layers) if is_alone and bf16 and not checkpoint_activations else None
    compiler = LateCompiler(layers) if is_alone and ranks.device.type == "cuda" else None
    sharded = ShardedModel(model, copies, compiler)
    if checkpoint_activations:
        for layer in layers:
            layer.forward = functools.partial(checkpoint, layer.forward, use_reentrant=False)
    if is_alone:
        return sharded

    in_float32 = MixedPrecisionPolicy()
    # Weights are gathered in bf16, gradients reduced in float32; autocast casts the inputs.
    in_bf16 = MixedPrecisionPolicy(torch.bfloat16, torch.float32, cast_forward_inputs=False)
    for layer in layers:
        _fully_shard(layer, ranks, in_bf16 if bf16 else in_float32)
    _shard_ends(model, ranks)
    _fully_shard(sharded, ranks, in_float32)  # the root takes what no unit inside it has
    return sharded


def full_weights(model: "PreTrainedModel", ranks: Ranks) -> dict[str, Tensor]:
    """The full state dict of a sharded model on rank 0, in CPU memory; empty on the others, which must take part.

    Tensors are gathered one by one; tied ones are one tensor under each of their names. A single process gets its own
    tensors, not copies.
    """
    if ranks.mesh is None:
        return dict(model.state_dict())
    is_first = ranks.rank == 0
    gathered: dict[int, Tensor] = {}  # by the identity of the sharded tensor
    weights: dict[str, Tensor] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        key = id(tensor)
        if key not in gathered:
            gathered[key] = _gathered(tensor.detach(), keep=is_first)
        weights[name] = gathered[key]
    return weights if is_first else {}


def micro_batches_by_rank(lengths: Sequence[int], *, budget: int, size: int, hidden: int) -> list[list[list[int]]]:
    """Split sequences into micro-batches of at most ``budget`` tokens and assign these to ``size`` ranks.

    Returns the indices of each micro-batch of each rank. All ranks get equally many, since collectives wait for all;
    with too few sequences, the last ones of a rank are empty. A single rank gets the greedy collation. Otherwise greedy
    collation determines the number of micro-batches, and sequences, longest first, go into the one with the least work
    that has space. The n-th micro-batches of all ranks, which run at the same time, have similar work, as have the
    ranks in total.

    ``hidden`` is the model's hidden size: attention adds length / (12 * hidden) to the work of a token.
    """
    batches = greedy_collate(lengths, budget)
    if size == 1:
        return [batches]
    costs = [length + length * length / (12 * hidden) for length in lengths]
    # A multiple of the ranks, so that all have equally many.
    count = math.ceil(len(batches) / size) * size
    balanced = _balance(lengths, costs, count, budget)
    while balanced is None:  # balanced batches may need more space than greedy ones
        count += size
        balanced = _balance(lengths, costs, count, budget)
    work = [sum(costs[index] for index in batch) for batch in balanced]
    most_work_first = sorted(range(count), key=lambda number: -work[number])

    # Of each ``size`` batches of similar work, the rank with the least so far gets the one with the most.
    by_rank: list[list[list[int]]] = [[] for _ in range(size)]
    loads = [0.0] * size
    for start in range(0, count, size):
        least_loaded_first = sorted(range(size), key=lambda rank: loads[rank])
        for rank, number in zip(least_loaded_first, most_work_first[start : start + size], strict=True):
            by_rank[rank].append(balanced[number])
            loads[rank] += work[number]
    return by_rank


def hidden_size(model: "PreTrainedModel") -> int:
    """The size of a model's hidden states, as ``micro_batches_by_rank`` needs it."""
    return int(model.config.get_text_config().hidden_size)


def _balance(lengths: Sequence[int], costs: Sequence[float], count: int, budget: int) -> list[list[int]] | None:
    """Exactly ``count`` micro-batches of about equal work, or None if the sequences do not fit."""
    batches: list[list[int]] = [[] for _ in range(count)]
    tokens = [0] * count
    work = [0.0] * count
    longest_first = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    for index in longest_first:
        length = lengths[index]
        # A sequence longer than the budget may have an empty micro-batch to itself.
        fitting = [number for number in range(count) if not batches[number] or tokens[number] + length <= budget]
        if not fitting:
            return None
        # Ties go to the first, so that all processes plan the same.
        least = min(fitting, key=lambda number: work[number])
        batches[least].append(index)
        tokens[least] += length
        work[least] += costs[index]
    return batches


def _layers(model: "PreTrainedModel") -> nn.ModuleList:
    layers = getattr(model.get_decoder(), "layers", None)
    if not isinstance(layers, nn.ModuleList):
        raise EnvironmentFault(f"{type(model).__name__} has no list of layers to shard; use a model like Llama or Qwen")
    return layers


def _shard_ends(model: "PreTrainedModel", ranks: Ranks) -> None:
    """Give embedding and LM head units of their own, unless they share their weights.

    Together they may be larger than several layers, and neither is needed while the other is.
    """
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    if head.weight is embedding.weight:
        return
    for module in (embedding, head):
        _fully_shard(module, ranks, MixedPrecisionPolicy())
    embedding.set_unshard_in_backward(False)  # the gradient of a lookup needs no weights
    let_head_be_gathered(head)


def _fully_shard(module: nn.Module, ranks: Ranks, policy: MixedPrecisionPolicy) -> None:
    unit = fully_shard(module, mesh=ranks.mesh, reshard_after_forward=True, mp_policy=policy)
    assert isinstance(unit, FSDPModule)
    # Sums over the ranks, where FSDP would average.
    unit.set_gradient_divide_factor(1.0)
    unit.set_force_sum_reduction_for_comms(True)  # gloo has no other reduction that computes plain sums


def _gathered(tensor: Tensor, *, keep: bool) -> Tensor:
    full: Any = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
    return full.cpu() if keep else torch.empty(0)
