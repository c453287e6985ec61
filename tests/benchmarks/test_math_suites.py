"""Public cases of math graders: how they are parsed and labelled; nothing here needs a network."""

import json
from collections import Counter

import pytest

from benchmarks.downloads import Unavailable
from benchmarks.math_verdicts import rewrites, suites
from benchmarks.math_verdicts.graders import Grader
from benchmarks.math_verdicts.make_mix import MIX_FILE
from benchmarks.math_verdicts.suites import ADJUDICATED_FILE, Case, answer_in


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"So $x=2$ or rather $\boxed{3}$.", "3"),
        (r"First \boxed{4}, but wait: \boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"$\boxed{2}$ and $\boxed{5}$", "2, 5"),
        (r"\(\boxed{(1, 2)} \quad \text{and} \quad \boxed{(3, 4)}\)", "(1, 2), (3, 4)"),
        (r"$\frac{7}{3}$", r"\frac{7}{3}"),
        (r"The answer is \[ 9 \]", "9"),
        ("Thus $x <= 2$ is our answer.", "x <= 2"),
        ("$28$ percent", "28"),
        (r"\$1,000", r"\$1,000"),
        ("7,425,000", "7,425,000"),
        ("the number that we are looking for is 7", ""),
        ("The largest $n$ is 34.", ""),
        (r"\boxed{never closed", ""),
    ],
)
def test_answer_in_a_text(text: str, answer: str) -> None:
    assert answer_in(text) == answer


def test_computed_rows_of_a_test_are_left_out() -> None:
    source = (
        "@pytest.mark.parametrize('gold, pred', [('1', '2'), (f'{x}', '3'), pytest.param('4', 5 / 2, id='a')])\n"
        "def test_it(gold, pred): ...\n"
    )
    rows = list(suites._parametrised(source))
    assert rows == [(["gold", "pred"], ["1", "2"]), (["gold", "pred"], ["4", 2.5])]


def test_an_unavailable_suite_has_the_reason() -> None:
    def read() -> list[suites.Labelled]:
        raise Unavailable("https://example.org/cases: no network")

    assert suites._suite("elsewhere", read).unavailable == "https://example.org/cases: no network"


def test_adjudicated_labels_replace_public_ones_and_none_leaves_out(tmp_path, monkeypatch) -> None:
    cases = [Case("s", text, "1", True) for text in ("a", "b", "c")]
    ours = {cases[0].key: False, cases[1].key: None}
    file = tmp_path / "adjudicated.jsonl"
    file.write_text("".join(json.dumps({"case": key, "ours": label}) + "\n" for key, label in ours.items()))
    monkeypatch.setattr(suites, "ADJUDICATED_FILE", file)
    suite = suites._suite("s", lambda: [(case.prediction, case.gold, case.same) for case in cases])
    assert [(case.prediction, case.same) for case in suite.cases] == [("a", False), ("c", True)]
    assert (suite.left_out, suite.relabelled) == (1, 1)


def test_every_adjudicated_case_has_a_reason_and_a_date() -> None:
    rows = [json.loads(line) for line in ADJUDICATED_FILE.read_text().splitlines()]
    assert len({row["case"] for row in rows}) == len(rows)
    for row in rows:
        assert len(row["case"]) == 16
        assert row["suite"] in suites.SOURCES
        assert row["ours"] in (True, False, None)
        assert row["ours"] is not row["public"]
        assert row["reason"].endswith(".")
        assert row["judged"].startswith("20")


def test_half_of_the_mix_are_model_outputs_and_many_are_not_integers() -> None:
    rows = [json.loads(line) for line in MIX_FILE.read_text().splitlines()]
    assert Counter(row["source"] for row in rows)["qwen-math"] * 2 == len(rows) >= 1000
    assert sum(not row["gold"].strip().lstrip("-").isdigit() for row in rows) > 0.37 * len(rows)


def test_rewrites_are_deterministic_and_differ_from_the_ground_truth() -> None:
    golds = [r"\frac{3}{4}", "1234", "(2,5)", r"[0,\pi)", "-7", r"2\sqrt{3}", r"\text{east}"]
    cases = list(rewrites.labelled(golds, seed=5))
    assert cases == list(rewrites.labelled(golds, seed=5))
    assert all(prediction.strip() != gold for prediction, gold, _ in cases)
    assert [gold for _, gold, same in cases if same] == golds
    assert {gold for _, gold, same in cases if not same} == set(golds) - {r"\text{east}"}


def test_a_grader_survives_unparsable_answers() -> None:
    with Grader("magcli") as grader:
        assert grader.same("1/2", "0.5").same
        assert not grader.same("1/2", "0.6").same
        assert not grader.same("\\frac{" * 50, "1").same
        assert grader.same("2", "2").same
