"""What the README, the examples and the recipes say is run as it stands."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from magcli.cli import STAGES
from magcli.stages.report import labels

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
ENVIRONMENT = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
SMALL = """
[grade]
language = false
[cold-start]
system = "none"
[sft]
max_steps = 120
lr = 2e-3
step_tokens = 940
bf16 = "no"
system = "none"
[filter-math]
samples = 4
keep = "0..0.99"
max_tokens = 40
slots = 256
system = "none"
[rl]
updates = 4
group = 4
n_async = 64
n_batch = 32
n_mini = 32
lr = 5e-5
diverse_by = "reward"
max_tokens = 40
max_length = 40
language = false
system = "none"
dtype = "fp32"
[evaluate]
samples = 1
max_tokens = 40
slots = 256
system = "none"
[landscape]
points = 4
samples = 2
max_tokens = 40
language = false
system = "none"
dtype = "fp32"
"""


def run(command: str, cwd: Path, timeout: int = 240) -> subprocess.CompletedProcess[str]:
    """Run a line of shell as a user would, the project's own tools first on the path."""
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        cwd=cwd,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def test_readme_lists_every_stage_and_no_other() -> None:
    table = README.split("## Stages")[1].split("\n\n")[1]
    assert re.findall(r"^\| `([\w-]+)` \|", table, re.M) == sorted(
        (entry.name for entry in STAGES), key=re.findall(r"^\| `([\w-]+)` \|", table, re.M).index
    )


def test_readme_exit_codes_are_those_of_the_errors() -> None:
    from magcli import errors

    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.MagError)]
    told = README.split("Exit codes:")[1]
    assert all(re.search(rf"^\| {kind.exit_code} \|", told, re.M) for kind in kinds)


def test_readme_pipe_runs_as_written() -> None:
    block = README.split("## One pipe")[1].split("```")[1]
    done = run(block.replace("source .venv/bin/activate\n", ""), ROOT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("16 rows\n")


@pytest.mark.parametrize("heading", ["Your data, your model", "Evaluation"])
def test_readme_commands_resolve(heading: str, tmp_path: Path) -> None:
    block = README.split(f"## {heading}\n")[1].split("```")[1]
    commands = [line.split("#")[0].strip() for line in block.splitlines() if line.startswith("magcli ")]
    assert len(commands) >= 3
    done = run(" && ".join(f"{command} --dry-run" for command in commands), tmp_path)
    assert done.returncode == 0, done.stderr
    assert not any(tmp_path.iterdir())


def test_readme_reproduces_by_comparisons_that_there_are() -> None:
    from tests.peers.__main__ import AVX2, COMPARISONS, EMULATED

    named = [name for line in re.findall(r"tests\.peers ([a-z0-9 -]+)`", README) for name in line.split()]
    assert len(named) > 10
    assert set(named) <= {*COMPARISONS, *(name + AVX2 for name in EMULATED)}


@pytest.mark.parametrize("name", ["pipe.sh", "resume.sh", "reward.py"])
def test_examples_run(name: str) -> None:
    done = run(f"{sys.executable if name.endswith('.py') else 'bash'} {name}", ROOT / "examples")
    assert done.returncode == 0, done.stderr
    assert {"pipe.sh": "16 rows", "resume.sh": "the same bytes", "reward.py": "correct"}[name] in done.stdout


def commands_of(recipe: str, target: str) -> list[str]:
    """Every magcli command that a recipe's target would run."""
    listed = run(f"make -n --no-print-directory -C recipes/{recipe} {target} MAGCLI=magcli OUT=out-of-tests", ROOT)
    assert listed.returncode == 0, listed.stderr
    text = listed.stdout.replace("\\\n", " ")
    return [part.strip() for line in text.splitlines() for part in line.split("|") if part.strip().startswith("magcli")]


@pytest.mark.parametrize(
    ("recipe", "target"),
    [("tiny", "demo"), ("tiny", "learning"), ("tiny", "languages"), ("smollm2", "all"), ("magistral-small", "all")],
)
def test_every_command_of_the_recipes_resolves(recipe: str, target: str) -> None:
    commands = commands_of(recipe, target)
    stages = {shlex.split(command)[1] for command in commands}
    assert {"sft", "rl", "evaluate", "report"} <= stages
    asked = " && ".join(f"{command} --dry-run" for command in dict.fromkeys(commands))
    done = run(asked, ROOT / "recipes" / recipe)
    assert done.returncode == 0, done.stderr
    assert not (ROOT / "recipes" / recipe / "out-of-tests").exists()


def test_the_tiny_recipe_runs_from_problems_to_landscape(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(SMALL, encoding="utf-8")
    variables = f"RECIPE={tmp_path}/small.toml OUT={tmp_path}/out TRAJECTORY=2 MAGCLI=magcli"
    done = run(f"make -C recipes/tiny demo {variables}", ROOT)
    assert done.returncode == 0, done.stderr
    assert "eval-rl" in done.stdout
    assert (tmp_path / "out" / "landscape" / "landscape.png").stat().st_size > 10_000
    again = run(f"make -C recipes/tiny demo {variables}", ROOT)
    assert "magcli sft" not in again.stdout, "nothing is made twice"


def test_labels_are_what_tells_paths_apart() -> None:
    assert labels(("out/a/0/sft.arrow", "out/a/1/rl.arrow")) == ["0/sft", "1/rl"]
    assert labels(("out/eval.arrow",)) == ["eval"]
