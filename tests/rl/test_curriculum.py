"""Which problem the next group takes: order, retirement, deferral, and that a resumed run goes on the same way."""

import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magcli.errors import DataError, Stopped
from magcli.rl.curriculum import MAX_DOUBLINGS, Curriculum, ProblemCounts, StageProblems

SIZE = 4
"""Completions of a group."""


def problems(count, rates=()):
    columns = [{"pass_rate": rate, "num_samples": 16} for rate in rates] or [{}] * count
    return [{"id": f"p{i}", "prompt": "?", "answer": "1"} | columns[i] for i in range(count)]


def curriculum_of(rows, seed, *, band=None, later=(), **rules):
    return Curriculum([StageProblems(rows, band), *later], seed, **rules)


def taken(curriculum, numbers, stage=0):
    return [curriculum.problem(number, stage)["id"] for number in numbers]


def epochs_of(curriculum, outcome, count, first=0):
    """The problems of ``count`` epochs; each group ends before the next begins, ``outcome`` of the problem right."""
    found = {}
    for number in range(first, first + 10_000):
        problem = curriculum.problem(number)["id"]
        if curriculum.epoch >= count:
            return found
        found.setdefault(curriculum.epoch, []).append(problem)
        curriculum.observe(problem, outcome(problem), SIZE)
    raise AssertionError("epochs without end")


@given(st.integers(1, 40), st.integers(0, 2**32), st.integers(1, 4))
def test_without_rules_each_epoch_is_a_permutation_drawn_from_the_seed(count, seed, epochs):
    curriculum, rows = curriculum_of(problems(count), seed), problems(count)
    for epoch in range(epochs):
        order = np.random.default_rng([seed, epoch]).permutation(count)
        numbers = range(epoch * count, (epoch + 1) * count)
        assert taken(curriculum, numbers) == [rows[place]["id"] for place in order]
        for number in numbers:
            curriculum.observe(curriculum.problem(number)["id"], number % 2 * SIZE, SIZE)
    assert curriculum.counts() == (count, 0, 0), "whatever the outcomes"


def test_a_group_keeps_its_problem_when_it_is_resampled():
    curriculum = curriculum_of(problems(5), 0)
    first = taken(curriculum, range(7))
    assert taken(curriculum, range(7)) == first
    assert taken(curriculum, [3, 6, 0]) == [first[3], first[6], first[0]]


def test_rows_that_share_an_id_are_all_used():
    curriculum = curriculum_of([*problems(2), *problems(1)], 0)
    assert Counter(taken(curriculum, range(6))) == {"p0": 4, "p1": 2}


def test_a_problem_that_is_solved_in_a_row_retires():
    curriculum = curriculum_of(problems(3), 0, retire_after=2)
    for right in (SIZE, SIZE - 1, SIZE):
        curriculum.observe("p0", right, SIZE)
    assert curriculum.counts() == ProblemCounts(active=3, retired=0, deferred=0), "not in a row"
    curriculum.observe("p0", SIZE, SIZE)
    assert curriculum.counts() == ProblemCounts(active=2, retired=1, deferred=0)
    curriculum.observe("p0", 0, SIZE)
    assert curriculum.counts().retired == 1, "for good, though a late group says otherwise"
    assert "p0" not in taken(curriculum, range(20))


def test_a_problem_of_the_running_epoch_is_left_out_as_soon_as_it_retires():
    curriculum = curriculum_of(problems(4), 0, retire_after=1)
    order = taken(curriculum_of(problems(4), 0), range(4))
    assert curriculum.problem(0)["id"] == order[0]
    curriculum.observe(order[1], SIZE, SIZE)
    assert taken(curriculum, [1, 2]) == order[2:]


def test_when_all_are_solved_the_run_stops_with_the_reason():
    curriculum = curriculum_of(problems(3), 0, retire_after=2)
    outcomes = [curriculum.problem(number)["id"] for number in range(6)]
    for problem in outcomes:
        curriculum.observe(problem, SIZE, SIZE)
    assert curriculum.counts() == (0, 3, 0)
    with pytest.raises(Stopped, match=r"all 3 problems are solved \(2 all-correct groups in a row\)"):
        curriculum.problem(6)
    assert curriculum.problem(5)["id"] == outcomes[5], "groups under way can be made again"


