import time
from dataclasses import asdict, fields, replace
from pathlib import Path

import pytest

from magcli_simulate.machine import GeneratorSpec, LengthSpec, Machine, TrainerSpec, VerifierSpec
from magcli_simulate.predict import Prediction, predict, report, simulate
from magcli_simulate.simulation import SimulationSettings
from magcli_simulate.workload import GroupShape

CLUSTER = Path(__file__).parents[3] / "recipes" / "magistral-small" / "cluster.toml"
RUN = SimulationSettings(updates=10, group_size=4, n_async=8, n_batch=8, staleness=1, max_tokens=1000, schedule="sync")
MACHINE = Machine(
    LengthSpec(median=100.0),
    GeneratorSpec(devices=1, step_seconds=0.01),
    TrainerSpec(devices=1, tokens_per_s=1000),
    VerifierSpec(workers=8, seconds=0.2),
)


def test_predictions_match_a_hand_calculation():
    found = predict(RUN, MACHINE, lambda number: GroupShape((100,) * 4, 0, dropped=False))
    update = 1.0 + 0.2 + 0.8
    assert found.hours == pytest.approx(10 * update / 3600)
    assert found.updates_per_hour == pytest.approx(3600 / update)
    assert found.generated_tokens_per_s == found.trained_tokens_per_s == pytest.approx(800 / update)
    assert found.generator_idle == pytest.approx(1 - 1.0 / update)
    assert found.trainer_idle == pytest.approx(1 - 0.8 / update)
    assert found.sequences_running_mean == 8
    assert (found.staleness_mean, found.staleness_max, found.mixed_versions, found.groups_dropped) == (0, 0, 0, 0)
    assert found.completions_ungraded_mean == pytest.approx(8 * 0.2 / update)
    assert found.completions_ungraded_max == 8
    assert (found.cache_peak, found.preemptions) == (800, 0)


def test_asynchronous_split_beats_synchronous_where_lengths_are_heavy_tailed():
    lengths = {0: 30, 1: 40, 2: 60, 3: 900}
    draw = lambda number: GroupShape(tuple(lengths[(number + place) % 4] for place in range(4)), 0, False)  # noqa: E731
    found = {}
    for schedule in ("sync", "async"):
        run = replace(RUN, n_async=16, staleness=2, updates=30, schedule=schedule, placement="split")
        found[schedule] = predict(run, MACHINE, draw)
    assert found["async"].trained_tokens_per_s > 1.5 * found["sync"].trained_tokens_per_s
    assert found["async"].generator_idle < found["sync"].generator_idle
    assert found["async"].mixed_versions > 0 == found["sync"].mixed_versions


@pytest.fixture(scope="module")
def planned():
    run = SimulationSettings(
        updates=6, group_size=16, n_async=4096, n_batch=2048, staleness=1, max_tokens=32768, placement="split"
    )
    begun = time.process_time()
    return simulate(CLUSTER, run, seed=0), time.process_time() - begun, run


def test_an_hour_of_hundreds_of_devices_is_simulated_in_seconds(planned):
    found, seconds, _ = planned
    assert found.hours > 0.3
    assert seconds / found.hours < 30


def test_the_same_seed_gives_the_same_figures(planned):
    found, _, run = planned
    small = replace(run, updates=1)
    assert simulate(CLUSTER, small, seed=0) == simulate(CLUSTER, small, seed=0)
    assert simulate(CLUSTER, small, seed=0) != simulate(CLUSTER, small, seed=1)
    assert 0 < found.generator_idle < 1
    assert found.staleness_max == 1


def test_the_machine_says_whether_trainer_and_engines_take_turns(planned, tmp_path):
    beside, _, run = planned
    shared = tmp_path / "shared.toml"
    shared.write_text(CLUSTER.read_text().replace("[trainer]", "[trainer]\nshared = true"))
    turns = simulate(shared, run, seed=0)
    assert turns.generator_idle > beside.generator_idle
    assert turns.trained_tokens_per_s < beside.trained_tokens_per_s
    assert simulate(CLUSTER, replace(run, placement="shared"), seed=0) == beside


def test_the_report_and_the_event_carry_every_figure(planned):
    found, _, _ = planned
    text = report(found)
    assert len(text.splitlines()) == 12
    assert f"{found.generator_idle:.1%}" in text
    assert f"{found.updates_per_hour:,.1f} per hour" in text
    assert asdict(found) == {field.name: getattr(found, field.name) for field in fields(Prediction)}
