import asyncio
import json
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from calling import call_stage, kill_and_resume, seconds_of, start_stage
from scripted_generator import ScriptedGenerator

from magcli.curate.sampling import SamplingPlan, sample_in_waves
from magcli.data import table
from magcli.errors import DataError, UsageError
from magcli.generate.types import Completion, Sampling, sample_seed
from magcli.stages.filter_math import work as filter_math
from magcli.verify.grader import Grader
from magcli.verify.reward import Reward, RewardRule, reward

ASK = {"samples": 12, "max_tokens": 24, "system": Path("none"), "deterministic": True}
PROSE = "the answers vary a lot from one student to the next one"


def written(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def rows_of(path):
    return [row for batch in table.read(str(path)).rows for row in batch.to_pylist()]


@pytest.fixture
def problems(tmp_path):
    """Problems that are solved by one guess in four, never, or cannot be put or graded."""
    rows = [{"id": f"p{i}", "prompt": f"{letter}?", "answer": "1234"[i % 4]} for i, letter in enumerate("abcdefgh")]
    rows += [{"id": f"never{i}", "prompt": "a?", "answer": "9"} for i in range(3)]
    rows += [{"id": "long", "prompt": "x" * 600, "answer": "3"}, {"id": "prose", "prompt": "a?", "answer": PROSE}]
    rows += [{"id": "empty", "prompt": "a?", "answer": ""}]
    return written(tmp_path / "problems.jsonl", rows)


def test_the_useful_band_is_kept_and_everything_else_has_its_reason(guesser, problems, tmp_path):
    out, dropped = tmp_path / "kept.arrow", tmp_path / "dropped.jsonl"
    call_stage("filter-math", problems, model=str(guesser), output=out, dropped=dropped, keep="0.01..0.4", **ASK)
    kept, reasons = rows_of(out), {row["id"]: row["drop_reason"] for row in rows_of(dropped)}
    assert len(kept) + len(reasons) == 14
    assert all(reasons[f"never{i}"] == "never-solved" for i in range(3))
    assert (reasons["long"], reasons["prose"], reasons["empty"]) == ("prompt-too-long", "bad-gold", "missing-answer")
    for row in kept:
        assert 0.01 <= row["pass_rate"] <= 0.4
        assert row["pass_rate"] * 12 == pytest.approx(round(row["pass_rate"] * 12), abs=1e-4)
        assert (row["num_samples"], row["majority"] in "1234") == (12, True)
        assert 1 / 12 - 1e-6 <= row["majority_share"] <= 1
    dropped_rows = [row for row in rows_of(dropped) if row["drop_reason"] in ("never-solved", "too-easy")]
    assert all(row["num_samples"] == 12 for row in dropped_rows), "a dropped row says what was learned of it"
    link = table.read(str(out)).chain[-1]
    assert (link.rows_in, link.rows_out, link.dropped) == (
        14,
        len(kept),
        dict(sorted(Counter(reasons.values()).items())),
    )


def test_a_majority_against_the_ground_truth_is_suspect_only_on_request(guesser, tmp_path):
    rows = [{"id": f"p{i}", "prompt": f"{letter}?", "answer": "9"} for i, letter in enumerate("abcdefgh")]
    rows += [{"id": f"q{i}", "prompt": f"{letter}?", "answer": "1.0"} for i, letter in enumerate("abcdefgh")]
    data, found = written(tmp_path / "p.jsonl", rows), {}
    for suspect in (False, True):
        out, dropped = tmp_path / f"{suspect}.arrow", tmp_path / f"{suspect}.jsonl"
        options = {"keep": "0..1", "drop_suspect": suspect, **ASK}
        call_stage("filter-math", data, model=str(guesser), output=out, dropped=dropped, **options)
        found[suspect] = rows_of(out), rows_of(dropped)
    everything, none = found[False]
    assert (len(everything), none) == (16, [])
    _, gone = found[True]
    assert {row["drop_reason"] for row in gone} == {"suspect-gold"}
    shares = {row["id"]: (row["majority_share"], row["majority"]) for row in everything}
    contradicted = {id for id, (share, answer) in shares.items() if share > 0.5 and (id[0] == "p" or answer != "1")}
    assert {row["id"] for row in gone} == contradicted
    assert 0 < len(gone) < 16


@pytest.mark.faults
def test_killed_and_resumed_gives_the_same_bytes(guesser, problems, tmp_path):
    options = {**ASK, "samples": 32, "model": str(guesser)}
    took = seconds_of("filter-math", problems, output=tmp_path / "a.arrow", dropped=tmp_path / "a.jsonl", **options)
    outputs = {"output": tmp_path / "b.arrow", "dropped": tmp_path / "b.jsonl"}
    kill_and_resume(3, 0.6 * took, "filter-math", problems, **outputs, **options)
    assert (tmp_path / "b.arrow").read_bytes() == (tmp_path / "a.arrow").read_bytes()
    assert (tmp_path / "b.jsonl").read_bytes() == (tmp_path / "a.jsonl").read_bytes()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keep": "0.9..0.1"}, "filter-math.keep: 0.9..0.1 is not a range within 0..1 with LOW <= HIGH"),
        ({"keep": "0.1-0.9"}, "filter-math.keep: '0.1-0.9' is not LOW..HIGH"),
        ({"workers": 0}, "filter-math.workers: 0 is not positive"),
        ({"model": ""}, "--model is missing"),
    ],
)
def test_invalid_options_are_refused_first(options, message):
    with pytest.raises(UsageError, match=message):
        call_stage("filter-math", "nothing.jsonl", **{"model": "m"} | options)


