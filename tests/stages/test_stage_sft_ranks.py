"""`magcli sft --trainers 2`: two ranks train as one does, are killed, go on with one or two, and measure alike."""

import json
import os
import random
from pathlib import Path

import pytest
from calling import call_stage, flags_of, quiet, run_command_line
from safetensors.torch import load_file
from training_ranks import killed_once, on_ranks

from magcli.data import table
from magcli.errors import UsageError
from magcli.model.model import Model
from magcli.plan.formats import TrainerPlan
from magcli.run.rundir import RunDir
from magcli.stages import rl, sft
from magcli.stages.rl.models import open_state as open_rl_state
from magcli.stages.rl.spec import PolicySpec as RLPolicySpec
from magcli.stages.sft import work as sft_work
from magcli.stages.sft.spec import PolicySpec

SIZES = {"epochs": 2, "step_tokens": 128, "micro_tokens": 64, "lr": 3e-3, "bf16": "no", "checkpoint_every": 3}
NO_SYSTEM = {"system": Path("none")}


def traces(path, count, seed):
    choose = random.Random(seed)
    thoughts = ("<think></think>" + "x" * choose.randrange(40) for _ in range(count))
    rows = [{"id": str(i), "prompt": f"{choose.choice('abc')}?", "completion": text} for i, text in enumerate(thoughts)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    folder = tmp_path_factory.mktemp("traces")
    return traces(folder / "t.jsonl", 60, 0), traces(folder / "h.jsonl", 12, 1)


@pytest.fixture(scope="module")
def alone(given, tiny_model_dir, tmp_path_factory):
    run = tmp_path_factory.mktemp("alone") / "run"
    learned, held_out = given
    call_stage(
        "sft", learned, model=str(tiny_model_dir), run=run, held_out=held_out, evaluate_every=5, **SIZES | NO_SYSTEM
    )
    return run


def lines(run):
    return RunDir(run).metrics()


def assert_alike(run, other):
    one, two = lines(run), lines(other)
    assert len(one) == len(two)
    for mine, theirs in zip(one, two, strict=True):
        assert theirs.keys() == mine.keys()
        for name in mine.keys() - {"seconds"}:
            assert theirs[name] == pytest.approx(mine[name], rel=1e-3, abs=1e-5), name
    weights, others = (load_file(folder / "model" / "model.safetensors") for folder in (run, other))
    assert weights.keys() == others.keys()
    for name, tensor in weights.items():
        assert (tensor - others[name]).norm() <= 1e-3 * tensor.norm()


def command_of(learned, model, run, **options):
    """The command line of a run."""
    return ["sft", learned, "--model", model, "--run", run, "--system", "none", *flags_of(options)]


def test_two_ranks_that_recompute_activations_train_like_one_that_keeps_them(given, alone, tiny_model_dir, tmp_path):
    learned, held_out = given
    run, out = tmp_path / "run", tmp_path / "metrics.arrow"
    options = SIZES | {"held_out": held_out, "evaluate_every": 5, "activation_checkpointing": "yes", "trainers": 2}
    done = run_command_line(command_of(learned, tiny_model_dir, run, output=out, **options), env=quiet())
    errors = done.stderr.decode()
    assert done.returncode == 0, errors
    assert errors.count("sft: model in") == 1, "ranks are silent"
    assert_alike(alone, run)
    assert sum(batch.num_rows for batch in table.read(str(out)).rows) == len(lines(alone))


@pytest.mark.parametrize("ranks", [pytest.param(1, marks=pytest.mark.faults), 2])
def test_a_run_started_by_two_ranks_resumes(given, alone, tiny_model_dir, tmp_path, ranks):
    learned, held_out = given
    run, options = tmp_path / "run", SIZES | {"held_out": held_out, "evaluate_every": 5}
    command = command_of(learned, tiny_model_dir, run, trainers=2, **options)
    killed_once(command, run / "checkpoints" / "step-000006")
    call_stage("sft", learned, model=str(tiny_model_dir), run=run, trainers=ranks, **options | NO_SYSTEM)
    assert_alike(alone, run)


def opened_in_slices(ranks, stage, folder):
    """The state of a rank where loading a whole model would fail."""

    def refuse(*_, **__):
        raise AssertionError("the whole model was loaded")

    Model.load = refuse
    if stage == "rl":
        opening = open_rl_state(RLPolicySpec.of(rl.Config()), Model.open(folder), TrainerPlan())
    else:
        opening = sft_work._open_state(PolicySpec.of(sft.Config()), Model.open(folder), TrainerPlan())
    state = opening(ranks, False)
    return [type(parameter).__name__ for parameter in state.model.parameters()], state.original is not None


@pytest.mark.parametrize("stage", ["sft", "rl"])
def test_no_rank_loads_the_whole_model(tiny_model_dir, stage):
    for rank, (kinds, has_original) in enumerate(on_ranks(opened_in_slices, stage, tiny_model_dir)):
        assert set(kinds) == {"DTensor"}
        assert has_original is (rank == 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lora": 4}, "sft: --lora trains in one process; use --trainers 1"),
        ({"offload": "moments"}, "sft: --offload needs a single process"),
    ],
)
def test_some_options_are_for_one_process(options, message, given, tiny_model_dir, tmp_path):
    with pytest.raises(UsageError, match=message):
        call_stage("sft", given[0], model=str(tiny_model_dir), run=tmp_path / "run", trainers=2, **options)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("stage", ["sft", "rl"])
def test_processes_of_torchrun_are_refused(stage, magcli, tiny_model_dir, tmp_path):
    of_rank_3 = {"RANK": "3", "LOCAL_RANK": "3", "WORLD_SIZE": "8", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    done = magcli(stage, "--model", tiny_model_dir, cwd=tmp_path, env=os.environ | of_rank_3)
    assert done.returncode == 2
    text = "magcli starts its trainer ranks itself: leave torchrun out and give --trainers 8"
    assert done.stderr == f"error: {stage}: {text}\n"
    assert list(tmp_path.iterdir()) == []


def test_a_single_process_of_torchrun_trains_by_itself(given, tiny_model_dir, tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    run = tmp_path / "run"
    call_stage("sft", given[0], model=str(tiny_model_dir), run=run, max_steps=1, **SIZES | NO_SYSTEM)
    assert len(lines(run)) == 1
