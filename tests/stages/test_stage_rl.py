import json
import os
import shutil
import signal
import time
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pytest
from calling import TRAINED, call_stage, flags_of, kill_and_resume, seconds_of, start_stage, written_at
from forking import Running
from safetensors.torch import load_file

from magcli.data import table
from magcli.errors import DataError, Stopped, UsageError
from magcli.generate.types import sample_seed
from magcli.rl import ledger
from magcli.rl.algorithm import advantages
from magcli.rl.utilization import SLOT_IDLE, TRAINER_IDLE
from magcli.run.rundir import RunDir
from magcli.train.optim import RL_LR, default_lr

SMALL = {name: value for name, value in TRAINED.items() if name not in ("schedule", "trajectory_every")}
TIMES = {
    "seconds",
    "generate_seconds",
    "train_tokens_per_s",
    "generate_tokens_per_s",
    *(f"trainer_idle{cause}" for cause in ("", "_generation", "_verifier", "_weights", "_saving")),
    *(f"generator_idle{cause}" for cause in ("", "_admission", "_verifier", "_weights")),
}


@pytest.fixture
def problems(letters):
    return letters


def written(path, pairs):
    rows = [{"id": f"p{i}", "prompt": f"{letter}?", "answer": gold} for i, (gold, letter) in enumerate(pairs)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="module")
def finished(guesser, letters, finished_run, tmp_path_factory):
    """A run of each schedule, with its rollouts as rows."""
    run = tmp_path_factory.mktemp("rl") / "async"
    options = SMALL | {"trajectory_every": 4, "output": run.with_name("rows.jsonl")}
    call_stage("rl", letters, model=str(guesser), run=run, **options)
    return {"async": (run, rows_beside(run)), "sync": (finished_run, rows_beside(finished_run))}


def rows_beside(run):
    return list(map(json.loads, run.with_name("rows.jsonl").read_text().splitlines()))


def metrics(run):
    return RunDir(run).metrics()


def curve(run):
    return [{key: value for key, value in line.items() if key not in TIMES} for line in metrics(run)]


def events(run):
    """The ledger's events, one for each group that they tell of."""
    return [{**event, "group": group} for group, event in ledger.by_group(ledger.read(run / "ledger.jsonl"))]


def ends(run):
    """How each group ended: the update that it trained, or why it was dropped."""
    ended = [event for event in events(run) if event["event"] in ledger.FINAL]
    assert len({event["group"] for event in ended}) == len(ended)
    return {event["group"]: event.get("reason", event.get("step")) for event in ended}


def rollouts(run):
    found = []
    for path in sorted((run / "rollouts").iterdir()):
        found += [row for batch in table.read(str(path)).rows for row in batch.to_pylist()]
    return found


def by_group(rows):
    groups = defaultdict(list)
    for row in rows:
        groups[row["group"]].append(row)
    return groups


def test_a_prompt_that_opens_the_thoughts_is_graded_with_them(opened_guesser, problems, tmp_path):
    call_stage("rl", problems, model=str(opened_guesser), run=tmp_path / "run", **SMALL | {"updates": 1})
    rows = rollouts(tmp_path / "run")
    assert all(row["completion"].startswith("<think>") and row["reason"] != "no-think" for row in rows)
    assert {row["reward"] for row in rows if row["correct"]} == {1.0}


@pytest.mark.parametrize("schedule", ["async", "sync"])
def test_every_rollout_is_a_complete_row(schedule, finished):
    run, rows = finished[schedule]
    assert len(rows) == sum(
        (line["groups_trained"] + sum(line["groups_dropped"].values())) * 8 for line in metrics(run)
    )
    for row in rows:
        assert len(row["tokens"]) == len(row["logprobs"]) == row["num_tokens"] <= 24
        assert max(row["logprobs"]) <= 0
        assert row["finish"] == ("stop" if row["tokens"][-1] == 1 else "length")
        assert row["seed"] == sample_seed(0, f"{row['id']}#{row['group']}", row["sample"])
        assert row["prompt_tokens"] == [3, row["prompt_tokens"][1], row["prompt_tokens"][2], 1, 4]
        starts, versions = zip(*[(span["start"], span["version"]) for span in row["versions"]], strict=True)
        assert starts[0] == 0
        assert sorted(set(starts)) == list(starts)
        assert sorted(set(versions)) == list(versions)
        assert versions[-1] < row["step"]
        parts = (row[f"reward_{part}"] for part in ("format", "correct", "length", "language"))
        assert row["reward"] == pytest.approx(sum(parts))
        assert (row["reason"] == "correct") == row["correct"]
        assert row["extracted"] == "3" or not row["correct"]
        assert (row["dropped"] is None) == (row["advantage"] is not None)


