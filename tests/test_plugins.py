"""Stages of other packages: an installed entry point is a command like magcli's own."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A folder with an installed package: the example's stage, one without ``run``, and one named like magcli's."""
    shutil.copy(EXAMPLES / "stage.py", tmp_path / "own_stage.py")
    (tmp_path / "half_stage.py").write_text('"""A stage without a configuration."""\n')
    metadata = tmp_path / "own_stages-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: own-stages\nVersion: 1.0\n")
    points = "[magcli.stages]\nshort = own_stage\nhalf = half_stage\nabsent = no_such_module\ngrade = own_stage\n"
    (metadata / "entry_points.txt").write_text(points)
    return tmp_path


def magcli(package: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    search = os.pathsep.join(filter(None, [str(package), os.environ.get("PYTHONPATH", "")]))
    environment = os.environ | {"PYTHONPATH": search}
    command = [sys.executable, "-m", "magcli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=package, timeout=400)


def write_problems(folder: Path) -> Path:
    table = folder / "problems.jsonl"
    rows = [{"id": "a", "prompt": "2 + 3"}, {"id": "b", "prompt": "What is the sum of 2 and 3?"}]
    table.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return table


def test_the_example_is_a_stage_of_at_most_25_lines_of_code() -> None:
    source = (EXAMPLES / "stage.py").read_text(encoding="utf-8")
    body = source.partition("@dataclass")[2]
    code = [line for line in body.splitlines() if line.strip() and not line.strip().startswith('"""')]
    assert len(code) <= 25, "\n".join(code)


def test_help_lists_the_stages_of_other_packages(package: Path) -> None:
    done = magcli(package, "--help")
    assert done.returncode == 0
    assert "Other packages" in done.stdout
    assert "short" in done.stdout
    assert "the stage half of half_stage cannot be loaded" in done.stderr
    assert "the stage absent of no_such_module cannot be loaded" in done.stderr
    assert "the stage grade of own_stage is left out: magcli has one of that name" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_stage_whose_package_is_missing_says_what_to_install(package: Path) -> None:
    hidden = "import importlib.metadata as m; m.entry_points = lambda **_: m.EntryPoints(); import magcli.cli as c; "
    for arguments, code in ((["simulate", "machine.toml"], 4), (["--help"], 0)):
        command = [sys.executable, "-c", f"{hidden}import sys; sys.argv[0] = 'magcli'; c.main()", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, cwd=package, timeout=400)
        assert done.returncode == code, done.stderr
        assert ("is not installed: pip install plugins/magcli-simulate" in done.stderr) is (code == 4)
        assert done.stderr.count("\n") == (code == 4)


def test_a_stage_of_another_package_that_cannot_be_loaded_is_an_error(package: Path) -> None:
    done = magcli(package, "half", "problems.jsonl")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "the stage half of half_stage cannot be loaded" in done.stderr


def test_such_a_stage_drops_rows_with_their_reason(package: Path) -> None:
    write_problems(package)
    done = magcli(package, "short", "problems.jsonl", "--words", "3", "-o", "short.jsonl", "--dropped", "long.jsonl")
    assert done.returncode == 0, done.stderr
    kept = [json.loads(line) for line in (package / "short.jsonl").read_text().splitlines()]
    (long,) = [json.loads(line) for line in (package / "long.jsonl").read_text().splitlines()]
    assert [row["id"] for row in kept] == ["a"]
    assert (long["id"], long["drop_reason"], long["words"]) == ("b", "too-long", 8)


def test_such_a_stage_has_shards_and_a_table_in_a_recipe(package: Path) -> None:
    write_problems(package)
    (package / "recipe.toml").write_text("[short]\nwords = 3\n")
    tables = ("--recipe", "recipe.toml", "--allow-empty")
    first = magcli(package, "short", "problems.jsonl", *tables, "--shard", "1/2", "-o", "1.jsonl")
    second = magcli(package, "short", "problems.jsonl", *tables, "--shard", "2/2", "-o", "2.jsonl")
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert (package / "1.jsonl").read_text().count("\n") == 1
    assert (package / "2.jsonl").read_text() == ""

    other_stage = magcli(package, "convert", "problems.jsonl", "--recipe", "recipe.toml", "-o", "all.jsonl")
    assert other_stage.returncode == 0, other_stage.stderr
