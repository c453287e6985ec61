import json
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from calling import call_stage
from scripted_server import scripted_server

from magcli.data import table
from magcli.errors import DataError, UsageError


def written(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def rows_of(path):
    return [row for batch in table.read(str(path)).rows for row in batch.to_pylist()]


def metrics(path):
    return {row["metric"]: row for row in rows_of(path)}


def graded(correct, prefix="p"):
    """One row a sample of problems whose samples are right or wrong as given."""
    return [
        {"id": f"{prefix}{i}", "correct": bool(ok), "extracted": "42" if ok else str(sample % 2), "num_tokens": 10 + i}
        for i, samples in enumerate(correct)
        for sample, ok in enumerate(samples)
    ]


def test_answers_anywhere_count_for_models_without_the_format(tmp_path):
    """Of four samples one is right in the format, two more elsewhere, and one is wrong."""
    anywhere = [(True, "42"), (False, "42"), (False, "42"), (False, "7")]
    rows = [
        {"id": id, "correct": formatted, "correct_anywhere": answer == "42", "extracted": answer}
        for id in "ab"
        for formatted, answer in anywhere
    ]
    data, out = written(tmp_path / "graded.jsonl", rows), tmp_path / "out.jsonl"
    call_stage("evaluate", data, ks="1,4", output=out, anywhere=True)
    found = metrics(out)
    assert [found[name]["value"] for name in ("avg@n", "pass@1", "maj@4")] == [0.75, 0.75, 1.0]
    call_stage("evaluate", data, ks="1,4", output=out, restart=True)
    assert metrics(out)["pass@1"]["value"] == 0.25


def test_stored_completions_need_no_model(tmp_path, capsys):
    correct = np.random.default_rng(0).random((30, 6)) < np.linspace(0, 1, 30)[:, None]
    data, out = written(tmp_path / "graded.jsonl", graded(correct)), tmp_path / "out.jsonl"
    call_stage("evaluate", data, ks="1,2,4,64", output=out, quiet=False)
    found = metrics(out)
    assert set(found) == {
        "avg@n", "avg@n anywhere", "tokens", "pass@1", "pass@2", "pass@4", "maj@2", "maj@4",
    }  # fmt: skip
    for k in (1, 2, 4):
        subsets = [[any(samples[list(s)]) for s in combinations(range(6), k)] for samples in correct]
        assert found[f"pass@{k}"]["value"] == pytest.approx(np.mean(subsets))
        assert found[f"pass@{k}"]["low"] < found[f"pass@{k}"]["value"] < found[f"pass@{k}"]["high"]
    assert found["tokens"]["value"] == pytest.approx(np.mean(10 + np.arange(30)))
    assert (found["avg@n"]["num_problems"], found["avg@n"]["num_samples"]) == (30, 180)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "--ks 64 skipped: the fewest samples of a problem are 6\n" in captured.err
    assert f"pass@4          {100 * found['pass@4']['value']:.1f}" in captured.err


def test_two_runs_are_compared_problem_by_problem(tmp_path):
    random = np.random.default_rng(1)
    before = random.random((60, 8)) < random.random((60, 1))
    after = before | (random.random((60, 8)) < 0.15)
    ours = written(tmp_path / "after.jsonl", graded(after))
    theirs = written(tmp_path / "before.jsonl", graded(before))
    call_stage("evaluate", ours, against=theirs, output=tmp_path / "out.jsonl")
    found = metrics(tmp_path / "out.jsonl")
    gain = found["avg@n difference"]
    assert gain["value"] == pytest.approx(after.mean() - before.mean())
    assert 0 < gain["low"] < gain["value"] < gain["high"]
    assert gain["high"] - gain["low"] < found["avg@n"]["high"] - found["avg@n"]["low"]


def test_ids_of_different_problems_are_warned_of(tmp_path, capsys):
    rows = [{**row, "prompt": f"Which is {row['id']}?"} for row in graded([[1, 0], [1, 1], [0, 0]])]
    ours = written(tmp_path / "a.jsonl", rows)
    theirs = written(tmp_path / "b.jsonl", [*rows[:2], *({**row, "prompt": "Another one?"} for row in rows[2:])])
    for other, warned in ((ours, False), (theirs, True)):
        call_stage("evaluate", ours, against=other, output=tmp_path / "out.jsonl", quiet=False, restart=True)
        said = capsys.readouterr().err
        text = f"2 problems have the same id but other prompts in the input and {other}; if they are different problems"
        assert (text in said) == warned


def test_ids_that_are_numbers_are_those_that_are_text(tmp_path):
    texts = [{**row, "id": row["id"].removeprefix("p")} for row in graded([[1] * 12, [1, 0] * 6])]
    numbers = [{**row, "id": int(row["id"])} for row in texts]
    ours, theirs = written(tmp_path / "a.jsonl", texts), written(tmp_path / "b.jsonl", numbers)
    for options in ({"against": theirs}, {"compare": True}):
        tables = (ours, theirs) if "compare" in options else (theirs,)
        call_stage("evaluate", *tables, output=tmp_path / "out.jsonl", ks="1,6", restart=True, **options)
        found = metrics(tmp_path / "out.jsonl")
        number = found["maj@6 difference"]["num_problems"] if "against" in options else found["maj@6"]["num_paired"]
        assert number == 2


def test_runs_without_a_common_problem_are_refused(tmp_path):
    ours = written(tmp_path / "a.jsonl", graded([[1, 0], [1, 1]]))
    theirs = written(tmp_path / "b.jsonl", graded([[1, 0]], prefix="q"))
    with pytest.raises(DataError, match="no problem in common"):
        call_stage("evaluate", ours, against=theirs, output=tmp_path / "out.jsonl")
    assert not (tmp_path / "out.jsonl").exists()


def test_a_folder_table_can_be_compared(tmp_path):
    data, folder = written(tmp_path / "a.jsonl", graded([[1, 0], [1, 1]])), tmp_path / "folder"
    gains = []
    for right in (0, 1):
        theirs = written(tmp_path / "b.jsonl", graded([[right, 0], [1, 1]]))
        call_stage("convert", theirs, output=folder, restart=True)
        call_stage("evaluate", data, against=folder, output=tmp_path / "out.jsonl")
        gains.append(metrics(tmp_path / "out.jsonl")["avg@n difference"]["value"])
    assert gains == [0.25, 0.0], "what lies in the folder decides whether the metrics are up to date"


@pytest.mark.parametrize(
    ("name", "message"),
    [("none.jsonl", "none.jsonl does not exist"), ("bare.jsonl", "lacks column correct"), ("empty", "not a table")],
)
def test_the_other_run_is_checked_before_sampling(name, message, tmp_path):
    (tmp_path / "empty").mkdir()
    written(tmp_path / "bare.jsonl", [{"id": "p"}])
    data = written(tmp_path / "p.jsonl", [{"id": "p", "prompt": "1+1", "answer": "2"}])
    with pytest.raises(DataError, match=message):
        call_stage("evaluate", data, model="no/model", against=tmp_path / name, output=tmp_path / "out.jsonl")


def test_a_model_is_sampled_and_graded(guesser, tmp_path, capsys):
    problems = [{"id": f"p{i}", "prompt": f"{letter}?", "answer": "3"} for i, letter in enumerate("abcdefgh")]
    problems += [{"id": "long", "prompt": "x" * 600, "answer": "3"}]
    problems += [{"id": "bad", "prompt": "a?", "answer": "the answers vary a lot from one student to the next one"}]
    data = written(tmp_path / "problems.jsonl", problems)
    options = {"model": str(guesser), "samples": 16, "max_tokens": 24, "temperature": 1.0, "system": Path("none")}
    out, kept, dropped = (tmp_path / name for name in ("out.jsonl", "kept.arrow", "dropped.jsonl"))
    call_stage("evaluate", data, output=out, completions=kept, dropped=dropped, deterministic=True, ks="1,4", **options)
    found = metrics(out)
    rows = [row for row in rows_of(kept) if row["reason"] != "bad-gold"]
    assert len(rows) == 8 * 16
    assert found["avg@n"]["value"] == pytest.approx(np.mean([row["correct"] for row in rows]))
    assert found["avg@n"]["low"] < 0.25 < found["avg@n"]["high"] + 0.1
    assert found["tokens"]["value"] == pytest.approx(np.mean([row["num_tokens"] for row in rows]))
    reasons = [(row["id"], row["drop_reason"]) for row in rows_of(dropped)]
    assert set(reasons) == {("long", "prompt-too-long"), ("bad", "bad-gold")}
    call_stage("evaluate", kept, output=tmp_path / "again.jsonl", ks="1,4", quiet=False)
    assert "dropped: bad-gold 16" in capsys.readouterr().err
    assert {row.pop("num_left_out") for row in found.values()} == {2}
    again = metrics(tmp_path / "again.jsonl")
    assert {row.pop("num_left_out") for row in again.values()} == {None}
    assert again == found


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ks": "0"}, "evaluate.ks: 0 is not positive"),
        ({"completions": Path("x.arrow")}, "--completions requires --model"),
        ({"model": "m", "samples": 0}, "evaluate.samples: 0 is not positive"),
        ({"model": "m", "workers": 0}, "evaluate.workers: 0 is not positive"),
        ({"model": "m", "engine": "server"}, "needs a URL"),
    ],
)
def test_invalid_options_are_refused_first(options, message):
    with pytest.raises(UsageError, match=message):
        call_stage("evaluate", "nothing.jsonl", **options)


