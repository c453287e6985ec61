"""What `auto` chooses is reported once, recorded, and kept by a resumed run."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from calling import call_stage

from magcli.console import Console
from magcli.data import table
from magcli.errors import UsageError
from magcli.model import compute
from magcli.model.compute import Choice
from magcli.model.model import Model
from magcli.plan.formats import Formats
from magcli.run.job import Drops, Job
from magcli.run.journal import Journal
from magcli.run.rundir import RunDir
from magcli.run.types import Result
from magcli.stages import generate
from magcli.stages.shared import engines, run_folder

TRACES = [{"prompt": f"{number}?", "completion": "<think></think>\\boxed{1}"} for number in range(12)]
SFT = {"epochs": 2, "step_tokens": 128, "lr": 1e-3, "system": Path("none"), "checkpoint_every": 1}


def lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def machine(monkeypatch, format):
    """A machine that is faster in a format."""
    monkeypatch.setattr(compute, "choose", lambda *_: Choice(format, "a test says so"))
    monkeypatch.setattr(compute, "use_threads", lambda *_: 1)


def chosen(run):
    return json.loads((run / "run.json").read_text())["chosen"]


def test_sft_reports_and_records_what_auto_selects(tiny_model_dir, tmp_path, monkeypatch, capsys):
    given, out = lines(tmp_path / "traces.jsonl", TRACES), tmp_path / "metrics.arrow"
    machine(monkeypatch, "fp32")
    call_stage("sft", given, model=str(tiny_model_dir), run=tmp_path / "run", output=out, quiet=False, **SFT)
    assert capsys.readouterr().err.count("sft: bf16 no (a test says so)") == 1
    plan = "the run trains in fp32, in micro-batches of up to 8,192 tokens"
    assert chosen(tmp_path / "run") == {"bf16": "no", "thoughts": "think", "plan": plan, "micro_tokens": "8192"}
    assert table.read(str(out)).chain[-1].config["chosen"] == {"bf16": "no", "thoughts": "think"}


def test_a_run_says_with_which_plan_it_is_resumed_if_it_had_another(tiny_model_dir, tmp_path, capsys):
    given, run = lines(tmp_path / "traces.jsonl", TRACES), tmp_path / "run"

    def train(epochs, bf16):
        options = SFT | {"epochs": epochs, "bf16": bf16}
        call_stage("sft", given, model=str(tiny_model_dir), run=run, quiet=False, **options)
        return capsys.readouterr().err

    micro_batches = "in micro-batches of up to 8,192 tokens"
    assert "another plan" not in train(1, "no")
    said = train(2, "yes")
    assert (
        f"another plan: the run trains in bf16, {micro_batches}; before, the run trains in fp32, {micro_batches}"
        in said
    )
    assert "another plan" not in train(3, "yes")


@pytest.fixture
def job():
    return Job("rl", Console(quiet=True), Drops(keep=False))


def resolved(folder, job, *, exact=False, **asked):
    """The formats of a run with these options; those that are not given are auto."""
    return run_folder.resolve_formats(
        {"bf16": "auto", "dtype": "auto"} | asked, Model.open("m"), "cpu", folder, job, exact=exact
    )


def test_a_resumed_run_keeps_its_formats_unless_overridden(tmp_path, monkeypatch, job):
    def opened(machine_format, **options):
        machine(monkeypatch, machine_format)
        with RunDir.open(tmp_path / "run", "rl", {}, restart=False) as folder:
            found = resolved(folder, job, **options)
            folder.log({"step": 1})
            return found

    assert opened("fp32") == Formats(False, "fp32")
    assert opened("bf16") == Formats(False, "fp32")
    assert opened("bf16", dtype="bf16") == Formats(False, "bf16")
    assert opened("fp32") == Formats(False, "bf16")
    assert chosen(tmp_path / "run") == {"bf16": "no", "dtype": "bf16"}
    (tmp_path / "run" / "model").mkdir()
    (tmp_path / "run" / "model" / "config.json").write_text("{}")
    assert opened("fp32") == Formats(False, "bf16")
    assert job.chosen == {"bf16": "no", "dtype": "bf16"}
    with pytest.raises(UsageError, match=r"holds a run with bf16 'no' .now 'yes'."):
        opened("bf16", bf16="yes")


def test_formats_of_training_and_sampling_are_reported_together(tmp_path, monkeypatch, capsys):
    machine(monkeypatch, "fp32")
    with RunDir.open(tmp_path / "run", "rl", {}, restart=False) as folder:
        resolved(folder, Job("rl", Console(), Drops(keep=False)))
    assert capsys.readouterr().err == "rl: bf16 no (a test says so), dtype fp32 (a test says so)\n"


def test_a_synchronous_run_is_float32_on_every_machine(tmp_path, monkeypatch, job):
    machine(monkeypatch, "bf16")
    with RunDir.open(tmp_path / "run", "rl", {}, restart=False) as folder:
        found = resolved(folder, job, exact=True)
    assert found == Formats(False, "fp32")


def test_unfinished_rows_keep_their_initial_format(tmp_path, monkeypatch, job):
    rows = pa.schema([("id", pa.string())])
    unit = Result(pa.RecordBatch.from_pylist([{"id": "a"}], rows))

    def opened(machine_format, identity, asked="auto"):
        machine(monkeypatch, machine_format)
        job.journal = Journal.open(tmp_path / ".rows.journal", rows, identity)
        found = engines.sampling_format(Model.open("m"), generate.Config(model="m", dtype=asked), job)
        there = "a" in job.journal
        job.journal.put("a", unit)
        job.journal.close()
        return found, there

    assert opened("fp32", {"seed": 0}) == ("fp32", False)
    assert opened("bf16", {"seed": 0}) == ("fp32", True)
    (tmp_path / ".rows.journal").unlink()
    assert opened("bf16", {"seed": 1}) == ("bf16", False)


def test_an_obsolete_unfinished_table_passes_on_no_format(tmp_path):
    rows = pa.schema([("id", pa.string())])
    begun = Journal.open(tmp_path / ".rows.journal", rows, {"seed": 0})
    begun.note("dtype", "bf16")
    begun.close()
    again = Journal.open(tmp_path / ".rows.journal", rows, {"seed": 1})
    again.close()
    assert again.notes == {}
