import json
import shutil

import pytest

from magcli.console import Console
from magcli.data.manifest import Input, Link
from magcli.errors import DataError
from magcli.run.lineage import lineage
from magcli.run.rundir import RunDir


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
    (run / "inputs.json").write_text("{")
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
