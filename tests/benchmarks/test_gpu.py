"""`make gpu` as far as it goes without a GPU."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.gpu import __main__ as command
from benchmarks.gpu import memory, parts, race, runs
from benchmarks.gpu.__main__ import Outcome, main, markdown
from benchmarks.gpu.race import Skipped
from benchmarks.gpu.runs import COMMON, FULL, SMALL, Failed, Measured, Setup
from benchmarks.rl import trl_child
from magcli.config import options_of
from magcli.stages.rl.config import Config

SETUP = Setup("cuda:1", False, "m", Path("problems"), Path("runs"), Path("nowhere"))
GOOD = Measured(median=1e-4, tail=1e-3, in_flight=0.4, rate=1000.0, peak=3 << 30, forecast=2 << 30)


def test_without_a_gpu_it_is_one_line_and_exit_code_4(capsys):
    assert main([]) == 4
    assert capsys.readouterr().err.count("\n") == 1


def test_an_unknown_part_is_refused(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--device", "cpu", "nothing"])
    assert ended.value.code == 2
    assert "unknown part nothing" in capsys.readouterr().err


def test_the_parts_that_need_no_gpu_run_on_a_cpu(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["--device", "cpu", "--small", "install", "lora", "embedded"]) == 0, capsys.readouterr().err
    lines = (tmp_path / "gpu.md").read_text().splitlines()
    assert [line.split("|")[1:3] for line in lines[4:]] == [[f" {name} ", " passed "] for name in
                                                            ("install", "lora", "embedded")]  # fmt: skip
    assert lines == capsys.readouterr().out.splitlines()
    assert "log-probs differ by" in lines[5]
    assert "MiB" in lines[5]


@pytest.mark.slow
def test_vllm_runs_on_a_cpu_too(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["--device", "cpu", "--small", "vllm"]) == 0, capsys.readouterr().err


def test_a_failed_part_is_in_the_table_and_the_others_run(tmp_path, monkeypatch, capsys):
    def fails(setup: Setup) -> str:
        raise Failed("exit code 1: a | b")

    runs = []

    def passes(setup: Setup) -> str:
        runs.append(setup)
        return "fine"

    def skips(setup: Setup) -> str:
        raise Skipped("no TRL")

    monkeypatch.setattr(command, "FIRST", {"one": fails, "two": passes, "three": skips})
    options = ["--device", "cpu", "--small", "--output", str(tmp_path / "t.md")]
    for _ in range(2):
        assert main(options) == 1
        table = (tmp_path / "t.md").read_text()
        assert "| one | **failed** | 0 | exit code 1: a \\| b |" in table
        assert "| two | passed | 0 | fine |" in table
        assert "| three | skipped | 0 | no TRL |" in table
    assert len(runs) == 1, "what passed is not repeated"
    monkeypatch.setattr(command, "_key", lambda options: "other sources")
    assert main(options) == 1
    assert len(runs) == 2
    (tmp_path / "t.json").write_text("{}")
    assert main(options) == 1
    assert len(runs) == 3


def test_a_cpu_leaves_out_what_needs_cuda():
    on_gpu, on_cpu = command._chosen([], on_gpu=True), command._chosen([], on_gpu=False)
    assert on_gpu == parts.FIRST
    assert set(on_gpu) - set(on_cpu) == set(parts.ONLY_ON_GPUS) & set(parts.FIRST)


def test_the_parts_end_within_twelve_minutes(monkeypatch, tmp_path):
    assert (len(parts.FIRST) - 1) * parts.SECONDS <= 12 * 60, "the part install takes no time"
    limits = []
    monkeypatch.setattr(runs.time, "monotonic", lambda: 0.0)
    command._outcome("vllm", lambda setup: limits.append(setup.seconds_left) or "", SETUP)
    assert limits == [parts.SECONDS]


def test_a_command_that_takes_too_long_is_ended_and_named(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    assert runs._wait(process, 0.1) is None
    assert process.poll() is not None
    with pytest.raises(Failed, match="magcli doctor had 0 s, which were not enough"):
        runs.call(["doctor"], seconds=0.01)


def test_the_table_names_the_machine():
    table = markdown([Outcome("vllm", "passed", "ok", 12.3)], "a card")
    assert table.splitlines()[0] == "Measured on a card:"
    assert table.splitlines()[-1] == "| vllm | passed | 12 | ok |"


@pytest.mark.parametrize(("tail", "in_flight", "message"), [(0.6, 0.4, "differ"), (0.1, 0.0, "was in flight")])
def test_vllm_must_agree_and_take_weights_in_flight(tail, in_flight, message, monkeypatch):
    found = Measured(1e-4, tail, in_flight, 1.0, 1, 1)
    monkeypatch.setattr(parts, "measure", lambda setup, name, **options: found)
    with pytest.raises(Failed, match=message):
        parts.vllm(SETUP)
    monkeypatch.setattr(parts, "measure", lambda setup, name, **options: GOOD)
    assert "peak 3.0 GiB; the dry run foresees 2.0 GiB" in parts.vllm(SETUP)


def test_every_option_of_the_runs_exists():
    """The parts that no CPU runs would fail on a card for a flag that was renamed."""
    asked: dict[str, object] = {**FULL, **SMALL, **COMMON}

    def measured(setup: Setup, name: str, **options: object) -> Measured:
        asked.update(options)
        return GOOD

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "measure", measured)
        for part in (parts.embedded, parts.vllm, parts.asleep, parts.lora, parts.offload, parts.varlen):
            part(SETUP)
    assert {"vllm_sleep", "lora", "offload", "attention"} <= asked.keys()
    assert asked.keys() <= {field.name for field in options_of(Config)}


def test_a_run_that_fails_says_why(tmp_path):
    with pytest.raises(Failed, match=r"exit code 2: .*No such command"):
        runs.call(["nothing"], seconds=300)
    with pytest.raises(race.Skipped, match=r"nowhere is missing: make \.venv-trl/\.done installs TRL there"):
        race.trl(SETUP)


def test_the_peak_of_a_gpu_is_what_was_added_to_what_was_in_use(tmp_path, monkeypatch):
    fake = tmp_path / "nvidia-smi"
    fake.write_text(f"#!{sys.executable}\nimport time\nfor n in (500, 'busy', 900, 700): print(n, flush=True)\n"
                    "time.sleep(60)\n")  # fmt: skip
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with memory.of_gpu(0) as peak:
        while not peak.size:
            time.sleep(0.01)
    assert peak.size == 400 << 20
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    with memory.of_gpu(0) as unknown:
        pass
    assert unknown.size == 0


def test_trl_gets_vllm_on_the_trainers_gpu():
    spec = {"vllm": True, "gpu_memory": 0.35, "context": 1024}
    assert trl_child._colocated(spec) == {
        "use_vllm": True,
        "vllm_mode": "colocate",
        "vllm_gpu_memory_utilization": 0.35,
        "vllm_max_model_length": 1024,
    }
    assert trl_child._colocated({}) == {}