@pytest.mark.parametrize(
    "completions",
    [["It is \\boxed{7}."] * 4, ["It is \\boxed{7}."] * 3 + ["<think>7</think>\\boxed{7.0}"]],
)
def test_a_correct_but_badly_formatted_majority_does_not_make_the_ground_truth_suspect(completions):
    rule, row = RewardRule(1 << 40, use_language=False), {"id": "p", "prompt": "3+4", "answer": "7"}
    rewards = [reward(text, 5, row, rule) for text in completions]
    config = filter_math.Config(model="m", drop_suspect=True)
    with Grader(1, deadline=20) as grader:
        summary, judgement = asyncio.run(filter_math.DifficultyJudge(config, grader, row).judge(rewards))
    assert summary is not None
    assert (summary.majority, judgement != "suspect-gold") == ("7", True)


# ---- adaptive sampling ----


def judged(problems, place, **options):
    """Ids of the rows kept with their columns, and of those dropped with their reasons."""
    place.mkdir()
    call_stage("filter-math", problems, output=place / "kept.arrow", dropped=place / "dropped.jsonl", **options)
    kept = {row["id"]: row for row in rows_of(place / "kept.arrow")}
    return kept, {row["id"]: row["drop_reason"] for row in rows_of(place / "dropped.jsonl")}


@pytest.mark.parametrize("suspect", [False, True])
def test_adaptive_sampling_decides_the_same_with_fewer_tokens(guesser, problems, tmp_path, suspect):
    options = {**ASK, "model": str(guesser), "keep": "0.1..0.4", "drop_suspect": suspect}
    every, why = judged(problems, tmp_path / "all", **options)
    fewer, why_fewer = judged(problems, tmp_path / "adaptive", adaptive=True, **options)
    assert (set(every), why) == (set(fewer), why_fewer)
    assert every
    assert {row["num_samples"] for row in every.values()} == {12}
    assert all(row["num_samples"] in ((10, 11, 12) if suspect else (8, 11, 12)) for row in fewer.values())
    counts = json.loads((tmp_path / "adaptive" / ".kept.arrow.run.json").read_text())["sampling"]
    assert counts["samples"] + counts["samples_saved"] == 12 * 12, "all problems but two, of which one is too long"
    assert counts["samples_saved"] > 0
    assert 0 < counts["tokens_saved"] < 12 * 12 * 24
    assert "sampling" not in json.loads((tmp_path / "all" / ".kept.arrow.run.json").read_text())


