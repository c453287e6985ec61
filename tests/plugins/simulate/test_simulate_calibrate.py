import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from calling import call_stage

from magcli.data import checksum
from magcli.data.checksum import encode_lines
from magcli.errors import DataError
from magcli.run.rundir import RunDir
from magcli_simulate.machine import GeneratorSpec, LengthSpec, Machine, TrainerSpec, VerifierSpec
from magcli_simulate.predict import MeasuredRun, calibrate, nonnegative_least_squares, predict, read_run, simulate
from magcli_simulate.simulation import Simulation, SimulationSettings
from magcli_simulate.workload import group_source

LENGTHS = LengthSpec(median=120.0, sigma=0.7, correlation=0.3, prompt=40, dropped=0.2)
TRUTH = Machine(
    LENGTHS,
    GeneratorSpec(1, 0.008, sequence_seconds=4e-4, token_seconds=1e-6, prefill_tokens_per_s=4000.0),
    TrainerSpec(1, tokens_per_s=3000.0, update_seconds=0.4, transfer_seconds=0.1),
    VerifierSpec(workers=2, seconds=0.02),
)
RUN = SimulationSettings(updates=10, group_size=8, n_async=64, n_batch=64, staleness=8, max_tokens=600)


def measured(run: SimulationSettings, machine: Machine = TRUTH) -> MeasuredRun:
    """What a run on a known machine would have measured."""
    draw = group_source(machine.lengths, group=run.group_size, max_tokens=run.max_tokens, seed=5)
    simulation = Simulation(run, machine, draw)
    updates = simulation.run().updates
    training = np.diff([update.training for update in updates], prepend=0.0)
    transfer, engines = machine.trainer.transfer_seconds, machine.generators.engines
    return MeasuredRun(
        run,
        engines,
        machine.generators.padded,
        {number: draw(number) for number in range(simulation.number)},
        seconds=np.diff([update.time for update in updates], prepend=0.0),
        training=training,
        transfer=np.full(len(updates), transfer),
        generating=np.diff([update.work.seconds for update in updates], prepend=0.0) / engines,
        tokens=(training - machine.trainer.update_seconds) * machine.trainer.tokens_per_s,
        verdict=machine.verifiers.seconds,
    )


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("placement", ["shared", "split"])
def test_speeds_found_at_some_sizes_predict_a_run_at_others(placement, padded):
    engines = 2 if placement == "split" else 1
    machine = replace(TRUTH, generators=replace(TRUTH.generators, devices=engines, padded=padded))
    runs = [
        measured(replace(RUN, n_async=n_async, n_batch=n_batch, placement=placement), machine)
        for n_async, n_batch in ((16, 32), (128, 64))
    ]
    found = calibrate(runs, workers=2)
    assert found.trainer.tokens_per_s == pytest.approx(3000, rel=1e-3)
    assert found.trainer.update_seconds == pytest.approx(0.4, rel=1e-3)
    assert found.generators.engines == machine.generators.engines
    assert (found.lengths.prompt, found.lengths.dropped) == (40, pytest.approx(0.2, abs=0.08))
    other = replace(RUN, n_async=48, n_batch=96, staleness=4, placement=placement)
    draw = group_source(LENGTHS, group=8, max_tokens=600, seed=9)
    ours, truth = predict(other, found, draw), predict(other, machine, draw)
    assert ours.trained_tokens_per_s == pytest.approx(truth.trained_tokens_per_s, rel=0.03)
    assert ours.generator_idle == pytest.approx(truth.generator_idle, abs=0.02)
    assert ours.trainer_idle == pytest.approx(truth.trainer_idle, abs=0.02)


@pytest.mark.parametrize("seed", range(8))
def test_noisy_times_are_reproduced_in_total(seed):
    generators = GeneratorSpec(1, 0.004, sequence_seconds=1e-4, token_seconds=1e-6, padded=True, gap_seconds=0.003)
    lengths = LengthSpec(median=8.0, sigma=0.8, correlation=0.8, prompt=3, dropped=0.15)
    slow_verdicts = Machine(lengths, generators, replace(TRUTH.trainer, update_seconds=0.08), VerifierSpec(1, 0.012))
    calm = measured(
        SimulationSettings(updates=8, group_size=8, n_async=32, n_batch=32, staleness=1, max_tokens=24), slow_verdicts
    )
    noise = np.exp(np.random.default_rng(seed).normal(0, 0.3, (3, len(calm.seconds))))
    training, generating, transfer = calm.training * noise[0], calm.generating * noise[1], calm.transfer * noise[2]
    seconds = calm.seconds + (training + generating + transfer - calm.training - calm.generating - calm.transfer)
    busy = replace(calm, seconds=seconds, training=training, generating=generating, transfer=transfer)
    updates = Simulation(busy.settings, calibrate([busy], workers=1), busy.group).run().updates
    assert updates[-1].time - updates[0].time == pytest.approx(seconds[1:].sum(), rel=0.05)


