"""reasoning-gym: its problems as a table, and its scorers as a judge that never runs what a model wrote."""

import asyncio

import pytest

from magcli.data import table
from magcli.data.values import to_rows
from magcli.environments.environment import in_workers
from magcli.environments.reasoning_gym import EVALUATED, PARSED, ReasoningGym, answer_of, unsafe
from magcli.errors import UsageError


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<think>4?</think> It is <answer> 5 </answer>.", "5"),
        ("<answer>4</answer> no, <answer>5</answer>", "5"),
        ("[THINK]<answer>4</answer>[/THINK]\\boxed{5}", "5"),
        ("<think>\\boxed{4}</think>5", "5"),
        ("\\boxed{4} or \\boxed{5}", "4 \\text{ or } 5"),
        ("5\n", "5"),
        ("<think>no end", "<think>no end"),
    ],
)
def test_the_answer_is_tagged_or_boxed_or_all_that_follows_the_thoughts(text, answer):
    assert answer_of(text) == answer


PROGRAMS = ("len([1])", "max(1, 2)", "(1).real", "[x for x in (1, 2)]", "𝐥𝐞𝐧([1])", "print(1)")
"""Harmless ones."""


@pytest.mark.parametrize("name", sorted(EVALUATED | PARSED))
def test_a_scorer_that_would_run_an_answer_gets_no_program(name):
    assert all(unsafe(name, program) for program in PROGRAMS)
    assert not unsafe("maze", PROGRAMS[0])


@pytest.mark.parametrize("answer", ["94*4 - 61 - 6", "-x**3/3 + sin(x)*exp(2*x) + C", "3*x^2 - 4.5", ""])
def test_arithmetic_is_harmless(answer):
    assert not unsafe("countdown", answer)


@pytest.mark.parametrize("answer", ["1 2 3 4", "['A', 'B']", "[[0, 1], [1, 0]]", "_ Q _ _", "ABCDAE"])
def test_literals_words_and_what_is_no_python_are_harmless(answer):
    assert not unsafe("n_queens", answer)


# ---- with the library ----


@pytest.fixture(scope="module")
def gym():
    return pytest.importorskip("reasoning_gym", reason="needs reasoning-gym")


def problems(name):
    return [row for batch in table.read(f"reasoning-gym:{name}").rows for row in to_rows(batch)]


def judged(row, text):
    return ReasoningGym().reward(
        row, [{"role": "user", "content": row["prompt"]}, {"role": "assistant", "content": text}]
    )


ANY_TEXT_IS_RIGHT = "game_of_life_halting"
"""Its scorer compares the truth values of texts (reasoning-gym 0.1.25)."""


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::UserWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_every_family_accepts_its_own_answer_and_runs_none(gym):
    """Metadata is JSON in the table; the scorers must not see a difference. ``composite`` has no own problems."""
    slow = {"composite", "knight_swap", "intermediate_integration"}
    for name in sorted(set(gym.factory.DATASETS) - slow):
        (row,) = problems(f"{name}?size=1&seed=3")
        if row["answer"] is not None:
            own = judged(row, f"<answer>{row['answer']}</answer>")
            assert (own["total"], own["correct"], own["detail"]) == (1.0, True, ""), name
        for program in PROGRAMS:
            verdict = judged(row, program)
            assert verdict["total"] < 1 or name == ANY_TEXT_IS_RIGHT, name
            assert name not in EVALUATED | PARSED or "would run this answer" in verdict["detail"], name


def test_the_same_name_makes_the_same_table(gym):
    one, same, other = (problems(f"chain_sum?size=4&seed={seed}") for seed in (1, 1, 2))
    assert one == same
    assert [row["prompt"] for row in one] != [row["prompt"] for row in other]
    assert [row["id"] for row in one] == [f"chain_sum-1-{number}" for number in range(4)]


def test_partial_scores_are_kept_and_a_scorer_that_raises_gives_nothing(gym):
    (row,) = problems("countdown?size=1")
    assert 0 < judged(row, "1 + 1")["total"] < 1
    (row,) = problems("prime_factorization?size=1")
    failed = judged(row, "no number")
    assert (failed["total"], failed["detail"]) == (
        0.0,
        "the scorer of prime_factorization raised ValueError for this answer",
    )


def test_options_of_the_family_are_those_of_its_scorer(gym):
    (row,) = problems("decimal_arithmetic?size=1&max_num_decimal_places=4")
    assert row["reasoning_gym"]["options"] == {"max_num_decimal_places": 4}
    assert judged(row, row["answer"])["correct"]


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("basic_aritmetic", "reasoning-gym has no family 'basic_aritmetic'; it has basic_arithmetic"),
        ("maze?min_dst=3", "reasoning-gym has no option of maze 'min_dst'; it has min_dist"),
        ("basic_arithmetic?min_terms=9", "cannot be made with these options: max_terms must be >= min_terms"),
    ],
)
def test_a_family_or_option_that_is_not_there_is_refused(gym, name, problem):
    with pytest.raises(UsageError, match=problem):
        problems(name)


def test_the_worker_names_a_row_of_another_table(gym):
    messages = [{"role": "user", "content": "2?"}, {"role": "assistant", "content": "2"}]
    with in_workers("reasoning-gym", sandbox="none") as environment:
        reward = asyncio.run(environment.reward({"id": "p", "prompt": "2?"}, messages))
    assert reward.reason == "reward-error"
    assert "the row has no column reasoning_gym; make the table with magcli convert reasoning-gym:NAME" in reward.detail
