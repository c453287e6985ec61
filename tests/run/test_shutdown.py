"""A signal ends the process within two seconds, wherever it is."""

import contextlib
import json
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from magcli.run import shutdown

PROGRAM = """
import contextlib, ctypes, os, signal, sys, threading, time
from magcli import cli
from magcli.command import signals_passed_on
from magcli.errors import DataError
from magcli.run import shutdown
from magcli.run.units import AsyncRunner

shutdown.GRACE_SECONDS = {grace}

def locked(libc):
    mutex = ctypes.create_string_buffer(256)
    libc.pthread_mutex_lock(mutex)
    print("ready", flush=True)
    libc.pthread_mutex_lock(mutex)

def app(*_, **__):
    with signals_passed_on():
{body}

cli.app = app
cli.main()
"""

STUCK = {
    "in C": "locked(ctypes.CDLL(None))",
    "in C with the interpreter's lock": "locked(ctypes.PyDLL(None))",
    "in C, in a task": """
async def work(): locked(ctypes.CDLL(None))
with AsyncRunner() as loop: loop.run(work())""",
    "in C with the interpreter's lock, in a task": """
async def work(): locked(ctypes.PyDLL(None))
with AsyncRunner() as loop: loop.run(work())""",
    "in Python, in a task": """
async def work():
    print("ready", flush=True)
    while True: pass
with AsyncRunner() as loop: loop.run(work())""",
    "in its clean-up": """
try:
    print("ready", flush=True); time.sleep(60)
finally:
    threading.Event().wait()""",
    "joining a thread at exit": """
threading.Thread(target=threading.Event().wait).start()
print("ready", flush=True); time.sleep(60)""",
}


def start(body: str, *flags: str, grace: float = shutdown.GRACE_SECONDS, **more: object) -> "subprocess.Popen[str]":
    """Run ``body`` as a stage; return once it has printed that it is ready."""
    indented = "\n".join(" " * 8 + line for line in body.strip().splitlines())
    command = [sys.executable, "-c", PROGRAM.replace("{body}", indented).replace("{grace}", str(grace)), *flags]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, **more
    )
    assert process.stdout.readline() == "ready\n"
    return process


def end(process: "subprocess.Popen[str]", number: int) -> tuple[float, str]:
    """Send a signal; seconds to the end, and stderr."""
    started = time.monotonic()
    process.send_signal(number)
    process.wait(60)
    seconds = time.monotonic() - started
    return seconds, process.communicate(timeout=400)[1]


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.flaky(reruns=2)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("body", STUCK.values(), ids=STUCK.keys())
def test_a_signal_ends_the_process_wherever_it_is(body: str, number: signal.Signals) -> None:
    process = start(body)
    seconds, errors = end(process, number)
    assert seconds < 2
    assert process.returncode in (128 + number, -number)
    assert process.returncode == 128 + number or "PyDLL" in body, "a shell tells 128 + number of both"
    assert errors == f"error: ended by {number.name}; the same command resumes from finished work\n"


def test_an_orderly_end_has_its_exit_code_and_message() -> None:
    process = start(
        """
try:
    print("ready", flush=True); time.sleep(60)
except BaseException:
    time.sleep(0.3)
    raise DataError("it was the table")""",
        grace=20,
    )
    _, errors = end(process, signal.SIGTERM)
    assert (process.returncode, errors) == (3, "error: it was the table\n")


def test_a_second_signal_ends_at_once() -> None:
    for body in STUCK.values():
        process = start(body, grace=600)
        process.send_signal(signal.SIGTERM)
        until(lambda process=process: not pending(process.pid, signal.SIGTERM))
        end(process, signal.SIGTERM)
        assert process.returncode in (143, -signal.SIGTERM)


def pending(pid: int, number: int) -> bool:
    """Whether a signal has been sent to a process and not been delivered; sent again, it would be one signal."""
    status = Path(f"/proc/{pid}/status").read_text()
    return bool(int(re.search(r"ShdPnd:\s*(\w+)", status)[1], 16) & 1 << number - 1)


