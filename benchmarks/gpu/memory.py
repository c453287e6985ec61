"""The peak memory of processes while a block runs: of a GPU by ``nvidia-smi``, else resident memory."""

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from benchmarks.monitor import peak_mib

POLL_MILLISECONDS = 200
MIB = 1 << 20


@dataclass
class Peak:
    """The peak in bytes above what was in use before; 0 until it is known."""

    size: int = 0


@contextmanager
def of_gpu(number: int) -> Iterator[Peak]:
    """The peak of a GPU's memory in the block, of all processes; 0 without ``nvidia-smi``."""
    peak = Peak()
    command = ["nvidia-smi", f"--id={number}", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    try:
        watcher = subprocess.Popen([*command, f"--loop-ms={POLL_MILLISECONDS}"], stdout=subprocess.PIPE, text=True)
    except OSError:
        yield peak
        return
    reader = threading.Thread(target=_read, args=(watcher, peak), daemon=True)
    reader.start()
    try:
        yield peak
    finally:
        watcher.terminate()
        watcher.wait()
        reader.join()
        if watcher.stdout is not None:
            watcher.stdout.close()


def _read(watcher: "subprocess.Popen[str]", peak: Peak) -> None:
    assert watcher.stdout is not None
    before: int | None = None
    for line in watcher.stdout:
        with suppress(ValueError):  # a line that says what is wrong
            used = int(line) * MIB
            before = used if before is None else before
            peak.size = max(peak.size, used - before)


@contextmanager
def of_process(process: "subprocess.Popen[bytes]") -> Iterator[Peak]:
    """The peak resident memory of a process and its descendants in the block."""
    peak, ended = Peak(), threading.Event()

    def watch() -> None:
        while not ended.wait(POLL_MILLISECONDS / 1000):
            with suppress(OSError):  # a process that ends meanwhile
                peak.size = max(peak.size, peak_mib(process.pid) * MIB)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield peak
    finally:
        ended.set()
        watcher.join()
