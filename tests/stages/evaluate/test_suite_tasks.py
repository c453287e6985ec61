"""`magcli evaluate` on suites: completions are kept and used again, a killed one goes on, models are compared."""

import json
import shutil
import time
from pathlib import Path

import pytest
from calling import call_stage, start_stage

from magcli.data import table
from magcli.errors import DataError, UsageError
from magcli.stages.evaluate.suite_tasks import MAX_TEST_BYTES

SUITE = """
verifier = "math"
note = "only letters"
system = "none"
[sampling]
temperature = 1.0
max_tokens = 24
samples = 8
[[source]]
files = ["{name}.jsonl"]
prompt = "{{q}}"
answer = "{{a}}"
"""


def rows_of(path: Path) -> list[dict]:
    return [row for batch in table.read(str(path)).rows for row in batch.to_pylist()]


def values(path: Path) -> dict:
    return {(row["suite"], row["metric"]): row["value"] for row in rows_of(path)}


@pytest.fixture
def suites(tmp_path: Path) -> str:
    """Two suites of letters, whose answer the guesser gives once in four times."""
    for name, letters in (("left", "abcd"), ("right", "efgh")):
        (tmp_path / f"{name}.toml").write_text(SUITE.format(name=name))
        problems = [{"q": f"{letter}?", "a": "3"} for letter in letters]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in problems))
    return f"{tmp_path}/left.toml,{tmp_path}/right.toml"


def test_suites_are_sampled_once_and_metrics_recomputed(suites, guesser, tmp_path, capsys) -> None:
    out, kept = tmp_path / "metrics.arrow", tmp_path / "kept"
    options = {"suite": suites, "model": str(guesser), "completions": kept, "deterministic": True, "quiet": False}
    call_stage("evaluate", output=out, **options)
    found = values(out)
    assert {suite for suite, _ in found} == {"left", "right"}
    assert "truncated" in {metric for _, metric in found}
    samples = rows_of(kept / "left.arrow")
    assert len(samples) == 4 * 8
    assert found["left", "avg@n"] == sum(row["correct"] for row in samples) / len(samples)
    errors = capsys.readouterr().err
    assert "reusing the completions" not in errors
    assert "left: only letters" in errors
    call_stage("evaluate", output=tmp_path / "more.arrow", ks="1,4", **options)
    assert capsys.readouterr().err.count("reusing the completions") == 2
    more = values(tmp_path / "more.arrow")
    assert ("right", "maj@4") in more
    assert {key: more[key] for key in found} == found
    call_stage("evaluate", kept / "left.arrow", kept / "right.arrow", output=tmp_path / "bare.arrow", ks="1,4")
    assert values(tmp_path / "bare.arrow") == more, "no model and no suite are needed"
    call_stage("evaluate", output=tmp_path / "hot.arrow", **{**options, "temperature": 0.5})
    assert "is stale (other temperature); sampling again" in capsys.readouterr().err


def test_a_moved_model_is_not_sampled_again(suites, guesser, tmp_path, capsys) -> None:
    options = {"suite": suites, "completions": tmp_path / "kept", "samples": 2, "quiet": False}
    call_stage("evaluate", output=tmp_path / "one.arrow", model=str(guesser), **options)
    shutil.copytree(guesser, tmp_path / "moved")
    capsys.readouterr()
    call_stage("evaluate", output=tmp_path / "two.arrow", model=str(tmp_path / "moved"), **options)
    assert capsys.readouterr().err.count("reusing the completions") == 2
    call_stage("evaluate", output=tmp_path / "one.arrow", model=str(tmp_path / "moved"), **options)
    assert "is replaced" not in capsys.readouterr().err
    (tmp_path / "p.jsonl").write_text('{"id": "1", "prompt": "a?", "answer": "3"}\n')
    options = {"max_tokens": 8, "system": "none", "output": tmp_path / "t.arrow", "quiet": False}
    for model in (guesser, tmp_path / "moved"):
        call_stage("evaluate", tmp_path / "p.jsonl", model=str(model), **options)
    assert "t.arrow is up to date" in capsys.readouterr().err


