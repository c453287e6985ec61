"""Digests notice what goes wrong with weights, and name the tensor."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from magcli.generate.weights.digest import WeightsFault, _cpu_sums, _gpu_sums, check_arrivals, combined, digest, digests

DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.uint8, torch.bool]


def noise(length, dtype=torch.float32, seed=0):
    random = torch.Generator().manual_seed(seed)
    return (torch.randn(length, generator=random) * 100).to(dtype)


@given(st.sampled_from(DTYPES), st.integers(0, 20_000), st.integers(0, 3))
def test_the_digest_depends_on_values_only(dtype, length, offset):
    tensor = noise(length, dtype)
    elsewhere = torch.cat([tensor[:0].new_ones(offset), tensor])[offset:]
    assert 0 <= digest(tensor) == digest(elsewhere) < 2**64


@given(st.integers(3, 100_000), st.data())
def test_changed_swapped_and_lost_values_are_noticed(length, data):
    tensor = noise(length)
    first, second = data.draw(st.lists(st.integers(0, length - 1), min_size=2, max_size=2, unique=True))
    swapped, negated = tensor.clone(), tensor.clone()
    swapped[[first, second]] = tensor[[second, first]]
    negated[first] *= -1
    assert len({digest(each) for each in (tensor, swapped, negated, tensor[:-1], tensor.roll(1))}) == 5


def test_swapped_signs_and_zeros_are_noticed():
    """Their words differ in one bit only, and zeros add nothing to a sum."""
    assert digest(torch.tensor([1.0, 1.0, -1.0, 1.0])) != digest(torch.tensor([-1.0, 1.0, 1.0, 1.0]))
    assert digest(torch.zeros(8)) != digest(torch.zeros(9))
    assert digest(torch.zeros(5000)) != digest(torch.zeros(5001))


def test_devices_agree():
    rows = torch.randint(-(2**31), 2**31 - 1, (40, 4096), dtype=torch.int32)
    assert torch.equal(torch.cat(_cpu_sums(rows)), torch.cat(_gpu_sums(rows)))


def test_a_cast_changes_the_digest_of_floats_only():
    weights = {"a": noise(10), "b": noise(10, torch.int64)}
    cast = digests(weights, torch.bfloat16)
    assert cast == {"a": digest(weights["a"].bfloat16()), "b": digest(weights["b"])}
    assert combined(cast) != combined(digests(weights))


@pytest.mark.parametrize(
    ("arrived", "message"),
    [
        ({"a": 1}, "weights of update 3 in generator 2 of 2: b did not arrive;"),
        (
            {"a": 1, "b": 3},
            "in generator 2 of 2: b arrived altered (digest 0000000000000003 instead of 0000000000000002)",
        ),
        ({"a": 1, "b": 2, "c": 3}, "c arrived, but was not sent"),
        ({}, "a did not arrive (and 1 more)"),
    ],
)
def test_a_fault_names_update_engine_and_tensor(arrived, message):
    sent = {"a": 1, "b": 2}
    check_arrivals(sent, [sent, sent], 3)
    with pytest.raises(WeightsFault) as fault:
        check_arrivals(sent, [sent, arrived], 3)
    assert message in str(fault.value)
    assert fault.value.exit_code == 4
