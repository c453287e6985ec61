"""Runs whose figures can be worked out by hand, and the rules that hold for every run."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from magcli.errors import Stopped
from magcli_simulate.machine import GeneratorSpec, LengthSpec, Machine, TrainerSpec, VerifierSpec
from magcli_simulate.simulation import Simulation, SimulationSettings
from magcli_simulate.workload import GroupShape, group_source

RUN = SimulationSettings(updates=5, group_size=4, n_async=16, n_batch=8, staleness=1, max_tokens=1000)
MACHINE = Machine(
    LengthSpec(median=100.0),
    GeneratorSpec(devices=1, step_seconds=0.01),
    TrainerSpec(devices=2, tokens_per_s=1000, update_seconds=0.5, transfer_seconds=0.25),
    VerifierSpec(),
)


def equal(length, *, group=4, prompt=0):
    return lambda number: GroupShape((length,) * group, prompt, dropped=False)


def end_of(run, machine, draw):
    return Simulation(run, machine, draw).run().updates[-1].time


def test_a_synchronous_run_is_the_sum_of_its_parts():
    run = replace(RUN, schedule="sync")
    machine = replace(MACHINE, verifiers=VerifierSpec(workers=8, seconds=0.125))
    training = 0.5 + 8 * (100 + 20) / 2000
    expected = 5 * (100 * 0.01 + 0.125 + training + 0.25)
    for placement in ("shared", "split"):
        found = end_of(replace(run, placement=placement), machine, equal(100, prompt=20))
        assert found == pytest.approx(expected), placement


def test_a_synchronous_batch_waits_for_its_longest_completion_and_replacements():
    lengths = {0: (10, 10, 10, 200), 1: (10,) * 4, 2: (10,) * 4}
    draw = lambda number: GroupShape(lengths[number], 0, dropped=number == 1)  # noqa: E731
    result = Simulation(replace(RUN, updates=1, schedule="sync"), MACHINE, draw).run()
    assert result.updates[0].time == pytest.approx((200 + 10) * 0.01 + 0.5 + (230 + 40) / 2000 + 0.25)
    assert (result.dropped, result.updates[0].dropped) == (1, 1)


def test_split_runs_at_the_pace_of_the_slower_side():
    run = replace(RUN, updates=40, placement="split", n_async=8)
    slow_trainer = replace(MACHINE, trainer=replace(MACHINE.trainer, update_seconds=9.0))
    training = 9.0 + 800 / 2000 + 0.25
    assert end_of(run, slow_trainer, equal(100)) == pytest.approx(1.0 + 40 * training, rel=0.01)
    fast_trainer = replace(MACHINE, trainer=TrainerSpec(devices=1, tokens_per_s=1e9))
    assert end_of(run, fast_trainer, equal(100)) == pytest.approx(40 * 1.0, rel=0.01)


def test_shared_takes_turns_and_split_overlaps():
    run = replace(RUN, updates=20, n_async=8)
    decoding, training = 1.0, 0.5 + 800 / 2000 + 0.25
    shared = end_of(run, MACHINE, equal(100))
    split = end_of(replace(run, placement="split"), MACHINE, equal(100))
    assert shared == pytest.approx(20 * (decoding + training), rel=0.01)
    assert max(decoding, training) * 20 <= split < 0.75 * shared


def test_verifiers_can_be_the_bottleneck():
    machine = replace(MACHINE, verifiers=VerifierSpec(workers=2, seconds=1.0))
    run = replace(RUN, updates=30, placement="split")
    assert end_of(run, machine, equal(10)) == pytest.approx(30 * 8 * 1.0 / 2, rel=0.05)


def test_engines_share_the_completions():
    run = replace(RUN, updates=20, placement="split", n_async=16, staleness=3)
    draw = group_source(LengthSpec(median=100.0, sigma=0.7), group=4, max_tokens=1000, seed=0)
    one = Simulation(run, MACHINE, draw)
    four = Simulation(run, replace(MACHINE, generators=replace(MACHINE.generators, devices=4)), draw)
    one.run(), four.run()
    generated = [engine.work.generated for engine in four.engines]
    assert generated == pytest.approx([sum(generated) / 4] * 4, rel=0.15)
    assert sum(generated) == one.engines[0].work.generated


@given(
    st.integers(0, 3),
    st.sampled_from([(4, 4), (8, 8), (8, 32), (16, 12), (32, 64)]),
    st.sampled_from(["shared", "split"]),
    st.sampled_from(["sync", "async"]),
    st.integers(0, 2**32),
)
@examples(max_examples=60, deadline=None)
def test_every_group_ends_once_and_none_trains_too_late(staleness, sizes, placement, schedule, seed):
    run = replace(
        RUN, updates=8, staleness=staleness, n_batch=sizes[0], n_async=sizes[1], placement=placement, schedule=schedule
    )
    machine = replace(
        MACHINE,
        generators=GeneratorSpec(devices=2, step_seconds=0.01, cache_tokens=2000),
        verifiers=VerifierSpec(workers=2, seconds=0.05),
    )
    lengths = LengthSpec(median=60.0, sigma=1.2, correlation=0.5, dropped=0.3, prompt=7)
    simulation = Simulation(run, machine, group_source(lengths, group=4, max_tokens=1000, seed=seed))
    result = simulation.run()
    assert len(result.updates) == 8
    assert all(len(update.staleness) == run.n_batch for update in result.updates)
    assert max(max(update.staleness) for update in result.updates) <= (staleness if schedule == "async" else 0)
    assert min(min(update.staleness) for update in result.updates) >= 0
    assert simulation.number == 8 * run.n_batch // 4 + result.dropped, "what was started, trained or was dropped"
    assert (simulation.running, simulation.ready, simulation.admission.started) == ({}, {}, {})
    assert (simulation.admission.in_flight, len(simulation.queue)) == (0, 0)
    made = sum(sum(simulation.groups(number).lengths) for number in range(simulation.number))
    assert sum(engine.work.generated for engine in simulation.engines) == made


def test_a_run_that_rejects_every_group_stops():
    with pytest.raises(Stopped, match="101 consecutive groups had zero advantage"):
        Simulation(RUN, MACHINE, lambda number: GroupShape((5,) * 4, 0, dropped=True)).run()