@pytest.mark.parametrize("schedule", ["async", "sync"])
def test_advantages_are_those_of_the_recipe(schedule, finished):
    _, rows = finished[schedule]
    for step in range(1, 7):
        trained = [row for row in rows if row["step"] == step and row["dropped"] is None]
        expected = advantages([r["reward"] for r in trained], [r["group"] for r in trained], norm="minibatch")
        assert [row["advantage"] for row in trained] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("schedule", ["async", "sync"])
def test_every_reserved_group_ends_once_as_trained_or_dropped_with_a_reason(schedule, finished):
    run, rows = finished[schedule]
    run_events, groups = events(run), by_group(rows)
    reserved = [event["group"] for event in run_events if event["event"] == "reserved"]
    ended = [event for event in run_events if event["event"] in ("trained", "dropped")]
    assert reserved == list(range(len(reserved)))
    assert sorted(event["group"] for event in ended) == reserved
    assert {event["reason"] for event in ended if event["event"] == "dropped"} <= {"all-wrong", "all-right"}
    for event in ended:
        group = groups[event["group"]]
        assert sorted(row["sample"] for row in group) == list(range(8))
        assert {row["dropped"] for row in group} == {event.get("reason")}
        assert event["event"] == "dropped" or {row["step"] for row in group} == {event["step"]}
    for number in reserved:
        order = [event["event"] for event in run_events if event["group"] == number]
        assert order in (
            ["reserved", "generated", "admitted", "taken", "trained"],
            ["reserved", "generated", "dropped"],
        )
    assert ledger.account(ledger.read(run / "ledger.jsonl")).faults == ()


def test_the_synchronous_schedule_samples_each_batch_from_one_version(finished):
    _, rows = finished["sync"]
    assert all(row["versions"] == [{"start": 0, "version": row["step"] - 1}] for row in rows)


def test_sequences_continue_while_weights_are_replaced(tiny_model_dir, problems, tmp_path):
    """Lengths that differ widely: some sequences run when others make an update, on a busy machine too."""
    reward = tmp_path / "reward.py"
    reward.write_text("def by_length(completion, row):\n    return len(completion) % 7 / 7\n")
    options = {**SMALL, "max_tokens": 300, "penalty_end": 300, "diverse_by": "reward", "reward": f"{reward}:by_length"}
    call_stage("rl", problems, model=str(tiny_model_dir), run=tmp_path / "run", **options)
    assert any(len(row["versions"]) > 1 for row in rollouts(tmp_path / "run") if row["dropped"] is None)
    assert max(line["mixed_versions"] for line in metrics(tmp_path / "run")) > 0


@pytest.mark.parametrize("staleness", [0, 1, 2])
def test_staleness_is_bounded_and_no_group_is_dropped_for_it(staleness, guesser, problems, tmp_path):
    options = {**SMALL, "staleness": staleness, "n_async": 64, "n_batch": 8, "n_mini": 8, "updates": 12}
    call_stage("rl", problems, model=str(guesser), run=tmp_path / "run", **options)
    ages = [row["step"] - 1 - row["versions"][0]["version"] for row in rollouts(tmp_path / "run") if not row["dropped"]]
    assert max(ages) == staleness
    assert max(line["staleness_max"] for line in metrics(tmp_path / "run")) == staleness
    dropped = {event["reason"] for event in events(tmp_path / "run") if event["event"] == "dropped"}
    assert dropped <= {"all-wrong", "all-right"}


def test_trainer_and_sampler_log_probs_match(finished):
    for schedule, (run, _) in finished.items():
        first = metrics(run)[0]
        assert first["ratio_min"] == pytest.approx(1, abs=1e-4)
        assert first["ratio_max"] == pytest.approx(1, abs=1e-4)
        assert first["clip_low_share"] == first["clip_high_share"] == 0
        later = [line["ratio_max"] for line in metrics(run)[1:]]
        assert any(ratio != pytest.approx(1, abs=1e-4) for ratio in later) or schedule == "sync"


def test_ratios_follow_the_temperature(guesser, problems, tmp_path):
    options = {**SMALL, "updates": 1, "temperature": 0.6, "schedule": "sync"}
    call_stage("rl", problems, model=str(guesser), run=tmp_path / "run", **options)
    (line,) = metrics(tmp_path / "run")
    assert line["ratio_min"] == pytest.approx(1, abs=1e-4)
    assert line["ratio_max"] == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("schedule", ["async", "sync"])