def test_the_end_is_an_event_with_json() -> None:
    process = start(STUCK["in C"], "--json")
    _, errors = end(process, signal.SIGTERM)
    line = "ended by SIGTERM; the same command resumes from finished work"
    assert json.loads(errors) == {"event": "error", "message": line, "exit_code": 143}


@pytest.mark.flaky(reruns=2)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_background_job_of_a_shell_ends(number: signal.Signals) -> None:
    process = start(STUCK["in C"], preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
    assert end(process, number)[0] < 2
    assert process.returncode == 128 + number


@pytest.mark.flaky(reruns=2)
def test_a_stalled_reader_of_stderr_delays_nothing() -> None:
    process = start('os.set_blocking(2, False)\nwith contextlib.suppress(OSError):\n    while os.write(2, b"x"): pass\n'
                    'os.set_blocking(2, True)\nprint("ready", flush=True); time.sleep(60)')  # fmt: skip
    started = time.monotonic()
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 143
    assert time.monotonic() - started < 2
    process.communicate()


def test_signals_to_a_fork_do_not_end_its_parent() -> None:
    process = start(
        """
ready, writer = os.pipe()
child = os.fork()
if child == 0:
    handled = []
    signal.signal(signal.SIGTERM, lambda *_: handled.append(True))
    os.write(writer, b"ready")
    while not handled: time.sleep(0.01)
    os._exit(0)
os.read(ready, 5)
os.kill(child, signal.SIGTERM)
os.waitpid(child, 0)
print("ready", flush=True)
time.sleep(1.5)
raise DataError("at its end")"""
    )
    assert process.communicate(timeout=400)[1] == "error: at its end\n"
    assert process.returncode == 3


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, None])
def test_the_watchdog_ends_with_the_command(number: signal.Signals | None) -> None:
    process = start('print("ready", flush=True)\nsys.stdin.read()', grace=600, stdin=subprocess.PIPE)
    children = list(map(int, Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()))
    assert len(children) == 1
    if number:
        process.send_signal(number)
    process.communicate(timeout=400)
    until(lambda: not lives(children[0]))


def lives(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


@pytest.mark.parametrize(
    ("sent", "least", "most"),
    [
        ([signal.SIGTERM], 0.1, 1.5),
        ([shutdown._LONGER, signal.SIGINT], 0.1, 1.5),
        ([shutdown._LONGER, shutdown._USUAL, signal.SIGTERM], 0.1, 1.5),
        ([shutdown._LONGER, signal.SIGTERM, shutdown._USUAL], 0.1, 1.5),
        ([shutdown._LONGER, signal.SIGTERM, signal.SIGTERM], 0.0, 1.5),
        ([shutdown._LONGER, signal.SIGTERM], 2.1, 4.0),
    ],
)
def test_sigterm_waits_for_a_checkpoint_and_a_second_one_does_not(sent, least, most, monkeypatch):
    monkeypatch.setattr(shutdown, "SAVE_SECONDS", 2.0)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.send(bytes(sent))
        begun = time.monotonic()
        number = shutdown._wait_for_signal(theirs, 0.1)
    assert number == next(one for one in sent if one in shutdown.SIGNALS)
    assert least <= time.monotonic() - begun < most


def test_only_work_that_takes_long_to_repeat_is_saved_first():
    with shutdown.SaveFirst(polls=True) as ending:
        assert not shutdown.sigterm_waits()
        ending.started()
        ending.finished(shutdown.WORTH_SECONDS / 2)
        assert not shutdown.sigterm_waits()
        ending.finished(shutdown.SAVE_SECONDS)
        assert ending.is_worth_it
        ending.started()
        assert not shutdown.sigterm_waits()  # the step that is running leaves no time
        ending.finished(1.0)
        assert shutdown.sigterm_waits()
        assert ending.requested
        ending.saved()
        assert not ending.is_worth_it
    assert not shutdown.sigterm_waits()