def test_a_table_without_verdicts_is_refused(tmp_path):
    data = written(tmp_path / "a.jsonl", [{"id": "p", "completion": "4"}])
    with pytest.raises(DataError, match=r"evaluate: .*lacks column correct; it has: id, completion"):
        call_stage("evaluate", data)


def test_two_problems_with_one_id_are_an_error(tmp_path):
    rows = [{"id": "p", "prompt": prompt, "correct": True} for prompt in ("1+1", "1+1", "2+2")]
    with pytest.raises(DataError, match="id 'p' belongs to two different problems"):
        call_stage("evaluate", written(tmp_path / "a.jsonl", rows))


def test_a_changed_run_to_compare_with_makes_an_evaluation_out_of_date(tmp_path, capsys):
    ours = written(tmp_path / "ours.jsonl", [{"id": "p", "correct": True}, {"id": "q", "correct": False}])
    theirs, out = tmp_path / "theirs.jsonl", tmp_path / "out.jsonl"
    values = []
    for right in (False, False, True):
        written(theirs, [{"id": "p", "correct": right}, {"id": "q", "correct": False}])
        call_stage("evaluate", ours, output=out, against=theirs, quiet=False)
        values.append((metrics(out)["pass@1 difference"]["value"], "is up to date" in capsys.readouterr().err))
    assert values == [(0.5, False), (0.5, True), (0.0, False)]


