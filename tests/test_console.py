"""Reports on a terminal and elsewhere; a panel above a bar, with a process of its own on a terminal of its own."""

import io
import subprocess
import sys
import time

import pytest
from terminal import Terminal

from magcli.console import LOG_EVERY, Console, duration
from magcli.terminal import PANEL_RATE

PROGRAM = """
import sys, time
from magcli.console import Console

console, drawn = Console(), []

def panel(width, height):
    drawn.append(time.monotonic())
    return [f"panel of {width} x {height}", "second line"] if height > 9 else []

def pause(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.01)

with console.progress(4, "steps", "work", panel) as bar:
    for step in range(1, 5):
        console.say(f"line {step}")
        bar.advance(note=f"note {step}")
        pause(float(sys.argv[1]))
    if len(sys.argv) > 2:
        raise RuntimeError(sys.argv[2])
console.say(f"{1 + len(drawn)} draws in {drawn[-1] - drawn[0]:.2f} s")
"""


WAITING = """
import os, sys, time
from contextlib import ExitStack
from magcli.console import Console, copied_stderr

console = Console()
with ExitStack() as stack:
    if sys.argv[1:] == ["bar"]:
        stack.enter_context(console.progress(4, "steps", "work"))
    with copied_stderr() as terminal, console.writing_to(terminal), console.waiting() as waiting:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        for second in range(4):
            waiting.show(f"starting, {second} s")
            time.sleep(1)
        os.dup2(terminal.fileno(), 2)
    console.say("started")
"""


def program(*arguments: object) -> list[str]:
    return [sys.executable, "-c", PROGRAM, *map(str, arguments)]


def test_a_panel_is_above_the_bar_and_lines_above_both() -> None:
    with Terminal(program(1), columns=80, lines=20) as terminal:
        terminal.wait_for(lambda: "1/4" in terminal.text)
        lines = terminal.text.splitlines()
        at = lines.index("panel of 80 x 20")
        assert lines[at - 1].startswith("line ")
        assert lines[at + 1] == "second line"
        assert lines[at + 2].startswith("work")
        assert b"?25l" not in terminal.raw, "a process that is killed leaves the terminal its cursor"
        assert terminal.end() == 0
        lines = terminal.text.splitlines()
    assert lines[:7] == ["line 1", "line 2", "line 3", "line 4", "panel of 80 x 20", "second line", lines[6]]
    assert "4/4" in lines[6]
    assert "note" not in terminal.text


@pytest.mark.parametrize("kind", ["spinner", "bar"])
def test_a_wait_is_seen_on_the_terminal_while_stderr_is_led_elsewhere(kind: str) -> None:
    with Terminal([sys.executable, "-c", WAITING, kind]) as terminal:
        terminal.wait_for(lambda: "starting, 1 s" in terminal.text)
        terminal.wait_for(lambda: "starting, 2 s" in terminal.text)
        assert b"?25l" not in terminal.raw
        assert terminal.end() == 0
    lines = terminal.text.splitlines()
    assert lines[0] == "started"
    assert "starting" not in terminal.text
    assert len(lines) == (2 if kind == "bar" else 1)


def test_without_a_terminal_a_wait_is_a_line_every_ten_seconds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 100.0
    monkeypatch.setattr("magcli.console.time.monotonic", lambda: now)
    with Console().waiting() as waiting:
        for second in range(25):
            now = 100.0 + second
            waiting.show(f"starting, {second} s")
    assert capsys.readouterr().err.splitlines() == ["starting, 0 s", "starting, 10 s", "starting, 20 s"]


def test_the_rate_of_drawing_a_panel_is_limited() -> None:
    with Terminal(program(0.4)) as terminal:
        assert terminal.end() == 0
    draws, seconds = terminal.text.splitlines()[-1].split(" draws in ")
    assert int(draws) <= 5 + PANEL_RATE * float(seconds.split()[0])


def test_a_panel_follows_the_size_of_the_terminal() -> None:
    with Terminal(program(60), columns=80, lines=20) as terminal:
        terminal.wait_for(lambda: "panel of 80 x 20" in terminal.text)
        terminal.resize(120, 20)
        terminal.wait_for(lambda: "panel of 120 x 20" in terminal.text)
        terminal.resize(60, 9)
        terminal.wait_for(lambda: "note" in terminal.text)
        assert "panel of 60" not in terminal.text, "there is no room"


def test_an_error_and_an_interrupt_restore_the_terminal() -> None:
    with Terminal(program(0.05, "on purpose")) as terminal:
        before = terminal.settings
        assert terminal.end() == 1
        assert terminal.cursor_is_shown
        assert terminal.settings == before
        assert "RuntimeError: on purpose" in terminal.text.splitlines()[-1]
    with Terminal(program(30)) as terminal:
        terminal.wait_for(lambda: "panel" in terminal.text)
        terminal.type(b"\x03")
        assert terminal.end() != 0
        assert terminal.cursor_is_shown
        assert terminal.text.splitlines()[-1].startswith("KeyboardInterrupt")