def test_a_resumed_run_counts_the_samples_of_the_one_that_was_killed(guesser, problems, tmp_path):
    def note(name):
        written = json.loads((tmp_path / f".{name}.arrow.run.json").read_text())
        return written["tally"], written["sampling"]

    options = {**ASK, "model": str(guesser), "adaptive": True, "slots": 2}
    call_stage("filter-math", problems, output=tmp_path / "whole.arrow", **options)
    out = tmp_path / "killed.arrow"
    process, journal = start_stage("filter-math", problems, output=out, **options), tmp_path / ".killed.arrow.journal"
    # A finished problem is more than the settings, which come first.
    while not journal.exists() or b"tally" not in journal.read_bytes():
        assert process.is_alive(), "it was done before it could be killed"
    process.kill()
    process.join()
    call_stage("filter-math", problems, output=out, **options)
    assert note("killed") == note("whole")


def scripted_completions(outcomes):
    """A server's answers in the order of the seeds: 1 is right, 0 is wrong one way, 2 another, x says nothing."""
    texts = {"1": "<think>a</think>\\boxed{7.0}", "0": "<think>b</think>\\boxed{3}", "2": "\\boxed{4}", "x": "words"}
    return [Completion(texts[each], 10, "stop") for each in outcomes]


@pytest.mark.parametrize(
    ("outcomes", "suspect", "judgement", "made"),
    [
        ("0100000000000000", False, "kept", 4),
        ("1011011111111111", False, "kept", 8),
        ("1111111111111111", False, "too-easy", 16),
        ("0000000000000000", False, "never-solved", 16),
        ("0000000000000000", True, "suspect-gold", 12),
        ("0202020202020202", True, "never-solved", 16),
        ("1x1x1x1x1111x111", True, "kept", 8),
        ("xxxxxxxxxxxxxxxx", True, "never-solved", 16),
    ],
)
def test_a_problem_is_sampled_until_its_decision_is_certain(outcomes, suspect, judgement, made):
    row, rule = {"id": "p", "prompt": "3+4", "answer": "7"}, RewardRule(use_language=False)
    config = filter_math.Config(model="m", adaptive=True, drop_suspect=suspect)
    script = iter(scripted_completions(outcomes))
    generator, asking = ScriptedGenerator(lambda *_: next(script)), SamplingPlan(None, Sampling(32), 16, seed=0)

    async def decide():
        grader = Grader(1, deadline=20)
        judge = filter_math.DifficultyJudge(config, grader, row)
        try:
            samples, rewards = await sample_in_waves(generator, grader, row, asking, rule, judge.samples_wanted)
            return samples, await judge.judge(rewards)
        finally:
            await grader.close()

    samples, (_, found) = asyncio.run(decide())
    assert (found, len(samples)) == (judgement, made)
    assert [sample.index for sample in samples] == list(range(made))
    assert [seed for _, _, seed in generator.calls] == [sample_seed(0, "p", index) for index in range(made)]


def test_programs_are_decided_by_their_verdicts_alone():
    row = {"id": "p", "prompt": "q", "kind": "code", "tests": []}
    config = filter_math.Config(model="m", samples=8, adaptive=True, drop_suspect=True, keep="0.1..0.8")
    judge = filter_math.DifficultyJudge(config, Grader(1), row)

    def verdicts(text):
        reasons = {"1": "accepted", "0": "wrong-answer", "?": "infra-error"}
        return [Reward(0, 0, 0, 0, 0, each == "1", False, reasons[each], "python") for each in text]

    assert asyncio.run(judge.samples_wanted(verdicts("1110"))) == 2
    assert asyncio.run(judge.samples_wanted(verdicts("11?00"))) == 0
    summary, judgement = asyncio.run(judge.judge(verdicts("11?00")))
    assert (summary.majority, summary.num_samples, judgement) == ("", 4, "kept")


