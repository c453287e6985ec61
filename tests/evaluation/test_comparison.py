"""Several models side by side: hand-made sides whose differences are known."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from magcli.evaluation.metrics import Problem, Side, compare, comparison_markdown, estimate, labels, merge_answers


def side(name: str, correct, *, at_hand: bool = True) -> Side:
    problems = [
        Problem(
            f"p{n}", tuple("1" if ok else "2" for ok in each), tuple(map(bool, each)), tuple(map(bool, each)), (9, 9)
        )
        for n, each in enumerate(correct)
    ]
    estimates = {("aime24", each.metric): each for each in estimate(problems, (1, 2))}
    return Side(name, estimates, {"aime24": problems} if at_hand else {})


def test_differences_are_paired_with_the_first_model() -> None:
    random = np.random.default_rng(0)
    weak = random.random((80, 2)) < 0.4
    strong = weak | (random.random((80, 2)) < 0.3)
    found = compare([side("sft", weak), side("rl", strong), side("old", weak, at_hand=False)], (1, 2))
    by = {(row["metric"], row["model"]): row for row in found}
    gain = by["avg@n", "rl"]
    assert gain["difference"] == pytest.approx(strong.mean() - weak.mean())
    assert 0 < gain["difference_low"] < gain["difference"] < gain["difference_high"]
    assert gain["num_paired"] == 80
    assert "difference" not in by["avg@n", "sft"]
    assert "difference" not in by["avg@n", "old"]
    table = comparison_markdown(found)
    head, _, *body = table.splitlines()
    assert head == "| suite | metric | sft | rl | old | rl - sft |"
    assert {line.count("|") for line in table.splitlines()} == {7}
    avg_line = next(line for line in body if line.startswith("| aime24 | avg@n |"))
    assert f"{100 * strong.mean():.1f} [" in avg_line
    assert f"| +{100 * gain['difference']:.1f}* [+" in avg_line


def test_an_insignificant_difference_has_no_asterisk() -> None:
    correct = np.random.default_rng(1).random((40, 2)) < 0.5
    found = compare([side("a", correct), side("b", correct[::-1])], (1,))
    assert "*" not in comparison_markdown(found)


def test_suites_and_metrics_of_one_model_alone_leave_the_others_empty() -> None:
    one = side("a", [[1, 0], [0, 0]])
    other = Side("b", {("gsm8k", "avg@n"): one.estimates["aime24", "avg@n"]}, {})
    table = comparison_markdown(compare([one, other], (1,)))
    assert "| gsm8k | avg@n |  | 25.0 [" in table


def test_equal_wrong_answers_vote_together() -> None:
    same = {frozenset(("1/2", "0.5")), frozenset(("1/2", "\\frac12")), frozenset(("0.5", "\\frac12"))}
    answers, right = ("1/2", "7", "0.5", " \\frac12", "7", ""), (False, True, False, False, True, False)
    problem = Problem("p", answers, right, right, (1,) * 6)
    joined = merge_answers(problem, lambda one, other: frozenset((one, other)) in same)
    assert len({answer for answer, ok in zip(joined.answers, right, strict=True) if not ok and answer}) == 1
    assert joined.answers[1] == "7"
    assert {e.metric: e.value for e in estimate([problem], (6,))}["maj@6"] == 1.0
    assert {e.metric: e.value for e in estimate([joined], (6,))}["maj@6"] == 0.0


def test_labels_keep_the_parts_that_differ() -> None:
    assert labels(["runs/a/m.arrow", "runs/b/m.arrow"]) == ["a/m", "b/m"]
    assert labels(["runs/m.arrow", "runs/m.parquet", "runs/n.arrow"]) == ["m.arrow", "m.parquet", "n"]
    assert labels(["runs/m.arrow", "runs/m.arrow"]) == ["m.arrow", "m.arrow (2)"]
    assert labels(["out/a/0/sft.arrow", "out/a/1/rl.arrow"]) == ["0/sft", "1/rl"]
    assert labels(["out/eval.arrow"]) == ["eval"]
    assert labels([]) == []


def test_relative_folders_have_a_label(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here" / "below").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    assert labels([".", "../m.arrow"])[0].endswith("here")
    monkeypatch.chdir(tmp_path / "here" / "below")
    assert labels(["..", str(tmp_path / "m.arrow")]) == ["here", "m"]
    assert len(labels(["/", "."])) == 2


@given(st.lists(st.sampled_from(["m", "m.arrow", "m.arrow (2)", "a/m.arrow", "m (2).arrow", "m.x.arrow"])))
def test_no_two_labels_are_equal(names: list[str]) -> None:
    assert len(set(labels(names))) == len(names)
