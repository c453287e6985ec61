"""``recipes/cluster/slurm.sh`` with commands that stand in for Slurm's: two nodes that are both this machine."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from magcli.data import table

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "recipes/cluster/slurm.sh"

STANDINS = {
    "scontrol": 'printf "first\\nsecond\\n"',
    "hostname": "echo 127.0.0.1",
    # Leaves out its options and runs the command here.
    "srun": 'while [ "${1#--}" != "$1" ]; do shift; done\nexec "$@"',
}


@pytest.fixture
def ray_folder():
    """A folder with a path short enough for Ray's sockets."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="slurm") as folder:
        yield folder


@pytest.fixture
def run_job(tmp_path, ray_folder):
    """Runs the script as a job of two nodes in a folder, with arguments for magcli."""
    commands = tmp_path / "commands"
    commands.mkdir()
    for name, script in STANDINS.items():
        path = commands / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
    binaries = Path(sys.executable).parent
    own_environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    environment = own_environment | {
        "PATH": f"{commands}:{os.environ['PATH']}",
        "MAGCLI": str(binaries / "magcli"),
        "PORT": "26379",
        "JOIN_SECONDS": "300",
        "RAY_TMPDIR": ray_folder,
        "SLURM_JOB_NODELIST": "unused",
        "SLURM_JOB_ID": "1",
        "SLURM_NNODES": "2",
    }

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = ["bash", str(SCRIPT), *arguments]
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=400, check=False
        )

    return run


def test_a_job_runs_a_stage_on_all_nodes_and_stops_ray(run_job, tmp_path, ray_folder):
    done = run_job("grade", str(ROOT / "examples/completions.jsonl"), "--workers", "1", "-o", "graded.arrow")
    assert done.returncode == 0, done.stderr
    graded = table.read(str(tmp_path / "graded.arrow"))
    assert sum(batch.num_rows for batch in graded.rows) > 0
    assert not list(tmp_path.glob(".ray-token-*"))
    left = subprocess.run(["pgrep", "-f", ray_folder], capture_output=True, text=True, check=False)
    assert left.stdout == ""


@pytest.mark.slow
def test_the_job_ends_with_the_exit_code_of_the_command(run_job):
    done = run_job("grade", "missing.jsonl", "-o", "graded.arrow")
    assert done.returncode == 3, done.stderr
    assert "missing.jsonl" in done.stderr
