"""Traces that verifiers 0.4.0 wrote (``verifiers_traces.py`` made the sample) in the stages that read them."""

import json
from pathlib import Path

import pytest
from calling import call_stage

from magcli.layouts import responses
from magcli.layouts.types import Unreadable

TRACES = Path(__file__).with_name("verifiers-0.4.0.jsonl")


def rows_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_sample_is_of_the_version_in_its_name():
    assert {trace["verifiers"]["version"] for row in rows_of(TRACES) for trace in row["traces"]} == {"0.4.0"}


def test_grade_reads_the_last_turn_of_an_episode(tmp_path):
    out = tmp_path / "graded.jsonl"
    call_stage("grade", TRACES, output=out)
    rows = rows_of(out)
    assert [row["prompt"] for row in rows] == ["What is 2 + 2?", "What is 3 + 4?", "How many letters has Ada?"]
    assert [row["completion"] for row in rows] == ["It is \\boxed{4}.", "It is 8.", "\\boxed{3}"]
    assert [row["answer"] for row in rows] == ["4", "7", "3"]
    assert [row["correct_anywhere"] for row in rows] == [True, False, True]
    assert [row["reason"] for row in rows] == ["correct", "no-think", "no-think"]


def test_show_prints_turns_and_weighted_rewards(capfd):
    call_stage("show", TRACES, columns=("traces",))
    shown = capfd.readouterr().out
    assert "rewards: boxed 1 x 0.5, right 1 x 1" in shown
    assert "[user] How many letters has Ada?" in shown
    assert "[tool] Ada has 3 letters." in shown
    assert "Two and two." in shown


def test_report_has_the_accuracy_of_graded_traces(tmp_path, capfd):
    graded, evaluation = tmp_path / "graded.arrow", tmp_path / "evaluation.arrow"
    call_stage("grade", TRACES, output=graded)
    call_stage("evaluate", graded, output=evaluation)
    call_stage("report", paths=(str(evaluation),))
    assert "33.3" in capfd.readouterr().out


def test_traces_are_trained_as_conversations(tmp_path):
    out = tmp_path / "traces.jsonl"
    call_stage("cold-start", TRACES, output=out, system=Path("none"), any_format=True)
    first, second = rows_of(out)
    assert [turn["role"] for turn in first["messages"]] == ["system", "user", "assistant"]
    assert second["messages"][-1]["content"] == "It is 8."


def test_a_branch_that_was_left_is_not_part_of_the_conversation():
    def said(role, content, parent, sampled=False):
        return {"parent": parent, "sampled": sampled, "message": {"role": role, "content": content}}

    left = said("assistant", "left", 0, sampled=True)
    trace = {"nodes": [said("user", "?", None), left, said("assistant", "kept", 0, sampled=True)]}
    assert [turn["content"] for turn in responses.turns_of_traces([trace])] == ["?", "kept"]
    with pytest.raises(Unreadable, match="2 traces; one is expected"):
        responses.turns_of_traces([trace, trace])
