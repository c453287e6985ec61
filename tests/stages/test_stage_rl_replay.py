"""`magcli rl --replay`: training again on the stored rollouts of a run."""

import json
import multiprocessing
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from calling import TRAINED, call_stage, kill_and_resume, seconds_of
from safetensors.torch import load_file

from magcli.cluster.service_group import ServiceGroup
from magcli.data import table
from magcli.errors import DataError, UsageError
from magcli.generate.remote.fleet import Fleet
from magcli.rl import ledger
from magcli.rl.trainer import Trainer
from magcli.run.rundir import RunDir
from magcli.stages.rl import sampling_engine
from magcli.verify.grader import Grader

TOYS = Path(__file__).parent.parent / "environments" / "toys.py"


def weights(run):
    return load_file(run / "model" / "model.safetensors")


def equal(one, other):
    return one.keys() == other.keys() and all((one[name] == other[name]).all() for name in one)


def rows_of(run):
    """The rollouts of a run as it wrote them beside it."""
    return list(map(json.loads, (run.parent / "rows.jsonl").read_text().splitlines()))


def stored(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@contextmanager
def without_engines(monkeypatch):
    """Nothing that samples or grades can be opened, and no process can be started."""

    def refuse(*_arguments, **_options):
        raise AssertionError("a replay starts nothing")

    with monkeypatch.context() as patch:
        for place, name in (
            (sampling_engine, "open_policy"),
            (sampling_engine, "open_adapted"),
            (Fleet, "open"),
            (ServiceGroup, "__init__"),
            (Grader, "__init__"),
            (multiprocessing.Process, "start"),
            (subprocess.Popen, "__init__"),
        ):
            patch.setattr(place, name, refuse)
        yield


def test_the_same_options_give_the_weights_of_a_synchronous_run_bit_for_bit(finished_run, tmp_path, monkeypatch):
    with without_engines(monkeypatch):
        call_stage("rl", replay=finished_run, run=tmp_path / "again", output=tmp_path / "again.arrow")
    assert equal(weights(tmp_path / "again"), weights(finished_run))
    lines, earlier = (RunDir(run).metrics() for run in (tmp_path / "again", finished_run))
    assert [line["off_policy"] for line in lines] == ["replay"] * TRAINED["updates"]
    for line, before in zip(lines, earlier, strict=True):
        same = ("loss", "grad_norm", "ratio_max", "approx_kl", "clip_high_share", "reward", "staleness_max", "lr")
        assert {name: line[name] for name in same} == {name: before[name] for name in same}
        assert not {name for name in line if name.startswith(("generat", "mismatch", "weights"))} - {"generated_tokens"}
    assert str(ledger.account(ledger.read(tmp_path / "again" / "ledger.jsonl"))) == str(
        ledger.account(ledger.read(finished_run / "ledger.jsonl"))
    )
    assert [
        row["advantage"] for batch in table.read(str(tmp_path / "again.arrow")).rows for row in batch.to_pylist()
    ] == [pytest.approx(row["advantage"]) for row in rows_of(finished_run)]


def test_a_table_of_rollouts_is_replayed_like_the_folder(finished_run, tmp_path):
    call_stage("rl", replay=finished_run.parent / "rows.jsonl", run=tmp_path / "again")
    assert equal(weights(tmp_path / "again"), weights(finished_run))


def test_a_replay_of_a_replay_is_the_same(finished_run, tmp_path):
    call_stage("rl", replay=finished_run, run=tmp_path / "once", updates=3, lr=5e-4)
    call_stage("rl", replay=tmp_path / "once", run=tmp_path / "twice")
    assert equal(weights(tmp_path / "twice"), weights(tmp_path / "once"))


def test_another_loss_brings_its_options_and_moves_the_ratios(finished_run, tmp_path):
    call_stage("rl", replay=finished_run, run=tmp_path / "dapo", loss="dapo", lr=5e-3)
    options = json.loads((tmp_path / "dapo" / "run.json").read_text())
    assert (options["loss"], options["advantage_norm"], options["loss_norm"]) == ("dapo", "group", "token")
    assert (options["group_size"], options["n_batch"], options["lr"]) == (8, 16, 5e-3)
    call_stage("rl", replay=tmp_path / "dapo", run=tmp_path / "recipe", loss="magistral")
    options = json.loads((tmp_path / "recipe" / "run.json").read_text())
    assert (options["advantage_norm"], options["loss_norm"]) == ("minibatch", "group")
    first, *_, last = RunDir(tmp_path / "dapo").metrics()
    assert first["approx_kl"] < 1e-6 < last["approx_kl"]
    assert first["clip_high_share"] + first["clip_low_share"] == 0 < last["clip_high_share"] + last["clip_low_share"]


def test_staleness_is_counted_from_the_stored_versions(finished_run, tmp_path):
    rows = [row | {"versions": [{"start": 0, "version": 0}]} for row in rows_of(finished_run)]
    given = {"model": str(RunDir(finished_run).path / "model"), "lr": 1e-4}
    options = {name: TRAINED[name] for name in ("group_size", "n_batch", "n_mini", "max_tokens", "bf16")}
    call_stage("rl", replay=stored(tmp_path / "old.jsonl", rows), run=tmp_path / "run", **given, **options)
    assert [line["staleness_max"] for line in RunDir(tmp_path / "run").metrics()] == [0, 1, 2, 3, 4, 5]
    events = ledger.read(tmp_path / "run" / "ledger.jsonl")
    assert {event["version"] for event in events if event["event"] == "reserved"} == {0}


def test_groups_of_equal_outcomes_train_if_asked(finished_run, tmp_path):
    call_stage("rl", replay=finished_run, run=tmp_path / "run", diverse_by="none", loss="reinforce++", updates=2)
    assert all(not line["groups_dropped"] for line in RunDir(tmp_path / "run").metrics())


def test_an_interrupted_replay_resumes_to_the_same_weights(finished_run, tmp_path, monkeypatch):
    options = {"replay": finished_run, "loss": "grpo", "checkpoint_every": 2}
    call_stage("rl", run=tmp_path / "whole", **options)
    learn = Trainer.learn

    def fail_in_update_4(trainer, groups, settings):
        if trainer.done == 3:
            raise KeyError("lost")
        return learn(trainer, groups, settings)

    monkeypatch.setattr(Trainer, "learn", fail_in_update_4)
    with pytest.raises(KeyError, match="lost"):
        call_stage("rl", run=tmp_path / "broken", **options)
    monkeypatch.setattr(Trainer, "learn", learn)
    call_stage("rl", run=tmp_path / "broken", **options)
    assert equal(weights(tmp_path / "broken"), weights(tmp_path / "whole"))
    assert [line["step"] for line in RunDir(tmp_path / "broken").metrics()] == [1, 2, 3, 4, 5, 6]
    assert not ledger.account(ledger.read(tmp_path / "broken" / "ledger.jsonl")).faults


@pytest.mark.slow
@pytest.mark.parametrize("lora", [0, 4])
def test_a_killed_replay_resumes_to_the_same_weights(lora, finished_run, tmp_path):
    options = {"replay": finished_run, "loss": "grpo", "checkpoint_every": 1, "lora": lora}
    took = seconds_of("rl", run=tmp_path / "whole", **options)
    kill_and_resume(3, took, "rl", run=tmp_path / "broken", **options)
    assert equal(weights(tmp_path / "broken"), weights(tmp_path / "whole"))


def test_a_replay_with_adapters_is_its_run_again_and_trains_only_them(guesser, letters, finished_run, tmp_path):
    options = TRAINED | {"lora": 4, "lr": 1e-2, "updates": 3}
    call_stage("rl", letters, model=str(guesser), run=tmp_path / "adapted", **options)
    call_stage("rl", replay=tmp_path / "adapted", run=tmp_path / "again")
    assert equal(weights(tmp_path / "again"), weights(tmp_path / "adapted"))
    call_stage("rl", replay=finished_run, run=tmp_path / "other", lora=4, lr=1e-2, updates=2)
    assert (tmp_path / "other" / "adapter" / "adapter_model.safetensors").is_file()
    before = load_file(guesser / "model.safetensors")
    moved = {name for name, tensor in weights(tmp_path / "other").items() if not (tensor == before[name]).all()}
    assert moved == {name for name in before if name.endswith("_proj.weight")}


def test_episodes_are_replayed_with_the_turns_of_the_policy_alone(guesser, tmp_path):
    rows = [{"id": f"p{letter}", "prompt": f"{letter}?", "answer": "3", "hint": letter} for letter in "abcdefgh"]
    problems = stored(tmp_path / "problems.jsonl", rows)
    options = TRAINED | {"updates": 2, "max_tokens": 90, "diverse_by": "none", "trajectory_every": 0}
    options |= {"model": str(guesser), "environment": f"{TOYS}:Cup"}
    call_stage("rl", problems, run=tmp_path / "run", **options)
    call_stage("rl", replay=tmp_path / "run", run=tmp_path / "again")
    assert equal(weights(tmp_path / "again"), weights(tmp_path / "run"))
    one, other = (RunDir(tmp_path / name).metrics() for name in ("run", "again"))
    assert [line["trained_tokens"] for line in one] == [line["trained_tokens"] for line in other]


@pytest.mark.slow  # Ray, and two ranks that import PyTorch
def test_two_trainer_ranks_replay_to_nearly_the_weights_of_one(finished_run, tmp_path):
    call_stage("rl", replay=finished_run, run=tmp_path / "two", updates=2, trainers=2)
    call_stage("rl", replay=finished_run, run=tmp_path / "one", updates=2)
    one, two = weights(tmp_path / "one"), weights(tmp_path / "two")
    assert one.keys() == two.keys()
    assert all((one[name] - two[name]).abs().max() < 1e-4 for name in one)
    assert [line["step"] for line in RunDir(tmp_path / "two").metrics()] == [1, 2]


def test_a_replay_can_be_prolonged(finished_run, tmp_path):
    for updates in (2, 6):
        call_stage("rl", replay=finished_run, run=tmp_path / "run", updates=updates)
    assert equal(weights(tmp_path / "run"), weights(finished_run))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (lambda rows: [{k: v for k, v in row.items() if k != "logprobs"} for row in rows], "it lacks logprobs;"),
        (lambda rows: [row | {"logprobs": row["logprobs"][:-1]} for row in rows], "lacks its token ids, or log-probs"),
        (lambda rows: [row for row in rows if row["correct"]], "not --group-size 8 in order"),
        (lambda rows: rows[::-1], "not in the order of the column step"),
        (lambda rows: [row | {"tokens": [t + 4000 for t in row["tokens"]]} for row in rows], "has another tokenizer"),
        (lambda rows: [row | {"completion": "something else"} for row in rows], "has another tokenizer"),
        (
            lambda rows: [row | {"correct": False} for row in rows],
            "trains with --diverse-by outcome; give --diverse-by",
        ),
    ],
)
def test_rollouts_that_cannot_be_replayed_are_refused(changed, message, finished_run, guesser, tmp_path):
    table_of_them = stored(tmp_path / "rows.jsonl", changed(rows_of(finished_run)))
    options = {name: TRAINED[name] for name in ("group_size", "n_batch", "n_mini", "max_tokens", "bf16")}
    with pytest.raises(DataError) as refusal:
        call_stage("rl", replay=table_of_them, run=tmp_path / "run", model=str(guesser), **options)
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"generators": 1}, "leave --generators out"),
        ({"eval_table": "letters"}, "leave --eval-table out"),
        ({"reward": "mine.py:mine"}, "leave --reward out, or grade again: magcli grade"),
        ({"n_batch": 32}, r"leave --n-batch out \(it had 16\)"),
        ({"run": "replayed"}, "give another folder with --run"),
        ({"inputs": "letters"}, "reads no table with these options"),
    ],
)
def test_options_that_sample_or_grade_are_refused(options, message, finished_run, letters, tmp_path):
    tables = [letters] if options.pop("inputs", None) else []
    options = {
        name: {"letters": letters, "replayed": finished_run}.get(value, value) for name, value in options.items()
    }
    with pytest.raises(UsageError, match=message):
        call_stage("rl", *tables, **{"replay": finished_run, "run": tmp_path / "run"} | options)


