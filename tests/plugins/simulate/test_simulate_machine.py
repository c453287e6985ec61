from pathlib import Path

import pytest

from magcli.errors import UsageError
from magcli_simulate.machine import (
    GeneratorSpec,
    LengthSpec,
    Machine,
    TrainerSpec,
    VerifierSpec,
    read_machine,
)

WHOLE = """
[lengths]
median = 300
sigma = 0.5
[generators]
devices = 8
devices_per_engine = 2
step_seconds = 0.02
[trainer]
devices = 4
tokens_per_s = 2000
"""


def written(folder, text):
    path = folder / "machine.toml"
    path.write_text(text)
    return path


def test_a_description_becomes_a_machine(tmp_path):
    machine = read_machine(written(tmp_path, WHOLE))
    generators = GeneratorSpec(devices=8, devices_per_engine=2, step_seconds=0.02)
    assert machine == Machine(LengthSpec(median=300.0, sigma=0.5), generators, TrainerSpec(4, 2000.0), VerifierSpec())
    assert machine.generators.engines == 4


def test_rollouts_are_found_relative_to_the_description(tmp_path):
    text = WHOLE.replace("median = 300\nsigma = 0.5", 'rollouts = "run/rollouts"')
    assert Path(read_machine(written(tmp_path, text)).lengths.rollouts) == tmp_path / "run" / "rollouts"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("sigma", "sigmas", r"unknown key 'sigmas'; did you mean 'sigma'\?"),
        ("[trainer]", "[trainers]", r"unknown table \[trainers\]; did you mean 'trainer'\?"),
        ("step_seconds = 0.02", "", r"\[generators\] lacks step_seconds"),
        ("step_seconds = 0.02", "step_seconds = 0", "step_seconds, prefill_tokens_per_s: above 0"),
        ("median = 300", "", "one of median, quantiles and rollouts"),
        ("median = 300", 'median = 300\nrollouts = "x"', "one of median, quantiles and rollouts"),
        ("median = 300", "quantiles = [[0, 10], [1, 5]]", "both rising"),
        ("median = 300", "quantiles = [[0.2, 10], [1, 50]]", "shares from 0 to 1"),
        ("median = 300", "quantiles = [[0, 10, 3], [1, 50]]", "pairs"),
        ("sigma = 0.5", "correlation = 1.5", "correlation: from 0 to 1"),
        ("sigma = 0.5", "dropped = 1.0", "dropped: from 0 to below 1"),
        ("devices_per_engine = 2", "devices_per_engine = 3", "a multiple of devices_per_engine"),
        ("devices = 4", "devices = 0", r"\[trainer\] devices, tokens_per_s: above 0"),
        ("tokens_per_s = 2000", 'tokens_per_s = "fast"', "trainer.tokens_per_s: expected float, got 'fast'"),
        ("[trainer]", "[verifiers]\nworkers = 0\n[trainer]", "workers above 0"),
        ("median = 300", "median = ", "is not valid TOML"),
    ],
)
def test_errors_in_a_description_are_named(tmp_path, old, new, message):
    with pytest.raises(UsageError, match=message):
        read_machine(written(tmp_path, WHOLE.replace(old, new, 1)))


def test_a_missing_description_is_named(tmp_path):
    with pytest.raises(UsageError, match="does not exist"):
        read_machine(tmp_path / "none.toml")
