import json
import re
from collections import Counter

import pytest
from calling import call_stage

from magcli.data import table
from magcli.errors import DataError, UsageError

RIGHT, WRONG = "<think>six</think>\\boxed{6}", "<think>six</think>\\boxed{7}"


def written(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def rows_of(path):
    return [row for batch in table.read(str(path)).rows for row in batch.to_pylist()]


def row(id, completion, answer="6", tokens=10, **more):
    return {"id": id, "prompt": "2*3?", "answer": answer, "completion": completion, "num_tokens": tokens, **more}


def test_every_part_of_the_reward_and_its_reason_have_columns(tmp_path, capsys):
    data = [
        row("right", RIGHT),
        row("wrong", WRONG),
        row("no-think", "\\boxed{6}"),
        row("no-box", "<think>six</think>6"),
        row("long", RIGHT, tokens=15),
        row("longer", RIGHT, tokens=99),
        row("bad-gold", RIGHT, answer="it depends on how one reads the question that was asked"),
    ]
    out = tmp_path / "out.jsonl"
    options = {"penalty_end": 20, "penalty_width": 10, "language": False, "quiet": False}
    call_stage("grade", written(tmp_path / "c.jsonl", data), output=out, **options)
    found = {each["id"]: each for each in rows_of(out)}
    parts = ("reward", "reward_format", "reward_correct", "reward_length", "reward_language")
    assert {id: [each[name] for name in parts] for id, each in found.items()} == {
        "right": pytest.approx([1.0, 0.1, 0.9, 0, 0]),
        "wrong": pytest.approx([0.1, 0.1, 0, 0, 0]),
        "no-think": [0, 0, 0, 0, 0],
        "no-box": [0, 0, 0, 0, 0],
        "long": pytest.approx([0.95, 0.1, 0.9, -0.05, 0]),
        "longer": pytest.approx([0.9, 0.1, 0.9, -0.1, 0]),
        "bad-gold": [0, 0, 0, 0, 0],
    }
    assert {id: each["reason"] for id, each in found.items()} == {
        "right": "correct", "wrong": "wrong", "no-think": "no-think", "no-box": "no-box", "long": "correct",
        "longer": "correct", "bad-gold": "bad-gold",
    }  # fmt: skip
    assert (found["no-think"]["correct"], found["no-think"]["correct_anywhere"]) == (False, True)
    assert "50.0% [18.8, 81.2] correct of 6 gradable; correct 3," in capsys.readouterr().err


def test_answering_in_one_language_is_rewarded(tmp_path):
    english = "The train leaves the station at six in the morning. How many carriages does it have?"
    thoughts = "The train has six carriages, because the text says that it does, so that is the answer."
    french = "Le train a six voitures, parce que le texte le dit clairement, donc c'est la réponse."
    data = [
        row("same", f"<think>{thoughts}</think>The train has \\boxed{{6}} carriages in all of the cases.")
        | {"prompt": english},
        row("mixed", f"<think>{french}</think>The train has \\boxed{{6}} carriages in all of the cases.")
        | {"prompt": english},
    ]
    call_stage("grade", written(tmp_path / "c.jsonl", data), output=tmp_path / "out.jsonl")
    same, mixed = rows_of(tmp_path / "out.jsonl")
    assert (same["reward_language"], mixed["reward_language"]) == (pytest.approx(0.1), 0)
    assert (same["reward"], mixed["reward"]) == (pytest.approx(1.1), pytest.approx(1.0))


def test_hostile_text_costs_at_most_its_deadline(tmp_path):
    hostile = "<think></think>\\boxed{9^{9^{9^{9^{9}}}} + \\sqrt{" + "9^{" * 200 + "1" + "}" * 201 + "}"
    data = [row("hostile", hostile), *(row(f"fine{i}", RIGHT) for i in range(5))]
    out = tmp_path / "out.jsonl"
    call_stage("grade", written(tmp_path / "c.jsonl", data), output=out, verify_deadline=1.0, workers=2)
    reasons = {each["id"]: each["reason"] for each in rows_of(out)}
    assert reasons.pop("hostile") in ("wrong", "timeout", "no-box")
    assert set(reasons.values()) == {"correct"}


def test_rows_that_cannot_be_graded_are_dropped_and_rows_add_up(tmp_path):
    data = [
        row("ok", RIGHT),
        row("no-answer", RIGHT, answer=None),
        row("no-completion", None),
        row("nul", RIGHT, answer="6\0"),
        row("empty-prompt", RIGHT) | {"prompt": " "},
    ]
    lines = [json.dumps(each) for each in data] + ["{broken"]
    (tmp_path / "c.jsonl").write_text("\n".join(lines) + "\n")
    out, dropped = tmp_path / "out.arrow", tmp_path / "dropped.jsonl"
    call_stage("grade", tmp_path / "c.jsonl", output=out, dropped=dropped)
    reasons = Counter(each["drop_reason"] for each in rows_of(dropped))
    assert reasons == {
        "missing-answer": 1, "missing-completion": 1, "nul-byte": 1, "empty-prompt": 1, "broken-json": 1,
    }  # fmt: skip
    link = table.read(str(out)).chain[-1]
    assert (link.rows_in, link.rows_out, sum(link.dropped.values())) == (6, 1, 5)


def test_rows_keep_their_order_whatever_the_workers(tmp_path):
    data = [row(f"r{i}", RIGHT if i % 3 else WRONG) for i in range(300)]
    source = written(tmp_path / "c.jsonl", data)
    call_stage("grade", source, output=tmp_path / "one.arrow", workers=1)
    call_stage("grade", source, output=tmp_path / "two.arrow", workers=3)
    assert (tmp_path / "one.arrow").read_bytes() == (tmp_path / "two.arrow").read_bytes()
    assert [each["correct"] for each in rows_of(tmp_path / "one.arrow")] == [bool(i % 3) for i in range(300)]


def test_the_length_penalty_needs_lengths_and_unknown_kinds_are_refused(tmp_path):
    data = [{key: value for key, value in row("a", RIGHT).items() if key != "num_tokens"}]
    source = written(tmp_path / "c.jsonl", data)
    call_stage("grade", source, output=tmp_path / "out.jsonl")
    with pytest.raises(DataError, match="lacks column num_tokens"):
        call_stage("grade", source, output=tmp_path / "out.jsonl", penalty_end=10)
    with pytest.raises(UsageError, match=r"grade\.workers: 0 is not positive"):
        call_stage("grade", source, output=tmp_path / "out.jsonl", workers=0)
    proof = written(tmp_path / "proof.jsonl", [row("c", RIGHT, kind="proof")])
    with pytest.raises(DataError, match="problem c: kind 'proof' cannot be graded"):
        call_stage("grade", proof, output=tmp_path / "proof.arrow")


def test_answers_under_another_name_are_found_next_to_tests(tmp_path):
    given = [{"problem": "2*3?", "ground_truth": 6, "response": RIGHT}]
    given += [{"problem": "Print 1.", "kind": "code", "tests": [{"input": "", "output": "1"}], "response": RIGHT}]
    call_stage("grade", written(tmp_path / "c.jsonl", given), output=tmp_path / "out.arrow")
    assert [each["reason"] for each in rows_of(tmp_path / "out.arrow")] == ["correct", "no-code"]


def test_completions_come_from_any_tool(tmp_path, capsys):
    data = [{"problem": "2*3?", "gold": 6, "response": text} for text in (RIGHT, WRONG, RIGHT)]
    out = tmp_path / "out.arrow"
    call_stage("grade", written(tmp_path / "c.jsonl", data), output=out, quiet=False)
    found = rows_of(out)
    assert [(each["prompt"], each["answer"], each["reason"]) for each in found] == [
        ("2*3?", "6", "correct"), ("2*3?", "6", "wrong"), ("2*3?", "6", "correct"),
    ]  # fmt: skip
    assert len({each["id"] for each in found}) == 1
    messages = capsys.readouterr().err
    assert "reading problem as prompt, gold as answer, response as completion" in messages
    assert "66.7% [" in messages
    call_stage("show", out, where='reason == "wrong"', limit=3)
    shown = capsys.readouterr().out
    for part in ("prompt: 2*3?", "answer: 6", "extracted: 7", "detail: number", "-- 1 rows"):
        assert part in shown
    two = written(tmp_path / "two.jsonl", [{"problem": "a", "question": "b", "answer": "1", "completion": RIGHT}])
    with pytest.raises(DataError, match="could be problem or question"):
        call_stage("grade", two, output=tmp_path / "two.arrow")


def test_a_prompt_may_open_the_thoughts(tmp_path):
    source = written(tmp_path / "c.jsonl", [row("a", RIGHT.removeprefix("<think>"))])
    call_stage("grade", source, output=tmp_path / "out.jsonl", opening="<think>")
    (found,) = rows_of(tmp_path / "out.jsonl")
    assert found["reason"] == "correct"


@pytest.mark.parametrize(
    ("completion", "tip"),
    [
        (RIGHT.removeprefix("<think>"), "2 of them have only </think>: .*--opening '<think>'"),
        (RIGHT.rpartition("</think>")[2], "2 of them have the correct answer .column correct_anywhere."),
    ],
)
def test_missing_thoughts_produce_a_hint(completion, tip, tmp_path, capsys):
    source = written(tmp_path / "c.jsonl", [row("a", completion), row("b", completion), row("c", RIGHT)])
    call_stage("grade", source, output=tmp_path / "out.arrow", quiet=False)
    assert re.search(f"2 completions do not begin with <think>; {tip}", capsys.readouterr().err)
    few = written(tmp_path / "few.jsonl", [row("a", completion), row("b", RIGHT)])
    call_stage("grade", few, output=tmp_path / "few.arrow", quiet=False)
    assert "do not begin" not in capsys.readouterr().err


def test_a_penalty_width_without_an_end_is_refused():
    with pytest.raises(UsageError, match="grade: --penalty-width requires --penalty-end"):
        call_stage("grade", "nothing.jsonl", penalty_width=10)


def test_the_interval_accounts_for_correlated_samples():
    from magcli.stages.grade.work import accuracy_interval

    found = accuracy_interval({f"p{n}": n % 2 for n in range(100)}, {f"p{n}": 1 for n in range(100)})
    alike = accuracy_interval({f"p{n}": 10 * (n % 2) for n in range(10)}, {f"p{n}": 10 for n in range(10)})
    assert found == pytest.approx((0.5, 0.404, 0.596), abs=1e-3)
    assert alike == pytest.approx((0.5, 0.237, 0.763), abs=1e-3)
    assert accuracy_interval({"a": 2, "b": 2}, {"a": 2, "b": 2})[0] == 1.0
    share, low, high = accuracy_interval({}, {"a": 5, "b": 5})
    assert (share, low) == (0.0, 0.0)
    assert 0.6 < high < 0.7


OWN = """
def brief(completion, row):
    if "boom" in completion:
        raise RuntimeError("boom")
    return {"total": 2.0 - len(completion) / 10, "correct": len(completion) < 5, "extracted": row["note"]}
"""


def test_a_custom_reward(tmp_path, capsys):
    (tmp_path / "own.py").write_text(OWN)
    texts = ("abc", "abcdefghij", "boom")
    source = written(tmp_path / "c.jsonl", [{"completion": text, "note": text[:2]} for text in texts])
    spec = f"{tmp_path / 'own.py'}:brief"
    call_stage("grade", source, output=tmp_path / "out.arrow", reward=spec, quiet=False)
    found = rows_of(tmp_path / "out.arrow")
    assert [each["reward"] for each in found] == pytest.approx([1.7, 1.0, 0.0])
    assert [(each["reason"], each["extracted"]) for each in found] == [
        ("correct", "ab"), ("wrong", "ab"), ("reward-error", ""),
    ]  # fmt: skip
    assert found[2]["detail"] == "RuntimeError: boom (own.py:4, brief)"
    assert "correct of 2 gradable; correct 1, wrong 1, reward-error 1" in capsys.readouterr().err
    digest = table.read(str(tmp_path / "out.arrow")).chain[-1].config["reward_sha256"]
    (tmp_path / "own.py").write_text(OWN + "\n")
    call_stage("grade", source, output=tmp_path / "again.arrow", reward=spec)
    assert table.read(str(tmp_path / "again.arrow")).chain[-1].config["reward_sha256"] != digest
    with pytest.raises(UsageError, match="has no function brif"):
        call_stage("grade", source, output=tmp_path / "no.arrow", reward=spec.replace("brief", "brif"))