def test_a_line_of_metrics_is_complete(schedule, finished):
    run, rows = finished[schedule]
    lines = metrics(run)
    assert [line["step"] for line in lines] == [1, 2, 3, 4, 5, 6]
    for line in lines:
        given = [row for row in rows if row["step"] == line["step"]]
        for name in ("reward", "reward_format", "reward_correct", "reward_length", "reward_language", "correct"):
            assert line[name] == pytest.approx(np.mean([row[name] for row in given]), abs=1e-6)
        assert line["length_mean"] == pytest.approx(np.mean([row["num_tokens"] for row in given]))
        assert line["length_p95"] == pytest.approx(np.quantile([row["num_tokens"] for row in given], 0.95))
        assert line["groups_trained"] == 2
        assert line["groups_dropped"] == Counter(g[0]["dropped"] for g in by_group(given).values() if g[0]["dropped"])
        assert line["reasons"] == Counter(row["reason"] for row in given)
        ratios = [line[f"ratio_{at}"] for at in ("min", "p01", "p50", "p99", "max")]
        assert ratios[0] > 0
        assert ratios == sorted(ratios)
        for share in (
            "clip_low_share",
            "clip_high_share",
            "padding_share_if_padded",
            "trainer_idle",
            "generator_idle",
            "cut_share",
        ):
            assert 0 <= line[share] <= 1
        assert 0 < line["entropy"] < 5
        assert line["grad_norm"] > 0
        assert line["approx_kl"] >= 0
        assert 0 <= line["staleness_tokens"] <= line["staleness_mean"] <= line["staleness_max"] <= 8
        for side, causes in (("generator", SLOT_IDLE), ("trainer", TRAINER_IDLE)):
            by_cause = [line[f"{side}_idle_{cause}"] for cause in causes]
            assert sum(by_cause) == pytest.approx(line[f"{side}_idle"])
        assert line["trained_tokens"] <= line["generated_tokens"] == sum(row["num_tokens"] for row in given)
        assert line["train_tokens_per_s"] > 0
        assert line["generate_tokens_per_s"] >= 0  # none, where all groups of an update were there at the last one
        assert line["lr"] == 1e-3


def test_trajectory_weights_are_saved_in_float32(finished, guesser):
    run, _ = finished["async"]
    folders = sorted((run / "trajectory").iterdir())
    assert [folder.name for folder in folders] == ["step-000000", "step-000004", "step-000006"]
    kept = [load_file(folder / "model.safetensors") for folder in folders]
    assert {str(tensor.dtype) for weights in kept for tensor in weights.values()} == {"torch.float32"}
    assert all(kept[0][name].equal(tensor) for name, tensor in load_file(guesser / "model.safetensors").items())
    assert all(kept[2][name].equal(tensor) for name, tensor in load_file(run / "model" / "model.safetensors").items())
    assert not all(kept[1][name].equal(tensor) for name, tensor in kept[2].items())


def test_a_finished_run_has_its_last_checkpoint_and_is_recognised(finished, guesser, problems, tmp_path):
    run, rows = finished["sync"]
    assert [folder.name for folder in (run / "checkpoints").iterdir()] == ["step-000006"]
    before = (run / "model" / "model.safetensors").read_bytes()
    again, options = tmp_path / "again.jsonl", TRAINED
    written = written_at(run)
    call_stage("rl", problems, model=str(guesser), run=run, output=again, **options)
    assert written_at(run) == written, "nothing is trained again"
    assert (run / "model" / "model.safetensors").read_bytes() == before
    assert list(map(json.loads, again.read_text().splitlines())) == rows
    with pytest.raises(UsageError, match=r"other settings: lr 0\.001 \(now 0\.002\)"):
        call_stage("rl", problems, model=str(guesser), run=run, **options | {"lr": 2e-3})


