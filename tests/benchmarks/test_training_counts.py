"""What a micro-batch costs besides arithmetic, by the counters of ``python -m benchmarks training-counts``."""

import pytest
import torch

from benchmarks import training_counts
from benchmarks.training_counts import LAYERS, Operations, Waits


@pytest.mark.parametrize("name", training_counts.COUNTS)
def test_no_micro_batch_lets_the_host_wait_for_the_device(name):
    micro_batch, step = training_counts.COUNTS[name]()
    assert micro_batch["waits"] == 0
    assert micro_batch["copies to the device"] > 0, "the counter sees what the micro-batch sends"
    assert step["waits"] == 2, "the loss, and the gradient's norm"


def test_weights_are_not_cast_in_a_micro_batch():
    held, recomputed = training_counts.counts_of_sft()[0], training_counts.counts_of_sft(checkpoint_activations=True)[0]
    linear_layers, head = 7 * LAYERS, 1
    assert held["casts of weights"] == head
    assert recomputed["casts of weights"] == 2 * linear_layers + head


WAITING = {
    "item": lambda weight: weight.sum().item(),
    "bool": lambda weight: bool(weight.sum() > 0),
    "list": lambda weight: (weight * 2).tolist(),
    "cpu": lambda weight: weight.detach().cpu(),
    "nonzero": lambda weight: (weight > 0).nonzero(),
    "mask": lambda weight: weight[weight > 0],
    "copy": lambda weight: weight + torch.ones(3).to(torch.device("cpu")),
    "made there": lambda weight: weight + torch.tensor([1.0, 2.0, 3.0], device=weight.device),
}
NOT_WAITING = {
    "pinned": lambda weight: weight + torch.ones(3).to(torch.device("cpu"), non_blocking=True),
    "filled there": lambda weight: weight + torch.ones(3, device=weight.device),
    "indices": lambda weight: weight[torch.tensor([0, 2]).to(torch.device("cpu"), non_blocking=True)],
    "of the host": lambda weight: torch.ones(3).nonzero().tolist(),
}


@pytest.mark.parametrize("name", WAITING)
def test_the_counter_sees_what_waits(name):
    module = torch.nn.LayerNorm(3)
    with Waits(module) as waits:
        WAITING[name](module.weight)
    assert waits.counts["waits"] == 1


@pytest.mark.parametrize("name", NOT_WAITING)
def test_the_counter_does_not_count_what_does_not_wait(name):
    module = torch.nn.LayerNorm(3)
    with Waits(module) as waits:
        NOT_WAITING[name](module.weight)
    assert waits.counts["waits"] == 0


def test_casts_are_counted():
    model = torch.nn.Linear(2, 4)
    with torch.no_grad(), Operations(model) as operations:
        torch.ones(8).to(torch.bfloat16).view(2, 4)
        model.weight.t().to(torch.bfloat16)
    assert operations.counts == {"operations": 3, "casts": 2, "casts of weights": 1}
