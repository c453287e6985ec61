"""Opening a sandbox, and building a program in it."""

from pathlib import Path

import pytest

from magcli.errors import UsageError
from magcli.verify.sandbox import Limits, Sandbox, open_sandbox, probe
from magcli.verify.sandbox.launch import Isolation
from magcli.verify.sandbox.levels import (
    bubblewraps,
    candidates,
    check_isolation,
    interpreters,
    mount_users,
    run_escape_test,
)

LIMITS = Limits(cpu=5.0, memory=1 << 30, output=16 << 20, processes=32)
TRIVIAL = b"int main() { return 7; }\n"


@pytest.fixture(scope="module", params=["full", "restricted"])
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    return _open(request.param)


def _open(level: str) -> Sandbox:
    if level == "restricted" and not candidates_hold(level):
        pytest.skip("this kernel has no Landlock")
    return open_sandbox(level)  # type: ignore[arg-type]


def candidates_hold(level: str) -> bool:
    return any(not check_isolation(isolation) for isolation in candidates(level, ()))  # type: ignore[arg-type]


def test_this_machine_has_full_isolation() -> None:
    """Continuous integration must not lose the sandbox silently."""
    found = probe()
    assert found.sandbox is not None
    assert found.sandbox.level == "full"


@pytest.mark.parametrize("mount_as", ["root", "dropped", "user"])
def test_every_way_to_mount_isolates(mount_as: str) -> None:
    if mount_as != "user" and mount_as not in mount_users():
        pytest.skip("needs root")
    if mount_as == "user" and mount_as not in mount_users():
        pytest.skip("needs a user that is not root")
    held = [
        isolation
        for bwrap in bubblewraps()
        for python, prefix in interpreters()
        if not check_isolation(isolation := Isolation("full", python, prefix, mount_as, bwrap))  # type: ignore[arg-type]
    ]
    assert held


def test_running_openly_must_be_accepted() -> None:
    with pytest.raises(UsageError, match="all your rights"):
        open_sandbox("none")
    sandbox = open_sandbox("none", accept_unsandboxed=True)
    assert sandbox.level == "none"
    with sandbox.program([sandbox.python, "-I", "-S", "-E", "/box/main.py"], {"main.py": b"print(6 * 7)"}) as program:
        assert program.run(b"").stdout == b"42\n"


def test_the_self_test_detects_missing_isolation() -> None:
    """A leaky sandbox is not opened: the test program finds every hole of ``none``."""
    sandbox = open_sandbox("none", accept_unsandboxed=True)
    fault, leaks = run_escape_test(sandbox.isolation)
    assert fault == ""
    for hole in ("read /etc/passwd", "list /", "write /tmp", "start a process", "open a socket", "share memory"):
        assert hole in leaks


def test_a_build_product_is_extracted_and_runs(sandbox: Sandbox, tmp_path: Path) -> None:
    made = tmp_path / "program"
    outcome = sandbox.build(
        ["g++", "-O1", "main.cpp", "-o", "program"], {"main.cpp": TRIVIAL}, "program", limits=LIMITS, into=made
    )
    assert (outcome.status, outcome.code) == ("exited", 0), outcome
    with sandbox.program(["./program"], {"program": made}) as program:
        assert program.run(b"").code == 7


def test_a_failed_build_leaves_nothing(sandbox: Sandbox, tmp_path: Path) -> None:
    made = tmp_path / "program"
    broken = {"main.cpp": b"int main() { return x; }\n"}
    outcome = sandbox.build(["g++", "main.cpp", "-o", "program"], broken, "program", limits=LIMITS, into=made)
    assert (outcome.status, outcome.code) == ("exited", 1)
    assert b"was not declared" in outcome.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["true", "mkdir program", "ln -s /usr/bin/env program"])
def test_only_a_regular_file_is_a_product(sandbox: Sandbox, tmp_path: Path, command: str) -> None:
    made = tmp_path / "program"
    outcome = sandbox.build(["sh", "-c", command], {"x": b""}, "program", limits=LIMITS, into=made)
    assert (outcome.status, outcome.code) == ("exited", 1), outcome
    assert b"no output file" in outcome.stderr
    assert not made.exists()


def test_a_build_cannot_fill_the_memory(tmp_path: Path) -> None:
    command = 'for i in 1 2 3 4; do head -c 8388608 "$0" > $i; done'
    big = tmp_path / "big"
    big.write_bytes(bytes(8 << 20))
    big.chmod(0o644)
    outcome = open_sandbox("full").build(["sh", "-c", command, "/box/big"], {"big": big}, "4", limits=LIMITS, into=big)
    assert outcome.code != 0
    assert b"No space left on device" in outcome.stderr


def test_all_processes_of_a_build_end_with_it(sandbox: Sandbox, tmp_path: Path) -> None:
    """A remaining process would keep the runner's descriptors open; killed, it lets the build end at once."""
    command = "sleep 1000 & sleep 1000 & echo done"
    outcome = sandbox.build(["sh", "-c", command], {"x": b""}, "program", limits=LIMITS, into=tmp_path / "program")
    assert outcome.stdout == b"done\n"
    assert outcome.wall < 2


def test_additional_folders_can_be_readable(tmp_path: Path) -> None:
    (tmp_path / "words").write_text("known")
    (tmp_path / "words").chmod(0o644)
    tmp_path.chmod(0o755)
    source = f"print(open({str(tmp_path / 'words')!r}).read())".encode()
    sandbox = open_sandbox("full", readable=[str(tmp_path)])
    with sandbox.program([sandbox.python, "-I", "-S", "-E", "main.py"], {"main.py": source}) as program:
        assert program.run(b"").stdout == b"known\n"
