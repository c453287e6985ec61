from itertools import combinations
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magcli.errors import DataError
from magcli.evaluation.metrics import (
    Problem,
    estimate,
    gather,
    interval,
    maj_at_k,
    majority_right,
    paired,
    pass_at_k,
)
from magcli.stages.shared.evaluations import num_restated

TRIALS = 80


def problem(correct, answers=None, id="p"):
    right = tuple(map(bool, correct))
    said = tuple(answers or ("42" if ok else "" for ok in right))
    return Problem(id, said, right, right, tuple(len(a) for a in said))


samples = st.lists(st.sampled_from(["", "7", "8", "42"]), min_size=1, max_size=8)


@given(st.lists(st.booleans(), min_size=1, max_size=9), st.data())
def test_pass_at_k_is_the_share_of_subsets_with_a_correct_sample(correct, data):
    k = data.draw(st.integers(1, len(correct)))
    subsets = [any(chosen) for chosen in combinations(correct, k)]
    assert pass_at_k(len(correct), sum(correct), k) == pytest.approx(np.mean(subsets))


def test_pass_at_k_of_many_samples_stays_exact():
    assert pass_at_k(4096, 1, 64) == pytest.approx(64 / 4096)


@given(samples, st.data())
@settings(deadline=None)
def test_maj_at_k_is_the_mean_over_all_subsets(answers, data):
    k = data.draw(st.integers(1, len(answers)))
    right = [answer == "42" for answer in answers]
    subsets = list(combinations(range(len(answers)), k))
    expected = np.mean([majority_right([answers[i] for i in s], [right[i] for i in s]) for s in subsets])
    assert maj_at_k(problem(right, answers), k, seed=0) == pytest.approx(expected)


def test_maj_at_k_with_too_many_subsets_to_count_is_near_the_mean():
    right = [True] * 10 + [False] * 14
    answers = ["42"] * 10 + ["7"] * 14
    wins = sum(comb(10, r) * comb(14, 5 - r) for r in range(3, 6)) / comb(24, 5)
    assert maj_at_k(problem(right, answers), 5, seed=0) == pytest.approx(wins, abs=0.12)
    assert maj_at_k(problem(right, answers), 5, seed=0) == maj_at_k(problem(right, answers), 5, seed=0)


@pytest.mark.parametrize(
    ("answers", "right", "expected"),
    [
        (["42", "42", "7"], [True, True, False], 1.0),
        (["42", "7", "7"], [True, False, False], 0.0),
        (["42", "7"], [True, False], 0.5),
        (["42.0", "42", "7", "7"], [True, True, False, False], 0.5),
        (["", "", "42"], [False, False, True], 1.0),
        (["", ""], [False, False], 0.0),
        (["7", " 7", "42"], [False, False, True], 0.0),
    ],
    ids=["most", "minority", "tie", "right spellings are one answer", "silence", "nothing", "spaces are no difference"],
)
def test_the_most_frequent_answer_wins_and_ties_share(answers, right, expected):
    assert majority_right(answers, right) == expected


def test_samples_are_gathered_by_problem_in_order_of_appearance():
    rows = [
        {"id": "b", "correct": True, "extracted": "1", "num_tokens": 5},
        {"id": "a", "correct": False, "extracted": None, "num_tokens": None},
        {"id": "b", "correct": False, "extracted": "2", "num_tokens": 7, "correct_anywhere": True},
    ]
    b, a = gather(rows)
    assert (b.id, b.answers, b.correct, b.correct_anywhere, b.lengths) == (
        "b",
        ("1", "2"),
        (True, False),
        (True, True),
        (5, 7),
    )
    assert (a.id, a.answers, a.lengths) == ("a", ("",), (0,))


def test_the_interval_covers_the_true_mean_nineteen_times_in_twenty():
    random = np.random.default_rng(0)
    covered = 0
    for trial in range(300):
        low, high = interval(random.binomial(16, random.beta(2, 3, 60)) / 16, trial)[1:]
        covered += low <= 0.4 <= high
    assert 0.91 <= covered / 300 <= 0.98


