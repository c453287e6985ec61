"""The whole recipe `tiny`, from its problems to the picture of the landscape, at a small size."""

import shutil
import subprocess
from pathlib import Path

from forking import magcli_for_scripts

ROOT = Path(__file__).parent.parent
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
group_size = 4
n_async = 64
n_batch = 32
n_mini = 32
lr = 5e-5
diverse_by = "reward"
max_tokens = 40
penalty_end = 40
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


def made(tiny: Path, tmp_path: Path, program: Path) -> str:
    """Make the target `demo`, and return what it printed."""
    command = [
        "make",
        "-C",
        tiny,
        "demo",
        f"RECIPE={tmp_path}/small.toml",
        f"OUT={tmp_path}/out",
        "TRAJECTORY=2",
        "GRADER_UPDATES=4",
    ]
    command += [f"MAGCLI={program}"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_tiny_recipe_runs_from_problems_to_landscape(tmp_path: Path) -> None:
    """On a fifth of its problems, which are the most of its work."""
    tiny = shutil.copytree(ROOT / "recipes" / "tiny", tmp_path / "tiny", ignore=shutil.ignore_patterns("out"))
    problems = tiny / "data" / "problems.jsonl"
    problems.write_text("".join(problems.read_text(encoding="utf-8").splitlines(keepends=True)[::5]), encoding="utf-8")
    (tmp_path / "small.toml").write_text(SMALL, encoding="utf-8")
    program = magcli_for_scripts(tmp_path)
    assert "eval-rl" in made(tiny, tmp_path, program)
    assert (tmp_path / "out" / "landscape" / "landscape.png").stat().st_size > 10_000
    assert "magcli sft" not in made(tiny, tmp_path, program), "nothing is made twice"
