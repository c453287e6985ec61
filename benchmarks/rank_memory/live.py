"""Memory by part, and collectives, of everything that runs inside a block; tensors may be real or fake.

Every storage that an operation returns is noted with its size, when it was made and when it was freed. So the parts of
the peak are known after the block has ended, although some parts are recognised only later, by what is done with them.
"""

import weakref
from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._sharding_prop import ShardingPropagator
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

WEIGHTS = "weights"
GRADIENTS = "gradients"
MOMENTS = "moments"
GATHERED = "gathered weights"
BUFFERS = "buffers of collectives"
WHOLE_GRADIENTS = "gradients of whole units"
ACTIVATIONS, TEMPORARY = "activations", "temporary"
PARTS = (WEIGHTS, GRADIENTS, MOMENTS, GATHERED, BUFFERS, WHOLE_GRADIENTS, ACTIVATIONS, TEMPORARY)

NO_COLLECTIVES = {"wait_tensor", "_wrap_tensor_autograd"}
"""Operations beside the collectives that send nothing."""


@dataclass(slots=True)
class Storage:
    """Some memory: its part, its bytes, and the numbers of the events that made and freed it; -1: it is still there."""

    part: str
    size: int
    made: int
    freed: int = -1


class LiveParts(TorchDispatchMode):
    """Notes the memory of all tensors, and counts collectives.

    ``part`` is that of new tensors that nothing else is known of. ``peak`` are bytes. ``calls`` and ``sent`` count the
    collectives and their bytes by name: what an all-gather returns, or what is put into a reduction, on one rank.
    """

    def __init__(self) -> None:
        super().__init__()
        self.part = ACTIVATIONS
        self.live = self.peak = 0
        self.calls: Counter[str] = Counter()
        self.sent: Counter[str] = Counter()
        self._now = self._peak_at = 0
        self._alive: dict[int, Storage] = {}
        self._all: list[Storage] = []
        self._patches = ExitStack()
        self._pauses = 0

    def __enter__(self) -> "LiveParts":
        self._patches.enter_context(patch.object(torch.UntypedStorage, "resize_", self._resized()))
        outline = "_propagate_tensor_meta_non_cached"
        self._patches.enter_context(patch.object(ShardingPropagator, outline, self._paused(outline)))
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._patches.close()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented  # the operations on its local tensor come here by themselves
        if self._pauses:
            return func(*args, **(kwargs or {}))
        if func.namespace == "fsdp" and "chunk_cat" in str(func):
            self.mark(tree_leaves(args[0]), WHOLE_GRADIENTS)
        if func.namespace in ("c10d", "_c10d_functional"):
            self._collective(func.name().partition("::")[2].partition(".")[0], args)
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                self._note(leaf.untyped_storage(), self.part)
        return result

    def mark(self, tensors: Iterable[Tensor], part: str) -> None:
        """Say which part tensors belong to, whether or not they have been seen."""
        for tensor in tensors:
            local = tensor.to_local() if isinstance(tensor, DTensor) else tensor
            self._note(local.untyped_storage(), part).part = part

    def restart(self) -> None:
        """Forget the peak and the collectives so far."""
        self.peak, self._peak_at = self.live, self._now
        self.calls.clear()
        self.sent.clear()

    def parts(self) -> dict[str, int]:
        """The bytes of each part at the peak."""
        sizes = dict.fromkeys(PARTS, 0)
        for storage in self._all:
            if storage.made <= self._peak_at and (storage.freed < 0 or storage.freed > self._peak_at):
                sizes[storage.part] += storage.size
        return sizes

    def _note(self, memory: torch.UntypedStorage, part: str) -> Storage:
        number = memory._cdata
        if number not in self._alive:
            self._add(number, Storage(part, memory.nbytes(), self._now + 1))
            weakref.finalize(memory, self._remove, number)
        return self._alive[number]

    def _add(self, number: int, storage: Storage) -> None:
        self._now += 1
        self._alive[number] = storage
        self._all.append(storage)
        self.live += storage.size
        if self.live > self.peak:
            self.peak, self._peak_at = self.live, self._now

    def _remove(self, number: int) -> None:
        storage = self._alive.pop(number)
        self._now += 1
        storage.freed = self._now
        self.live -= storage.size

    def _paused(self, name: str) -> Any:
        """DTensor finds the shape of a whole result with fake tensors of its own, which no rank ever has."""
        original = getattr(ShardingPropagator, name)

        def run(*arguments: Any) -> Any:
            self._pauses += 1
            try:
                return original(*arguments)
            finally:
                self._pauses -= 1

        return run

    def _resized(self) -> Any:
        """FSDP frees and allocates the weights that it gathers by resizing their storage."""
        original = torch.UntypedStorage.resize_

        def resize(memory: torch.UntypedStorage, size: int) -> torch.UntypedStorage:
            self._note(memory, GATHERED)
            self._remove(memory._cdata)
            resized: torch.UntypedStorage = original(memory, size)
            self._add(memory._cdata, Storage(GATHERED, size, self._now + 1))
            return resized

        return resize

    def _collective(self, name: str, args: Any) -> None:
        tensors = [leaf for leaf in tree_leaves(args) if isinstance(leaf, Tensor)]
        if not tensors or name in NO_COLLECTIVES:
            return
        self.calls[name] += 1
        self.sent[name] += max(tensor.nbytes for tensor in tensors)
        if "allgather" in name:
            self.mark(tensors, BUFFERS)
        if "reduce_scatter" in name:
            shard, whole = tensors[:2]
            self.mark([whole], BUFFERS)
            self.mark([shard], GRADIENTS)
