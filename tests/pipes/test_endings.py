"""SIGINT and SIGTERM end a stage within two seconds: in a template that loops, in a backward pass, in a pipe."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path

import pytest
from calling import quiet
from forking import Running

MAGCLI = [sys.executable, "-m", "magcli"]
ENDING = [signal.SIGINT, signal.SIGTERM]
LOOPS = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
LONG = "{{ 10 ** (10 ** 9) }}"
"""Takes hours, in one call that keeps the interpreter's lock."""


def start(module: str, name: str, *arguments: object) -> Running:
    """Start a command, and return a moment after it has called a function."""
    process = Running(*arguments, place=(module, name), env=quiet(), session=True)
    errors = list(takewhile(lambda line: line != b"reached\n", process.stderr))
    assert process.poll() is None, errors
    time.sleep(0.5)
    return process


def seconds_to_end(process: Running, number: signal.Signals, code: Sequence[int]) -> float:
    """Send a signal to a process that has one thing to say on it."""
    begun = time.monotonic()
    process.send_signal(number)
    process.wait(60)
    seconds = time.monotonic() - begun
    errors = process.communicate(timeout=400)[1].decode().replace("reached\n", "")
    assert process.returncode in code, errors
    assert errors.splitlines()[-1] == f"error: ended by {number.name}; the same command resumes from finished work"
    assert "Traceback" not in errors
    return seconds


@pytest.mark.flaky(reruns=2)
@pytest.mark.parametrize(
    ("template", "number"), [(LOOPS, signal.SIGINT), (LOOPS, signal.SIGTERM), (LONG, signal.SIGTERM)]
)
def test_a_signal_ends_a_template_that_loops(
    tmp_path: Path, tiny_model_dir: Path, template: str, number: signal.Signals
) -> None:
    model = shutil.copytree(tiny_model_dir, tmp_path / "model")
    (model / "chat_template.jinja").write_text(template)
    (tmp_path / "a.jsonl").write_text('{"id": "a", "prompt": "1+1?", "answer": "2"}\n')
    process = start(
        "magcli.model.chat.prompts",
        "Deadline.run",
        *("generate", tmp_path / "a.jsonl", "--model", model, "-o", tmp_path / "out.jsonl"),
    )
    codes = (128 + number,) if template == LOOPS else (128 + number, -number)
    assert seconds_to_end(process, number, codes) < 2
    assert not (tmp_path / "out.jsonl").exists()


@pytest.fixture(scope="module")
def heavy(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose backward pass over a few thousand tokens takes tens of seconds."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    folder = tmp_path_factory.mktemp("heavy")
    AutoTokenizer.from_pretrained(tiny_model_dir).save_pretrained(folder)
    config = AutoConfig.from_pretrained(tiny_model_dir)
    config.hidden_size, config.intermediate_size, config.head_dim = 1024, 8192, 256
    with torch.random.fork_rng():
        torch.manual_seed(0)
        AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(folder)
    return folder


@pytest.mark.flaky(reruns=2)
def test_a_signal_ends_a_long_backward_pass(tmp_path: Path, heavy: Path) -> None:
    row = json.dumps({"prompt": "Count.", "completion": "1, 2, 3. " * 40})
    (tmp_path / "a.jsonl").write_text(f"{row}\n" * 8)
    options = ["--run", tmp_path / "run", "--step-tokens", "8192", "--bf16", "no", "--system", "none"]
    process = start("torch", "Tensor.backward", "sft", tmp_path / "a.jsonl", "--model", heavy, *options)
    assert seconds_to_end(process, signal.SIGTERM, (128 + signal.SIGTERM,)) < 2
    assert not (tmp_path / "run" / "model").exists()


def handles(pid: int, number: int) -> bool:
    """Whether a process has a handler for a signal; that for SIGTERM comes last."""
    status = Path(f"/proc/{pid}/status").read_text()
    return bool(int(re.search(r"SigCgt:\s*(\w+)", status)[1], 16) & 1 << number - 1)


@pytest.mark.flaky(reruns=2)
@pytest.mark.parametrize("number", ENDING)
@pytest.mark.parametrize("whom", ["all", "first", "second"])
def test_a_signal_ends_the_stages_of_a_pipe(tmp_path: Path, number: signal.Signals, whom: str) -> None:
    os.mkfifo(tmp_path / "rows.jsonl")
    stages = [["convert", "rows.jsonl"], ["convert"], ["convert", "-o", "out.arrow"]]
    processes: list[subprocess.Popen[bytes]] = []
    for stage in stages:
        given = processes[-1].stdout if processes else subprocess.DEVNULL
        out = subprocess.PIPE if len(processes) < 2 else subprocess.DEVNULL
        process = subprocess.Popen(
            [*MAGCLI, *stage], cwd=tmp_path, stdin=given, stdout=out, stderr=subprocess.PIPE, env=quiet()
        )
        processes.append(process)
    for process in processes[:2]:
        process.stdout.close()
    with open(tmp_path / "rows.jsonl", "w") as rows:
        rows.write("".join(json.dumps({"id": str(i), "text": "x" * 400}) + "\n" for i in range(20_000)))
        rows.flush()
        while not all(handles(process.pid, signal.SIGTERM) for process in processes):
            time.sleep(0.01)
        begun = time.monotonic()
        sent = processes if whom == "all" else [processes[["first", "second"].index(whom)]]
        for process in sent:
            process.send_signal(number)
        for process in sent:
            assert process.wait(60) == 128 + number
        assert time.monotonic() - begun < 2
    codes = [process.wait(60) for process in processes]
    errors = []
    for process in processes:
        with process.stderr as pipe:
            errors.append(pipe.read().decode())
    assert "Traceback" not in "".join(errors)
    if whom != "all":
        assert codes == ([128 + number, 3, 3] if whom == "first" else [141, 128 + number, 3]), errors
    assert not (tmp_path / "out.arrow").exists()
