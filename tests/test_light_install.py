"""`pip install .`, without the extra `train`: data and grading work; what loads a model says what to add."""

import json
import shutil
import subprocess
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ("pyproject.toml", "README.md", "LICENSE")
OFFLINE = ("Failed to establish a new connection", "Temporary failure in name resolution", "Network is unreachable")


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new virtual environment with magcli and its base dependencies, at the versions of constraints.txt."""
    folder = tmp_path_factory.mktemp("light")
    source = folder / "source"
    shutil.copytree(ROOT / "magcli", source / "magcli", ignore=shutil.ignore_patterns("__pycache__"))
    for name in SOURCES:
        shutil.copy(ROOT / name, source / name)
    venv.create(folder / "venv", with_pip=True)
    command = [str(folder / "venv" / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-compile"]
    command += ["--disable-pip-version-check", "-c", str(ROOT / "constraints.txt"), str(source)]
    installed = subprocess.run(command, capture_output=True, text=True, timeout=500)
    if any(message in installed.stderr for message in OFFLINE):
        pytest.skip("the package index cannot be reached")
    assert installed.returncode == 0, installed.stderr
    return folder / "venv"


def run(environment: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [str(environment / "bin" / "magcli"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=400)


def test_pytorch_is_not_installed(environment: Path) -> None:
    command = [str(environment / "bin" / "python"), "-c", "import torch"]
    assert subprocess.run(command, capture_output=True, timeout=400).returncode != 0


def test_problems_and_completions_go_through_the_data_stages(environment: Path, tmp_path: Path) -> None:
    problem = {"prompt": "What is 2 + 3?", "answer": "5"}
    completions = [r"<think>2 + 3 = 5</think> \boxed{5}", r"<think>2 + 3 = 6</think> \boxed{6}"]
    problems = tmp_path / "problems.jsonl"
    rollouts = tmp_path / "rollouts.jsonl"
    problems.write_text(json.dumps(problem) + "\n")
    rollouts.write_text("".join(json.dumps(problem | {"completion": text}) + "\n" for text in completions))
    graded = tmp_path / "graded.jsonl"

    commands = [
        ("clean-math", str(problems), "-o", str(tmp_path / "clean.arrow")),
        ("convert", str(tmp_path / "clean.arrow"), "-o", str(tmp_path / "clean.parquet")),
        ("grade", str(rollouts), "--no-language", "-o", str(graded)),
        ("evaluate", str(graded), "-o", str(tmp_path / "metrics.arrow")),
        ("cold-start", str(graded), "-o", str(tmp_path / "traces.arrow")),
        ("report", str(graded), "-o", str(tmp_path / "report.html")),
    ]
    for command in commands:
        finished = run(environment, *command)
        assert finished.returncode == 0, (command, finished.stderr)

    rows = [json.loads(line) for line in graded.read_text().splitlines()]
    assert [row["correct"] for row in rows] == [True, False]


def test_a_stage_that_loads_a_model_names_the_extra(environment: Path, tmp_path: Path) -> None:
    traces = tmp_path / "traces.jsonl"
    traces.write_text(json.dumps({"prompt": "2+3", "completion": r"<think>5</think> \boxed{5}"}) + "\n")
    model = str(ROOT / "examples" / "model")
    for command in (
        ("sft", str(traces), "--model", model, "--run", str(tmp_path / "run")),
        ("generate", str(traces), "--model", model, "-o", str(tmp_path / "out.arrow")),
    ):
        finished = run(environment, *command)
        assert finished.returncode == 4, finished.stderr
        assert finished.stderr.splitlines()[-1].endswith("which is not installed: pip install 'magcli[train]'")
        assert "Traceback" not in finished.stderr


def test_what_only_the_hub_needs_is_not_installed_and_named(environment: Path, tmp_path: Path) -> None:
    """`datasets`, with pandas, is the extra `hub`: asked for before the work, and not where a file is misspelt."""
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps({"prompt": "2+3", "answer": "5"}) + "\n")
    folder = run(environment, "convert", str(rows), "-o", str(tmp_path / "folder"))
    assert folder.returncode == 4
    assert folder.stderr.splitlines()[-1].endswith("datasets, which is not installed: pip install 'magcli[hub]'")
    hub = run(environment, "convert", "nobody/none", "-o", str(tmp_path / "out.jsonl"))
    assert hub.returncode == 4
    assert "not a local file or folder; to read data sets of the hub: pip install 'magcli[hub]'" in hub.stderr
    for package in ("datasets", "pandas", "PIL"):
        command = [str(environment / "bin" / "python"), "-c", f"import {package}"]
        assert subprocess.run(command, capture_output=True, timeout=400).returncode != 0, package


def test_doctor_passes_and_says_what_torch_would_add(environment: Path) -> None:
    finished = run(environment, "doctor")
    assert "torch is not installed" in finished.stdout
    assert "device" not in finished.stderr, "a light installation is no fault"