@pytest.mark.parametrize(
    ("kills", "checkpoint_every"), [(2, 3), *(pytest.param(25, every, marks=pytest.mark.faults) for every in (1, 3))]
)
def test_a_killed_synchronous_run_resumes_to_the_same_weights(kills, checkpoint_every, guesser, problems, tmp_path):
    options = {**SMALL, "schedule": "sync", "trajectory_every": 2, "checkpoint_every": checkpoint_every}
    options |= {"model": str(guesser), "updates": 8, "n_mini": 8}
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    took = seconds_of("rl", problems, run=whole, **options)
    kill_and_resume(kills, 0.7 * took, "rl", problems, run=broken, **options)
    assert curve(broken) == curve(whole)
    assert rollouts(broken) == rollouts(whole)
    assert ends(broken) == ends(whole)
    for place in ("model", *(f"trajectory/step-{step:06d}" for step in (0, 2, 4, 6, 8))):
        assert (broken / place / "model.safetensors").read_bytes() == (whole / place / "model.safetensors").read_bytes()


def test_a_killed_asynchronous_run_trains_every_group_once(guesser, problems, tmp_path):
    options = {**SMALL, "model": str(guesser), "checkpoint_every": 4, "updates": 10}
    took = seconds_of("rl", problems, run=tmp_path / "whole", **options)
    kill_and_resume(2, 0.7 * took, "rl", problems, run=tmp_path / "run", **options)
    reserved = [event["group"] for event in events(tmp_path / "run") if event["event"] == "reserved"]
    assert sorted(ends(tmp_path / "run")) == reserved == list(range(len(reserved)))
    rows = rollouts(tmp_path / "run")
    assert Counter(row["group"] for row in rows) == dict.fromkeys(reserved, 8)
    assert Counter(row["step"] for row in rows if row["dropped"] is None) == dict.fromkeys(range(1, 11), 16)
    assert max(row["step"] - 1 - row["versions"][0]["version"] for row in rows if not row["dropped"]) <= 8


@pytest.mark.flaky(reruns=2)
@pytest.mark.parametrize("schedule", ["sync", "async"])
def test_sigterm_writes_a_checkpoint_first_and_the_run_goes_on_from_there(schedule, guesser, problems, tmp_path):
    run = tmp_path / "run"
    options = {**SMALL, "schedule": schedule, "updates": 120, "checkpoint_every": 1_000, "lr": 1e-5}
    command = ["rl", problems, "--model", guesser, "--run", run, *flags_of(options)]
    with Running(*command, session=True) as process:
        try:
            # Less than 0.2 s of training is not worth a checkpoint; a fast machine takes 10 ms for an update.
            wait_for(lambda: (run / "metrics.jsonl").exists() and len(metrics_so_far(run)) >= 48, process)
            process.send_signal(signal.SIGTERM)
            errors = process.communicate(timeout=400)[1].decode()
        finally:
            process.kill()
    assert process.returncode == 143, errors
    done = len(metrics_so_far(run))
    assert f"checkpoint of update {done} written before the end" in errors
    assert (run / "checkpoints" / f"step-{done:06d}" / "checkpoint.json").exists()
    assert not in_session(process.pid)
    call_stage("rl", problems, model=str(guesser), run=run, **options)
    assert [line["step"] for line in metrics(run)] == list(range(1, 121))
    if schedule == "sync":
        call_stage("rl", problems, model=str(guesser), run=tmp_path / "whole", **options)
        assert rollouts(run) == rollouts(tmp_path / "whole")
        result, whole = (folder / "model" / "model.safetensors" for folder in (run, tmp_path / "whole"))
        assert result.read_bytes() == whole.read_bytes()


@pytest.mark.flaky(reruns=2)
def test_sigterm_ends_a_run_at_once_and_the_same_command_resumes(guesser, problems, tmp_path):
    run = tmp_path / "run"
    options = {**SMALL, "updates": 400, "checkpoint_every": 1, "lr": 1e-5}
    command = ["rl", problems, "--model", guesser, "--run", run, *flags_of(options)]
    with Running(*command, session=True) as process:
        try:
            wait_for(lambda: (run / "metrics.jsonl").exists() and len(metrics_so_far(run)) >= 5, process)
            begun = time.monotonic()
            process.send_signal(signal.SIGTERM)
            errors = process.communicate(timeout=400)[1].decode()
            took = time.monotonic() - begun
        finally:
            process.kill()
    assert process.returncode == 143, errors
    assert took < 5
    assert "ended by SIGTERM" in errors
    assert not in_session(process.pid)
    done = metrics_so_far(run)
    again = start_stage("rl", problems, model=str(guesser), run=run, **options)
    try:
        wait_for(lambda: len(metrics_so_far(run)) > len(done), again)
    finally:
        again.kill()
    assert metrics_so_far(run)[: len(done)] == done, "no update is forgotten"


def metrics_so_far(run):
    return (run / "metrics.jsonl").read_text().splitlines()


