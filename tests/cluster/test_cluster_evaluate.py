"""``evaluate --cluster``: engines on a local Ray sample, the command grades."""

import os
import signal
import time
from pathlib import Path

import pytest
from calling import call_stage, start_stage
from test_data_stages import descendants, problems, rows_of

from magcli.errors import UsageError

__all__ = ["problems"]  # a fixture

ASK = {"max_tokens": 24, "system": Path("none"), "deterministic": True, "anywhere": True}


def test_the_metrics_are_those_of_one_process(guesser, problems, tmp_path):
    options = {**ASK, "samples": 4, "model": str(guesser)}
    call_stage("evaluate", problems, output=tmp_path / "here.arrow", **options)
    call_stage("evaluate", problems, output=tmp_path / "there.arrow", cluster="local", **options)
    assert rows_of(tmp_path / "there.arrow") == rows_of(tmp_path / "here.arrow")


@pytest.mark.slow
def test_an_engine_that_dies_is_replaced(guesser, problems, tmp_path):
    options = {**ASK, "samples": 64, "model": str(guesser)}
    call_stage("evaluate", problems, output=tmp_path / "here.arrow", **options)
    there = tmp_path / "there.arrow"
    process = start_stage("evaluate", problems, output=there, cluster="local", **options)
    assert _engine_killed(process, tmp_path / ".there.arrow.completions.journal")
    process.join(240)
    assert process.exitcode == 0
    assert rows_of(there) == rows_of(tmp_path / "here.arrow")


def _engine_killed(process, journal):
    """Kill the engine once a problem is finished; returns whether there was one."""
    heading = None
    while process.is_alive():
        size = journal.stat().st_size if journal.exists() else 0
        heading = heading or size  # what the journal has before the engine starts
        if size > heading:
            for child, line in descendants(process.pid).items():
                if line.startswith("ray::ServiceActor"):
                    os.kill(child, signal.SIGKILL)
                    return True
        time.sleep(0.01)
    return False


@pytest.mark.parametrize(("options", "message"), [({}, "--model"), ({"model": "http://localhost:1/v1#m"}, "a server")])
def test_engines_need_weights(problems, tmp_path, options, message):
    with pytest.raises(UsageError, match=message):
        call_stage("evaluate", problems, output=tmp_path / "out.arrow", cluster="local", **options)