def test_completions_are_reported_while_no_problem_is_finished(guesser, problems, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("magcli.run.units.REPORT_EVERY", 0)
    monkeypatch.setattr("magcli.console.LOG_EVERY", 0.01)
    options = {"samples": 32, "max_tokens": 24, "slots": 2, "system": Path("none"), "quiet": False}
    call_stage("filter-math", problems, output=tmp_path / "kept.arrow", model=str(guesser), **options)
    shown = [line for line in capsys.readouterr().err.splitlines() if "completions finished" in line]
    assert any(line.startswith("filter-math: 0/") and " 0 completions finished" not in line for line in shown)


def test_the_rollouts_of_a_run_are_the_samples(finished_run, letters, tmp_path):
    rollouts = rows_of(finished_run.parent / "rows.jsonl")
    of_problem = defaultdict(lambda: defaultdict(list))
    for row in rollouts:
        of_problem[row["id"]][row["group"]].append(row["correct"])
    out = tmp_path / "judged.jsonl"
    call_stage("filter-math", letters, output=out, keep="0..1", from_=finished_run, samples=5)
    judged = {row["id"]: row for row in rows_of(out)}
    assert set(judged) == {row["id"] for row in rows_of(letters)}
    for problem, groups in of_problem.items():
        newest = []
        for number in sorted(groups, reverse=True):
            newest += groups[number] if len(newest) < 5 else []
        assert judged[problem]["num_samples"] == len(newest)
        assert judged[problem]["pass_rate"] == pytest.approx(sum(newest) / len(newest), abs=1e-6)


def test_problems_that_the_run_did_not_have_stay_as_they_are(finished_run, letters, tmp_path, capsys):
    first, second, *_ = rows_of(letters)
    rows = [{**first, "pass_rate": 0.25}, {**second, "answer": "another"}, {"id": "new", "prompt": "?", "answer": "1"}]
    out = tmp_path / "judged.jsonl"
    options = {"keep": "0..1", "from_": finished_run, "quiet": False}
    call_stage("filter-math", written(tmp_path / "p.jsonl", rows), output=out, **options)
    judged, changed, new = rows_of(out)
    assert judged["num_samples"]
    assert (changed["pass_rate"], new["pass_rate"]) == (None, None)
    assert "2 problems are as they were" in capsys.readouterr().err


def test_a_resumed_run_counts_the_problems_without_rollouts(finished_run, letters, tmp_path, monkeypatch, capsys):
    rows = [{"id": f"new{number}", "prompt": "?", "answer": "1"} for number in range(3)]
    source = written(tmp_path / "p.jsonl", [*rows, *rows_of(letters)])
    last, rewards_of = rows_of(letters)[-1]["id"], filter_math.Rewards.of

    def failing(rewards, row):
        if row["id"] == last:
            raise DataError("interrupted")
        return rewards_of(rewards, row)

    options = {"output": tmp_path / "judged.jsonl", "keep": "0..1", "from_": finished_run, "quiet": False}
    monkeypatch.setattr(filter_math.Rewards, "of", failing)
    with pytest.raises(DataError, match="interrupted"):
        call_stage("filter-math", source, **options)
    monkeypatch.undo()
    call_stage("filter-math", source, **options)
    assert "3 problems are as they were" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [({"model": "m"}, "omit --model"), ({"adaptive": True}, "--from samples nothing")],
)
def test_a_run_has_its_samples_already(finished_run, letters, tmp_path, options, message):
    with pytest.raises(UsageError, match=message):
        call_stage("filter-math", letters, output=tmp_path / "o.jsonl", from_=finished_run, **options)


def test_a_folder_without_rollouts_is_named(letters, tmp_path):
    with pytest.raises(DataError, match="not the folder of a run"):
        call_stage("filter-math", letters, output=tmp_path / "o.jsonl", from_=tmp_path)
