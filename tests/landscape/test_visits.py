"""Planted landscapes: rewards and lengths that are known functions of the coordinates, surveyed and journaled."""

import asyncio
import itertools

import numpy as np
import pyarrow as pa
import pytest

from magcli.errors import EnvironmentFault
from magcli.landscape import results
from magcli.landscape.surface import grid
from magcli.landscape.visits import VISIT, JournalledVisits, SurveyPlan, Visit, column, merge_samples, survey
from magcli.run.journal import Journal

PATH = np.column_stack([np.linspace(4, 0, 6), 0.5 * np.sin(np.linspace(0, np.pi, 6))])
PATH[-1] = 0
BEST = (0.9, 0.1)
PROBLEMS = 24
FOUR = SurveyPlan(4)


def hill(a1, a2):
    """The chance of a right answer: 0.9 at the planted optimum."""
    return 0.9 * np.exp(-((a1 - BEST[0]) ** 2) / 4 - (a2 - BEST[1]) ** 2)


def answered(visit, difficulty, length=lambda a1, a2: 1500 * 2 ** (a1 / 2)):
    """What an engine would give that is right with the hill's chance, at the length of the place."""
    rows = []
    for problem, number in itertools.product(range(PROBLEMS), range(visit.first, visit.last)):
        chance = np.clip(hill(visit.a1, visit.a2) + difficulty[problem], 0, 1)
        draw = np.random.default_rng([problem, number]).random()
        tokens = round(length(visit.a1, visit.a2) * (1 + 0.1 * np.sin(problem)))
        correct = bool(draw < chance)
        rows.append(
            dict.fromkeys(VISIT.names)
            | {"a1": visit.a1, "a2": visit.a2, "off_plane": 0.0, "id": f"p{problem}", "prompt": f"{problem}?"}
            | {"sample": number, "num_tokens": tokens, "finish": "length" if tokens > 4000 else "stop", "seed": number}
            | {"reward": 0.1 + 0.9 * correct, "reward_format": 0.1, "reward_correct": 0.9 * correct}
            | {"reward_length": 0.0, "reward_language": 0.0, "correct": correct, "correct_anywhere": correct}
            | {"reason": "correct" if correct else "wrong", "digest": f"{problem}-{number}-{correct}"}
        )
    return pa.RecordBatch.from_pylist(rows, VISIT)


@pytest.fixture
def planted():
    """A function that surveys a planted landscape and gives what was found and the visits made."""

    def look(points=61, plan=FOUR, spread=0.1, **options):
        difficulty, made = spread * np.linspace(-1, 1, PROBLEMS), []

        async def measure(visit):
            made.append(visit)
            return answered(visit, difficulty, **options)

        return asyncio.run(survey(grid(PATH, points=points), PATH, plan, measure)), made

    return look


def test_the_planted_optimum_is_found_within_a_cell(planted):
    found, _ = planted(plan=SurveyPlan(16))
    points = results.point_table(found)
    where = results.coordinates(points)[np.argmax(results.values_of(points, "reward"))]
    steps = (
        np.diff(np.unique(results.coordinates(points)[:, 0])).max(),
        np.diff(np.unique(results.coordinates(points)[:, 1])).max(),
    )
    assert abs(where - BEST) == pytest.approx(np.zeros(2), abs=max(steps))


def test_differences_to_the_final_weights_cover_the_planted_ones(planted):
    found, _ = planted(plan=SurveyPlan(8), spread=0.0)
    inside = []
    for row in results.point_table(found).to_pylist():
        truth = 0.9 * (hill(row["a1"], row["a2"]) - hill(0, 0))
        inside.append(row["difference_low"] - 1e-9 <= truth <= row["difference_high"] + 1e-9)
        assert row["difference_high"] - row["difference_low"] <= row["reward_high"] - row["reward_low"] + 0.2
        if (row["a1"], row["a2"]) == (0, 0):
            assert (row["difference"], row["difference_low"], row["difference_high"]) == (0, 0, 0)
    assert np.mean(inside) > 0.85


def test_length_truncation_and_regression_are_the_planted_ones(planted):
    found, _ = planted()
    points = results.point_table(found)
    for row in points.to_pylist():
        assert row["length"] == pytest.approx(1500 * 2 ** (row["a1"] / 2), rel=0.02)
        assert row["length_low"] < row["length"] < row["length_high"]
        assert row["raw_reward"] == pytest.approx(row["reward"])
    longest = max(points.to_pylist(), key=lambda row: row["length"])
    assert longest["truncated"] > 0
    fit = results.fit_length(points, shortest=1000, longest=3000)
    assert results.fit_figures(fit)["points_used"] == sum(1000 <= row["length"] <= 3000 for row in points.to_pylist())
    assert results.fit_figures(results.fit_length(points, shortest=1, longest=2)) == {}