def test_an_unsolved_problem_is_deferred_for_one_two_four_up_to_sixteen_epochs():
    curriculum = curriculum_of(problems(3), 0, defer_after=2)
    epochs = epochs_of(curriculum, lambda problem: 0 if problem == "p0" else 1, 60)
    assert [epoch for epoch in epochs if "p0" in epochs[epoch]] == [0, 1, 3, 6, 11, 20, 37, 54]
    assert all({"p1", "p2"} <= set(epoch) for epoch in epochs.values())


def test_a_deferred_problem_that_is_solved_once_is_active_again():
    curriculum = curriculum_of(problems(3), 0, defer_after=2)
    solved = iter([0, 0, 1, 0, 0])
    epochs = epochs_of(curriculum, lambda problem: next(solved, 1) if problem == "p0" else 1, 9)
    assert [epoch for epoch in epochs if "p0" in epochs[epoch]] == [0, 1, 3, 4, 5, 7, 8]


def test_groups_in_flight_when_a_problem_is_deferred_can_only_reactivate_it():
    late, on_time, solved = (curriculum_of(problems(3), 0, defer_after=1) for _ in range(3))
    for curriculum in (late, on_time, solved):
        taken(curriculum, range(3))
        curriculum.observe("p0", 0, SIZE)
        assert curriculum.counts() == (2, 0, 1)
        assert "p0" not in taken(curriculum, range(3, 5))
    late.observe("p0", 0, SIZE)
    solved.observe("p0", 1, SIZE)
    assert taken(late, range(5, 8)) == taken(on_time, range(5, 8))
    assert set(taken(late, range(5, 8))) == {"p0", "p1", "p2"}
    assert solved.counts() == (3, 0, 0)


def test_if_all_are_deferred_the_one_due_first_comes_next():
    curriculum = curriculum_of(problems(3), 0, defer_after=1)
    numbers = range(9)
    for number in numbers:
        curriculum.observe(curriculum.problem(number)["id"], 0, SIZE)
    assert Counter(taken(curriculum, numbers)) == {"p0": 3, "p1": 3, "p2": 3}
    assert curriculum.counts() == (0, 0, 3)
    assert curriculum.epoch == 0 + 2 + 3, "epochs without a problem are passed over"


def test_a_group_whose_grading_failed_is_ignored():
    curriculum = curriculum_of(problems(1), 0, retire_after=1, defer_after=1)
    curriculum.observe("p0", 0, 0)
    assert curriculum.estimate("p0") is None
    assert curriculum.counts() == (1, 0, 0)


def test_the_estimate_starts_from_the_filter_and_follows_observations():
    curriculum = curriculum_of(problems(1, [0.25]), 0)
    assert curriculum.estimate("p0") == 0.25
    curriculum.observe("p0", 12, 16)
    assert curriculum.estimate("p0") == pytest.approx((0.5 * 4 + 12) / (0.5 * 16 + 16))
    for _ in range(6):
        curriculum.observe("p0", 12, 16)
    assert curriculum.estimate("p0") == pytest.approx(0.75, abs=0.01), "the filter's samples fade"


def test_the_last_group_has_half_of_the_weight_of_the_estimate():
    curriculum = curriculum_of(problems(1), 0)
    for _ in range(10):
        curriculum.observe("p0", 0, 16)
    curriculum.observe("p0", 16, 16)
    assert curriculum.estimate("p0") == pytest.approx(0.5, abs=0.001)


def test_the_estimate_of_a_constant_pass_rate_is_unbiased():
    chance, found = random.Random(0), []
    for _ in range(400):
        curriculum = curriculum_of(problems(1), 0)
        for _ in range(8):
            curriculum.observe("p0", sum(chance.random() < 0.3 for _ in range(16)), 16)
        found.append(curriculum.estimate("p0"))
    assert np.mean(found) == pytest.approx(0.3, abs=0.01)
    expected = (0.3 * 0.7 / 16 / 3) ** 0.5
    assert np.std(found) == pytest.approx(expected, rel=0.15), "it varies as the mean of three groups does"


def test_a_band_includes_both_ends():
    rates = [0.0, float(np.float32(0.7)), 0.75, float(np.float32(0.8)), 1.0]
    assert rates[1] < 0.7 < 0.8 < rates[3], "as float32 rounds them"
    curriculum = curriculum_of(problems(5, rates), 0, band=(0.7, 0.8))
    assert set(taken(curriculum, range(6))) == {"p1", "p2", "p3"}
    assert curriculum.counts() == (3, 0, 0)


