"""Runs that go on in a test, and the page of `magcli report --watch` that follows them."""

import threading
import time
from contextlib import contextmanager

from magcli.console import Console
from magcli.report import page
from magcli.report.discovery import discover
from magcli.run.rundir import RunDir
from magcli.stages.report import watch as stage

SETTINGS = {"updates": 3, "inputs": []}


@contextmanager
def training(path):
    """A run that goes on, in this process, without a trainer: its lock, record and metrics are those of any run."""
    with RunDir.open(path, "rl", SETTINGS, restart=False) as folder:
        yield folder


def finish(folder):
    folder.model.mkdir()
    (folder.model / "config.json").write_text("{}")


def update(folder, step):
    folder.log({"step": step, "reward": 0.25 * step, "seconds": 1.0})


def contents(path):
    return lambda: page.contents(discover([path]), "Watched", lambda _: {}, samples_at=(), groups=0)


@contextmanager
def followed(path, capsys, monkeypatch, last_seconds=0.2):
    """``--watch`` in a thread; yields the link, and ends with it. The last page is served for ``last_seconds``."""
    monkeypatch.setattr(stage, "POLL_SECONDS", 0.02)
    monkeypatch.setattr(stage, "LAST_SECONDS", last_seconds)
    follow = threading.Thread(target=stage.watch, args=(path, "Watched", contents(path), Console()))
    follow.start()
    link = ""
    while not link:
        link = capsys.readouterr().out.strip()
        time.sleep(0.01)
    yield link
    follow.join(60)
    assert not follow.is_alive()
