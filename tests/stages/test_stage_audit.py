"""`magcli audit` on dumps that the trainers themselves wrote (``tests/layouts/make_dumps.py``), and on single rows."""

import json
from pathlib import Path

import browser
import pytest
from browser import in_browser
from calling import call_stage

from magcli.errors import DataError, UsageError
from magcli.model.chat.thoughts import THINK
from magcli.stages.audit import findings, measures, summary
from magcli.stages.audit.measures import Answer, Ratios

DUMPS = Path(__file__).parents[1] / "layouts" / "dumps"
SAME = {
    "no_answer": 1, "equal_answers": 2, "truncated": 1, "no_spread": 4, "language_drift": 1, "repeated": 2,
    "looping": 1,
}  # fmt: skip
"""What is in the rollouts that ``make_dumps.py`` writes down, where verdicts and log-probs are not known."""
COMPARED = {"rewarded_wrong": 2, "unrewarded_right": 1}
EXPECTED = {
    "trl-1.16.0.parquet": {"no_spread": 4, "repeated": 6},
    "verl-0.9.1.jsonl": SAME | COMPARED,
    "prime-rl-0.8.0.jsonl": SAME | COMPARED | {"ratio_outlier": 1},
    "nemo-rl-0.6.0-train.jsonl": SAME | {"truncated": 3, "ratio_outlier": 1},
    "nemo-rl-0.6.0-val.jsonl": {"language_drift": 1, "looping": 1},
    "openrlhf-0.11.2.table.json": {"no_answer": 1, "truncated": 1, "language_drift": 1, "repeated": 2, "looping": 1},
}
UNCHECKED = {
    "trl-1.16.0.parquet": ["ratio_outlier", "language_drift"],
    "verl-0.9.1.jsonl": ["ratio_outlier"],
    "prime-rl-0.8.0.jsonl": [],
    "nemo-rl-0.6.0-train.jsonl": ["rewarded_wrong", "unrewarded_right"],
    "nemo-rl-0.6.0-val.jsonl": ["rewarded_wrong", "unrewarded_right", "ratio_outlier"],
    "openrlhf-0.11.2.table.json": [
        "rewarded_wrong", "unrewarded_right", "equal_answers", "no_spread", "ratio_outlier",
    ],
}  # fmt: skip