def test_more_updates_than_are_stored_are_refused(finished_run, tmp_path):
    with pytest.raises(DataError, match="has 6 updates to replay, not --updates 9"):
        call_stage("rl", replay=finished_run, run=tmp_path / "run", updates=9)


def test_a_dry_run_checks_the_rollouts_and_names_no_engine(magcli, finished_run, tmp_path):
    ended = magcli("rl", "--replay", finished_run, "--run", tmp_path / "run", "--dry-run")
    assert ended.returncode == 0
    assert "it samples nothing" in ended.stderr
    assert not (tmp_path / "run").exists()
    again = magcli("rl", "--replay", finished_run, "--run", tmp_path / "run", "--dry-run", "--updates", "7")
    assert again.returncode == 3


def test_rollouts_that_are_graded_again_train_on_the_new_rewards(finished_run, tmp_path):
    (tmp_path / "brief.py").write_text("def brief(completion, row):\n    return -float(len(completion))\n")
    call_stage(
        "grade",
        finished_run.parent / "rows.jsonl",
        reward=f"{tmp_path}/brief.py:brief",
        output=tmp_path / "again.arrow",
    )
    call_stage("rl", replay=tmp_path / "again.arrow", run=tmp_path / "run", diverse_by="reward")
    rows = [row for path in (tmp_path / "run" / "rollouts").iterdir() for row in table.read(str(path)).rows]
    trained = [row for batch in rows for row in batch.to_pylist() if row["advantage"] is not None]
    assert trained
    assert all(row["reward"] == -len(row["completion"]) for row in trained)


def test_the_report_says_that_a_run_is_a_replay(finished_run, tmp_path):
    call_stage("rl", replay=finished_run, run=tmp_path / "again", updates=2)
    call_stage("report", positional=[str(tmp_path / "again")], out=tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "Replay, off-policy: trained on the stored rollouts of trained/run" in page


@pytest.mark.slow  # a process of its own imports PyTorch
def test_neither_vllm_nor_ray_is_loaded(finished_run, tmp_path):
    command = ["rl", "--replay", str(finished_run), "--run", str(tmp_path / "run"), "--updates", "1"]
    code = (
        f"import sys; from magcli.cli import app; app({command!r}, standalone_mode=False); "
        "print(*sorted({'vllm', 'ray'} & set(sys.modules)))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not ended.stdout.strip()
    assert Path(tmp_path / "run" / "model").is_dir()
