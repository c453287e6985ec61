"""A local Ray: quiet, on loopback, and gone with the process that started it."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import ray

from magcli.cluster.open import address_for, open_cluster
from magcli.cluster.reaper import session_processes
from magcli.cluster.runtime import Cluster
from magcli.cluster.types import LOCAL, Demand, Node, Resources
from magcli.errors import EnvironmentFault, UsageError

SCRIPT = """
import os, signal, sys, time
from magcli.cluster.open import open_cluster

def own_handler(number, frame):
    pass

signal.signal(signal.SIGTERM, own_handler)
with open_cluster(cpus=2):
    import ray

    @ray.remote(max_retries=0)
    def die():
        os.kill(os.getpid(), signal.SIGKILL)

    try:
        ray.get(die.remote())
    except Exception as error:
        print(type(error).__name__)
    print(signal.getsignal(signal.SIGTERM) is own_handler)
    print(os.environ["RAY_AUTH_TOKEN"] != "", flush=True)
    sys.stdin.readline()
print("RAY_AUTH_TOKEN" in os.environ, flush=True)
"""


def start(script: str, folder: Path) -> "subprocess.Popen[str]":
    """A process in which Ray keeps its files in a folder."""
    without_cluster = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    environment = {**without_cluster, "TMPDIR": str(folder)}
    return subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        text=True,
    )


@pytest.fixture
def driver(short_folder):
    """A process with a local Ray that waits for a line, and the session's folder."""
    process = start(SCRIPT, short_folder)
    lines = [process.stdout.readline().strip() for _ in range(3)]
    assert lines == ["WorkerCrashedError", "True", "True"]
    (session,) = short_folder.glob("magcli-ray-*")
    yield process, session
    process.kill()
    process.communicate()


@pytest.fixture
def short_folder():
    """A folder with a short path: those of sockets have at most 107 characters."""
    import shutil
    import tempfile

    folder = Path(tempfile.mkdtemp(prefix="mr", dir="/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def listening_addresses(processes: set[int]) -> set[str]:
    """The hexadecimal addresses on which processes listen by TCP, over IPv4 and IPv6."""
    inodes = set()
    for process in processes:
        with suppress(OSError):
            for descriptor in Path(f"/proc/{process}/fd").iterdir():
                with suppress(OSError):
                    inodes.add(os.readlink(descriptor))
    addresses = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            is_listening = fields[3] == "0A"
            if is_listening and f"socket:[{fields[9]}]" in inodes:
                addresses.add(fields[1].rpartition(":")[0])
    return addresses


LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}


def test_a_local_ray_is_silent_and_listens_on_loopback_and_leaves_nothing(driver):
    process, session = driver
    processes = session_processes(str(session))
    assert processes
    assert session.stat().st_mode & 0o077 == 0, "no other user may look into it"
    assert listening_addresses(processes) <= LOOPBACK
    out, errors = process.communicate("\n", timeout=400)
    assert (out.strip(), errors) == ("False", "")
    assert not session.exists()
    assert not session_processes(str(session))


def test_nothing_is_left_of_a_local_ray_whose_driver_was_killed(driver):
    process, session = driver
    process.kill()
    deadline = time.monotonic() + 30
    while session.exists() or session_processes(str(session)):
        assert time.monotonic() < deadline, session_processes(str(session))
        time.sleep(0.05)


def test_a_killed_control_service_ends_the_command_in_one_line(driver):
    """Ray itself would end the process after a minute, with exit code 1 and a line of its own."""
    process, session = driver
    (service,) = [pid for pid in session_processes(str(session)) if b"gcs_server" in command_line(pid)]
    os.kill(service, signal.SIGKILL)
    assert process.wait(timeout=50) == 4
    assert process.stderr.read() == "error: the local Ray died; run the same command again to resume\n"
    deadline = time.monotonic() + 30
    while session.exists() or session_processes(str(session)):
        assert time.monotonic() < deadline, session_processes(str(session))
        time.sleep(0.05)


def command_line(pid: int) -> bytes:
    """The program of a process and its arguments; empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_an_abandoned_session_is_ended_by_the_next_one(short_folder, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(short_folder))
    abandoned = short_folder / "magcli-ray-999999999-x"
    abandoned.mkdir()
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", str(abandoned)])
    with open_cluster() as cluster:
        assert sleeper.wait(timeout=10) == -signal.SIGKILL
        assert not abandoned.exists()
        (node,) = cluster.nodes()
        assert node.cpus == 1
        with pytest.raises(EnvironmentFault, match=r"room for 0 of 2 engines, each with 8 GPUs and 1 CPUs on one node"):
            cluster.check_room([Demand("engines", 2, Resources(cpus=1, gpus=8))])
    with pytest.raises(Exception, match="not been started"):
        ray.get_actor("any")
    assert not ray.is_initialized(), "a call after the end has started another Ray"


def test_what_fits_is_counted_by_node(monkeypatch):
    nodes = [Node("a", "a", cpus=4, gpus=8), Node("b", "b", cpus=64, gpus=3)]
    monkeypatch.setattr(Cluster, "nodes", lambda self: nodes)
    cluster = Cluster("auto")
    cluster.check_room([Demand("engines", 3, Resources(cpus=1, gpus=3))])
    cluster.check_room([Demand("engines", 1000, Resources())])
    with pytest.raises(EnvironmentFault, match=r"room for 2 of 3 engines, each with 4 GPUs"):
        cluster.check_room([Demand("engines", 3, Resources(gpus=4))])


def test_an_address_that_nothing_answers_at_is_named():
    with pytest.raises(EnvironmentFault, match=r"Ray at 127\.0\.0\.1:9 cannot be used"), open_cluster("127.0.0.1:9"):
        pass
    with pytest.raises(UsageError, match="run magcli on a node of the cluster"), open_cluster("ray://host:10001"):
        pass


def test_the_option_comes_before_the_environment(monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert address_for("") == "local"
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    assert address_for("") == "10.0.0.1:6379"
    assert address_for("local") == "local"


def test_the_private_token_of_a_local_ray_is_forgotten_with_it(monkeypatch):
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "0" * 64)
    with open_cluster(LOCAL):
        assert own_token() != "0" * 64
    assert own_token() == "0" * 64


def own_token() -> str:
    """The token that Ray in this process sends."""
    raylet: Any = import_module("ray._raylet")
    return str(raylet.AuthenticationTokenLoader.instance().get_raw_token())