def runs(seed, gain=0.0, problems=60, each=8):
    """Two runs over the same problems: chances of 0.4 on average, and the same moved towards 1 by a share."""
    random = np.random.default_rng(seed)
    chance = random.beta(0.8, 1.2, problems)
    outcomes = [random.random((problems, each)) < moved[:, None] for moved in (chance + gain * (1 - chance), chance)]
    return [[problem(samples, id=f"p{n}") for n, samples in enumerate(run)] for run in outcomes]


def holds(found, metric, truth):
    estimate = next(each for each in found if each.metric == metric)
    return estimate.low <= truth <= estimate.high


def test_intervals_of_pass_at_1_resample_problems_and_not_samples():
    """Samples of one problem are alike: an interval that took them for independent ones would be far too narrow."""
    covered, naive = 0, 0
    for seed in range(TRIALS):
        run = runs(seed)[1]
        covered += holds(estimate(run, (1,)), "pass@1", 0.4)
        rate = np.mean([each.correct for each in run])
        naive += abs(rate - 0.4) <= 1.96 * np.sqrt(rate * (1 - rate) / (60 * 8))
    assert 0.89 <= covered / TRIALS <= 0.99
    assert naive / TRIALS < 0.8


def test_intervals_of_a_difference_resample_pairs():
    """The difficulty of a problem is in both runs: as pairs they tell a gain that two intervals would hide."""
    covered, detected, apart = 0, 0, 0
    for seed in range(TRIALS):
        ours, theirs = runs(seed, gain=0.2)
        found = paired(ours, theirs, (1,))
        covered += holds(found, "pass@1 difference", 0.2 * (1 - 0.4))
        detected += not holds(found, "pass@1 difference", 0.0)
        one, other = (interval(np.array([np.mean(each.correct) for each in run])) for run in (ours, theirs))
        apart += one[1] > other[2]
    assert 0.89 <= covered / TRIALS <= 0.99
    assert detected / TRIALS > 0.95
    assert apart / TRIALS < 0.5


@pytest.mark.parametrize(("right", "low", "high"), [(0, 0.0, 0.602), (1, 0.398, 1.0)])
def test_few_identical_results_do_not_make_an_interval_a_point(right, low, high):
    problems = [problem([right] * 8, id=f"p{n}") for n in range(4)]
    found = {each.metric: each for each in estimate(problems, (1,))}
    assert found["pass@1"][1:4] == pytest.approx((right, low, high), abs=1e-3)
    assert found["tokens"].low == found["tokens"].high
    difference = {each.metric: each for each in paired(problems, problems, (1,))}["pass@1 difference"]
    assert difference[1:4] == pytest.approx((0, -0.602, 0.602), abs=1e-3)


def test_an_interval_of_equal_values_covers_the_true_mean():
    """Of hard problems few or none are solved: where none is, the truth lies within the interval all the same."""
    random = np.random.default_rng(0)
    alike = [draw for draw in random.binomial(16, random.beta(0.05, 5, (1_000, 10))) / 16 if not draw.any()]
    truth = 0.05 / 5.05
    assert len(alike) > 300
    assert all(interval(draw, 0, (0, 1))[1] <= truth <= interval(draw, 0, (0, 1))[2] for draw in alike)


def test_one_problem_has_no_interval():
    value, low, high = interval(np.array([0.5]))
    assert value == 0.5
    assert np.isnan([low, high]).all()


def test_estimates_skip_ks_above_the_fewest_samples():
    found = {e.metric: e for e in estimate([problem([1, 0, 0, 0], id="a"), problem([1, 1], id="b")], (1, 2, 4))}
    assert set(found) == {"avg@n", "avg@n anywhere", "tokens", "pass@1", "pass@2", "maj@2"}
    assert found["avg@n"].value == pytest.approx((0.25 + 1) / 2)
    assert found["pass@2"].value == pytest.approx((0.5 + 1) / 2)
    assert (found["avg@n"].num_problems, found["avg@n"].num_samples) == (2, 6)