def test_groups_of_the_calibration_run_are_reused():
    run = measured(RUN)
    assert run.group(3) == run.groups[3]
    assert run.group(10**6) in run.groups.values()
    assert run.group(10**6) == run.group(10**6)


@pytest.fixture(scope="module")
def finished(guesser, tmp_path_factory):
    """A small real run, its engine and trainer taking turns."""
    folder = tmp_path_factory.mktemp("calibrate")
    rows = [{"id": f"p{i}", "prompt": f"{letter}?", "answer": "3"} for i, letter in enumerate("abcdefgh")]
    (folder / "problems.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = {
        "updates": 8,
        "group_size": 8,
        "n_async": 32,
        "n_batch": 32,
        "n_mini": 32,
        "max_tokens": 24,
        "dtype": "fp32",
    }
    more = {"bf16": "no", "system": Path("none"), "language": False, "checkpoint_every": 100, "lr": 1e-9}
    call_stage("rl", folder / "problems.jsonl", model=str(guesser), run=folder / "run", **options, **more)
    return folder / "run"


def test_a_real_run_is_read_and_its_speed_reproduced(finished):
    run = read_run(finished)
    events = [json.loads(line) for line in (finished / "ledger.jsonl").read_text().splitlines()]
    assert run.settings == SimulationSettings(8, 8, 32, 32, 8, 24, "async", "shared")
    assert run.seconds.sum() == pytest.approx(events[-1]["time"] - events[0]["time"])
    assert set(run.groups) == {event["group"] for event in events if event["event"] == "reserved"}
    dropped = {event["group"] for event in events if event["event"] == "dropped"}
    assert {number for number, group in run.groups.items() if group.dropped} == dropped
    trained = [group for group in run.groups.values() if not group.dropped]
    assert run.tokens.sum() == sum(sum(group.lengths) + 8 * group.prompt for group in trained)
    assert (run.training + run.transfer + run.generating).sum() < run.seconds.sum() * 1.02
    assert 0 < run.verdict < 5
    updates = Simulation(run.settings, calibrate([run], workers=1), run.group).run().updates
    assert updates[-1].time - updates[0].time == pytest.approx(run.seconds[1:].sum(), rel=0.15)


def test_a_finished_run_predicts_others_on_its_machine(finished):
    settings = read_run(finished).settings
    same = simulate(finished, settings, seed=0, workers=1)
    assert same == simulate(finished, settings, seed=0, workers=1)
    assert same.updates == 8
    assert simulate(finished, replace(settings, n_batch=64), seed=0).updates_per_hour < same.updates_per_hour


def test_a_run_of_an_earlier_version_recorded_the_group_size_as_group(finished, tmp_path):
    earlier = shutil.copytree(finished, tmp_path / "earlier")
    record = checksum.read_object(earlier / "run.json")
    record["group"] = record.pop("group_size")
    (earlier / "run.json").write_bytes(checksum.encode_object(record))
    assert read_run(earlier).settings == read_run(finished).settings


def test_folders_that_are_not_runs_are_named(finished, tmp_path):
    with pytest.raises(DataError, match="not a magcli rl run that can calibrate the simulation"):
        read_run(tmp_path)
    short = tmp_path / "short"
    short.mkdir()
    for name, lines in (("run.json", None), ("metrics.jsonl", 2), ("ledger.jsonl", None)):
        text = (finished / name).read_text()
        (short / name).write_text("\n".join(text.split("\n")[:lines]))
    with pytest.raises(DataError, match="it has fewer than 3 updates"):
        read_run(short)
    staged = [{**line, "stage": int(line["step"] > 4)} for line in RunDir(finished).metrics()]
    (short / "metrics.jsonl").write_bytes(encode_lines(staged))
    with pytest.raises(DataError, match="a run with stages"):
        read_run(short)


def test_least_squares_is_never_negative():
    columns = np.array([[1.0, 2.0, 0.0], [1.0, 4.0, 0.0], [1.0, 9.0, 0.0]])
    assert nonnegative_least_squares(columns, 3 + 0.5 * columns[:, 1]) == pytest.approx([3, 0.5, 0])
    fixed, slope, absent = nonnegative_least_squares(columns, 0.5 * columns[:, 1] - 0.1)
    assert fixed == absent == 0
    assert slope == pytest.approx(0.49, rel=0.02)
    assert nonnegative_least_squares(columns, -columns[:, 1]) == [0, 0, 0]
