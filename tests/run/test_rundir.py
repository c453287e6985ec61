import json
import shutil
import subprocess
import sys

import pytest

from magcli.console import Console
from magcli.data.manifest import Input, Link
from magcli.errors import DataError, UsageError
from magcli.run.rundir import RunDir, lineage

SETTINGS = {"lr": 0.1, "steps": 3}


def opened(path, settings=SETTINGS, stage="sft", restart=False):
    return RunDir.open(path, stage, settings, restart=restart)


def test_a_run_is_started_and_resumed(tmp_path):
    path = tmp_path / "deep" / "run"
    with opened(path) as run:
        run.log({"step": 1, "loss": 2.5})
    with opened(path) as run:
        run.log({"step": 2, "loss": 2.0})
        assert [line["step"] for line in run.metrics()] == [1, 2]
        assert not run.finished


def test_a_run_without_results_does_not_fix_its_settings(tmp_path):
    with opened(tmp_path / "run") as run:
        run.groups.mkdir()
        run.ledger.touch()
    with opened(tmp_path / "run", {**SETTINGS, "lr": 0.2}):
        pass
    assert json.loads((tmp_path / "run" / "run.json").read_text())["lr"] == 0.2


def test_other_settings_are_refused_by_name(tmp_path):
    with opened(tmp_path / "run") as run:
        run.log({"step": 1})
    with (
        pytest.raises(UsageError, match=r"other settings: lr 0\.1 \(now 0\.2\), seed None \(now 1\); .*--restart"),
        opened(tmp_path / "run", {"lr": 0.2, "steps": 3, "seed": 1}),
    ):
        pass
    with pytest.raises(UsageError, match=r"command 'sft' .now 'rl'"), opened(tmp_path / "run", stage="rl"):
        pass


def test_restart_deletes_runs_and_nothing_else(tmp_path):
    with opened(tmp_path / "run") as run:
        run.log({"step": 1})
    with opened(tmp_path / "run", {"lr": 9}, restart=True) as run:
        assert run.metrics() == []
    other = tmp_path / "photos"
    other.mkdir()
    (other / "cat.jpg").write_bytes(b"cat")
    with pytest.raises(UsageError, match="is not a run of magcli"), opened(other, restart=True):
        pass
    assert (other / "cat.jpg").exists()


def test_a_run_killed_before_its_first_complete_file_can_start(tmp_path):
    path = tmp_path / "run"
    path.mkdir()
    (path / ".run.json.999999999.tmp").write_text('{"sta')
    with opened(path):
        pass
    assert json.loads((path / "run.json").read_text())["lr"] == 0.1


@pytest.mark.parametrize("text", ["{", "[" * 100_000], ids=["cut", "deep"])
def test_a_damaged_note_is_named(tmp_path, text):
    with opened(tmp_path / "run"):
        pass
    (tmp_path / "run" / "run.json").write_text(text)
    with pytest.raises(DataError, match=r"run\.json is damaged"), opened(tmp_path / "run"):
        pass