def test_verdicts_over_the_deadline_are_reported(tmp_path, capsys):
    rows = [{"id": f"p{n}", "correct": False, "reason": "timeout" if n else "wrong"} for n in range(3)]
    call_stage("evaluate", written(tmp_path / "a.jsonl", rows), output=tmp_path / "out.jsonl", quiet=False)
    assert "2 of 3 verdicts took longer than --verify-deadline and count as wrong" in capsys.readouterr().err


def test_nothing_to_evaluate_is_an_error(tmp_path):
    data = written(tmp_path / "a.jsonl", [{"id": "p", "correct": False, "reason": "bad-gold"}])
    with pytest.raises(DataError, match="no graded completion"):
        call_stage("evaluate", data)


def test_greedy_samples_are_said_to_be_equal(tiny_model_dir, letters, tmp_path, capsys):
    options = {
        "model": str(tiny_model_dir),
        "max_tokens": 2,
        "temperature": 0.0,
        "quiet": False,
        "system": Path("none"),
    }
    call_stage("evaluate", letters, samples=2, output=tmp_path / "two.jsonl", **options)
    text = "greedy decoding (temperature 0) makes the 2 samples of a problem equal, so pass@k and maj@k equal avg@n"
    assert text in capsys.readouterr().err
    call_stage("evaluate", letters, samples=1, output=tmp_path / "one.jsonl", **options)
    assert "greedy decoding" not in capsys.readouterr().err


def answering(answer):
    """A server's answer of one completion with this result for each choice that is asked for."""

    def send(handler):
        count = handler.server.bodies[-1].get("n", 1)
        message = {"role": "assistant", "content": f"<think>a</think>\\boxed{{{answer}}}"}
        choices = [{"index": index, "message": message, "finish_reason": "stop"} for index in range(count)]
        handler.send(json.dumps({"choices": choices, "usage": {"completion_tokens": 9 * count}}).encode())

    return send


def test_a_model_is_compared_with_the_one_before_on_another_server(tmp_path):
    data = written(tmp_path / "p.jsonl", [{"id": f"p{n}", "prompt": "3+4?", "answer": "7"} for n in range(3)])
    out, kept = tmp_path / "out.jsonl", tmp_path / "kept.jsonl"
    with scripted_server() as after, scripted_server() as before:
        after.answer, before.answer = answering("7"), answering("8")
        options = {"samples": 2, "ks": "1", "system": "none", "language": False, "completions": kept}
        call_stage("evaluate", data, model=after.url, before=before.url, output=out, **options)
        assert {body["model"] for body in before.bodies} == {"tiny"}
        asked = before.num_requests
        call_stage("evaluate", data, model=after.url, before=before.url, output=out, **options)
        assert before.num_requests == asked > 0, "up to date"
    found = metrics(out)
    assert [found[name]["value"] for name in ("pass@1", "pass@1 before", "pass@1 difference")] == [1.0, 0.0, 1.0]
    assert {row["extracted"] for row in rows_of(tmp_path / "before-kept.jsonl")} == {"8"}
