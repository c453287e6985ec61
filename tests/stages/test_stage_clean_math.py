import json
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from calling import call_stage, start_stage

from magcli.data import table
from magcli.errors import MagError, UsageError
from magcli.stages.clean_math import work as clean_math
from magcli.stages.clean_math.work import UNIT


def rows_of(path):
    return [row for batch in table.read(str(path)).rows for row in batch.to_pylist()]


def cleaned(tmp_path, rows, **options):
    source, out, dropped = (tmp_path / name for name in ("p.jsonl", "out.jsonl", "dropped.jsonl"))
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    call_stage("clean-math", source, output=out, dropped=dropped, allow_empty=True, **options)
    return rows_of(out), {row["id"]: row["drop_reason"] for row in rows_of(dropped)}


def problem(id, prompt, answer, **more):
    return {"id": id, "prompt": prompt, "answer": answer, **more}


def test_each_rule_drops_with_its_reason_and_rows_add_up(tmp_path):
    rows = [
        problem("good", "What is 12 + 30?", "42", level=3),
        problem("proof", "Prove that the square root of 2 is irrational.", "see above"),
        problem("parts", "(a) Find x if x + 1 = 2. (b) Find y if y + 2 = 5.", "1 and 3"),
        problem("figure", "In the diagram below, find the area of the shaded region.", "12"),
        problem("prose", "How would you teach fractions?", "With pictures, since they help almost everyone."),
        problem("empty", "  ", "3"),
        problem("none", "What is 1 + 1?", None),
        problem("once more", "What is  12 + 30?", "42"),
        problem("choice", "What is 2 + 3? (A) 4 (B) 5 (C) 6 (D) 7", "B"),
    ]
    kept, dropped = cleaned(tmp_path, rows)
    assert len(kept) + len(dropped) == len(rows)
    assert set(dropped) == {"proof", "parts", "figure", "prose", "empty", "none", "once more"}
    assert dropped["once more"] == "duplicate"
    assert (dropped["empty"], dropped["none"]) == ("empty-prompt", "missing-answer")
    assert len({dropped[id] for id in ("proof", "parts", "figure", "prose")}) == 4
    by_id = {row["id"]: row for row in kept}
    assert (by_id["good"]["prompt"], by_id["good"]["answer"], by_id["good"]["level"]) == ("What is 12 + 30?", "42", 3)
    assert by_id["choice"]["answer"] == "5"
    assert "(A)" not in by_id["choice"]["prompt"]
    assert by_id["choice"]["note"]


