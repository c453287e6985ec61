"""What one more micro-batch of an update costs besides arithmetic: operations, casts of weights, waits of the host.

Everything is counted on a CPU, so no GPU is needed: the numbers are those of a small Llama in bf16 autocast, and grow
with the layers. An update of three micro-batches minus one of two is one micro-batch. A cast of a weight reads four
bytes and writes two.

Waits are what would make the host wait for a GPU: values that are read from it, shapes that depend on values, and
copies to it that are not from pinned memory. They are seen in calls of Python, where a tensor counts as on the device
if it is made from the model's weights or from what was moved there.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch
from weakref import finalize

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from benchmarks.models import random_llama
from magcli.generate.types import Rollout
from magcli.rl.objective import TrainingSample
from magcli.rl.trainer import Learn
from magcli.rl.types import Numerics, Objective
from magcli.train import optim, padded
from magcli.train.attention import use_packed_attention
from magcli.train.commands import RankState
from magcli.train.compiled import compile_layers
from magcli.train.distributed import Ranks
from magcli.train.sft import Example, TrainStep, accumulate
from magcli.train.shard import ShardedModel, shard

LAYERS = 2
SHAPE = {
    "vocab_size": 256, "hidden_size": 64, "intermediate_size": 176, "num_hidden_layers": LAYERS,
    "num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": False,
}  # fmt: skip
SEQUENCES, PROMPT, COMPLETION = 2, 4, 12

READS = {Tensor.item, Tensor.tolist, Tensor.numpy, Tensor.cpu, Tensor.__bool__, Tensor.__int__, Tensor.__float__}
SIZED_BY_VALUES = {
    torch.nonzero, Tensor.nonzero, torch.masked_select, Tensor.masked_select, torch.bincount, Tensor.bincount,
    torch.unique, Tensor.unique, Tensor.argwhere, torch.argwhere,
}  # fmt: skip
MADE_FROM_VALUES = {torch.tensor, torch.as_tensor}
WITHOUT_WORK = {
    "detach", "empty", "empty_like", "empty_strided", "new_empty", "lift_fresh", "alias", "set_", "_unsafe_view",
}  # fmt: skip
NOT_COMPILED = {
    "mm", "index_select", "index_add", "new_zeros", "add_", "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_flash_attention_for_cpu_backward",
}  # fmt: skip
"""Operations of a layer that stay as they are: products, attention with what it gathers, and sums of gradients."""


class Operations(TorchDispatchMode):
    """Counts operations that compute or move something, and casts to another type, also those of a model's weights."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()
        self.names: Counter[str] = Counter()
        self._weights = {parameter.untyped_storage()._cdata for parameter in model.parameters()}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if _is_view(func) or name in WITHOUT_WORK:
            return result
        self.counts["operations"] += 1
        self.names[name] += 1
        if name == "_to_copy" and isinstance(result, Tensor) and result.dtype != args[0].dtype:
            self.counts["casts"] += 1
            self.counts["casts of weights"] += args[0].untyped_storage()._cdata in self._weights
        return result


def _is_view(func: Any) -> bool:
    """Whether an operation only looks at its input in another way."""
    returns = func._schema.returns
    return bool(returns) and all(value.alias_info and not value.alias_info.is_write for value in returns)