def test_plans_add_places_samples_and_a_second_look_at_the_origin(planted):
    found, made = planted(points=19, plan=SurveyPlan(2, refine=3, more_samples=6))
    size = len(grid(PATH, points=19))
    assert found.grid == [True] * size + [False] * 3
    assert made[-1] == Visit(0.0, 0.0, 0, 2, repeat=True)
    more = [visit for visit in made if visit.first == 2]
    assert 0 < len(more) < size
    assert all((visit.first, visit.last) == (2, 8) for visit in more)
    counts = {place: column(rows, "reward").shape[1] for place, rows in zip(found.points, found.rows, strict=True)}
    assert {place for place, count in counts.items() if count == 8} == {(visit.a1, visit.a2) for visit in more}
    assert set(counts.values()) == {2, 8}
    assert len(made) == len(set(made)) == size + 3 + len(more) + 1
    again = results.compare_origin(found)
    assert (again["completions"], again["equal"], again["difference"]) == (2 * PROBLEMS, 2 * PROBLEMS, 0)


@pytest.mark.parametrize("at_once", [1, 3])
def test_visits_wait_together_except_for_those_that_follow_from_others(planted, at_once):
    expected, _ = planted(points=19, plan=SurveyPlan(2, refine=3, more_samples=6))
    waiting, ended, most = [], [], 0

    async def measure(visit):
        nonlocal most
        waiting.append(visit)
        most = max(most, len(waiting))
        for _ in range(len(ended) % 4):
            await asyncio.sleep(0)  # in another order than they began
        waiting.remove(visit)
        ended.append(visit)
        return answered(visit, 0.1 * np.linspace(-1, 1, PROBLEMS))

    plan = SurveyPlan(2, refine=3, more_samples=6)
    found = asyncio.run(survey(grid(PATH, points=19), PATH, plan, measure, at_once=at_once))
    assert most == at_once
    assert found.points == expected.points
    assert all(one.equals(other) for one, other in zip(found.rows, expected.rows, strict=True))
    size = len(grid(PATH, points=19))
    assert {visit.first for visit in ended[: size + 3]} == {0}
    assert ended[-1].repeat


def test_the_first_error_ends_all_visits():
    cancelled = []

    async def measure(visit):
        if visit.a1 == 0 and visit.a2 == 0:
            raise EnvironmentFault("no engine")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(visit)
            raise

    with pytest.raises(EnvironmentFault, match="no engine"):
        asyncio.run(survey(grid(PATH, points=7), PATH, FOUR, measure, at_once=100))
    assert len(cancelled) == len(grid(PATH, points=7)) - 1


def test_an_engine_that_does_not_restore_the_final_weights_is_detected(planted):
    found, _ = planted(points=7, plan=SurveyPlan(4))
    found.repeated_origin = answered(Visit(3.0, 0.4, 0, 4), np.zeros(PROBLEMS))
    again = results.compare_origin(found)
    assert again["equal"] < again["completions"]
    assert again["difference_high"] < 0


def test_rows_of_a_point_join_problem_after_problem():
    one, other = (answered(Visit(0.0, 0.0, *numbers), np.zeros(PROBLEMS)) for numbers in ((0, 2), (2, 5)))
    whole = merge_samples(one, other)
    assert column(whole, "sample").tolist() == [[0, 1, 2, 3, 4]] * PROBLEMS
    assert column(whole, "id")[:, 0].tolist() == [f"p{number}" for number in range(PROBLEMS)]


@pytest.mark.parametrize(
    ("asked", "made"),
    [
        ([(0, 4), (0, 4)], [(0, 4)]),
        ([(0, 4), (0, 6)], [(0, 4), (4, 6)]),
        ([(0, 6), (0, 4)], [(0, 6)]),
        ([(2, 4), (0, 6)], [(2, 4), (0, 2), (4, 6)]),
        ([(0, 2), (4, 6), (0, 8)], [(0, 2), (4, 6), (2, 4), (6, 8)]),
    ],
)
def test_only_missing_samples_are_generated(tmp_path, asked, made):
    really, reused = [], []

    async def make(visit):
        really.append((visit.first, visit.last))
        return answered(visit, np.zeros(PROBLEMS))

    journal = Journal.open(tmp_path / "points.journal", VISIT, {})
    visits = JournalledVisits(journal, make, reused.append)
    for first, last in asked:
        rows = asyncio.run(visits.measure(Visit(1.0, 0.5, first, last)))
        assert rows.equals(answered(Visit(1.0, 0.5, first, last), np.zeros(PROBLEMS)))
    assert really == made
    assert reused[0] is False
    asyncio.run(visits.measure(Visit(1.0, 0.5, *asked[-1])))
    assert reused[-1] is True
    asyncio.run(visits.measure(Visit(1.0, 0.5, 0, 1, repeat=True)))
    assert really[-1] == (0, 1), "a second look is never taken from the first one"
    journal.close()
