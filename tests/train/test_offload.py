"""AdamW with its moments in host memory takes the same steps, whatever the pieces, and waits for its copies."""

from contextlib import contextmanager
from copy import deepcopy

import pytest
import torch

from magcli.train import offload, optim
from magcli.train.offload import OffloadedAdamW

SHAPES = [(33, 17), (64,), (5, 7, 3), (1,)]


def parameters():
    random = torch.Generator().manual_seed(0)
    return [torch.nn.Parameter(torch.randn(shape, generator=random)) for shape in SHAPES]


def grouped(trained):
    return [{"params": trained[:2], "weight_decay": 0.1}, {"params": trained[2:], "weight_decay": 0.0}]


def pair(*, piece):
    """Plain AdamW and one that offloads, with equal parameters of their own."""
    options = {"lr": 1e-2, "betas": (0.9, 0.95)}
    plain = torch.optim.AdamW(grouped(parameters()), fused=True, **options)
    return plain, OffloadedAdamW(grouped(parameters()), piece=piece, **options)


def trained_by(optimizer):
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def step(optimizer, number, *, without=None):
    """A step with the gradients of this number; one parameter may have none."""
    random = torch.Generator().manual_seed(number)
    for index, parameter in enumerate(trained_by(optimizer)):
        gradient = torch.randn(parameter.shape, generator=random)
        parameter.grad = None if index == without else gradient
    optimizer.step()


def assert_equal(plain, offloaded):
    for one, other in zip(trained_by(plain), trained_by(offloaded), strict=True):
        torch.testing.assert_close(other, one, rtol=1e-6, atol=1e-7)
        assert plain.state[one].keys() == offloaded.state[other].keys()
        for name, value in plain.state[one].items():
            torch.testing.assert_close(offloaded.state[other][name], value, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("piece", [1 << 20, 64, 7])
def test_steps_are_those_of_adamw(piece):
    plain, offloaded = pair(piece=piece)
    for number, without in enumerate([None, 1, None, None]):
        for optimizer in (plain, offloaded):
            optim.set_lr(optimizer, 1e-2 / (number + 1))
            step(optimizer, number, without=without)
    assert_equal(plain, offloaded)
    assert [int(offloaded.state[parameter]["step"]) for parameter in trained_by(offloaded)] == [4, 3, 4, 4]


def test_whole_parameters_take_the_same_bits():
    plain, offloaded = pair(piece=1 << 20)
    for number in range(3):
        step(plain, number)
        step(offloaded, number)
    assert all(torch.equal(*both) for both in zip(trained_by(plain), trained_by(offloaded), strict=True))


@pytest.mark.parametrize("offloads_first", [True, False])
def test_a_state_loads_with_and_without_offloading(offloads_first):
    first, second = pair(piece=64)[:: -1 if offloads_first else 1]
    step(first, 0, without=2)
    second.load_state_dict(deepcopy(first.state_dict()))
    with torch.no_grad():
        for source, target in zip(trained_by(first), trained_by(second), strict=True):
            target.copy_(source)
    for number in (1, 2):
        step(first, number)
        step(second, number)
    assert_equal(first, second)


def test_a_loaded_state_is_a_copy():
    _, first = pair(piece=64)
    _, second = pair(piece=64)
    step(first, 0)
    second.load_state_dict(first.state_dict())
    before = second.state[trained_by(second)[0]]["exp_avg"].clone()
    step(first, 1)
    assert torch.equal(second.state[trained_by(second)[0]]["exp_avg"], before)


def test_a_skipped_step_moves_no_moment():
    _, offloaded = pair(piece=64)
    trained = trained_by(offloaded)
    for parameter in trained:
        parameter.grad = torch.full_like(parameter, torch.inf)
    assert optim.clip_and_step(offloaded, trained, max_norm=1.0) is None
    assert not offloaded.state


def test_a_model_on_the_cpu_has_its_moments_there_anyway(model):
    optimizer = optim.adamw(model, lr=1e-3, weight_decay=0.0, offload_moments=True)
    assert type(optimizer) is torch.optim.AdamW


def test_updates_wait_for_their_moments_and_copies_back_for_updates(monkeypatch):
    """With streams that record the order of their work, in which everything is done at once."""
    log = recorded_streams(monkeypatch)
    monkeypatch.setattr(offload, "_copies_for", offload.StreamCopies)
    plain, offloaded = pair(piece=400)
    for number in range(2):
        step(plain, number)
        log.clear()
        step(offloaded, number)
    assert_equal(plain, offloaded)
    uploads = [position for position, entry in enumerate(log) if entry == "copies: record"]
    waits = [position for position, entry in enumerate(log) if entry == "work: wait event"]
    assert len(uploads) == len(waits) == 5, "561 values are two pieces, the other parameters one each"
    assert all(upload < wait for upload, wait in zip(uploads, waits, strict=True))
    assert all(upload < wait for upload, wait in zip(uploads[1:], waits[1:], strict=True)), "the next piece comes early"
    assert log.count("copies: wait work") == 1 + 5, "at the start, and before each copy back"
    assert log[-1] == "copies: synchronize"


def recorded_streams(monkeypatch):
    """Replace CUDA's streams by ones that write down what waits for what; returns the list."""
    log = []

    class Stream:
        def __init__(self, name):
            self.name = name

        def wait_stream(self, other):
            log.append(f"{self.name}: wait {other.name}")

        def wait_event(self, event):
            log.append(f"{self.name}: wait event")

        def record_event(self):
            log.append(f"{self.name}: record")

        def synchronize(self):
            log.append(f"{self.name}: synchronize")

    @contextmanager
    def entered(stream):
        yield

    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: Stream("work"))
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: Stream("copies"))
    monkeypatch.setattr(torch.cuda, "stream", entered)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda tensor, stream: None)
    return log
