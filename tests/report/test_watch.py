"""`magcli report --watch` over HTTP: who may read the page, and how it follows a run from its start to its end."""

import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from http.client import RemoteDisconnected
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from forking import Running
from watching import contents, finish, followed, training, update

from magcli.console import Console
from magcli.data.durable import is_locked, locked
from magcli.errors import DataError
from magcli.report.server import Answer, PageServer
from magcli.report.watch import Watched
from magcli.run.rundir import RunDir
from magcli.stages.report import watch as stage

HOLD = """
import sys
from pathlib import Path
from magcli.run.rundir import RunDir
with RunDir.open(Path(sys.argv[1]), "rl", {"updates": 3, "inputs": []}, restart=False) as folder:
    folder.log({"step": 1, "reward": 0.25, "seconds": 1.0})
    print("begun", flush=True)
    sys.stdin.read()
"""


def get(address, **headers):
    """The text behind an address, or the status that refuses it."""
    try:
        with urlopen(Request(address, headers=headers), timeout=60) as answer:
            return answer.read().decode()
    except HTTPError as error:
        return error.code


@contextmanager
def served(answers):
    with PageServer(answers) as server:
        yield server


@pytest.fixture
def secret():
    with served({"/": lambda: Answer("text/html", "secret")}) as server:
        yield server


def test_the_page_needs_the_token_of_the_link(secret):
    root, token = secret.link.split("?token=")
    assert get(secret.link) == "secret"
    assert len(token) >= 32
    for address in (root, f"{root}?token=", f"{root}?token={token[:-1]}", f"{root}?token=%FF", f"{root}?other={token}"):
        assert get(address) == 403, address
    assert get(f"{root}elsewhere?token={token}") == 404
    assert get(f"{root}elsewhere") == 403


@pytest.mark.parametrize("name", ["rebound.example", "127.0.0.1.example", "", "[", "127.0.0.2"])
def test_another_name_of_this_machine_is_refused(secret, name):
    assert get(secret.link, Host=name) == 403


@pytest.mark.parametrize("name", ["localhost:8000", "127.0.0.1", "[::1]:80"])
def test_a_forwarded_port_keeps_the_name(secret, name):
    assert get(secret.link, Host=name) == "secret"


def test_it_listens_on_this_machine_alone(secret):
    port = int(secret.link.split(":")[2].split("/")[0])
    assert secret.link.startswith("http://127.0.0.1:")
    with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.2", port), timeout=5):
        pass


def test_an_answer_is_neither_stored_nor_framed(secret):
    with urlopen(secret.link, timeout=60) as answer:
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]


def test_a_fault_of_an_answer_is_raised_where_the_server_is_used():
    with served({"/": lambda: 1 / 0}) as server:
        with pytest.raises(RemoteDisconnected):
            get(server.link)
        with pytest.raises(ZeroDivisionError):
            server.raise_failure()


def test_a_lock_is_seen_while_its_owner_lives(tmp_path):
    path = tmp_path / "run"
    assert not is_locked(path)
    with locked(path):
        assert is_locked(path)
    assert not is_locked(path)
    (tmp_path / ".run.lock").write_text(f"process {os.getpid()} on {os.uname().nodename} since yesterday")
    assert not is_locked(path), "the number of a killed process was given to another one"


def test_a_run_goes_on_until_it_ends(tmp_path):
    path = tmp_path / "run"
    link = tmp_path / "link"
    link.symlink_to(path)
    watched = Watched(path, "Watched", contents(path))
    assert watched.state == "waiting"
    with training(path) as folder:
        assert RunDir(link).goes_on
        assert watched.state == "running"
        finish(folder)
        assert watched.state == "finished"
        (folder.model / "config.json").unlink()
    assert watched.state == "stopped"


def test_the_page_is_built_again_only_for_new_files(tmp_path, monkeypatch):
    monkeypatch.setattr("magcli.report.watch.BUILD_SECONDS", 0.0)
    path, built = tmp_path / "run", []
    read = contents(path)
    watched = Watched(path, "Watched", lambda: built.append(1) or read())
    assert "Watched" in watched.page(), "before the run begins"
    assert built == []
    with training(path) as folder:
        update(folder, 1)
        first = watched.page()
        assert "1 of 3 updates in 1.0 s, goes on" in first
        assert (watched.page(), len(built)) == (first, 1)
        version = watched.version()
        update(folder, 2)
        assert watched.version() != version
        assert "2 of 3 updates" in watched.page()
        assert len(built) == 2