def test_a_benchmark_finds_itself_where_cleaning_changes_its_problems(tmp_path):
    rows = [
        problem(
            "listed", "Which of the following is the value of $3x - 4$ if $x = 5$? (A) 9 (B) 10 (C) 11 (D) 12", "C"
        ),
        problem("column", "A tank of 20 litres loses 3 litres an hour. What is left after 4 hours?", "B")
        | {"choices": ["5", "8", "10", "12"]},
        problem("blank", "若 $z=3+4i$, 则 $|z|=(\\quad)$ A. 3 B. 4 C. 5 D. 7", "C"),
        problem("credit", "What is the sum of the first 12 odd numbers? *(Proposed by A. Smith)*", "144"),
    ]
    (tmp_path / "suite.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    kept, dropped = cleaned(tmp_path, rows, against=(str(tmp_path / "suite.jsonl"),))
    assert (kept, dropped) == ([], {row["id"]: "contaminated" for row in rows})
    other = problem(
        "other", "Which of the following is the value of $3x - 4$ if $x = 6$? (A) 9 (B) 10 (C) 14 (D) 12", "C"
    )
    kept, _ = cleaned(tmp_path, [other], against=(str(tmp_path / "suite.jsonl"),), restart=True)
    assert [row["id"] for row in kept] == ["other"]


def test_contradicting_answers_are_dropped_with_a_reason_of_their_own(tmp_path):
    question = "A pen costs 3 euros and a pad 4 euros. What do two pens and a pad cost together, in euros?"
    answers = {"a": "7", "b": "10", "c": "10.0"}
    kept, dropped = cleaned(tmp_path, [problem(id, question, answer) for id, answer in answers.items()])
    assert (kept, dropped) == ([], dict.fromkeys(answers, "conflicting-answers"))
    rows = {row["id"]: json.loads(row["drop_detail"]) for row in rows_of(tmp_path / "dropped.jsonl")}
    assert {id: detail["conflicts_with"] for id, detail in rows.items()} == {"a": "b", "b": "a", "c": "a"}


def test_a_source_that_loses_over_half_of_its_rows_as_near_duplicates_is_named(tmp_path, capsys):
    wordings = ("How far does it go?", "So how far does it go?", "Calculate how far it goes.", "How far will it go?")
    rows = [
        problem(f"{source}{number}", f"A train leaves at 9 and goes 60 miles an hour for {hours} hours. {text}", answer)
        for source, hours, answer in (("one", 3, "180"), ("two", 4, "240"))
        for number, text in enumerate(wordings[: 4 if source == "one" else 2])
    ]
    for row in rows:
        row["source"] = row["id"][:3]
    kept, _ = cleaned(tmp_path, rows, quiet=False)
    assert [row["id"] for row in kept] == ["one0", "two0"]
    (line,) = (line for line in capsys.readouterr().err.splitlines() if "near-duplicates; if" in line)
    assert "3 of 4 rows of source one" in line
    assert "--similarity" in line


WORKED = "3+4 = <<3+4=7>>7\n#### 7"


@pytest.mark.parametrize(
    ("answer", "own", "kept"),
    [
        (WORKED, {}, {"solution": WORKED}),
        ("As 3+4=7, she has \\boxed{7}.", {}, {"solution": "As 3+4=7, she has \\boxed{7}."}),
        (WORKED, {"solution": ""}, {"solution": WORKED}),
        (WORKED, {"solution": " \n"}, {"solution": WORKED}),
        # What the row has itself stays.
        (WORKED, {"solution": "By counting.\n#### 7"}, {"solution": "By counting.\n#### 7"}),
        (WORKED, {"rationale": "By counting."}, {"rationale": "By counting."}),
        (WORKED, {"solution": ["By counting."]}, {"solution": ["By counting."]}),
        # Nothing is worked out.
        ("7", {}, {}),
        ("#### 7", {}, {}),
        ("$\\boxed{7}$", {}, {}),
        ("The answer is $\\boxed{7}$.", {}, {}),
    ],
)
def test_a_worked_solution_in_the_answer_is_kept_beside_it(tmp_path, answer, own, kept):
    (row,), _ = cleaned(tmp_path, [problem("a", "What is 3 + 4?", answer, **own)])
    assert {name: row[name] for name in ("solution", "rationale") if row.get(name)} == kept
    assert row["answer"] == "7"


@pytest.mark.parametrize("suffix", ["jsonl", "arrow"])
def test_cold_start_takes_the_worked_solutions_of_cleaned_problems(tmp_path, suffix):
    source, clean, traces = tmp_path / "p.jsonl", tmp_path / f"clean.{suffix}", tmp_path / "traces.jsonl"
    source.write_text(json.dumps({"question": "What is 3 + 4?", "answer": WORKED}) + "\n")
    call_stage("clean-math", source, output=clean)
    call_stage("cold-start", clean, output=traces)
    (row,) = rows_of(traces)
    assert row["messages"][-1]["content"] == "<think>\n3+4 = 7\n</think>\n\n\\boxed{7}"


def test_duplicates_may_stay_and_otherwise_the_first_is_kept(tmp_path):
    rows = [problem(f"p{i}", f"What is {i % 3} + 1?", str(i % 3 + 1)) for i in range(9)]
    kept, dropped = cleaned(tmp_path, rows)
    assert [row["id"] for row in kept] == ["p0", "p1", "p2"]
    assert Counter(dropped.values()) == {"duplicate": 6}
    kept, dropped = cleaned(tmp_path, rows, duplicates=True)
    assert (len(kept), dropped) == (9, {})


TRAIN = "A train leaves the station at 9 in the morning and travels 60 miles per hour for 3 hours. How far does it go?"


def test_near_duplicates_are_dropped_unless_their_numbers_differ(tmp_path, capsys):
    rows = [
        problem("later", TRAIN.replace("station", "terminal"), "180"),
        problem("first", TRAIN, "180"),
        problem("faster", TRAIN.replace("60", "70"), "210"),
    ]
    kept, dropped = cleaned(tmp_path, rows, quiet=False)
    assert [row["id"] for row in kept] == ["first", "faster"]
    assert "clean-math: 1 near-duplicates by --similarity 0.7; a higher one keeps more" in capsys.readouterr().err
    assert dropped == {"later": "near-duplicate"}
    assert rows_of(tmp_path / "dropped.jsonl")[0]["drop_detail"] == '{"duplicate_of": "first"}'
    assert len(cleaned(tmp_path, rows, similarity=1.0)[0]) == 3


def test_problems_of_evaluation_files_are_dropped_and_named(tmp_path, capfd):
    (tmp_path / "eval.jsonl").write_text(json.dumps({"id": "e7", "problem": TRAIN, "answer": "180"}) + "\n")
    rows = [problem("held", f"Solve this. {TRAIN}", "180"), problem("other", TRAIN.replace("60", "70"), "210")]
    kept, dropped = cleaned(tmp_path, rows, against=(str(tmp_path / "eval.jsonl"),), quiet=False)
    assert [row["id"] for row in kept] == ["other"]
    assert dropped == {"held": "contaminated"}
    assert json.loads(rows_of(tmp_path / "dropped.jsonl")[0]["drop_detail"])["against_row"] == "e7"
    assert "found in evaluation files: eval.jsonl 1" in capfd.readouterr().err


def test_evaluation_files_of_one_name_are_distinguished(tmp_path, capfd):
    paths = [tmp_path / name / "test.jsonl" for name in ("one", "other")]
    for path, statement in zip(paths, (TRAIN, "What is 1 + 1?"), strict=True):
        path.parent.mkdir()
        path.write_text(json.dumps({"problem": statement}) + "\n")
    rows, against = [problem("held", TRAIN, "180"), problem("free", "What is 2 + 2?", "4")], tuple(map(str, paths))
    assert cleaned(tmp_path, rows, against=against, quiet=False)[1] == {"held": "contaminated"}
    assert f"found in evaluation files: {paths[0]} 1, {paths[1]} 0" in capfd.readouterr().err
    paths[0].write_text(json.dumps({"problem": "What is 2 + 2?"}) + "\n")
    assert cleaned(tmp_path, rows, against=against)[1] == {"free": "contaminated"}, "a changed file is read again"


def test_suites_of_evaluate_are_compared_by_their_names(tmp_path, capfd, monkeypatch):
    """Their data is looked for in the current folder, then on the hub."""
    monkeypatch.chdir(tmp_path)
    data = tmp_path / "aime24.jsonl"
    data.write_text(json.dumps({"id": 7, "problem": TRAIN, "answer": "180"}) + "\n")
    rows = [problem("held", TRAIN, "180"), problem("free", "What is 2 + 2?", "4")]
    assert cleaned(tmp_path, rows, against="suite:aime24", quiet=False)[1] == {"held": "contaminated"}
    assert "found in evaluation files: suite:aime24 1" in capfd.readouterr().err
    data.write_text(json.dumps({"id": 7, "problem": "What is 2 + 2?", "answer": "4"}) + "\n")
    assert cleaned(tmp_path, rows, against="suite:aime24")[1] == {"free": "contaminated"}, "changed data is read again"
    with pytest.raises(UsageError, match=r"'aime4' is neither a suite nor a \.toml file; did you mean 'aime24'"):
        cleaned(tmp_path, rows, against="suite:aime4")


@pytest.mark.parametrize("column", ["body", "Body", "context", "passage"])
def test_a_question_is_read_with_its_column_of_facts(tmp_path, capfd, column):
    facts = ("Ann has 3 pears and 2 plums.", "Bob has 4 pears and a plum.", None, " ")
    asked = ("How many fruits are there?",) * 2 + ("What is 2 + 3?", "What is 2 + 4?")
    rows = [
        {column: fact, "question": question, "answer": answer}
        for fact, question, answer in zip(facts, asked, "5556", strict=True)
    ]
    kept, dropped = cleaned(tmp_path, rows, quiet=False)
    assert [row["prompt"] for row in kept] == [f"{facts[0]}\n{asked[0]}", f"{facts[1]}\n{asked[1]}", *asked[2:]]
    assert dropped == {}
    assert len({row["id"] for row in kept}) == 4
    assert capfd.readouterr().err.count(f"prepending {column} to questions") == 1


def test_facts_are_not_joined_to_prompts_and_ids_stay(tmp_path):
    given = {"id": "p", "body": "Ann has 3 pears.", "answer": "3"}
    assert cleaned(tmp_path, [{**given, "prompt": "What is 2 + 1?"}])[0][0]["prompt"] == "What is 2 + 1?"
    kept, _ = cleaned(tmp_path, [{**given, "question": "How many pears are there?"}])
    assert [(row["id"], row["prompt"]) for row in kept] == [("p", "Ann has 3 pears.\nHow many pears are there?")]


@pytest.mark.parametrize("column", ["choices", "options"])
def test_options_may_be_a_separate_column(tmp_path, column):
    kept, _ = cleaned(tmp_path, [problem("p", "What is 2 + 3?", "B", **{column: ["A)4", "B)5", "C)6"]})])
    assert [(row["prompt"], row["answer"], row["note"]) for row in kept] == [("What is 2 + 3?", "5", "opened")]


def test_contradictory_options_are_refused_before_anything_is_read(tmp_path):
    for wrong in ({"similarity": 0.0}, {"similarity": 1.1}, {"model": "m", "max_tokens": 0}, {"temperature": -1.0}):
        with pytest.raises(UsageError, match=f"clean-math.{next(reversed(wrong))}"):
            cleaned(tmp_path, [problem("p", "What is 1 + 1?", "2")], **wrong)
    with pytest.raises(MagError, match=r"none\.jsonl"):
        cleaned(tmp_path, [problem("p", "What is 1 + 1?", "2")], against=(str(tmp_path / "none.jsonl"),))


def test_rows_add_up_whatever_their_number_of_batches(tmp_path):
    rows = [problem(f"p{i:05}", f"What is {i % 70} + {i % 13}?", str(i % 70 + i % 13)) for i in range(5000)]
    kept, dropped = cleaned(tmp_path, rows)
    assert len({row["prompt"] for row in rows}) == len(kept)
    assert [row["id"] for row in kept] == sorted(row["id"] for row in kept)
    assert len(kept) + len(dropped) == 5000
    assert set(dropped.values()) == {"duplicate"}


def test_questions_with_equal_options_are_not_duplicates(tmp_path):
    rows = [
        problem("one", "What is 2 + 3? (A) 4 (B) 5 (C) 6 (D) 7", "B"),
        problem("other", "What is 2 + 3? (A) 5 (B) 8 (C) 9 (D) 7", "A"),
    ]
    kept, dropped = cleaned(tmp_path, rows)
    assert [row["id"] for row in kept] == ["one"]
    assert dropped == {"other": "duplicate"}


def test_the_same_input_gives_the_same_bytes(tmp_path):
    rows = [problem(f"p{i}", f"What is {i} + 1?", str(i + 1)) for i in range(200)]
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        cleaned(tmp_path / name, rows)
    assert (tmp_path / "a" / "out.jsonl").read_bytes() == (tmp_path / "b" / "out.jsonl").read_bytes()


def test_a_table_of_dropped_rows_only_is_still_valid(tmp_path):
    kept, dropped = cleaned(tmp_path, [problem("p", "Prove that 1 = 1.", "x")])
    assert kept == []
    assert list(dropped) == ["p"]


def test_decisions_are_not_repeated_after_a_kill(tmp_path, monkeypatch):
    rows = [problem(f"p{i}", f"What is {i} + {i % 7}? " * (1 + i % 3), str(i)) for i in range(16 * UNIT)]
    source, out = tmp_path / "p.jsonl", tmp_path / "out.arrow"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    process, journal = start_stage("clean-math", source, output=out), out.with_name(f".{out.name}.journal")
    while not journal.exists() or journal.stat().st_size < 1 << 18:
        assert process.is_alive(), "it was done before it could be killed"
    process.kill()
    process.join()
    statement, decided = clean_math._statement, []
    monkeypatch.setattr(clean_math, "_statement", lambda row: decided.append(row["id"]) or statement(row))
    call_stage("clean-math", source, output=out)
    assert 0 < len(decided) <= len(rows) - UNIT
    again = tmp_path / "again.arrow"
    call_stage("clean-math", source, output=again)
    assert out.read_bytes() == again.read_bytes()


class Checker(ThreadingHTTPServer):
    """An OpenAI-compatible server here that says what each problem's reply is to be; it counts what it is asked."""

    daemon_threads = True

    def __init__(self, replies):
        super().__init__(("127.0.0.1", 0), Handler)
        self.replies, self.asked, self.refuses = replies, Counter(), ""
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}/v1#known"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        """Stay quiet."""

    def do_GET(self):
        self.reply(200, {"data": [{"id": "known"}]})

    def do_POST(self):
        prompt = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["messages"][-1]["content"]
        if prompt == self.server.refuses:
            self.reply(401, {"error": {"message": "no more today"}})
            return
        self.server.asked[prompt] += 1
        message = {"role": "assistant", "content": self.server.replies[prompt]}
        usage = {"completion_tokens": 9, "prompt_tokens": 9, "total_tokens": 18}
        self.reply(200, {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": usage})

    def reply(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


DOUBTFUL = {
    "A square of area 6 is folded as shown. How long is the fold?": "Yes",
    "A square holds a shaded triangle. What is its area?": "No, its size is in the figure.",
    "Compute the multiples of 22 below 100. What is the largest of them?": "<think>No?</think>Yes.",
    "A circle is cut as shown. What is left?": "Perhaps.",
}
SURE = ["What is 3 + 4?", "Prove that 7 is prime.", "(a) Find $f(1)$. (b) Find $f(2)$.", "As shown below, prove it."]


@pytest.fixture
def checker():
    server = Checker(DOUBTFUL)
    yield server
    server.shutdown()
    server.server_close()


def test_a_model_decides_only_where_the_rules_cannot(checker, tmp_path, capfd):
    rows = [problem(f"p{i}", prompt, "7") for i, prompt in enumerate([*DOUBTFUL, *SURE])]
    kept, dropped = cleaned(tmp_path, rows, model=checker.url, quiet=False)
    assert [row["id"] for row in kept] == ["p0", "p2", "p4"]
    assert dropped == {
        "p1": "incomplete", "p3": "incomplete", "p5": "proof", "p6": "multi-part", "p7": "incomplete"
    }  # fmt: skip
    assert checker.asked == dict.fromkeys(DOUBTFUL, 1)
    errors = capfd.readouterr().err
    answers = "complete: neither 1, complete: no 1, complete: yes 1, one-answer: yes 1"
    assert f"the model's answers on uncertain rows: {answers}" in errors
    without, by_rules = cleaned(tmp_path / "..", rows)
    assert [row["id"] for row in without] == ["p1", "p4"]
    assert by_rules["p3"] == "incomplete"


def test_answers_of_the_model_are_reused_after_an_interruption(checker, tmp_path):
    rows = [problem(f"p{i}", prompt, "7") for i, prompt in enumerate(DOUBTFUL)]
    checker.refuses = rows[-1]["prompt"]
    with pytest.raises(MagError, match="no more today"):
        cleaned(tmp_path, rows, model=checker.url, slots=1)
    assert not (tmp_path / "out.jsonl").exists()
    before = dict(checker.asked)
    assert before
    checker.refuses = ""
    kept, dropped = cleaned(tmp_path, rows, model=checker.url, slots=1)
    # Those that are not asked again count too.
    note = json.loads((tmp_path / ".out.jsonl.run.json").read_text())
    assert note["tally"] == {"complete: yes": 1, "complete: no": 1, "one-answer: yes": 1, "complete: neither": 1}
    assert [row["id"] for row in kept] == ["p0", "p2"]
    assert dropped == {"p1": "incomplete", "p3": "incomplete"}
    assert all(checker.asked[prompt] == 1 for prompt in before)


def test_an_undecided_model_defers_to_the_rules(tiny_model_dir, tmp_path):
    rows = [problem(f"p{i}", prompt, "7") for i, prompt in enumerate([*DOUBTFUL, *SURE])]
    options = {"model": str(tiny_model_dir), "max_tokens": 4, "engine": "torch", "slots": 4}
    by_model, by_rules = (cleaned(tmp_path, rows, **given, restart=True) for given in (options, {}))
    assert by_model == by_rules
