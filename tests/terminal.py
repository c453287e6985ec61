"""A command on a terminal of its own: what its screen shows is parsed as a terminal would."""

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time

import pyte


class Terminal:
    """A process whose stdin and stderr are a terminal that controls it; its stdout goes to a file.

    ``screen`` is what a person sees, ``raw`` every byte that was sent.
    """

    def __init__(self, command, *, columns=100, lines=30, stdout="/dev/null", **environment):
        self.screen = pyte.Screen(columns, lines)
        self.raw = b""
        self._stream = pyte.ByteStream(self.screen)
        self._master, self.slave = pty.openpty()
        self.resize(columns, lines)
        given = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES", "NO_COLOR")}
        with open(stdout, "wb") as out:
            self.process = subprocess.Popen(
                list(map(str, command)),
                stdin=self.slave,
                stdout=out,
                stderr=self.slave,
                start_new_session=True,
                preexec_fn=self._as_from_a_shell,
                env={**given, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", **environment},
            )

    def _as_from_a_shell(self):
        """The terminal controls the process; Ctrl-C is heeded even where the tests run in the background."""
        fcntl.ioctl(self.slave, termios.TIOCSCTTY, 0)
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._master)
        os.close(self.slave)

    @property
    def text(self):
        """The screen as lines without the blanks at their ends."""
        return "\n".join(line.rstrip() for line in self.screen.display).rstrip()

    @property
    def cursor_is_shown(self):
        """Whether the terminal shows its cursor."""
        return not self.screen.cursor.hidden

    @property
    def settings(self):
        """How the terminal treats what is typed."""
        return termios.tcgetattr(self.slave)

    def resize(self, columns, lines):
        """Give the terminal another size, as pulling at a window's corner does."""
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.screen.resize(lines, columns)

    def type(self, keys):
        """Press keys: ``b"\\x03"`` is Ctrl-C."""
        os.write(self._master, keys)

    def wait_for(self, condition, seconds=240):
        """Read until something holds; fails after a while, or where the process ends before."""
        deadline = time.monotonic() + seconds
        while not condition():
            alive = self.process.poll() is None
            self._read(0.1)
            assert time.monotonic() < deadline, self.text
            assert alive or condition(), self.text

    def end(self, seconds=240):
        """Read to the end of the process; its exit code."""
        deadline = time.monotonic() + seconds
        while self.process.poll() is None:
            assert time.monotonic() < deadline, self.text
            self._read(0.1)
        while self._read(0.0):
            pass
        return self.process.returncode

    def _read(self, seconds):
        with contextlib.suppress(OSError):
            if select.select([self._master], [], [], seconds)[0]:
                data = os.read(self._master, 65536)
                self.raw += data
                self._stream.feed(data)
                return bool(data)
        return False