def wait_for(condition, process, seconds=120):
    deadline = time.monotonic() + seconds
    while not condition():
        assert getattr(process, "returncode", None) is None
        assert time.monotonic() < deadline
        time.sleep(0.02)


def in_session(number):
    """Processes that still live in a session."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if int(fields[3]) == number and fields[0] != "Z":
                found.append(int(entry.name))
    return found


@pytest.mark.parametrize(("by", "reasons"), [("outcome", {"all-wrong", "all-right"}), ("reward", {"same-reward"})])
def test_groups_with_zero_advantage_are_replaced(by, reasons, guesser, tmp_path):
    mixed = written(tmp_path / "mixed.jsonl", [("3", "a"), ("9", "b"), ("1", "c"), ("9", "d")])
    options = {**SMALL, "group_size": 4, "diverse_by": by, "updates": 3, "schedule": "sync"}
    call_stage("rl", mixed, model=str(guesser), run=tmp_path / "run", **options)
    assert [line["groups_trained"] for line in metrics(tmp_path / "run")] == [4, 4, 4]
    dropped = Counter(event["reason"] for event in events(tmp_path / "run") if event["event"] == "dropped")
    assert dropped
    assert set(dropped) <= reasons
    for group in by_group(rollouts(tmp_path / "run")).values():
        values = {row["correct"] if by == "outcome" else round(row["reward"], 5) for row in group}
        assert (len(values) > 1) == (group[0]["dropped"] is None)


def test_problems_that_are_never_solved_stop_the_run(guesser, tmp_path):
    hopeless = written(tmp_path / "hopeless.jsonl", [("9", "a"), ("8", "b")])
    options = {**SMALL, "group_size": 4, "n_batch": 4, "n_mini": 4, "max_tokens": 16}
    with pytest.raises(Stopped, match=r"none of 600 completions of 150 groups is right"):
        call_stage("rl", hopeless, model=str(guesser), run=tmp_path / "run", **options)
    assert not (tmp_path / "run" / "model").exists()


@pytest.mark.parametrize(
    "schedule", [{}, {"schedule": "sync"}, {"generators": 1, "staleness": 0}], ids=["async", "sync", "generator"]
)
def test_a_run_whose_problems_are_all_solved_ends_with_its_model(guesser, tmp_path, monkeypatch, schedule, capsys):
    """Every group counts as solved: each problem retires after its first."""
    monkeypatch.setattr("magcli.rl.curriculum.ProblemStats.add", solved)
    problems = written(tmp_path / "p.jsonl", [("3", letter) for letter in "abcdefgh" * 3])
    run, options = tmp_path / "run", SMALL | {"updates": 50, "retire_after": 1, "quiet": False} | schedule
    call_stage("rl", problems, model=str(guesser), run=run, **options)
    assert 0 < len(metrics(run)) < 24
    (last,) = (run / "checkpoints").iterdir()
    assert last.name == f"step-{len(metrics(run)):06d}", "each update of the model is in the metrics"
    message = f"(1 all-correct groups in a row); use harder ones; ended after {len(metrics(run))} updates"
    assert message in capsys.readouterr().err
    assert (run / "model" / "model.safetensors").exists()
    account = ledger.account(ledger.read(run / "ledger.jsonl"))
    assert (account.outstanding, account.faults) == (0, ())


def solved(stats, correct, graded, *, is_open=False):
    stats.groups, stats.solved_in_a_row = stats.groups + 1, stats.solved_in_a_row + 1


def test_the_rule_of_the_last_stage_ends_a_run_with_its_model(guesser, problems, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("magcli.rl.training_stages.EASY_WINDOW", 2)
    monkeypatch.setattr("magcli.rl.training_stages.EASY_SHARE", -1.0)  # any groups are too easy
    run = tmp_path / "run"
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('[[rl.stage]]\nuntil = "data-easy"\n')
    options = SMALL | {"recipe": recipe, "quiet": False}
    call_stage("rl", problems, model=str(guesser), run=run, output=tmp_path / "rows.arrow", **options)
    assert [line["step"] for line in metrics(run)] == [1, 2]
    assert (run / "model" / "model.safetensors").exists()
    assert "rl: data-easy; ended after 2 updates" in capsys.readouterr().err
    account = ledger.account(ledger.read(run / "ledger.jsonl"))
    assert (account.outstanding, account.faults) == (0, ())


def test_without_lr_the_number_of_weights_decides(guesser, problems, tmp_path):
    options = SMALL | {"lr": 0.0, "updates": 1}
    call_stage("rl", problems, model=str(guesser), run=tmp_path / "run", output=tmp_path / "rows.arrow", **options)
    weights = sum(tensor.numel() for tensor in load_file(guesser / "model.safetensors").values())
    (line,) = metrics(tmp_path / "run")
    assert line["lr"] == default_lr(weights, at_24b=RL_LR, lora=False)


def test_a_refused_first_update_is_refused_again(guesser, problems, tmp_path, monkeypatch):
    monkeypatch.setattr("magcli.rl.loop.mismatch_fault", lambda line: "too far apart")
    run = tmp_path / "run"
    for _ in range(2):
        with pytest.raises(Stopped, match="before the first update: too far apart"):
            call_stage("rl", problems, model=str(guesser), run=run, **SMALL)
        assert metrics(run) == []
    assert [event["event"] for event in ledger.read(run / "ledger.jsonl")].count("taken") == 1


def test_a_ledger_shortened_by_a_power_cut_resumes(guesser, problems, tmp_path):
    """Files of groups are synced before the lines that tell of them: these may be lost alone."""
    run = tmp_path / "run"
    process = start_stage("rl", problems, model=str(guesser), run=run, **SMALL | {"updates": 20})
    while not list((run / "groups").glob("g-*.arrow")) or not (run / "ledger.jsonl").exists():
        time.sleep(0.01)
    process.kill()
    process.join()
    lines = (run / "ledger.jsonl").read_text().splitlines(keepends=True)
    known = max((place for place, line in enumerate(lines) if '"taken"' in line), default=-1)
    (run / "ledger.jsonl").write_text("".join(lines[: known + 1]))
    call_stage("rl", problems, model=str(guesser), run=run, **SMALL | {"updates": 20})
    account = ledger.account(ledger.read(run / "ledger.jsonl"))
    assert (account.trained, account.outstanding, account.faults) == (40, 0, ())


def test_an_unreadable_ground_truth_never_trains(guesser, tmp_path):
    rows = [
        {"id": "good", "prompt": "a?", "answer": "3"},
        {"id": "bad", "prompt": "b?", "answer": "answers vary from student to student and from day to day"},
    ]
    data = tmp_path / "p.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = {**SMALL, "updates": 2, "diverse_by": "reward", "schedule": "sync"}
    dropped = tmp_path / "dropped.jsonl"
    call_stage("rl", data, model=str(guesser), run=tmp_path / "run", dropped=dropped, **options)
    assert {row["id"] for row in rollouts(tmp_path / "run")} == {"good"}
    (row,) = map(json.loads, dropped.read_text().splitlines())
    assert (row["id"], row["drop_reason"]) == ("bad", "bad-gold")


def test_a_prompt_beyond_the_context_is_dropped_with_a_reason(guesser, tmp_path):
    data = tmp_path / "p.jsonl"
    rows = [{"id": "long", "prompt": "x" * 600, "answer": "3"}, {"id": "short", "prompt": "a?", "answer": "3"}]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    dropped = tmp_path / "dropped.jsonl"
    options = {**SMALL, "updates": 1, "dropped": dropped, "output": tmp_path / "out.arrow"}
    call_stage("rl", data, model=str(guesser), run=tmp_path / "run", **options)
    (row,) = map(json.loads, dropped.read_text().splitlines())
    assert (row["id"], row["drop_reason"]) == ("long", "prompt-too-long")
    assert {row["id"] for row in rollouts(tmp_path / "run")} == {"short"}


def test_unknown_kinds_are_refused_before_the_first_token(guesser, tmp_path):
    data = tmp_path / "p.jsonl"
    data.write_text(json.dumps({"id": "c1", "kind": "proof", "prompt": "a?", "answer": "3"}) + "\n")
    with pytest.raises(DataError, match="c1: kind 'proof' cannot be graded"):
        call_stage("rl", data, model=str(guesser), run=tmp_path / "run", **SMALL)


def test_several_optimizer_steps_an_update(guesser, problems, tmp_path):
    options = {**SMALL, "n_mini": 8, "updates": 2, "schedule": "sync", "lr": 1e-2}
    call_stage("rl", problems, model=str(guesser), run=tmp_path / "run", **options)
    first = metrics(tmp_path / "run")[0]
    assert first["ratio_max"] > 1.001, "the second step of the first update is off-policy"
    for step in (1, 2):
        trained = [row for row in rollouts(tmp_path / "run") if row["step"] == step and row["dropped"] is None]
        for mini in (trained[:8], trained[8:]):
            expected = advantages([r["reward"] for r in mini], [r["group"] for r in mini], norm="minibatch")
            assert [row["advantage"] for row in mini] == pytest.approx(expected, abs=1e-5)


def test_the_control_shuffles_rewards_within_groups(guesser, problems, tmp_path):
    options = {**SMALL, "shuffle_rewards": True, "advantage_norm": "none", "updates": 2, "schedule": "sync"}
    call_stage("rl", problems, model=str(guesser), run=tmp_path / "run", **options)
    moved = 0
    for group in by_group(rollouts(tmp_path / "run")).values():
        if group[0]["dropped"] is None:
            centred = np.array([row["reward"] for row in group]) - np.mean([row["reward"] for row in group])
            found = np.array([row["advantage"] for row in group])
            assert sorted(found) == pytest.approx(sorted(centred), abs=1e-5)
            moved += not np.allclose(found, centred, atol=1e-5)
    assert moved


def test_custom_advantage_and_loss_train_and_belong_to_the_run(guesser, problems, tmp_path):
    source = tmp_path / "own_terms.py"
    source.write_text(OWN_TERMS)
    options = {
        **SMALL,
        "updates": 2,
        "schedule": "sync",
        "advantage": f"{source}:halves",
        "loss": f"{source}:reinforce",
    }
    call_stage("rl", problems, model=str(guesser), run=tmp_path / "run", **options)
    trained = [row for row in rollouts(tmp_path / "run") if row["dropped"] is None]
    assert {row["advantage"] for row in trained} == {-0.5, 0.5}
    assert all(row["advantage"] == (0.5 if row["correct"] else -0.5) for row in trained)
    plain = {**options, "loss": "magistral"}
    call_stage("rl", problems, model=str(guesser), run=tmp_path / "plain", **plain)
    assert [line["loss"] for line in metrics(tmp_path / "run")] != [
        line["loss"] for line in metrics(tmp_path / "plain")
    ]
    source.write_text(OWN_TERMS + "# changed\n")
    with pytest.raises(UsageError, match=r"other settings: advantage_sha256 .* loss_sha256"):
        call_stage("rl", problems, model=str(guesser), run=tmp_path / "run", **options)


OWN_TERMS = """
def halves(rewards, groups):
    return [0.5 if reward > 0.5 else -0.5 for reward in rewards]