def test_a_paired_difference_is_tighter_than_two_intervals():
    random = np.random.default_rng(1)
    rates = random.uniform(0, 1, 80)
    draw = [random.random(16) < rate for rate in rates]
    better = [d | (random.random(16) < 0.1) for d in draw]
    theirs = [problem(d, id=str(i)) for i, d in enumerate(draw)]
    ours = [problem(d, id=str(i)) for i, d in enumerate(better)]
    difference = {e.metric: e for e in paired(ours, theirs, (1,))}["avg@n difference"]
    one, other = (next(e for e in estimate(p, (1,)) if e.metric == "avg@n") for p in (ours, theirs))
    assert difference.value == pytest.approx(one.value - other.value)
    assert 0 < difference.low < difference.high
    assert one.low < other.high, "the two intervals overlap, the paired one excludes 0"


def test_only_problems_in_both_runs_are_paired():
    ours = [problem([1, 1], id="a"), problem([1, 0], id="b")]
    theirs = [problem([0, 1], id="b"), problem([0, 0], id="c")]
    assert {e.num_problems for e in paired(ours, theirs, (1,))} == {1}
    assert paired(ours, [problem([1], id="z")], (1,)) == []


def test_the_share_in_one_language_is_reported_if_languages_were_checked():
    samples = [("en en en", 0.1), ("en en ?", 0.0), ("", 0.0), ("fr fr fr", 0.1)]
    rows = [
        {"id": f"p{n % 2}", "correct": True, "languages": languages, "reward_language": reward}
        for n, (languages, reward) in enumerate(samples)
    ]
    found = gather(rows)
    assert [problem.one_language for problem in found] == [(True, False), (False, True)]
    assert {each.metric: each.value for each in estimate(found, [1])}["one language"] == 0.5
    assert "one language difference" in {each.metric for each in paired(found, found, [1])}
    without = gather([{**row, "languages": ""} for row in rows])
    assert "one language" not in {each.metric for each in estimate(without, [1])}
    assert "one language difference" not in {each.metric for each in paired(found, without, [1])}


def test_the_share_in_the_format_is_reported_if_one_is_required():
    samples = [("correct", 0.1), ("no-think", 0.0), ("timeout", 0.0), ("wrong", 0.1)]
    rows = [
        {"id": f"p{n % 2}", "correct": reason == "correct", "reason": reason, "reward_format": reward}
        for n, (reason, reward) in enumerate(samples)
    ]
    found = gather(rows)
    assert [problem.has_format for problem in found] == [(True, True), (False, True)]
    assert {each.metric: each.value for each in estimate(found, [1])}["format"] == 0.75
    plain = gather([{"id": "p", "correct": True, "reason": "correct", "reward_format": 0.0}])
    assert "format" not in {each.metric for each in estimate(plain, [1])}


@pytest.mark.parametrize("row", [{"correct": "false"}, {"correct": True, "num_tokens": "null"}])
def test_text_is_not_a_verdict_or_a_length(row):
    with pytest.raises(DataError, match=r"of id 'a' is the text '(false|null)', expected"):
        gather([{"id": "a", **row}])


def test_an_ungraded_completion_is_not_wrong():
    with pytest.raises(DataError, match="id 'a' has no verdict in column correct"):
        gather([{"id": "a", "correct": True}, {"id": "a", "correct": None}])


def test_a_partial_verdict_is_refused():
    for verdict in (0.5, 2):
        with pytest.raises(DataError, match=f"correct of id 'a' is {verdict:g}, expected true or false"):
            gather([{"id": "a", "correct": verdict}])
    assert gather([{"id": "a", "correct": 1.0}])[0].correct == (True,)


def test_problems_of_one_id_may_have_other_prompts() -> None:
    """Spaces do not count, nor does an unknown prompt."""
    prompts = ("What is 2+2?", "What is  2+2? ", [{"role": "user", "content": "What is 3+3?"}], None)
    one, spaced, other, unknown = (gather([{"id": "a", "correct": True, "prompt": prompt}]) for prompt in prompts)
    assert [num_restated(one, theirs) for theirs in (one, spaced, other, unknown, ())] == [0, 0, 1, 0, 0]


@pytest.mark.parametrize("id", [None, ""])
def test_a_completion_without_an_id_is_no_sample_of_the_others(id) -> None:
    with pytest.raises(DataError, match="a completion has no id"):
        gather([{"id": "a", "correct": True}, {"id": id, "correct": False}])
