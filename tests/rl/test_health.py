"""When a run is stopped: by its numbers, after so many updates, and not before."""

import math

import pytest

from magcli.generate.types import Rollout
from magcli.rl.metrics import LIMITS, mismatch_fault, stop_reason, unused_end


def line(**values):
    """A line of metrics of a healthy update."""
    healthy = {
        "mismatch_tokens": 20_000,
        "mismatch_p50": 0.01,
        "mismatch_p99": 0.12,
        "cut_share": 0.2,
        "groups_trained": 16,
        "groups_dropped": {"all-right": 3, "all-wrong": 20, "bad-gold": 2},
    }
    return healthy | values


SICK = {
    "mismatch": line(mismatch_p50=0.35, mismatch_p99=2.5),
    "cut": line(cut_share=0.98),
    "non-diverse": line(groups_dropped={"all-right": 12, "all-wrong": 900}),
}
LONG = {"mismatch": LIMITS.mismatch_updates, "cut": LIMITS.updates, "non-diverse": LIMITS.updates}


def test_a_healthy_run_has_no_fault():
    assert stop_reason([line()] * 50) is None
    assert stop_reason([]) is None
    assert mismatch_fault(line()) is None


@pytest.mark.parametrize("name", SICK)
def test_a_fault_needs_the_full_number_of_consecutive_updates(name):
    sick, updates = SICK[name], LONG[name]
    assert stop_reason([sick] * (updates - 1)) is None
    assert stop_reason([line()] * 5 + [sick] * (updates - 1)) is None
    assert stop_reason([line()] * 5 + [sick] * updates).startswith(f"in {updates} consecutive updates: ")
    assert stop_reason([sick] * updates + [line()]) is None


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mismatch", "the log-probs of 20,000 tokens differ by 0.35 in the median (limit 0.1), 2.5 at"),
        ("cut", "98.0 % of completions reach the token limit; increase --max-tokens"),
        ("non-diverse", "912 of 928 groups had zero advantage (all-wrong 900, all-right 12); use other problems"),
    ],
)
def test_a_fault_is_one_line_with_its_numbers_and_what_to_do(name, message):
    found = stop_reason([SICK[name]] * LONG[name])
    assert message in found
    assert "\n" not in found


@pytest.mark.parametrize(
    "values",
    [
        {"mismatch_p50": 0.11},
        {"mismatch_p99": 0.51},
        {"mismatch_p50": math.nan, "mismatch_p99": math.nan},
        {"mismatch_p50": None, "mismatch_p99": None},
    ],
)
def test_a_single_measurement_can_show_a_mismatch(values):
    assert "check the engine" in mismatch_fault(line(**values))
    few = LIMITS.mismatch_tokens - 1
    assert mismatch_fault(line(mismatch_tokens=few, **values)) is None


def test_too_few_tokens_are_no_fault():
    assert mismatch_fault({"mismatch_tokens": 0}) is None
    assert stop_reason([line() | {"mismatch_tokens": 0}] * 50) is None


def test_failed_grading_and_missing_groups_are_not_a_fault():
    assert stop_reason([line(groups_dropped={"bad-gold": 5_000})] * 50) is None
    assert stop_reason([line(groups_trained=0, groups_dropped={})] * 50) is None
    assert stop_reason([line(cut_share=None)] * 50) is None


def test_an_unused_end_token_in_truncated_completions_stops_the_run_early():
    rollouts = [
        Rollout(0, (5,), (7, 9, 7), (), (), "length", 0),
        Rollout(1, (5,), (9, 9, 8), (), (), "length", 0),
        Rollout(2, (5,), (7, 7, 8), (), (), "length", 0),
        Rollout(3, (5,), (9, 1), (), (), "stop", 0),
    ]
    found = unused_end(rollouts, {9: "<|im_end|>", 8: "<eos>"})
    assert found == {"unused_end": "<|im_end|>", "unused_end_share": 2 / 3}
    assert unused_end(rollouts, {8: "<eos>"}) == {}, "the last token is not in mid-text"
    lines = [line(cut_share=0.92, **found)] * 2
    assert "<|im_end|> stands inside 67 % of these; if it ends a turn, give --stop '<|im_end|>'" in stop_reason(lines)
    assert stop_reason(lines[:1]) is None
    assert stop_reason([line(cut_share=0.89, **found)] * 2) is None
    assert stop_reason([line(cut_share=0.92)] * 2) is None
