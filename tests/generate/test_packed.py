"""Weights packed into buffers: what they are, their digests, and the handles by which another process opens them."""

import multiprocessing

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from magcli.generate.weights.digest import digests
from magcli.generate.weights.packed import PackedWeights, handle_of, open_handle, pack

SHAPES = st.lists(st.lists(st.integers(0, 70), max_size=3).map(tuple), max_size=8)
CPU = torch.device("cpu")


def weights_of(shapes, seed=0):
    random = torch.Generator().manual_seed(seed)
    return {f"w{number}": torch.randn(shape, generator=random) for number, shape in enumerate(shapes)}


@given(SHAPES, st.integers(1, 200_000), st.sampled_from([torch.float32, torch.bfloat16]))
def test_packed_weights_are_the_weights_cast(shapes, limit, dtype):
    weights = {**weights_of(shapes), "count": torch.tensor([3, 4])}
    packed = pack(weights, dtype, limit=limit)
    assert packed.keys() <= weights.keys()
    for name, tensor in packed.items():
        assert torch.equal(tensor, weights[name].to(dtype) if weights[name].is_floating_point() else weights[name])
    assert packed.digests() == digests({name: weights[name] for name in packed}, dtype)
    held = {tensor.untyped_storage().data_ptr() for tensor in packed.values() if tensor.numel()}
    assert held <= {buffer.data_ptr() for buffer in packed.buffers}


def test_a_tensor_of_many_rows_of_rows_has_its_digest():
    """The sums of its rows take several rows themselves."""
    weights = {"a": torch.ones(3), "large": torch.randn(3000, 5000), "b": torch.zeros(0)}
    assert pack(weights, torch.float32).digests() == digests(weights)


def test_what_is_packed_is_not_copied_again():
    weights = weights_of([(30, 40), (7,)])
    packed = pack(weights, torch.bfloat16)
    again = pack(packed, torch.bfloat16, CPU)
    assert [buffer.data_ptr() for buffer in again.buffers] == [buffer.data_ptr() for buffer in packed.buffers]
    weights["w0"].zero_()
    assert packed["w0"].any(), "it is a copy"
    assert pack(packed, torch.float32)["w1"].dtype == torch.float32


class Waits(TorchDispatchMode):
    """Counts the operations for which the host of a GPU would wait: a number that Python reads."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func is torch.ops.aten._local_scalar_dense.default
        return func(*args, **(kwargs or {}))


def test_digests_read_no_number_of_a_single_tensor():
    weights = weights_of([(30, 40)] * 50)
    with Waits() as waits:
        digests(weights)
        pack(weights, torch.bfloat16).digests()
        assert waits.count == 0
        weights["w0"].sum().item()
    assert waits.count == 1, "it would have been noticed"


def _read(handles, described, answers):
    packed = PackedWeights.opened([open_handle(handle, CPU) for handle in handles], described)
    answers.put((packed.digests(), {name: tensor.tolist() for name, tensor in packed.items()}))


def test_another_process_opens_the_buffers_by_their_handles():
    weights = weights_of([(5, 3), (100, 100), ()])
    packed = pack(weights, torch.bfloat16, limit=20_000)
    assert len(packed.buffers) > 1
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    handles = [handle_of(buffer) for buffer in packed.buffers]
    other = context.Process(target=_read, args=(handles, packed.described(), answers))
    other.start()
    arrived, values = answers.get(timeout=400)
    other.join(60)
    assert arrived == digests(weights, torch.bfloat16)
    assert values == {name: tensor.bfloat16().tolist() for name, tensor in weights.items()}