def reinforce(tokens, clip_low, clip_high):
    return -tokens.advantage * tokens.new
"""


VLLM = {"engine": "vllm", "generators": 2, "transfer": "broadcast"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_async": 12}, "rl.n_async: 12 is not a multiple of group_size 8"),
        ({"n_batch": 20}, "rl.n_batch: 20 is not a multiple of group_size 8"),
        ({"n_mini": 4}, "rl.n_mini: 4 is not a multiple of group_size 8"),
        ({"n_batch": 24, "n_mini": 16}, "rl.n_mini: 16 does not divide n_batch 24"),
        ({"group_size": 1}, "rl.group_size: 1 completions have nothing to compare"),
        ({"clip_low": 1.5}, r"rl.clip_low: 1.5 is not in \(0, 1\]"),
        ({"max_norm": 0.0}, "rl.max_norm: 0.0 is not positive"),
        ({"temperature": 0.0}, "rl.temperature: 0.0 is not positive"),
        ({"schedule": "sync", "dtype": "bf16"}, "sync is deterministic, which takes --dtype fp32"),
        ({"generators": -1}, "rl.generators: -1 is negative"),
        ({"gpu_memory": 1.5}, r"rl.gpu_memory: 1.5 is not in \[0, 1\]"),
        ({"generator_devices": ("cuda:1",)}, "rl: 1 --generator-devices need at least as many --generators, not 0"),
        (
            {"generators": 1, "generator_devices": ("gpu:1",)},
            "--generator-devices must be cpu, cuda or cuda:N, not gpu:1",
        ),
        ({"cluster": "auto"}, "rl: --cluster has nothing to place; add --trainers 2 or more"),
        (
            {"generators": 1, "cluster": "auto", "generator_devices": ("cuda:1",)},
            "with --cluster Ray chooses the devices",
        ),
        (VLLM | {"generator_devices": ("cuda:1",)}, "rl: cpu cannot broadcast to cuda:1; use --transfer file"),
        (VLLM | {"device": "cuda", "generator_devices": ("cuda:1", "cuda:0")}, r"broadcast to itself \(cuda:0\)"),
        ({"model": "http://localhost:1"}, "a server's weights cannot be trained"),
        ({"advantage": "no_such:f"}, "advantage 'no_such:f': no_such cannot be imported: ModuleNotFoundError"),
        ({"loss": "math:sqrt"}, r"loss 'math:sqrt' failed: TypeError: .*sqrt\(\) takes exactly one argument"),
        (
            {"advantage": "math:sqrt", "advantage_norm": "none"},
            "rl: --advantage replaces --advantage-norm; give one of them",
        ),
        ({"penalty_width": 9, "penalty_end": 4}, "rl.penalty_width: 9 is not between 0 and penalty_end 4"),
    ],
)
def test_invalid_options_are_refused_first(change, message, tmp_path):
    with pytest.raises(UsageError, match=message):
        call_stage("rl", "nothing.jsonl", **{"model": "m", "run": tmp_path / "run", **SMALL} | change)
    assert not os.listdir(tmp_path)


BROKEN = """
def broken(completion, row):
    return row["ground_truth"]