@pytest.mark.parametrize(
    "environment", [{"TERM": "dumb"}, {"PYTHONIOENCODING": "ascii", "LC_ALL": "C", "PYTHONUTF8": "0"}]
)
def test_a_terminal_that_cannot_show_it_gets_no_panel(environment: dict[str, str]) -> None:
    with Terminal(program(0.1), **environment) as terminal:
        terminal.wait_for(lambda: "line 4" in terminal.text)
        assert "panel" not in terminal.text


def test_without_a_terminal_a_panel_is_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with Console().progress(2, "steps", "work", lambda width, height: ["panel"]) as bar:
        bar._last = -1e9
        bar.advance(2, note="note", reused=True)
    assert sys.stderr.getvalue() == "work: 2/2 steps, 0.0 steps/s note\n"


def test_quoted_control_characters_do_not_reach_the_terminal() -> None:
    said = "Console().say('row \\x1b[2J\\x9b1mone'); Console().error('no \\u202e\\x1b]0;two\\x07', code=3)"
    shown = "row ␛[2J[U+009B]1mone\nerror: no [U+202E]␛]0;two␇"
    command = [sys.executable, "-c", f"from magcli.console import Console; {said}"]
    with Terminal(command, columns=80) as terminal:
        assert terminal.end() == 0
        assert terminal.text == shown
    assert subprocess.run(command, capture_output=True, text=True, check=True).stderr.startswith("row \x1b[2J\x9b1mone")


class Lines(io.StringIO):
    """A stderr that is no terminal, and says when it has a number of lines."""

    def wait_for(self, count: int) -> list[str]:
        deadline = time.monotonic() + 60
        while len(lines := self.getvalue().splitlines()) < count:
            assert time.monotonic() < deadline, lines
            time.sleep(0.01)
        return lines


def test_progress_is_said_at_intervals_while_no_unit_is_finished(monkeypatch) -> None:
    monkeypatch.setattr("magcli.console.LOG_EVERY", 0.02)
    monkeypatch.setattr(sys, "stderr", written := Lines())
    with Console().progress(8, "problems", "evaluate") as bar:
        first, *_ = written.wait_for(2)
        assert first == "evaluate: 0/8 problems, 0.0 problems/s"
        bar.report("3 completions finished")
        assert written.wait_for(len(written.getvalue().splitlines()) + 2)[-1].endswith("/s 3 completions finished")
        bar.advance(2)
        last = written.wait_for(len(written.getvalue().splitlines()) + 2)[-1]
        assert last.startswith("evaluate: 2/8 problems, ")
        assert " s left" in last
    ended = written.getvalue()
    time.sleep(0.1)
    assert written.getvalue() == ended, "nothing is said after the end"


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0.3, "0.3 s"), (73, "1 min 13 s"), (3600, "1 h 0 min"), (200_000, "2 d 7 h"), (float("nan"), "-")],
)
def test_durations(seconds, expected):
    assert duration(seconds) == expected


@pytest.mark.parametrize(
    ("done", "rate"), [(4, "19.5 s each, 1 min 18 s left"), (200, "2.6 steps/s"), (0, "0.0 steps/s")]
)
def test_slow_units_have_a_duration_instead_of_a_rate(monkeypatch, done, rate) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with Console().progress(8 if done < 8 else None, "steps", "sft", lambda width, height: ["panel"]) as bar:
        bar.advance(done)
        bar._start = time.monotonic() - 78
        bar._say()
    assert f"{done} steps, {rate}" in sys.stderr.getvalue().replace("/8", "")


@pytest.mark.parametrize(
    ("seconds_in_unit", "said"),
    [
        (8, "10.0 s each, 32.0 s left"),
        (38, "15.6 s each, 46.8 s left"),
        (400, "1 min 28 s each, 4 min 24 s left"),
    ],
)
def test_the_time_left_falls_within_a_slow_unit(monkeypatch, seconds_in_unit, said) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with Console().progress(8, "steps", "sft", lambda width, height: ["panel"]) as bar:
        bar.advance(4)
        bar._finished = time.monotonic() - seconds_in_unit
        bar._start = bar._finished - 40
        bar._say()
    assert said in sys.stderr.getvalue()


def test_waiting_is_said_only_if_it_takes_long(monkeypatch) -> None:
    monkeypatch.setattr(sys, "stderr", written := Lines())
    with Console().waiting_for("sft: loading the model"):
        pass
    assert written.getvalue() == ""
    monkeypatch.setattr("magcli.console.LOG_EVERY", 0.02)
    with Console().waiting_for("sft: loading the model"):
        assert written.wait_for(1)[0] == "sft: loading the model, 0 s"


def test_lines_come_within_ten_seconds() -> None:
    assert LOG_EVERY <= 10
