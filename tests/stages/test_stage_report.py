"""`magcli report` as it is called: what may be named, the page and the text, and what is refused."""

import json
import os
import re
from pathlib import Path

import pytest
from calling import call_stage

from magcli.errors import DataError, EnvironmentFault, UsageError


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Problems that were cleaned, and metrics of completions that were graded by hand."""
    folder = tmp_path_factory.mktemp("tables")
    problems = [{"id": f"q{i}", "prompt": f"What is {i} + 1?", "answer": str(i + 1) if i else ""} for i in range(5)]
    graded = [{"id": f"q{i}", "correct": i % 2 == 0, "num_tokens": 9, "finish": "stop"} for i in range(4)]
    for name, rows in (("problems", problems), ("graded", graded)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    call_stage("clean-math", folder / "problems.jsonl", output=folder / "clean.arrow")
    call_stage("evaluate", folder / "graded.jsonl", output=folder / "a,b.arrow")
    return folder


def printed(capsys, *paths, **options):
    call_stage("report", positional=[str(path) for path in paths], **options)
    return " ".join(capsys.readouterr().out.split())


def test_a_folder_is_summarised_in_the_terminal(tables, capsys):
    text = printed(capsys, tables)
    assert "clean.arrow" in text
    assert "1: missing-answer 1" in text
    assert "50.0 [0.0, 100.0]" in text


def test_a_run_without_updates_is_shown_and_other_folders_are_refused(tmp_path, capsys):
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "run.json").write_text(json.dumps({"command": "rl", "version": "0.1.0", "inputs": []}))
    assert "begun │ 0 │ 0 │ - │ -" in printed(capsys, tmp_path)
    (tmp_path / "begun" / "empty").mkdir()
    with pytest.raises(DataError, match="no tables, runs or landscapes"):
        printed(capsys, tmp_path / "begun" / "empty")


def test_a_report_is_never_empty(magcli, tmp_path):
    (tmp_path / "mine.jsonl").write_text('{"prompt": "p", "answer": "1"}\n')
    for arguments in (["."], [".", "-o", "report.html"], ["mine.jsonl"], ["mine.jsonl", "-o", "report.html"]):
        done = magcli("report", *arguments, cwd=tmp_path)
        assert (done.returncode, len(done.stderr.splitlines())) == (3, 1), done.stderr
        assert "written by magcli" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine.jsonl"]


def test_the_metrics_to_show_can_be_chosen(tables, capsys):
    text = printed(capsys, tables / "clean.arrow", tables / "a,b.arrow", only="tokens")
    assert text.index("missing-answer") < text.index("9.0 [9.0, 9.0]")


def test_a_metric_that_no_table_has_is_named(tables, capsys):
    with pytest.raises(UsageError, match="no table has the metric 'tokns'; did you mean 'tokens'"):
        printed(capsys, tables / "a,b.arrow", only=("avg@n", "tokns"))


def test_a_name_with_a_comma_is_one_path(tables, tmp_path, capsys):
    assert printed(capsys, tables / "a,b.arrow", out=tmp_path / "page.html") == ""
    assert "<title>Report on a,b</title>" in (tmp_path / "page.html").read_text()


def test_the_page_has_a_title(tables, tmp_path):
    out = tmp_path / "new" / "page.html"
    call_stage("report", positional=[str(tables / "clean.arrow")], out=out, title="Ours & <theirs>")
    text = out.read_text()
    assert "<title>Ours &amp; &lt;theirs&gt;</title>" in text
    assert "missing-answer 1" in text


def test_the_command_line_names_the_page(tables, tmp_path, magcli):
    done = magcli("report", tables / "clean.arrow", tables / "a,b.arrow", "-o", tmp_path / "page.html")
    assert done.returncode == 0, done.stderr
    assert done.stdout == b""
    assert done.stderr.startswith(f"report: {tmp_path / 'page.html'} (0.")
    assert (tmp_path / "page.html").read_text().startswith("<!DOCTYPE html>")


def test_a_damaged_table_in_a_folder_is_warned_of(tables, tmp_path, magcli):
    content = (tables / "clean.arrow").read_bytes()
    (tmp_path / "clean.arrow").write_bytes(content)
    (tmp_path / "cut.arrow").write_bytes(content[: len(content) // 2])
    done = magcli("report", tmp_path, "-o", tmp_path / "page.html")
    assert done.returncode == 0
    assert "warning: report: " in done.stderr
    assert "cut.arrow" in done.stderr
    assert "Not in this report" in (tmp_path / "page.html").read_text()
    (tmp_path / "page.html").unlink()
    done = magcli("report", tmp_path)
    assert b"clean.arrow" in done.stdout
    assert [line.startswith("warning: report: ") and "cut.arrow" in line for line in done.stderr.splitlines()] == [True]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "name what to report on"),
        ({"out": "page.html"}, "name what to report on"),
        ({"out": "page.html", "files": ("a",)}, "a page needs PATHS"),
        ({"out": "page.pdf", "positional": ["a"]}, "page.pdf: the file name must end in .html"),
        ({"positional": ["a"], "samples": -1}, "report.samples: -1 is negative"),
        ({"positional": ["a"], "samples_at": ("101%",)}, "'101%' is neither"),
        ({"positional": ["a"], "samples_at": ("last",)}, "'last' is neither"),
        ({"positional": ["a"], "paths": ["b"]}, "paths is given twice"),
    ],
)
def test_contradictory_options_are_refused(options, message):
    with pytest.raises(UsageError, match=message):
        call_stage("report", **options)


def test_missing_files_are_named(tmp_path):
    with pytest.raises(DataError, match="nowhere does not exist"):
        call_stage("report", positional=[str(tmp_path / "nowhere")], out=tmp_path / "page.html")
    assert list(tmp_path.iterdir()) == []


def test_names_are_printed_as_they_are(tables, tmp_path, capsys):
    run = tmp_path / "run[red]:smile:"
    run.mkdir()
    (run / "run.json").write_text(json.dumps({"command": "rl", "version": "0.1.0", "inputs": []}))
    text = printed(capsys, run, files=("gone[/b]", "gone[bold]"))
    assert "run[red]:smile: │" in text
    assert text.endswith("gone[/b] (missing) gone[bold] (missing)")


def test_a_damaged_run_is_named(tmp_path, capsys):
    (tmp_path / "run.json").write_text(json.dumps({"command": "rl", "version": "0.1.0", "inputs": []}))
    (tmp_path / "metrics.jsonl").write_text('{"step": 1\n{"step": 2}\n')
    with pytest.raises(DataError, match="the records of this run are damaged"):
        printed(capsys, tmp_path)


def test_an_unwritable_page_is_reported(tables, tmp_path):
    (tmp_path / "folder.html").mkdir()
    with pytest.raises(UsageError, match=r"folder\.html is a folder"):
        call_stage("report", positional=[str(tables)], out=tmp_path / "folder.html")
    (tmp_path / "file").touch()
    with pytest.raises(EnvironmentFault, match=r"page\.html"):
        call_stage("report", positional=[str(tables)], out=tmp_path / "file" / "page.html")


def test_a_run_whose_name_is_not_unicode_is_on_the_page(tmp_path):
    named = tmp_path / os.fsdecode(b"run-\xff")
    named.mkdir()
    (named / "run.json").write_text(json.dumps({"command": "sft", "version": "0.1.0", "inputs": []}))
    call_stage("report", positional=[str(named)], out=tmp_path / "page.html")
    assert r"run-\udcff" in (tmp_path / "page.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def evaluated(guesser, letters, tmp_path_factory):
    """Two runs; the models of both evaluated on one table, of which the second has a copy, and on another of its name.

    Its problems have the same ids.
    """
    folder = tmp_path_factory.mktemp("evaluated")
    rows = [json.loads(line) for line in letters.read_text().splitlines()]
    others = [{**row, "prompt": "a?"} for row in rows]
    for name, table in (("first/held-out", rows), ("copy/renamed", rows), ("other/held-out", others)):
        path = folder / f"{name}.jsonl"
        path.parent.mkdir()
        path.write_text("".join(json.dumps(row) + "\n" for row in table))
    traces = folder / "traces.jsonl"
    traces.write_text(json.dumps({"prompt": "a?", "completion": "<think>.</think>\\boxed{1}"}) + "\n")
    options = {"system": Path("none"), "max_tokens": 24, "samples": 2}
    for run, problems in (("slow", ["first/held-out"]), ("fast", ["copy/renamed", "other/held-out"])):
        trained = {"lr": 1e-6 if run == "slow" else 1e-5, "max_steps": 1, "system": Path("none")}
        call_stage("sft", traces, model=str(guesser), run=folder / run, **trained)
        for number, name in enumerate(problems):
            place = folder / f"{run}-{number}"
            graded = {"output": place / "metrics.arrow", "completions": place / "completions.arrow"}
            call_stage("evaluate", folder / f"{name}.jsonl", model=str(folder / run / "model"), **graded, **options)
    return folder


def rankings_of(folder, tables, tmp_path, capsys):
    """What the page of the runs and these evaluations says of them."""
    paths = [str(folder / name) for name in ("slow", "fast", *tables)]
    call_stage("report", positional=paths, out=tmp_path / "page.html", quiet=False)
    said = capsys.readouterr()
    lines = [line for line in (said.out + said.err).splitlines() if " points" in line or "single problem" in line]
    return [line.removeprefix("report: ").partition(": ")[0] for line in lines]


def test_runs_are_ranked_on_the_same_problems_whatever_their_files_are_called(evaluated, tmp_path, capsys):
    assert rankings_of(evaluated, ["slow-0", "fast-0"], tmp_path, capsys) == ["held-out.jsonl"]
    assert rankings_of(evaluated, ["slow-0", "fast-1"], tmp_path, capsys) == []
    (name,) = rankings_of(evaluated, ["slow-0", "fast-0", "fast-1"], tmp_path, capsys)
    assert re.fullmatch(r"held-out\.jsonl \([0-9a-f]{8}\)", name)
