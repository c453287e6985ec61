import json
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


def test_every_part_of_the_reward_and_its_reason_stand_in_columns(tmp_path, capsys):
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
    options = {"max_length": 20, "cache_length": 10, "language": False, "quiet": False}
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
    assert "50.0% correct of 6 gradable; correct 3," in capsys.readouterr().err


def test_one_language_is_rewarded(tmp_path):
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


def test_hostile_text_costs_its_deadline_and_no_more(tmp_path):
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
    reasons = Counter(each["reason"] for each in rows_of(dropped))
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
        call_stage("grade", source, output=tmp_path / "out.jsonl", max_length=10)
    with pytest.raises(UsageError, match=r"grade\.workers: 0 is not positive"):
        call_stage("grade", source, output=tmp_path / "out.jsonl", workers=0)
    proof = written(tmp_path / "proof.jsonl", [row("c", RIGHT, kind="proof")])
    with pytest.raises(DataError, match="problem c: kind 'proof' cannot be graded"):
        call_stage("grade", proof, output=tmp_path / "proof.arrow")
