"""The rules of admission as pure functions of the outstanding groups."""

import pytest

from magcli.rl.admission import Admission


def generated(admission, numbers, *, graded=True):
    """Start groups and end all their completions."""
    for number in numbers:
        admission.start(number)
        for _ in range(admission.group_size):
            admission.completion_ended(number)
        if graded:
            admission.admit(number)


def test_a_group_starts_for_each_free_place_in_the_engines():
    admission = Admission(group_size=4, staleness=8, updates=10, batch=2)
    admission.start(0)
    assert admission.may_start(capacity=5)
    assert not admission.may_start(capacity=4)
    assert not admission.completion_ended(0)
    assert admission.may_start(capacity=4), "one completion has ended"


@pytest.mark.parametrize(("staleness", "updates_left", "most"), [(0, 10, 2), (1, 10, 4), (8, 10, 18), (8, 3, 6)])
def test_no_more_groups_are_outstanding_than_can_train_in_time(staleness, updates_left, most):
    admission = Admission(group_size=1, staleness=staleness, updates=10, batch=2, version=10 - updates_left)
    number = 0
    while admission.may_start(capacity=1000):
        admission.start(number)
        number += 1
    assert number == most


@pytest.mark.parametrize("graded", [True, False], ids=["trainer is slow", "verifiers are slow"])
def test_generation_pauses_while_two_batches_wait(graded):
    admission = Admission(group_size=1, staleness=8, updates=100, batch=2)
    generated(admission, range(4), graded=graded)
    assert not admission.may_start(capacity=100)
    assert admission.waits_for() == "verifier"


def test_generation_goes_on_while_the_update_waits_for_a_slow_group():
    admission = Admission(group_size=1, staleness=1, updates=100, batch=2)
    admission.start(0)
    admission.version = 1
    generated(admission, range(1, 4))
    assert admission.choose() is None, "group 0 would train after two updates"
    assert admission.waits_for() == "generation"
    admission.max_queued = 1
    assert not admission.may_start(capacity=100), "the bound on staleness allows four groups"
    admission.staleness, admission.version = 2, 2
    assert admission.choose() is None
    assert admission.may_start(capacity=100)


def test_a_group_is_outstanding_until_its_weights_are_loaded():
    admission = Admission(group_size=1, staleness=0, updates=10, batch=1)
    generated(admission, [0])
    assert admission.choose() == [0]
    admission.take([0])
    assert not admission.may_start(capacity=10)
    admission.trained([0])
    assert admission.version == 1
    assert admission.may_start(capacity=10)


def test_a_dropped_group_makes_room():
    admission = Admission(group_size=1, staleness=0, updates=10, batch=1)
    generated(admission, [0], graded=False)
    assert not admission.may_start(capacity=10)
    admission.drop(0)
    assert admission.may_start(capacity=10)
