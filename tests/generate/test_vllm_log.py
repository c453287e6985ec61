"""What vLLM's processes print is kept for one line about a failure."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from magcli.generate.vllm.start import cause_in, stderr_into

LOG = """(Worker pid=7) ERROR 11-25 20:30:25 [multiproc_executor.py:953] Traceback (most recent call last):
(Worker pid=7) ERROR 11-25 20:30:25 [multiproc_executor.py:953]     raise ValueError(
(Worker pid=7) ERROR 11-25 20:30:25 [multiproc_executor.py:953] ValueError: Available memory on node 0 is too small.
(EngineCore pid=6) ERROR 11-25 20:30:31 [core.py:1510] RuntimeError: Engine core initialization failed.
Exception: WorkerProc initialization failed due to an exception in a background process.
"""


def test_the_first_exception_is_the_cause(tmp_path: Path) -> None:
    log = tmp_path / "stderr.log"
    log.write_text(LOG)
    assert cause_in(log) == "ValueError: Available memory on node 0 is too small."
    log.write_text("torch.OutOfMemoryError: CUDA out of memory.\n")
    assert cause_in(log) == "torch.OutOfMemoryError: CUDA out of memory."
    log.write_text("a warning: nothing else\n")
    assert cause_in(log) == ""
    assert cause_in(tmp_path / "missing") == ""


def test_only_processes_that_start_meanwhile_write_into_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("VLLM_LOGGING_LEVEL", raising=False)
    child = [sys.executable, "-c", "import os; os.write(2, b'from the engine')"]
    log = tmp_path / "stderr.log"
    with stderr_into(log):
        subprocess.run(child, check=True)
    os.write(2, b"from magcli")
    assert log.read_text() == "from the engine"
    assert capfd.readouterr().err == "from magcli"

    monkeypatch.setenv("VLLM_LOGGING_LEVEL", "INFO")
    with stderr_into(log):
        subprocess.run(child, check=True)
    assert capfd.readouterr().err == "from the engine"
