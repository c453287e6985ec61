"""The engine's closed formulas beside a clock that makes one step after another."""

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magcli_simulate.engine import SimulatedCompletion, SimulatedEngine
from magcli_simulate.machine import GeneratorSpec

SPEED = GeneratorSpec(
    devices=1, step_seconds=0.01, sequence_seconds=0.002, token_seconds=1e-4, prefill_tokens_per_s=1000.0
)


def sample(length, *, prompt=5, prefills=True):
    return SimulatedCompletion(0, length, prompt, prefills)


def drained(engine):
    """All ends as (time, sample), and the engine idle."""
    ends = []
    while (time := engine.next_event()) is not None:
        ends += [(time, sample) for sample in engine.process_event()]
    return ends


class Stepwise:
    """The same engine, a step at a time: what came before a step's begin is in it."""

    def __init__(self, slots, padded=False):
        self.padded = padded
        self.slots, self.clock, self.running, self.waiting, self.ends = slots, 0.0, [], [], []

    def until(self, now):
        while self.clock < now and (self.running or self.waiting):
            self.step()
        self.clock = max(self.clock, now)

    def step(self):
        prefill = 0
        while self.waiting and len(self.running) < self.slots:
            entry = self.waiting.pop(0)
            prefill += entry.prompt * entry.prefills
            self.running.append([entry, 0])
        cached = [entry.prompt + made for entry, made in self.running]
        cached = len(cached) * max(cached) if self.padded else sum(cached)
        self.clock += 0.01 + 0.002 * len(self.running) + 1e-4 * cached + prefill / 1000
        for pair in self.running:
            pair[1] += 1
        self.ends += [(self.clock, entry) for entry, made in self.running if made == entry.length]
        self.running = [pair for pair in self.running if pair[1] < pair[0].length]


@given(st.integers(0, 2**32), st.integers(1, 6), st.booleans())
@settings(max_examples=60, deadline=None)
def test_every_sequence_ends_where_single_steps_end_it(seed, slots, padded):
    choose = random.Random(seed)
    engine, stepwise, ends = SimulatedEngine(replace(SPEED, padded=padded), slots), Stepwise(slots, padded), []
    arrivals = sorted(choose.uniform(0, 3) for _ in range(choose.randint(1, 8)))
    for now in arrivals:
        batch = [sample(choose.randint(1, 60), prefills=place == 0) for place in range(choose.randint(1, 4))]
        while (time := engine.next_event()) is not None and time < now:
            ends += [(time, ended) for ended in engine.process_event()]
        engine.submit(batch, now)
        stepwise.until(now)
        stepwise.waiting += batch
    ends += drained(engine)
    stepwise.until(1e9)
    assert {id(entry) for _, entry in ends} == {id(entry) for _, entry in stepwise.ends}
    expected = {id(entry): time for time, entry in stepwise.ends}
    assert [time for time, _ in ends] == pytest.approx([expected[id(entry)] for _, entry in ends], rel=1e-9)


def test_new_weights_reach_running_sequences_and_a_pause_costs_its_length():
    calm, paused = SimulatedEngine(SPEED, 4), SimulatedEngine(SPEED, 4)
    for engine in (calm, paused):
        engine.submit([sample(100)], 0.0)
    paused.pause(0.5)
    assert paused.next_event() is None
    boundary = paused.clock
    assert 0.5 <= boundary < 0.55
    paused.resume(10.0, version=3)
    (time, ended), (undisturbed, _) = drained(paused)[0], drained(calm)[0]
    assert time == pytest.approx(undisturbed + 10.0 - boundary)
    assert (ended.first_version, ended.last_version) == (0, 3)
    assert paused.work.seconds == pytest.approx(calm.work.seconds)


def test_a_sequence_that_ends_before_new_weights_has_the_old_version():
    engine = SimulatedEngine(GeneratorSpec(devices=1, step_seconds=1.0), 1)
    engine.submit([sample(1)], 0.0)
    engine.pause(0.5)
    engine.resume(5.0, version=1)
    (_, ended), *_ = drained(engine)
    assert (ended.first_version, ended.last_version) == (0, 0)


def test_a_sequence_without_tokens_has_only_the_new_version():
    engine = SimulatedEngine(SPEED, 4)
    engine.submit([sample(10)], 0.0)
    engine.pause(0.0)
    engine.submit([sample(12)], 0.5)
    engine.resume(1.0, version=7)
    assert [(ended.first_version, ended.last_version) for _, ended in drained(engine)] == [(7, 7), (7, 7)]


def test_the_engine_does_exactly_the_requested_work():
    engine = SimulatedEngine(SPEED, 2)
    engine.submit([sample(3), sample(5, prefills=False), sample(4)], 0.0)
    drained(engine)
    assert engine.work.generated == 12
    assert engine.work.prefilled == 10
    assert engine.work.steps == 7
    assert engine.work.attended == sum(5 + i for length in (3, 5, 4) for i in range(length))
    assert engine.load == 0


@given(st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_a_full_cache_preempts_the_newest_and_loses_nothing(seed):
    choose = random.Random(seed)
    speed = GeneratorSpec(devices=1, step_seconds=0.01, cache_tokens=100)
    engine, samples = SimulatedEngine(speed, 16), [sample(choose.randint(1, 90)) for _ in range(20)]
    engine.submit(samples, 0.0)
    ends = drained(engine)
    assert {id(ended) for _, ended in ends} == set(map(id, samples))
    assert len(ends) == 20
    assert engine.work.generated == sum(entry.length for entry in samples), "no token is made twice"
    assert engine.peak <= 100


def test_a_sequence_longer_than_the_cache_runs_alone():
    engine = SimulatedEngine(GeneratorSpec(devices=1, step_seconds=1.0, cache_tokens=50), 4)
    engine.submit([sample(80, prompt=0), sample(10, prompt=0)], 0.0)
    ends = drained(engine)
    assert sorted(ended.length for _, ended in ends) == [10, 80]
    assert engine.clock == 80
