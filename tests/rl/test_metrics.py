"""The mismatch between trainer and engine in numbers."""

import math

import pytest
import torch

from magcli.rl.metrics import mismatch_summary


def test_mismatch_of_known_log_ratios():
    parts = [torch.linspace(-1, 0, 51), torch.zeros(0), torch.linspace(0.02, 1, 50)]
    got = mismatch_summary(parts)
    assert got["mismatch_tokens"] == 101
    expected = {"mean": 51 / 101, "p50": 0.5, "p90": 0.9, "p99": 1.0, "max": 1.0, "signed": 0.0}
    assert {name: got[f"mismatch_{name}"] for name in expected} == pytest.approx(expected, abs=1e-6)
    assert mismatch_summary([]) == mismatch_summary([torch.zeros(0)]) == {"mismatch_tokens": 0}


def test_the_mismatch_of_nan_is_nan():
    assert math.isnan(mismatch_summary([torch.full((9,), math.nan)])["mismatch_p50"])
