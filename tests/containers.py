"""A process under the limits of a container: Docker's default profile, put upon it without Docker."""

import os
import shutil
import subprocess
import sys
import textwrap

import pytest

DOCKER = """
import ctypes, platform, struct, sys
# clone, unshare, mount, setns
numbers = {"x86_64": (56, 272, 165, 308), "aarch64": (220, 97, 40, 268)}[platform.machine()]
hide_landlock = len(sys.argv) > 1
deny = (6, 0, 0, 0x00050001)
code = [(0x20, 0, 0, 0), (0x15, 0, 1, 435), (6, 0, 0, 0x00050026)]
for number in numbers[1:]:
    code += [(0x15, 0, 1, number), deny]
if hide_landlock:
    code += [(0x15, 0, 1, 444), deny]
code += [(0x15, 0, 4, numbers[0]), (0x20, 0, 0, 16), (0x54, 0, 0, 0x7E020000), (0x15, 1, 0, 0), deny]
code += [(6, 0, 0, 0x7FFF0000)]
libc = ctypes.CDLL(None, use_errno=True)
block = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in code))
program = ctypes.create_string_buffer(struct.pack("@HP", len(code), ctypes.addressof(block)))
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0, ctypes.get_errno()
"""


def in_docker(script: str, *, landlock: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a script as in a container of Docker's, as root or as the user that runs the tests."""
    command = [sys.executable, "-c", DOCKER + textwrap.dedent(script), *([] if landlock else ["without"])]
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("setpriv is needed to give up a capability")
        command = ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin", *command]
    return subprocess.run(command, capture_output=True, text=True, timeout=400)
