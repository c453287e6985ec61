"""The browser that pages are looked at in, without a window: Chromium, as Debian packages it."""

import base64
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pytest

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine: apt-get install chromium")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--no-first-run",
]


def in_browser(test: Callable[..., None]) -> Callable[..., None]:
    """A test that ``make test-browser`` runs; ``make test`` runs those of one page that only need a browser."""
    return pytest.mark.browser(needs_browser(test))


class Tab:
    """A page in a headless browser that is driven over two pipes by Chrome's DevTools protocol."""

    def __init__(self, send: BinaryIO, receive: BinaryIO) -> None:
        self._send = send
        self._receive = receive
        self._number = 0
        self._session: dict[str, Any] = {}
        self.logged: list[str] = []
        """What the page logged, and its exceptions."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self._session = {"sessionId": session}
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol, and wait for its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters, **self._session}
        self._send.write(json.dumps(message).encode() + b"\0")
        self._send.flush()
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result

    def _read(self) -> dict[str, Any]:
        message = bytearray()
        while (byte := self._receive.read(1)) != b"\0":
            assert byte, "the browser ended"
            message += byte
        answer: dict[str, Any] = json.loads(message)
        if answer.get("method") in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"):
            self.logged.append(json.dumps(answer["params"]))
        return answer

    def run(self, script: str) -> Any:
        """The value of an expression of JavaScript, awaited if it is a promise."""
        given = {"expression": script, "awaitPromise": True, "returnByValue": True}
        result = self.call("Runtime.evaluate", **given)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def until(self, script: str, seconds: float = 60) -> Any:
        """Wait until an expression is true; returns its value."""
        deadline = time.monotonic() + seconds
        while not (value := self.run(script)):
            assert time.monotonic() < deadline, f"never true: {script}"
            time.sleep(0.02)
        return value

    def look(self, width: int, height: int, theme: str) -> None:
        """Give the window a size and a theme: light or dark."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        features = [{"name": "prefers-color-scheme", "value": theme}]
        self.call("Emulation.setEmulatedMedia", features=features)

    def picture(self, path: Path) -> None:
        """Write a screenshot of the window."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))


@contextmanager
def tab(folder: Path) -> Iterator[Tab]:
    """A page in a browser of its own, which ends with the block; its profile is in the folder."""
    ours, theirs = os.pipe(), os.pipe()  # the browser reads from 3 and writes to 4
    flags = [*FLAGS, "--remote-debugging-pipe", f"--user-data-dir={folder / 'profile'}"]
    redirected = f'exec "$@" 3<&{ours[0]} 4>&{theirs[1]}'
    process = subprocess.Popen(
        ["bash", "-c", redirected, "browser", str(BROWSER), *flags],
        pass_fds=(ours[0], theirs[1]),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "HOME": str(folder)},
    )
    os.close(ours[0])
    os.close(theirs[1])
    with open(ours[1], "wb") as send, open(theirs[0], "rb") as receive:
        try:
            yield Tab(send, receive)
        finally:
            process.terminate()
            process.wait(30)