def test_a_problem_without_a_pass_rate_is_in_every_band_unless_none_has_one():
    rows = [*problems(2, [0.0, 0.5]), {"id": "new", "prompt": "?", "answer": "1", "pass_rate": None}]
    assert set(taken(curriculum_of(rows, 0, band=(0.1, 0.8)), range(4))) == {"p1", "new"}
    with pytest.raises(
        DataError, match=r"no problem has a pass_rate for the band 0\.1 to 0\.8; filter-math computes it"
    ):
        curriculum_of(problems(3), 0, band=(0.1, 0.8))


def test_an_empty_band_and_an_invalid_pass_rate_are_refused():
    with pytest.raises(DataError, match=r"none of 2 problems has a pass rate in the band 0\.1 to 0\.8"):
        curriculum_of(problems(2, [0.0, 1.0]), 0, band=(0.1, 0.8))
    with pytest.raises(DataError, match="a stage has no problems"):
        curriculum_of([], 0)
    for rate in (1.5, -0.1, float("nan"), "0.5"):
        with pytest.raises(DataError, match=r"problem p0: pass_rate .* is not a number from 0 to 1"):
            curriculum_of(problems(1, [rate]), 0)


def test_a_new_stage_starts_an_epoch_and_keeps_the_estimates():
    harder = [*problems(4), {"id": "hard", "prompt": "?", "answer": "1"}]
    later = [StageProblems(harder, (0.0, 0.9)), StageProblems(harder)]
    curriculum = curriculum_of(problems(4), 0, retire_after=2, later=later)
    old = taken(curriculum, range(3))
    for _ in range(2):
        curriculum.observe("p0", SIZE, SIZE)
    curriculum.observe("p1", SIZE, SIZE)
    assert set(taken(curriculum, range(3, 9), 1)) == {"p2", "p3", "hard"}, "the band is of present estimates"
    assert taken(curriculum, range(3), 1) == old, "groups under way go on"
    assert set(taken(curriculum, range(9, 13), 2)) == {"p1", "p2", "p3", "hard"}
    assert curriculum.counts() == (4, 1, 0), "a retired problem stays so"
    assert curriculum.stage == 2


def test_a_stage_with_the_same_problems_continues_the_epoch_unless_it_has_a_band():
    rows = problems(9, [0.5] * 9)
    same, banded = [StageProblems(rows)], [StageProblems(rows, (0.0, 1.0))]
    order = taken(curriculum_of(rows, 0), range(9))
    going_on, anew = curriculum_of(rows, 0, later=same), curriculum_of(rows, 0, later=banded)
    assert taken(going_on, range(4)) + taken(going_on, range(4, 9), 1) == order
    assert taken(anew, range(4)) == order[:4]
    assert set(taken(anew, range(4, 13), 1)) == set(order), "a whole epoch"


def test_a_later_filter_corrects_the_estimate_of_an_unsampled_problem():
    curriculum = curriculum_of(problems(2, [0.5, 0.5]), 0, later=[StageProblems(problems(2, [0.1, 0.1]))])
    curriculum.observe("p0", SIZE, SIZE)
    estimate = curriculum.estimate("p0")
    curriculum.problem(0, 1)
    assert (curriculum.estimate("p0"), curriculum.estimate("p1")) == (estimate, pytest.approx(0.1))


def test_stages_are_validated_first():
    curriculum_of(problems(2), 0, later=[StageProblems(problems(3), (0.1, 0.8))])
    others = [{"id": "other", "prompt": "?", "answer": "1"}]
    with pytest.raises(DataError, match="no problem has a pass_rate for the band"):
        curriculum_of(problems(2), 0, later=[StageProblems(others, (0.1, 0.8))])
    with pytest.raises(DataError, match="a stage has no problems"):
        curriculum_of(problems(2), 0, later=[StageProblems([])])


def test_a_ledger_group_without_a_problem_of_the_input_is_an_error():
    with pytest.raises(DataError, match="group 3 of the ledger has problem 'gone', which is not in the input"):
        curriculum_of(problems(2), 0).restore(3, "gone")


RULES = st.tuples(st.integers(1, 12), st.integers(0, 2**32), st.integers(0, 3), st.integers(0, 3))


