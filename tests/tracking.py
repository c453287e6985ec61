"""Peak memory of training steps: the bytes of all tensors that are alive, real or fake ones."""

import weakref
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AttentionInterface, AutoModelForCausalLM

from magcli.train import attention, logprobs, optim, packing, padded
from magcli.train.distributed import Ranks
from magcli.train.lora import add_lora
from magcli.train.shard import shard


class LiveTensors(TorchDispatchMode):
    """Counts the memory of tensors that operations return, until it is freed; those in ``tensors`` are there before."""

    def __init__(self, tensors):
        super().__init__()
        self.live = self.peak = 0
        self._counted = set()
        for tensor in tensors:
            self._count(tensor.untyped_storage())

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self._count(leaf.untyped_storage())
        return result

    def _count(self, storage):
        if storage._cdata in self._counted:
            return
        self._counted.add(storage._cdata)
        self.live += storage.nbytes()
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._free, storage._cdata, storage.nbytes())

    def _free(self, number, size):
        self._counted.discard(number)
        self.live -= size


def tracked_peak(config, lengths, *, bf16=False, recompute=False, lora=0, base=torch.float32):
    """The peak in bytes of some optimizer steps on sequences of these lengths."""
    model = AutoModelForCausalLM.from_config(config, dtype=base)
    AttentionInterface.register(attention.NAME, attention.attend)
    model.set_attn_implementation(attention.NAME)
    if lora:
        add_lora(model, rank=lora, alpha=16.0, seed=0)
    packed = packing.pack([list(range(length)) for length in lengths])
    sharded = shard(model, Ranks(), bf16=bf16, checkpoint_activations=recompute)
    optimizer = optim.adamw(model, lr=1e-5, weight_decay=0.0)
    with LiveTensors([*model.parameters(), *model.buffers(), *sharded._held._copies]) as live:
        for _ in range(2):
            for _ in range(2):
                with optim.autocast(torch.device("cpu"), bf16):
                    loss = -sharded(lambda trained: logprobs.token_logprobs(trained, packed)).values.mean()
                loss.backward()
                del loss
            optimizer.step()
            optimizer.zero_grad()
    return live.peak


@contextmanager
def fake_tensors(monkeypatch, lengths) -> Iterator[None]:
    """Inside, tensors have no memory; what depends on the sequences' lengths is computed before, on real ones."""
    packed = packing.pack([list(range(length)) for length in lengths])
    layout = padded.buckets(packed)
    scored = logprobs._predicted(packed.before(), None)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fake_layout = padded.Buckets(layout.shapes, mode.from_tensor(layout.slots), mode.from_tensor(layout.places))
        before = torch.zeros(packed.num_tokens, dtype=torch.long)
        monkeypatch.setattr(padded, "buckets", lambda _: fake_layout)
        monkeypatch.setattr(packing.Packed, "before", lambda _: before)
        monkeypatch.setattr(logprobs, "_predicted", lambda *_: mode.from_tensor(scored))
        yield