def test_rows_left_out_keep_their_reason(guesser, tmp_path) -> None:
    rows = [{"id": "short", "prompt": "a?", "answer": "3"}, {"id": "long", "prompt": "x" * 600, "answer": "3"}]
    problems, kept = tmp_path / "problems.jsonl", tmp_path / "kept.arrow"
    problems.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = {"model": str(guesser), "completions": kept, "samples": 2, "max_tokens": 8, "system": "none"}
    call_stage("evaluate", problems, output=tmp_path / "one.arrow", ks="1", **options)
    left_out = tmp_path / "kept.arrow.left-out.json"
    assert json.loads(left_out.read_text()) == {"long": "prompt-too-long"}
    left_out.write_text('{"long": "refused"}')
    dropped = tmp_path / "dropped.jsonl"
    call_stage("evaluate", problems, output=tmp_path / "two.arrow", dropped=dropped, ks="1,2", **options)
    assert [(row["id"], row["drop_reason"]) for row in rows_of(dropped)] == [("long", "refused")]


def test_rows_left_out_of_one_suite_have_namesakes_in_another(guesser, tmp_path) -> None:
    prompts = {("a", "1"): "a?", ("a", "2"): "b?", ("b", "1"): "x" * 600, ("b", "2"): "c?"}
    rows = [{"id": id, "suite": suite, "prompt": text, "answer": "3"} for (suite, id), text in prompts.items()]
    problems, kept, dropped = tmp_path / "problems.jsonl", tmp_path / "kept.arrow", tmp_path / "dropped.jsonl"
    problems.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = {"model": str(guesser), "completions": kept, "samples": 2, "max_tokens": 8, "system": "none"}
    for ks in ("1", "1,2"):  # sampled, and from the stored completions
        call_stage("evaluate", problems, output=tmp_path / "m.arrow", dropped=dropped, ks=ks, **options)
        found = [(row["suite"], row["id"], row["drop_reason"]) for row in rows_of(dropped)]
        assert found == [("b", "1", "prompt-too-long")]


@pytest.mark.flaky(reruns=2)
def test_a_killed_evaluation_resumes_with_the_same_result(suites, guesser, tmp_path, capsys) -> None:
    options = {"suite": suites, "model": str(guesser), "deterministic": True, "samples": 32, "slots": 8}
    whole, out = tmp_path / "whole.arrow", tmp_path / "metrics.arrow"
    call_stage("evaluate", output=whole, **options)
    journals = [tmp_path / f".metrics.arrow.{name}.journal" for name in ("left", "right")]
    process = start_stage("evaluate", output=out, **options)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not (journals[0].exists() and journals[0].stat().st_size > 4000):
        time.sleep(0.005)
    process.kill()
    process.join()
    assert not out.exists()
    before = journals[0].stat().st_size
    assert before > 4000
    call_stage("evaluate", output=out, json_events=True, **options)
    assert "evaluate: resuming, " in capsys.readouterr().err
    assert rows_of(out) == rows_of(whole)
    assert not any(journal.exists() for journal in journals)