def test_a_second_process_is_refused_with_the_id_of_the_first(tmp_path):
    code = (
        "import sys, time; from pathlib import Path; from magcli.run.rundir import RunDir\n"
        "with RunDir.open(Path(sys.argv[1]), 'sft', {}, restart=False): print('in', flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "run")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout.readline() == "in\n"
            with pytest.raises(UsageError, match=f"process {other.pid} "), opened(tmp_path / "run", {}):
                pass
        finally:
            other.kill()
    with opened(tmp_path / "run", {}):
        pass


def test_rewinding_deletes_later_metrics_and_weights(tmp_path):
    with opened(tmp_path / "run") as run:
        for step in range(1, 6):
            run.log({"step": step})
        for step in (0, 2, 4):
            (run.trajectory / f"step-{step:06d}").mkdir(parents=True)
        with open(run.metrics_path, "a") as file:
            file.write('{"step": 6, "lo')
        run.rewind(3)
        assert [line["step"] for line in run.metrics()] == [1, 2, 3]
        assert sorted(folder.name for folder in run.trajectory.iterdir()) == ["step-000000", "step-000002"]
        run.log({"step": 4})
        assert run.metrics()[-1] == {"step": 4}


def test_numbers_missing_from_json_are_null(tmp_path):
    with opened(tmp_path / "run") as run:
        run.log({"step": 1, "loss": float("nan"), "norm": float("inf"), "lr": 0.1, "parts": {"a": float("nan")}})

    def refuse(constant):
        raise AssertionError(constant)

    line = json.loads(run.metrics_path.read_text(), parse_constant=refuse)
    assert line.pop("crc")
    assert line == {"step": 1, "loss": None, "norm": None, "lr": 0.1, "parts": {"a": None}}


def test_a_run_is_finished_when_its_model_is_complete(tmp_path):
    with opened(tmp_path / "run") as run:
        run.model.mkdir()
        assert not run.finished
        (run.model / "config.json").write_text("{}")
        assert run.finished


def made(path, stage, model, **more):
    """A finished run's folder, its records written by the run itself."""
    with RunDir.open(path, stage, {"model": str(model), "lr": 1e-5, "inputs": ["d1"], **more}, restart=False) as run:
        link = Link("clean-math", "1", {}, [Input("raw.jsonl", "d0", 9)], 9, 4, {"proof": 5})
        run.store_inputs([Input("kept.arrow", "d1", 4)], (link,))
        run.log({"step": 1})
        run.log({"step": 7})
    return path


def followed(folder, digest="m"):
    """The runs behind a run, where every model folder has one digest."""
    return lineage(folder, lambda _model, weights: digest if weights else "config", Console())


def test_runs_are_followed_back_to_the_first_model(tmp_path):
    sft = made(tmp_path / "sft", "sft", "owner/base")
    rl = made(tmp_path / "rl", "rl", sft / "model", model_sha256="m")
    first, second = followed(rl)
    assert (first.stage, first.started_from, second.stage, second.steps) == ("sft", "owner/base", "rl", 7)
    assert second.inputs == (Input("kept.arrow", "d1", 4),)
    assert second.history[0].dropped == {"proof": 5}
    assert second.options["model_sha256"] == "m"
    assert "inputs" not in second.options


def test_a_run_without_records_of_its_inputs_has_their_digests(tmp_path):
    run = made(tmp_path / "old", "sft", "owner/base")
    (run / "inputs.json").unlink()
    (found,) = followed(run)
    assert found.inputs == (Input("", "d1", 0),)
    assert found.history == ()


def test_a_folder_that_is_not_a_run_or_damaged_is_reported(tmp_path):
    with pytest.raises(DataError, match="is not the folder of a run"):
        followed(tmp_path)
    run = made(tmp_path / "run", "sft", "owner/base")
    for text in ("{", "[" * 100_000):
        (run / "inputs.json").write_text(text)
        with pytest.raises(DataError, match="records of this run are damaged"):
            followed(run)
    (run / "run.json").write_text(json.dumps({"command": "sft"}))
    with pytest.raises(DataError, match="records of this run are damaged"):
        followed(run)


def test_a_replaced_or_missing_run_is_left_out_with_a_warning(tmp_path, capsys):
    sft = made(tmp_path / "sft", "sft", "owner/base")
    rl = made(tmp_path / "rl", "rl", sft / "model", model_sha256="m")
    assert len(followed(rl)) == 2
    assert capsys.readouterr().err == ""
    assert [run.stage for run in followed(rl, "other")] == ["rl"]
    assert f"warning: {sft}/model, which {rl} started from, has changed since" in capsys.readouterr().err
    shutil.rmtree(sft)
    assert [run.stage for run in followed(rl)] == ["rl"]
    assert f"warning: {sft}/model, which {rl} started from, no longer exists" in capsys.readouterr().err


def test_a_run_from_scratch_does_not_depend_on_the_earlier_model(tmp_path):
    sft = made(tmp_path / "sft", "sft", "owner/base")
    anew = made(tmp_path / "anew", "sft", sft / "model", model_sha256="config", from_scratch=True)
    assert len(followed(anew)) == 2


def test_a_moved_model_is_the_same_and_its_new_place_is_recorded(tmp_path):
    settings = {"model": "m", "model_sha256": "ab", "reward": "f.py:score", "reward_sha256": "cd", "updates": 2}
    moved = {**settings, "model": str(tmp_path / "n"), "reward": "old/f.py:score"}
    with opened(tmp_path / "run", settings) as run:
        run.log({"step": 1})
        run.note("dtype", "fp32")
    with opened(tmp_path / "run", moved) as run:
        assert run.notes == {"dtype": "fp32"}
    recorded = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (recorded["model"], recorded["chosen"]) == (moved["model"], {"dtype": "fp32"})
    longer = {**moved, "model": "elsewhere", "updates": 4}
    with RunDir.open(tmp_path / "run", "sft", longer, restart=False, lengths=("updates",)):
        pass
    with pytest.raises(
        UsageError, match=r"other settings: model 'elsewhere' \(now 'x'\), model_sha256 'ab' \(now 'z'.*covers tokeni"
    ):
        opened(tmp_path / "run", {**longer, "model": "x", "model_sha256": "z"}).__enter__()
