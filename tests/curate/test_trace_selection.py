"""Cold-start selection: who is left out and why, bounds, up-sampling, fractions, and that order does not matter."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magcli.curate import trace_selection
from magcli.curate.trace_selection import Candidate, select

candidate_lists = st.lists(
    st.builds(
        Candidate,
        row=st.just(0),
        problem=st.sampled_from("pqrs"),
        key=st.just(""),
        num_tokens=st.integers(1, 300),
        correct=st.booleans(),
        step=st.integers(0, 5),
    ),
    max_size=60,
).map(lambda listed: [each._replace(row=i, key=f"k{i}") for i, each in enumerate(listed)])


def made(row: int, *, problem: str = "p", num_tokens: int = 50, correct: bool = True, step: int = 9) -> Candidate:
    return Candidate(row, problem, f"{problem}/{row}", num_tokens, correct, step)


def test_each_row_is_left_out_for_its_reason() -> None:
    rows = [made(0, step=1), made(1, correct=False), made(2, num_tokens=5), *(made(i) for i in range(3, 8))]
    chosen = select(rows, seed=0, from_step=2, shortest=0.2, per_problem=3)
    assert Counter(chosen.left_out.values()) == {"early-step": 1, "wrong": 1, "short": 1, "surplus": 2}
    assert len(chosen.copies) == 3


@given(candidate_lists, st.integers(0, 3), st.floats(0, 1), st.integers(1, 3), st.integers(0, 9))
def test_every_row_is_chosen_or_left_out(rows: list[Candidate], step: int, share: float, most: int, seed: int) -> None:
    chosen = select(rows, seed=seed, from_step=step, shortest=share, per_problem=most, hardest=3.0)
    assert chosen.weights.keys() == chosen.copies.keys()
    assert chosen.copies.keys() | chosen.left_out.keys() == set(range(len(rows)))
    assert not chosen.copies.keys() & chosen.left_out.keys()
    assert all(rows[row].correct and rows[row].step >= step for row in chosen.copies)
    assert all(count >= 1 for count in chosen.copies.values())
    assert max(Counter(rows[row].problem for row in chosen.copies).values(), default=0) <= most


def test_near_identical_rows_do_not_use_up_the_bound() -> None:
    rows = [made(i) for i in range(12)]
    chosen = select(rows, seed=0, per_problem=3, same=lambda one, other: one % 3 == other % 3)
    assert {row % 3 for row in chosen.copies} == {0, 1, 2}
    assert Counter(chosen.left_out.values()).keys() <= {"near-identical", "surplus"}


def test_ungraded_traces_are_not_bounded_weighted_or_counted_in_the_pass_rate() -> None:
    rows = [made(i)._replace(correct=None, num_tokens=1) for i in range(9)] + [made(9), made(10, correct=False)]
    chosen = select(rows, seed=0, per_problem=1, hardest=3.0, shortest=0.9, upsample="weight")
    assert chosen.weights == {**dict.fromkeys(range(9), 1.0), 9: 2.0}


@given(candidate_lists, st.randoms(use_true_random=False))
def test_order_of_rows_does_not_matter(rows: list[Candidate], shuffler: random.Random) -> None:
    shuffled = list(rows)
    shuffler.shuffle(shuffled)
    assert select(rows, seed=1, per_problem=2, shortest=0.3) == select(shuffled, seed=1, per_problem=2, shortest=0.3)


def test_other_problems_do_not_change_the_choice() -> None:
    rows = [made(i) for i in range(20)]
    more = [made(i, problem="other") for i in range(20, 50)]
    alone = select(rows, seed=3, per_problem=4).copies
    assert {row for row in select(rows + more, seed=3, per_problem=4).copies if row < 20} == set(alone)
    assert set(select(rows, seed=4, per_problem=4).copies) != set(alone)


def test_short_traces_are_a_share_of_the_correct_ones() -> None:
    rows = [made(i, problem=f"p{i}", num_tokens=i + 1) for i in range(100)]
    left_out = select(rows, seed=0, shortest=0.25).left_out
    assert sorted(left_out) == list(range(25))


@given(st.lists(st.integers(0, 500), min_size=1), st.floats(0, 1))
def test_a_quantile_leaves_out_at_most_its_share(lengths: list[int], share: float) -> None:
    limit = trace_selection.quantile(lengths, share)
    assert limit in lengths
    assert sum(length < limit for length in lengths) <= share * len(lengths)


def test_hard_problems_are_used_more_often() -> None:
    hard = [made(i, problem=f"hard{i}") for i in range(2000)]
    easy = [made(i, problem=f"easy{i}") for i in range(2000, 4000)]
    rates = {each.problem: 0.1 if each.problem.startswith("hard") else 1.0 for each in hard + easy}
    copies = select(hard + easy, seed=5, hardest=3.0, pass_rates=rates).copies
    assert sum(copies[row] for row in range(2000)) / 2000 == pytest.approx(1 + 2 * 0.9, abs=0.06)
    assert {copies[row] for row in range(2000, 4000)} == {1}


def test_pass_rates_count_wrong_rollouts_of_late_steps_only() -> None:
    rows = [made(0), made(1, correct=False), made(2, correct=False, step=0)]
    assert trace_selection.measured_pass_rates(rows[:2]) == {"p": 0.5}
    assert select(rows, seed=0, from_step=1, hardest=3.0).copies == {0: 2}


@given(st.integers(0, 10_000), st.floats(0, 0.9))
def test_instructions_are_a_fraction_of_the_mix(others: int, fraction: float) -> None:
    count = trace_selection.num_instructions(others, fraction)
    assert abs(count - fraction * (count + others)) <= 1


@pytest.mark.parametrize("fraction", [-0.1, 1.0])
def test_fraction_out_of_range(fraction: float) -> None:
    with pytest.raises(ValueError, match="fraction"):
        trace_selection.num_instructions(10, fraction)


def test_the_sample_does_not_depend_on_row_order() -> None:
    keys = [f"i{i}" for i in range(50)]
    once = {keys[row] for row in trace_selection.sample(keys, 10, seed=1)}
    assert len(once) == 10
    assert {keys[::-1][row] for row in trace_selection.sample(keys[::-1], 10, seed=1)} == once
    assert trace_selection.sample(["a", "b"], 10, seed=1) == {0: 1, 1: 1}


def test_the_mix_contains_every_copy_once_in_a_fixed_order() -> None:
    copies = {"rollouts": {0: 2, 4: 1}, "instructions": {4: 1}}
    picks = trace_selection.mix(copies, seed=0)
    assert Counter((pick.source, pick.row) for pick in picks) == {
        ("rollouts", 0): 2,
        ("rollouts", 4): 1,
        ("instructions", 4): 1,
    }
    assert picks == trace_selection.mix(dict(reversed(copies.items())), seed=0)
    many = {"rollouts": dict.fromkeys(range(100), 1)}
    assert trace_selection.mix(many, seed=0) != trace_selection.mix(many, seed=1)