@pytest.mark.flaky(reruns=2)
def test_a_killed_evaluation_resumes_with_the_same_bytes(guesser, tmp_path) -> None:
    problems = tmp_path / "problems.jsonl"
    problems.write_text("".join(json.dumps({"prompt": f"{letter}?", "answer": "3"}) + "\n" for letter in "abcdefgh"))
    options = {"model": str(guesser), "system": Path("none"), "deterministic": True, "samples": 32, "slots": 8}
    folders = [tmp_path / "whole", tmp_path / "killed"]
    for folder in folders:
        folder.mkdir()
    tables = [{"completions": folder / "completions.arrow", "output": folder / "metrics.arrow"} for folder in folders]
    call_stage("evaluate", problems, **tables[0], **options)

    process = start_stage("evaluate", problems, **tables[1], **options)
    journal = folders[1] / ".completions.arrow.journal"
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not (journal.exists() and journal.stat().st_size > 4000):
        time.sleep(0.005)
    process.kill()
    process.join()
    assert journal.stat().st_size > 4000
    call_stage("evaluate", problems, **tables[1], **options)
    for name in ("completions.arrow", "metrics.arrow"):
        assert (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes()


def test_models_are_compared_side_by_side(suites, guesser, tiny_model_dir, tmp_path, capsys) -> None:
    for name, model in (("before", tiny_model_dir), ("after", guesser)):
        options = {"suite": suites, "model": str(model), "completions": tmp_path / name}
        call_stage("evaluate", output=tmp_path / name / "metrics.arrow", **options)
    tables = [tmp_path / name / "metrics.arrow" for name in ("before", "after")]
    out, text = tmp_path / "compared.json", tmp_path / "compared.md"
    call_stage("evaluate", *tables, compare=True, output=out, markdown=text)
    found = json.loads(out.read_text())
    gain = next(r for r in found if (r["suite"], r["metric"], r["model"]) == ("left", "avg@n", "after/metrics"))
    assert gain["num_paired"] == 4
    assert gain["difference"] == pytest.approx(gain["value"])
    assert text.read_text().startswith(
        "| suite | metric | before/metrics | after/metrics | after/metrics - before/metrics"
    )
    graded = [tmp_path / name / "left.arrow" for name in ("before", "after")]
    call_stage("evaluate", *graded, compare=True, output=out)
    again = next(r for r in json.loads(out.read_text()) if (r["metric"], r["model"]) == ("avg@n", "after/left"))
    assert again["difference"] == gain["difference"]


PROGRAMS = """
verifier = "code"
system = "none"
[[source]]
files = ["programs.jsonl"]
prompt = "{q}"
tests = "tests"
"""


@pytest.mark.parametrize(("size", "there"), [(1, True), (MAX_TEST_BYTES, False)])
def test_large_tests_are_not_repeated_with_every_completion(size, there, guesser, tmp_path) -> None:
    (tmp_path / "programs.toml").write_text(PROGRAMS)
    tests = json.dumps([{"input": "1" * size, "output": "2"}])
    (tmp_path / "programs.jsonl").write_text(json.dumps({"q": "a?", "tests": tests}) + "\n")
    options = {"suite": str(tmp_path / "programs.toml"), "model": str(guesser), "max_tokens": 4, "samples": 2}
    call_stage("evaluate", output=tmp_path / "m.arrow", completions=tmp_path, **options)
    kept = rows_of(tmp_path / "programs.arrow")
    assert [("tests" in row, row["correct"]) for row in kept] == [(there, False)] * 2


def test_the_example_suite_needs_no_code(guesser, tmp_path) -> None:
    suite = Path(__file__).parents[3] / "examples" / "suite.toml"
    call_stage("evaluate", output=tmp_path / "m.arrow", suite=str(suite), model=str(guesser), samples=1, max_tokens=4)
    assert {row["suite"] for row in rows_of(tmp_path / "m.arrow")} == {"suite"}


def test_tool_calls_are_graded_by_their_verifier(guesser, tmp_path) -> None:
    options = {"suite": "tools", "model": str(guesser), "samples": 1, "max_tokens": 4}
    with pytest.raises(DataError, match="no graded completion"):
        call_stage("evaluate", output=tmp_path / "m.arrow", **options)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"suite": "aime24", "model": "m"}, DataError, r"suite aime24: no aime2024.jsonl or .* in .* --data hub"),
        ({"suite": "aime24"}, UsageError, "--model is missing"),
        ({"suite": "nothing", "model": "m"}, UsageError, "neither a suite nor a .toml file"),
        ({"compare": True, "model": "m"}, UsageError, "reads finished tables; omit --model"),
        ({"markdown": Path("x.md")}, UsageError, "requires --compare"),
    ],
)
def test_invalid_suites_are_refused_first(options, error, message, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=message):
        call_stage("evaluate", output=tmp_path / "m.arrow", **options)


@pytest.mark.parametrize(
    ("line", "message"), [("samples = 8", "left.samples: 0 is not positive"), ("temperature = 1.0", "left.temperature")]
)
def test_a_suite_with_invalid_sampling_is_refused_first(line, message, suites, guesser, tmp_path) -> None:
    own = tmp_path / "left.toml"
    own.write_text(own.read_text().replace(line, "samples = 0" if line.startswith("samples") else "temperature = -1.0"))
    with pytest.raises(UsageError, match=message):
        call_stage("evaluate", output=tmp_path / "out.arrow", suite=suites, model=str(guesser))
    assert not (tmp_path / "out.arrow").exists()


def test_two_models_are_evaluated_in_one_command(suites, guesser, tiny_model_dir, tmp_path) -> None:
    out, kept = tmp_path / "metrics.arrow", tmp_path / "kept"
    options = {"suite": suites, "model": str(guesser), "before": str(tiny_model_dir), "completions": kept}
    call_stage("evaluate", output=out, **options)
    found = values(out)
    assert found["left", "avg@n difference"] == pytest.approx(found["left", "avg@n"])
    assert found["left", "avg@n before"] == 0
    assert len(rows_of(kept / "before" / "left.arrow")) == len(rows_of(kept / "left.arrow")) == 4 * 8
    assert ("right", "tokens difference") in found


def test_a_suite_missing_from_the_other_run_is_reported_before_sampling(suites, tmp_path) -> None:
    options = {"suite": suites, "model": "no/model", "output": tmp_path / "out.arrow"}
    (tmp_path / "other").mkdir()
    with pytest.raises(DataError, match=r"other/left\.arrow does not exist"):
        call_stage("evaluate", against=tmp_path / "other", **options)