def breaks_later(completion, row):
    if "unknown" in completion or "answer is" in completion:
        return 0.0
    raise ValueError("a text of the policy")
"""


@pytest.fixture
def own_reward(tmp_path):
    path = tmp_path / "own.py"
    path.write_text(BROKEN)
    return path


def test_a_failing_reward_function_ends_the_command_before_any_group(guesser, problems, own_reward, tmp_path):
    with pytest.raises(UsageError, match=r"failed on row \S+: KeyError: 'ground_truth' \(own.py:3, broken\)"):
        call_stage("rl", problems, model=str(guesser), run=tmp_path / "run", reward=f"{own_reward}:broken", **SMALL)
    assert not (tmp_path / "run").exists()


def test_a_dry_run_shows_that_a_reward_function_fails(guesser, problems, own_reward, tmp_path):
    options = {
        "model": str(guesser),
        "run": tmp_path / "run",
        "reward": f"{own_reward}:broken",
        "dry_run": True,
        **SMALL,
    }
    with pytest.raises(UsageError, match="KeyError: 'ground_truth'"):
        call_stage("rl", problems, **options)
    call_stage("rl", tmp_path / "missing.jsonl", **options)


def test_failing_rewards_stop_the_run_with_their_exception(guesser, problems, own_reward, tmp_path):
    reward = f"{own_reward}:breaks_later"
    with pytest.raises(
        Stopped, match=r"a whole batch: problem p\d: ValueError: a text of the policy \(own.py:8, breaks_later\)"
    ):
        call_stage("rl", problems, model=str(guesser), run=tmp_path / "run", reward=reward, **SMALL)


def test_counts_are_shown_while_all_groups_are_dropped(guesser, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("magcli.rl.loop.COUNTS_EVERY", 0.01)
    hopeless = written(tmp_path / "hopeless.jsonl", [("9", "a"), ("8", "b")])
    options = {**SMALL, "group_size": 4, "n_batch": 4, "n_mini": 4, "max_tokens": 16, "quiet": False}
    with pytest.raises(Stopped):
        call_stage("rl", hopeless, model=str(guesser), run=tmp_path / "run", **options)
    shown = [line for line in capsys.readouterr().err.splitlines() if line.startswith("rl: update 1 of ")]
    assert any("0 admitted" in line and "dropped: all-wrong" in line for line in shown)


def test_a_finished_run_can_be_prolonged(finished, guesser, problems, tmp_path):
    whole, _ = finished["sync"]
    run = tmp_path / "run"
    options = TRAINED | {"schedule": "sync"}
    call_stage("rl", problems, model=str(guesser), run=run, **options | {"updates": 4})
    first = (run / "model" / "model.safetensors").read_bytes()
    call_stage("rl", problems, model=str(guesser), run=run, **options)
    assert (run / "model" / "model.safetensors").read_bytes() != first
    assert (run / "model" / "model.safetensors").read_bytes() == (whole / "model" / "model.safetensors").read_bytes()
    assert not (run / "shorter").exists()
    with pytest.raises(UsageError, match=r"updates 6 \(now 5\)"):
        call_stage("rl", problems, model=str(guesser), run=run, **options | {"updates": 5})
    shutil.rmtree(run / "checkpoints")
    with pytest.raises(UsageError, match="last checkpoint was deleted, so it cannot be prolonged"):
        call_stage("rl", problems, model=str(guesser), run=run, **options | {"updates": 8})
    assert (run / "model" / "model.safetensors").exists()