def rows_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def written(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("name", EXPECTED)
def test_the_dump_of_each_trainer_is_audited(name, tmp_path):
    out, page = tmp_path / "audited.jsonl", tmp_path / "audit.html"
    call_stage("audit", DUMPS / name, output=out, page=page)
    rows = rows_of(out)
    found = {key: sum(row[f"audit_{key}"] is True for row in rows) for key in summary.NAMES}
    assert {key: count for key, count in found.items() if count} == EXPECTED[name]
    unchecked = [key for key in summary.NAMES if all(row[f"audit_{key}"] is None for row in rows)]
    assert unchecked == UNCHECKED[name]
    text = page.read_text()
    assert text.count(">not checked<") == len(unchecked)
    assert all(summary.TITLES[key][0] in text for key in EXPECTED[name])


def test_the_summary_says_counts_and_what_is_not_there(tmp_path, capsys):
    call_stage("audit", DUMPS / "verl-0.9.1.jsonl", output=tmp_path / "audited.jsonl", quiet=False)
    said = capsys.readouterr().err
    assert "12 rollouts, 3 groups, 1 step" in said
    assert "rewarded wrong 2 of 12 (16.7 %)" in said
    assert "no log-probs of both sampler and trainer: ratios were not checked" in said


def test_rewards_of_trl_are_summed_and_its_solution_is_the_answer(tmp_path, capsys):
    row = {"step": 1, "prompt": "What is 2 + 2?", "completion": "\\boxed{4}", "right": 1.0, "short": 0.5}
    data = written(tmp_path / "a.jsonl", [{**row, "solution": "\\boxed{4}", "advantage": 0.0}])
    out = tmp_path / "audited.jsonl"
    call_stage("audit", data, output=out, quiet=False)
    assert "the reward is the sum of right, short" in capsys.readouterr().err
    assert [(row["trainer_reward"], row["correct_anywhere"]) for row in rows_of(out)] == [(1.5, True)]
    call_stage("audit", data, output=out, rewards=("short",), restart=True)
    assert [row["trainer_reward"] for row in rows_of(out)] == [0.5]


@pytest.mark.parametrize("without", [(), ("reward_format",), ("id", "reward_format", "reward_correct")])
def test_the_reward_of_own_rollouts_is_taken_without_its_parts(tmp_path, without):
    row = {
        "step": 1, "id": "a", "prompt": "What is 2 + 2?", "answer": "4", "completion": "\\boxed{4}", "reward": 1.0,
        "reward_format": 0.1, "reward_correct": 0.9, "reward_length": 0.0, "advantage": 0.5,
    }  # fmt: skip
    rows = [{name: value for name, value in row.items() if name not in without}]
    out = tmp_path / "audited.jsonl"
    call_stage("audit", written(tmp_path / "a.jsonl", rows), output=out)
    assert [row["trainer_reward"] for row in rows_of(out)] == [1.0]


def test_rewards_of_trl_may_have_the_names_of_parts(tmp_path):
    row = {"step": 1, "prompt": "What is 2 + 2?", "completion": "\\boxed{4}", "reward_format": 0.5}
    data = written(tmp_path / "a.jsonl", [{**row, "reward_correct": 1.0, "answer": "4", "advantage": 0.0}])
    out = tmp_path / "audited.jsonl"
    call_stage("audit", data, output=out)
    assert [row["trainer_reward"] for row in rows_of(out)] == [1.5]


def test_the_limit_of_rewards_is_the_users(tmp_path):
    row = {"prompt": "What is 2 + 2?", "answer": "4", "finish": "stop"}
    data = written(tmp_path / "a.jsonl", [{**row, "completion": f"{n}", "reward": n / 10} for n in (0, 1)])
    out = tmp_path / "audited.jsonl"
    call_stage("audit", data, output=out)
    assert [row["audit_rewarded_wrong"] for row in rows_of(out)] == [False, True]
    call_stage("audit", data, output=out, right_from=0.5, restart=True)
    assert [row["audit_rewarded_wrong"] for row in rows_of(out)] == [False, False]


def test_the_page_escapes_what_models_wrote(tmp_path):
    row = {"prompt": "<b>bold</b>?", "completion": "<i>no</i>", "answer": "4", "reward": 1.0}
    page = tmp_path / "audit.html"
    call_stage("audit", written(tmp_path / "a.jsonl", [row]), output=tmp_path / "o.jsonl", page=page)
    text = page.read_text()
    assert "<b>bold" not in text
    assert "&lt;b&gt;bold" in text
    assert "<i>no" not in text


CUT = """[...document.querySelectorAll('main *')].filter(
  (e) => e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).overflowX !== 'visible').length"""
"""Elements that hide some of their width."""


@pytest.fixture(scope="module")
def looked_at(tmp_path_factory):
    """The page of a dump with every finding, and with a text that has no place to break, in a browser."""
    folder = tmp_path_factory.mktemp("audit")
    rows = rows_of(DUMPS / "verl-0.9.1.jsonl")
    long = rows[0] | {"output": f"<img src=https://example.org/x.png>{'9' * 400}", "score": 1.0}
    call_stage("audit", written(folder / "d.jsonl", [*rows, long]), output=folder / "o.jsonl", page=folder / "a.html")
    with browser.tab(folder) as tab:
        tab.look(1280, 900, "light")
        tab.call("Page.navigate", url=(folder / "a.html").as_uri())
        tab.until("document.readyState === 'complete' && document.querySelector('#findings') !== null")
        yield tab


@in_browser
def test_each_finding_leads_to_its_section_with_examples(looked_at):
    names = looked_at.run("[...document.querySelectorAll('#findings a')].map((a) => a.hash.slice(1))")
    assert names == [name for name in summary.NAMES if name != "ratio_outlier"]
    assert looked_at.run("[...document.querySelectorAll('main > section')].map((s) => s.id)") == ["findings", *names]
    assert "Ratio outliers not checked" in looked_at.run("findings.innerText.replaceAll(/\\s+/g, ' ')")
    prompt, completion = looked_at.run("[...rewarded_wrong.querySelectorAll('.card pre')].map((p) => p.innerText)")[:2]
    row = next(row for row in rows_of(DUMPS / "verl-0.9.1.jsonl") if row["output"] == completion)
    assert prompt in row["input"]
    assert "ours: wrong" in looked_at.run("rewarded_wrong.querySelector('.head').innerText")
    looked_at.run("document.querySelector('#findings a[href=\"#looping\"]').click()")
    looked_at.until("Math.abs(looping.getBoundingClientRect().top) < innerHeight")


@in_browser
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_fits_follows_the_theme_and_asks_for_nothing(width, theme, looked_at, tmp_path):
    looked_at.look(width, 900, theme)
    looked_at.until(f"innerWidth === {width}")
    assert looked_at.run("document.documentElement.scrollWidth") == width
    assert looked_at.run(CUT) == 0
    red = int(looked_at.run("getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0]"))
    assert (red > 200) == (theme == "light")
    assert looked_at.run("performance.getEntriesByType('resource').length") == 0
    assert looked_at.run("document.images.length") == 0
    assert looked_at.logged == []
    looked_at.picture(tmp_path / "page.png")
    assert (tmp_path / "page.png").stat().st_size > 10_000


def test_wrong_options_are_refused(tmp_path):
    data = written(tmp_path / "a.jsonl", [{"prompt": "?", "completion": "4"}])
    with pytest.raises(DataError, match=r"the dump has no column scores; it has: .*completion"):
        call_stage("audit", data, output=tmp_path / "o.jsonl", rewards=("scores",))
    with pytest.raises(UsageError, match=r"--page a.txt: the file name must end in .html"):
        call_stage("audit", data, output=tmp_path / "o.jsonl", page=Path("a.txt"))
    with pytest.raises(DataError, match="lacks column completion"):
        call_stage("audit", written(tmp_path / "b.jsonl", [{"prompt": "?"}]), output=tmp_path / "o.jsonl")


def test_a_dump_without_rewards_is_still_checked(tmp_path, capsys):
    data = written(tmp_path / "a.jsonl", [{"prompt": "?", "completion": "all the same"}] * 2)
    call_stage("audit", data, output=tmp_path / "o.jsonl", quiet=False)
    said = capsys.readouterr().err
    assert "repeated 2 of 2" in said
    assert "no rewards" in said


# ---- one rollout ----


def test_repetition_is_the_share_of_sequences_that_came_before():
    words = [f"w{number}" for number in range(100)]
    assert measures.repetition(" ".join(words)) == 0
    assert measures.repetition(" ".join(words[:10] * 10)) > 0.8
    assert measures.repetition("again " * 30) == 0  # too short to be a loop
    assert measures.repetition("我们再算一遍" * 20) > 0.8


def test_answers_are_of_boxes_numbers_and_blocks():
    assert measures.answer_of("so \\boxed{3} or 4") == Answer("3", True)
    assert measures.answer_of("it is 4.") == Answer("4", False)
    assert measures.answer_of("I do not know") is None
    assert measures.answer_of("```python\nprint(1)\n```", is_code=True) == Answer("python", True)
    assert measures.answer_of("```python\nprint(1)", is_code=True) is None


@pytest.mark.parametrize(
    ("text", "is_within"),
    [
        ("<think>so", True),
        ("<think>so</think>\\boxed{3}", False),
        ("\\boxed{3", True),
        ("```python\nprint(", True),
        ("done", False),
    ],
)
def test_texts_that_end_within_something(text, is_within):
    assert measures.ends_within(text, THINK) is is_within


def test_ratios_are_factors_of_both_directions():
    assert measures.ratios_of([-1.0, -1.0], [-1.0, -1.0]) == Ratios(1.0, 1.0)
    highest, mean = measures.ratios_of([-1.0, -3.0], [-1.0, -1.0])
    assert highest == pytest.approx(7.389, abs=1e-3)
    assert mean == pytest.approx(4.195, abs=1e-3)
    assert measures.ratios_of([-1.0], [-1.0, -2.0]) is None
    assert measures.ratios_of(None, [-1.0]) is None
    assert measures.ratios_of([-1000.0], [0.0]).highest > 1e20


# ---- several rollouts ----


def test_groups_of_several_tables_may_have_the_same_numbers(tmp_path):
    """Or none in one of them: rollouts of different prompts are never compared."""
    said = {"completion": "\\boxed{4}", "step": 1}
    right = [{**said, "group": 0, "prompt": "What is 2+2?", "answer": "4", "reward": 1.0}] * 2
    wrong = [{**said, "group": 0, "prompt": "What is 7+2?", "answer": "9", "reward": 0.0}] * 2
    without = []
    for n in (1, 1, 3, 4):
        without.append({**said, "prompt": f"What is {n}+2?", "answer": f"{n + 2}", "reward": float(n % 2)})
    paths = [written(tmp_path / f"{n}.jsonl", rows) for n, rows in enumerate((right, wrong, without))]
    out = tmp_path / "audited.jsonl"
    call_stage("audit", *paths, output=out)
    rows = rows_of(out)
    assert [row["group"] for row in rows] == [0, 0, 1, 1, 2, 2, 3, 4]
    assert [row["audit_no_spread"] for row in rows] == [True] * 6 + [None] * 2
    assert not any(row["audit_equal_answers"] for row in rows)


def rollout(group="a", reward=None, answer=None, **values):
    standard = {
        "said_right": None, "is_right": None, "ends_within": False, "finish": None, "num_tokens": None, "ratios": None,
        "drifts": None, "repetition": 0.0,
    }  # fmt: skip
    text = repr((group, reward, answer, values)).encode()
    return findings.Rollout(group=(0, group), text=text, reward=reward, answer=answer, **standard | values)


def test_equal_answers_count_in_the_same_form_only():
    one, other = rollout(reward=1.0, answer=Answer("1/2", True)), rollout(reward=0.0, answer=Answer("0.5", True))
    number = rollout(reward=0.0, answer=Answer("1/2", False))
    findings.find_all([one, other, number], lambda a, b: {a, b} == {"1/2", "0.5"}, None)
    assert [each.findings["equal_answers"] for each in (one, other, number)] == [True, True, False]


def test_a_group_has_spread_if_rewards_differ():
    flat = [rollout("a", 0.0), rollout("a", 0.0)]
    spread = [rollout("b", 0.0), rollout("b", 1.0)]
    findings.find_all([*flat, *spread, rollout("c", 1.0)], str.__eq__, None)
    assert [each.findings["no_spread"] for each in (*flat, *spread)] == [True, True, False, False]


def test_lengths_at_the_limit_are_truncated_where_no_reason_is_known():
    rollouts = [rollout(num_tokens=length) for length in (8, 8, 8, 5)]
    basis = findings.find_all(rollouts, str.__eq__, None)
    assert [each.findings["truncated"] for each in rollouts] == [True, True, True, False]
    assert any("3 have 8 tokens" in sentence for sentence in basis.lacking)
