"""The decisions over a matrix of runs: what is dropped, replaced and kept, and what must hold whatever the runs are."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magcli.curate.code.agreement import RIGHT, Cell, Rules, decide, voters

RULES = Rules(agreement=0.75, votes=2, min_tests=1, disputed=1.0)


def runs_of(*solutions):
    """Runs from one text a solution, one letter a test: ``=`` right, a digit another group, ``x`` no output."""
    return [
        run_of(solution, test, letter) for solution, text in enumerate(solutions) for test, letter in enumerate(text)
    ]


def run_of(solution, test, letter):
    if letter == "x":
        return Cell(solution, test, "runtime-error", None)
    if letter == "=":
        return Cell(solution, test, "accepted", RIGHT)
    return Cell(solution, test, "wrong-answer", int(letter), f"output {letter}")


def decided(solutions, labels=None, rules=RULES):
    return decide(runs_of(*solutions), dict(enumerate(labels or ["right"] * len(solutions))), rules)


def test_decisions_follow_the_votes():
    # three in four are right; all give another output; two, one and one; three against the right one; one gives none
    decision = decided(["=121=", "=121=", "=131=", "114=x"])
    assert (decision.kept, decision.replaced) == ({0: None, 1: "output 1", 4: None}, 1)
    assert decision.dropped == {"disagree": 1, "contested": 1}


def test_a_single_solution_cannot_overrule_the_expected_output():
    assert decided(["==1"]).reason == "solutions-fail"
    assert decided(["===", "x1x"], ["right", "wrong"]).reason == ""
    assert decided(["11", "11"], rules=RULES._replace(votes=3)).reason == "solutions-fail"
    assert decided(["11", "11"]).replaced == 2


def test_a_problem_is_dropped_for_the_reason_that_its_runs_show():
    assert decided(["xxx", "xxx"]).reason == "solutions-fail"
    assert decided(["===", "==="], rules=RULES._replace(min_tests=4)).reason == "few-tests"
    assert decided(["=12", "=34"], rules=RULES._replace(min_tests=2)).reason == "few-tests"
    assert decided(["=12", "=34"], rules=RULES._replace(disputed=0.5)).reason == "disputed"
    each_fails_one = [("=" * n + "1" + "=" * (4 - n)) for n in range(5)]
    assert decided(each_fails_one).reason == "solutions-fail"
    failed = [Cell(0, 0, "infra-error", None, "the checker failed")]
    assert decide(failed, {0: "right"}, RULES)[:2] == ("not-run", "the checker failed")


def test_wrong_solutions_do_not_vote_but_measure_the_tests():
    decision = decided(["==", "==", "11", "=1", "==", "=="], ["right", "right", *["wrong"] * 3, "unknown"])
    assert (decision.reason, decision.wrong, decision.passing) == ("", 3, [4])
    weak = decided(["==", "=="], ["right", "wrong"], RULES._replace(drop_weak=True))
    assert (weak.reason, weak.detail) == ("weak", "1 of 1 wrong solutions pass")
    assert decided(["11", "11", "=="], ["right", "right", "wrong"]).passing == [], "by the new outputs it is wrong"


def test_a_wrong_solution_with_skipped_tests_must_fail_one_that_it_ran():
    labels = {0: "right", 1: "wrong"}
    right = runs_of("==")
    late = [Cell(1, 0, "time-limit", None), Cell(1, 1, "unrun", None)]
    assert decide([*right, *late], labels, RULES).passing == []
    early = [Cell(1, 0, "accepted", RIGHT), Cell(1, 1, "unrun", None)]
    assert decide([*right, *early], labels, RULES).passing == [1]


def test_unlabelled_solutions_vote_only_where_none_is_labelled_correct():
    solutions = ["11", "11", "=="]
    assert decided(solutions, ["unknown", "unknown", "right"]).kept == {0: None, 1: None}
    unlabelled = ["unknown", "unknown", "wrong"]
    assert decided(["=1", "=1", "11"], unlabelled).kept == {0: None, 1: "output 1"}
    strict = RULES._replace(replace_unlabelled=False)
    assert decided(["=1", "=1", "11"], unlabelled, strict).reason == "solutions-fail", "they replace nothing"
    assert decided(["=1", "=1", "=="], unlabelled).replaced == 1, "one labelled wrong does not defend an output"
    assert decided(["==", "==", "x1"], ["unknown", "unknown", "wrong"]).kept == {0: None, 1: None}
    assert voters(runs_of("==", "xx", "=x"), {0: "right", 1: "right", 2: "right"}) == {0, 2}


LETTERS = st.text("==12x", min_size=4, max_size=4)
MATRICES = st.lists(LETTERS, min_size=1, max_size=7)
LABELS = st.lists(st.sampled_from(["right", "right", "wrong", "unknown"]), min_size=7, max_size=7)
SHARES = st.sampled_from([0.2, 0.4, 0.5, 0.6, 0.75, 0.9, 1.0])


@given(MATRICES, LABELS, SHARES, SHARES)
def test_a_higher_threshold_never_keeps_more_tests(solutions, labels, one, other):
    low, high = sorted((one, other))
    more, fewer = (decided(solutions, labels[: len(solutions)], RULES._replace(agreement=x)) for x in (low, high))
    assert fewer.kept.items() <= more.kept.items()


@given(MATRICES, LABELS, SHARES)
def test_a_test_is_kept_if_enough_solutions_agree(solutions, labels, share):
    given_labels = dict(enumerate(labels[: len(solutions)]))
    runs = runs_of(*solutions)
    asked = voters(runs, given_labels)
    decision = decide(runs, given_labels, RULES._replace(agreement=share))
    for test, output in decision.kept.items():
        group = RIGHT if output is None else int(output.split()[1])
        votes = [run.group for run in runs if run.test == test and run.solution in asked]
        assert votes.count(group) >= share * len(asked)
        assert votes.count(group) == max(votes.count(each) for each in votes if each is not None)
        assert output is None or RIGHT not in votes
    assert len(decision.kept) + sum(decision.dropped.values()) == 4


@given(MATRICES, LABELS, SHARES, st.randoms(use_true_random=False))
def test_the_order_of_solutions_and_runs_does_not_matter(solutions, labels, share, chance: random.Random):
    rules = RULES._replace(agreement=share)
    plain = decided(solutions, labels[: len(solutions)], rules)
    order = list(range(len(solutions)))
    chance.shuffle(order)
    runs = [run._replace(solution=order.index(run.solution)) for run in runs_of(*solutions)]
    chance.shuffle(runs)
    moved = decide(runs, {place: labels[solution] for place, solution in enumerate(order)}, rules)
    assert (moved.reason, moved.kept, moved.dropped, moved.wrong) == (
        plain.reason, plain.kept, plain.dropped, plain.wrong,
    )  # fmt: skip
    assert sorted(order[place] for place in moved.passing) == list(plain.passing)


@given(MATRICES, LABELS)
def test_filtering_is_idempotent(solutions, labels):
    """Deciding again over the tests that are left, by their new outputs, drops and replaces nothing."""
    given_labels = dict(enumerate(labels[: len(solutions)]))
    first = decide(runs_of(*solutions), given_labels, RULES)
    if first.reason:
        return
    winner = {test: RIGHT if output is None else int(output.split()[1]) for test, output in first.kept.items()}
    again = [
        run._replace(group=RIGHT if run.group == winner[run.test] else None if run.group is None else run.group + 5)
        for run in runs_of(*solutions)
        if run.test in winner and run.solution in voters(runs_of(*solutions), given_labels)
    ]
    second = decide(again, given_labels, RULES)
    assert (dict(second.kept), second.dropped) == (dict.fromkeys(first.kept), {})


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_disputed_is_a_fraction_of_all_tests(share):
    decision = decided(["==11", "==22"], rules=RULES._replace(disputed=share))
    assert decision.reason == ("disputed" if share < 0.5 else "")
    alone = decided(["==xx"], rules=RULES._replace(disputed=share))
    assert alone.reason == ("solutions-fail" if share < 0.5 else ""), "nobody else says that it is the tests"