def test_a_page_that_is_a_moment_old_is_not_built_again(tmp_path):
    path = tmp_path / "run"
    with training(path) as folder:
        watched = Watched(path, "Watched", contents(path))
        update(folder, 1)
        first = watched.page()
        update(folder, 2)
        assert watched.page() == first
        assert f'data-version="{watched.version()}"' not in first, "so that the browser asks again"


def test_what_was_read_stays_while_the_run_cannot_be_read(tmp_path, monkeypatch):
    monkeypatch.setattr("magcli.report.watch.BUILD_SECONDS", 0.0)
    path = tmp_path / "run"
    with training(path) as folder:
        watched = Watched(path, "Watched", contents(path))
        update(folder, 1)
        assert "1 of 3 updates" in watched.page()
        folder.note_path.write_text("{")
        text = watched.page()
        assert "1 of 3 updates" in text
        assert "Its files cannot be read now" in text


def test_a_run_that_does_not_exist_yet_is_waited_for_and_followed_to_its_end(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("magcli.report.watch.BUILD_SECONDS", 0.0)
    path = tmp_path / "run"
    with followed(path, capsys, monkeypatch) as link:
        assert "does not go on yet" in get(link)
        with training(path) as folder:
            update(folder, 1)
            assert "1 of 3 updates" in get(link)
            before = json.loads(get(link.replace("?", "version?")))
            update(folder, 2)
            assert json.loads(get(link.replace("?", "version?"))) != before
            assert 'class="running"' in get(link)
            finish(folder)
            assert "The run has finished." in get(link), "it is served a moment longer"
    assert capsys.readouterr().err.strip().endswith("run has finished after 2 updates")


def test_a_finished_run_is_not_followed(tmp_path, capsys):
    with training(tmp_path / "run") as folder:
        finish(folder)
    stage.watch(folder.path, "Watched", contents(folder.path), Console())
    assert capsys.readouterr().err.strip().endswith("run has finished, so there is nothing to follow")


def test_an_interrupted_run_has_a_moment_to_go_on(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(stage, "BEGIN_SECONDS", 0.05)
    monkeypatch.setattr(stage, "POLL_SECONDS", 0.02)
    with training(tmp_path / "run") as folder:
        update(folder, 1)
    stage.watch(folder.path, "Watched", contents(folder.path), Console())
    said = capsys.readouterr().err.splitlines()
    assert said[1].endswith("is not running; waiting 0 s for its command to resume it")
    assert said[2].endswith("is not running; it has 1 updates, and the same command resumes it")


def test_a_folder_that_is_no_run_is_refused(magcli, tmp_path):
    with pytest.raises(DataError):
        stage.watch(tmp_path, "Watched", contents(tmp_path), Console())
    done = magcli("report", "--watch", tmp_path)
    assert (done.returncode, len(done.stderr.splitlines())) == (3, 1)
    assert "is not the folder of a run" in done.stderr
    for paths in ([], [tmp_path, tmp_path]):
        done = magcli("report", "--watch", *paths)
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)


def test_a_killed_run_ends_it_and_its_report_is_written(tmp_path):
    path, out = tmp_path / "run", tmp_path / "report.html"
    held = subprocess.Popen([sys.executable, "-c", HOLD, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert held.stdout.readline() == b"begun\n"
    with Running("report", "--watch", path, "-o", out) as follow:
        assert follow.stderr.readline().startswith(b"report: open the link to follow")
        held.kill()
        held.communicate()
        _, said = follow.communicate(timeout=60)
    assert follow.returncode == 0
    assert b"run is not running; it has 1 updates, and the same command resumes it" in said
    assert "1 of 3 updates in 1.0 s, not finished" in out.read_text()


def test_it_is_ended_by_a_signal_like_any_command(tmp_path):
    with Running("report", "--watch", tmp_path / "run") as follow:
        assert follow.stderr.readline().startswith(b"report: open the link to follow")
        follow.send_signal(signal.SIGINT)
        _, said = follow.communicate(timeout=60)
    assert follow.returncode == 130
    ending = b"error: ended by SIGINT; the page is no longer served; the run is not affected"
    assert said.splitlines()[-1] == ending