class Waits(TorchFunctionMode):
    """Counts calls for which the host would wait for a GPU on which the model is."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()
        self._there: set[int] = set()
        for tensor in (*model.parameters(), *model.buffers()):
            self._arrives(tensor)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is Tensor.to and not self._is_there(args[0]) and _names_device(args, kwargs):
            self._note("copies to the device", waits=not kwargs.get("non_blocking"))
            return self._arrives(func(*args, **kwargs).clone())
        if func in MADE_FROM_VALUES and kwargs.get("device") is not None and not self._any_there(args):
            self._note("copies to the device", waits=True)
            return self._arrives(func(*args, **kwargs))
        if func is Tensor.to and _host_of(args) and self._is_there(args[0]):
            self._note("reads", waits=not kwargs.get("non_blocking"))
            return func(*args, **kwargs).clone()
        there = self._any_there((args, kwargs))
        if func in READS and there:
            self._note("reads", waits=True)
            read = func(*args, **kwargs)
            return read.clone() if isinstance(read, Tensor) else read
        if there and (func in SIZED_BY_VALUES or (func is Tensor.__getitem__ and _by_mask(args[1]))):
            self._note("shapes from values", waits=True)
        result = func(*args, **kwargs)
        if there or "device" in kwargs:
            for leaf in tree_leaves(result):
                if isinstance(leaf, Tensor):
                    self._arrives(leaf)
        return result

    def _note(self, what: str, *, waits: bool) -> None:
        self.counts[what] += 1
        self.counts["waits"] += waits

    def _any_there(self, values: Any) -> bool:
        return any(isinstance(leaf, Tensor) and self._is_there(leaf) for leaf in tree_leaves(values))

    def _is_there(self, tensor: Tensor) -> bool:
        return tensor.untyped_storage()._cdata in self._there

    def _arrives(self, tensor: Tensor) -> Tensor:
        memory = tensor.untyped_storage()
        if memory._cdata not in self._there:
            self._there.add(memory._cdata)
            finalize(memory, self._there.discard, memory._cdata)
        return tensor


def _names_device(args: Any, kwargs: Mapping[str, Any]) -> bool:
    named = kwargs.get("device", args[1] if len(args) > 1 else None)
    return isinstance(named, torch.device | str)


def _host_of(args: Any) -> bool:
    """Whether a tensor is moved to the host; the device is named by an object, not by a text."""
    return len(args) > 1 and args[1] == "cpu"


def _by_mask(index: Any) -> bool:
    return any(isinstance(leaf, Tensor) and leaf.dtype == torch.bool for leaf in tree_leaves(index))


def run() -> None:
    """Print the counts of one micro-batch of `sft` and of `rl`, and the waits at the end of an update."""
    print(f"one micro-batch of a Llama of {LAYERS} layers with {7 * LAYERS} linear ones, bf16 autocast, on a CPU")
    print(f"{'':32}{'operations':>12}{'casts':>8}{'of weights':>12}{'waits':>8}{'waits at the end':>18}")
    for name, count in COUNTS.items():
        for recomputes in (False, True):
            micro_batch, step = count(checkpoint_activations=recomputes)
            label = f"{name}, activations {'recomputed' if recomputes else 'kept'}"
            numbers = (micro_batch[column] for column in ("operations", "casts", "casts of weights", "waits"))
            print("{:32}{:12}{:8}{:12}{:8}{:18}".format(label, *numbers, step["waits"]))
    operations = operations_of_a_layer(LAYERS + 1) - operations_of_a_layer(LAYERS)
    print(f"one layer, forward and backward, without products and attention: {operations} operations,", end=" ")
    print(f"compiled {compiled_kernels()} kernels")


def operations_of_a_layer(layers: int) -> int:
    """The operations of a micro-batch of a model of so many layers that a compiler could fuse."""
    whole = _model(layers)
    _micro_batch(whole)
    with Operations(whole.model) as operations:
        _micro_batch(whole)
    return sum(number for name, number in operations.names.items() if name not in NOT_COMPILED)


def compiled_kernels() -> int:
    """The kernels that PyTorch's compiler makes for a layer on this machine, for the forward and the backward pass."""
    from torch._inductor import metrics

    whole = _model(LAYERS)
    metrics.reset()
    compile_layers(whole.model.get_decoder().layers)
    _micro_batch(whole)
    return metrics.generated_kernel_count


def _model(layers: int) -> ShardedModel:
    model = random_llama(**SHAPE | {"num_hidden_layers": layers}).train()
    use_packed_attention(model)
    return shard(model, Ranks(), bf16=True)


def _micro_batch(whole: ShardedModel) -> None:
    accumulate(whole, _sft_step(1).batches, total=1.0, bf16=True)


def counts_of_sft(**options: Any) -> tuple[Counter[str], Counter[str]]:
    """What one more micro-batch of a step of `sft` costs, and what a step costs without any; options of ``shard``."""
    return _difference(lambda number: _sft_step(number), options)


def counts_of_rl(**options: Any) -> tuple[Counter[str], Counter[str]]:
    """The same of an update of `rl`."""
    return _difference(lambda number: _rl_update(number), options)


COUNTS = {"sft": counts_of_sft, "rl": counts_of_rl}


def _difference(command: Callable[[int], Any], options: Mapping[str, Any]) -> tuple[Counter[str], Counter[str]]:
    two, three = (_counted(command(number), options) for number in (2, 3))
    micro_batch = Counter({name: three[name] - two[name] for name in three})
    return micro_batch, Counter({name: two[name] - 2 * micro_batch[name] for name in two})


def _counted(command: Any, options: Mapping[str, Any]) -> Counter[str]:
    """The counts of the second of two equal updates: the first also makes what is kept."""
    model = random_llama(**SHAPE).train()
    use_packed_attention(model)
    sharded = shard(model, Ranks(), bf16=True, **options)
    state = RankState(Ranks(), sharded, optim.adamw(model, lr=1e-5, weight_decay=0.0), None)
    with ExitStack() as stack:
        stack.enter_context(patch.object(padded, "_kernel_dtype", lambda values: values.dtype))  # as on a GPU
        command.run(state)
        waits, operations = stack.enter_context(Waits(model)), stack.enter_context(Operations(model))
        command.run(state)
    return waits.counts + operations.counts


def _sft_step(number: int) -> TrainStep:
    """A step of ``number`` micro-batches."""
    example = Example(tuple(range(PROMPT + COMPLETION)), (False,) * PROMPT + (True,) * COMPLETION)
    return TrainStep([[example] * SEQUENCES] * number, total=float(number), lr=1e-5, max_norm=1.0, bf16=True)


def _rl_update(number: int) -> Learn:
    """An update of ``number`` micro-batches, of one optimizer step."""
    tokens = tuple(range(COMPLETION))
    samples = [
        TrainingSample(
            tuple(range(PROMPT)),
            Rollout(index, tuple(range(PROMPT)), tokens, (-7.0,) * COMPLETION, ((0, 0),), "stop", index),
            advantage=1.0,
            weight=0.01,
        )
        for index in range(SEQUENCES)
    ]
    objective = Objective(clip_low=0.2, clip_high=0.28, advantage_norm="minibatch", loss_norm="group")
    return Learn([[samples] * number], objective, Numerics(4096, 1.0, bf16=True), lr=1e-5, version=0)