class Run:
    """A run without a model: groups end in a random order, some with no grading, and the ledger is kept.

    Of four ``stages`` the second has a problem more and a band, the others have one less than that.
    """

    def __init__(self, count, seed, retire_after, defer_after, stages=1):
        rows = problems(count + 1)
        later = [StageProblems(rows, (0.0, 0.9)), StageProblems(fewer := rows[1:]), StageProblems(fewer)]
        rules = {"retire_after": retire_after, "defer_after": defer_after, "later": later}
        self.make = lambda: curriculum_of(rows[:count], seed, **rules)
        self.curriculum, self.chance = self.make(), random.Random(seed)
        self.stage, self.last_stage = 0, stages - 1
        self.skill = {f"p{i}": self.chance.choice([0, 0.1, 0.9, 1]) for i in range(count + 1)}
        self.ledger, self.under_way, self.number = [], [], 0

    def step(self):
        if self.under_way and self.chance.random() < 0.5:
            self.end(self.under_way.pop(self.chance.randrange(len(self.under_way))))
        else:
            self.start()

    def start(self):
        self.stage += self.stage < self.last_stage and self.chance.random() < 0.05
        problem = self.curriculum.problem(self.number, self.stage)["id"]
        event = {"event": "reserved", "group": self.number, "problem": problem, "stage": self.stage}
        self.ledger.append(event)
        self.under_way.append(self.number)
        self.number += 1

    def end(self, number):
        problem = self.curriculum.problem(number)["id"]
        graded = SIZE if self.chance.random() < 0.8 else 0
        right = sum(self.chance.random() < self.skill[problem] for _ in range(graded))
        event = "admitted" if 0 < right < graded else "dropped"
        self.ledger.append({"event": "generated", "group": number, "tokens": 9})
        self.ledger.append({"event": event, "group": number, "right": right, "graded": graded})
        self.curriculum.observe(problem, right, graded)

    def go(self, steps):
        """Take steps until all problems are solved, or too easy for a stage; returns whether they are."""
        try:
            for _ in range(steps):
                self.step()
        except (Stopped, DataError):
            return True
        return False


@given(RULES, st.integers(0, 150), st.integers(0, 60))
@settings(deadline=None)
def test_a_run_resumed_from_its_ledger_uses_the_same_problems(rules, before, after):
    unbroken = Run(*rules, stages=4)
    over = unbroken.go(before)
    resumed = unbroken.make()
    for event in unbroken.ledger:
        resumed.replay(event)
    assert taken(resumed, unbroken.under_way) == taken(unbroken.curriculum, unbroken.under_way)
    assert over or resumed.counts() == unbroken.curriculum.counts()
    position = len(unbroken.ledger)
    unbroken.go(after)
    for event in unbroken.ledger[position:]:
        if event["event"] == "reserved":
            assert resumed.problem(event["group"], event["stage"])["id"] == event["problem"]
        resumed.replay(event)


@given(RULES, st.integers(0, 300))
@settings(deadline=None)
def test_an_epoch_uses_each_problem_once_and_accounts_for_all(rules, steps):
    run, taken_in = Run(*rules, stages=4), Counter()
    for _ in range(steps):
        if run.go(1):
            break
        if run.ledger[-1]["event"] == "reserved":
            taken_in[run.curriculum.epoch, run.ledger[-1]["problem"]] += 1
        counts = run.curriculum.counts()
        assert sum(counts) == len(run.curriculum.rows)
        assert rules[2] or not counts.retired
        assert rules[3] or not counts.deferred
    assert set(taken_in.values()) <= {1}


@given(RULES, st.integers(1, 60))
@settings(deadline=None)
def test_unsolved_problems_return_and_active_ones_are_in_every_epoch(rules, count):
    names, _seed, retire_after, defer_after = rules
    run = Run(*rules)
    solves = {row["id"]: run.skill[row["id"]] > 0.5 for row in run.curriculum.rows}
    try:
        epochs = epochs_of(run.curriculum, lambda problem: SIZE * solves[problem], count)
    except Stopped:
        assert all(solves.values())
        return
    assert len(solves) == names
    for name in solves:
        seen = [epoch for epoch in epochs if name in epochs[epoch]]
        if solves[name]:
            assert seen == (list(range(min(retire_after, count))) if retire_after else sorted(epochs))
        else:
            assert max(np.diff([-1, *seen, count])) <= (2**MAX_DOUBLINGS + 1 if defer_after else 1)


def test_with_rewards_of_any_scale_a_group_that_trains_is_neither_solved_nor_unsolved():
    curriculum = curriculum_of(problems(1), 0, retire_after=2, defer_after=2, any_scale=True)
    for right in (SIZE, SIZE, 0, 0):
        curriculum.observe("p0", right, SIZE, trains=True)
        assert curriculum.counts() == ProblemCounts(1, 0, 0)
    for _ in range(2):
        curriculum.observe("p0", SIZE, SIZE, trains=False)
    assert curriculum.counts() == ProblemCounts(0, 1, 0)
