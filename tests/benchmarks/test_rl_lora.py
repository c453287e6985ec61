"""The table of `rl-lora-vs-full`, and what TRL is told about adapters."""

import json

import pytest

from benchmarks.rl import trl_child
from benchmarks.rl.lora import Estimate, Seed, mean_difference, read_seed, table

FULL, LORA = Estimate(0.8, 0.75, 0.85), Estimate(0.83, 0.79, 0.87)
SEED = Seed(FULL, LORA, Estimate(0.03, -0.01, 0.07))


def test_the_interval_of_a_mean_shrinks_with_the_number_of_seeds():
    one = Estimate(0.03, -0.01, 0.07)
    mean = mean_difference([one] * 4)
    assert mean.value == pytest.approx(0.03)
    assert (mean.low, mean.high) == (pytest.approx(0.01), pytest.approx(0.05))


def test_the_table_has_a_line_for_each_seed_and_the_mean():
    worse = Seed(FULL, Estimate(0.7, 0.6, 0.8), Estimate(-0.1, -0.14, -0.06))
    lines = table({"0": SEED, "1": worse})
    assert lines[2] == "| 0 | 80.0 [75.0, 85.0] | 83.0 [79.0, 87.0] | +3.0 [-1.0, +7.0] |"
    assert lines[-1] == "| mean | 80.0 | 76.5 | -3.5 [-6.3, -0.7] |"


def test_accuracies_are_those_of_the_model_before_and_after(tmp_path):
    names = {"avg@n before": FULL, "avg@n": LORA, "avg@n difference": SEED.difference, "pass@1": FULL}
    rows = [{"metric": name, "value": e.value, "low": e.low, "high": e.high} for name, e in names.items()]
    path = tmp_path / "table.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert read_seed(path) == SEED


def test_adapters_of_trl_are_on_the_layers_of_magcli():
    spec = {"lora": 8, "lora_alpha": 32, "bf16": True}
    adapters = trl_child._adapters(spec)
    assert (adapters.r, adapters.lora_alpha, adapters.target_modules) == (8, 32, "all-linear")
    assert trl_child._has_bf16_base(spec)
    assert not trl_child._has_bf16_base(spec | {"bf16": False})
    assert trl_child._adapters({"lora": 0}) is None
    assert not trl_child._has_bf16_base({"lora": 0, "bf16": True})
