"""What a starting vLLM does, by its own log: to say so meanwhile, and to end a start that hangs."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

IMPORTING, WEIGHTS, MEASURING, COMPILING = "importing its packages", "loading weights", "measuring memory", "compiling"
CACHE, KERNELS, CAPTURING = "allocating the KV cache", "compiling kernels", "capturing graphs"

PHASES = {
    "Initializing a V1 LLM engine": "opening the device",
    "Starting to load model": WEIGHTS,
    "Loading model from scratch": WEIGHTS,
    "Model loading took": MEASURING,
    "Starting torch.compile": COMPILING,
    "Warming up model for the compilation": COMPILING,
    "Compile and warming up model for size": COMPILING,
    "torch.compile took": MEASURING,
    "Profiling CUDA graph memory": CAPTURING,
    "Available KV cache memory": CACHE,
    "Explicitly set (": CACHE,
    "JIT kernel warmup starting": KERNELS,
    "Running FlashInfer autotune": KERNELS,
    "Capturing CUDA graphs": CAPTURING,
    "init engine (profile, create kv cache, warmup model) took": "connecting",
}
"""Texts of the log of vLLM 0.32, which both of its model runners and that for CPUs write, and what begins with each."""

POLL_SECONDS = 0.25
"""How often the log is read."""

WORTH_NAMING = 1.0
"""Seconds of a phase from which on the summary of a start names it."""


def newest_phase(log: str) -> str | None:
    """What begins with the last line of a part of a log that says so; None if none does."""
    by_position = {log.rfind(text): phase for text, phase in PHASES.items()}  # -1: not there
    # Of several texts in this part of the log the last one counts.
    last = max(by_position)
    return by_position[last] if last >= 0 else None


class StartWatch:
    """Follows a start by its log for the length of the block, and ends it if one phase takes too long.

    Args:
        log: the file to which vLLM's processes write.
        limit: seconds that one phase may take.
        show: called from another thread several times a second with a line that says what vLLM does.
        end: called from that thread once a phase took too long; ends vLLM's processes, and returns whether there were
            any.
    """

    def __init__(self, log: Path, limit: float, show: Callable[[str], None], end: Callable[[], bool]) -> None:
        self._log, self._limit, self._show, self._end = log, limit, show, end
        self._phase, self._began = IMPORTING, time.monotonic()
        self._seconds: dict[str, float] = {}
        self._since = self._began
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="magcli-vllm-start", daemon=True)
        self.hung: str | None = None
        """The phase that took too long."""

    def __enter__(self) -> "StartWatch":
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()
        self._enter(self._phase)

    def summary(self) -> str:
        """How long the start took, and its longer phases: ``31 s: importing its packages 20 s, compiling 9 s``."""
        parts = [f"{phase} {seconds:.0f} s" for phase, seconds in self._seconds.items() if seconds >= WORTH_NAMING]
        text = f"{time.monotonic() - self._began:.0f} s"
        if parts:
            text += f": {', '.join(parts)}"
        return text

    def _follow(self) -> None:
        with open(self._log, errors="replace") as file:
            unread = ""
            while not self._over.wait(POLL_SECONDS):
                unread += file.read()
                # Progress bars end their lines with a carriage return.
                lines, _, unread = unread.replace("\r", "\n").rpartition("\n")
                self._enter(newest_phase(lines) or self._phase)
                self._show(self._status())
                # Progress within a phase does not show in the log, so only its length can be judged.
                hangs = time.monotonic() - self._since > self._limit
                if hangs and self._end():
                    self.hung = self._phase
                    return

    def _enter(self, phase: str) -> None:
        """Count the time of the current phase; ``phase`` is what begins, or goes on."""
        now = time.monotonic()
        of_phases = sum(self._seconds.values())
        # Of all seconds since the beginning those that no phase has yet.
        uncounted = now - self._began - of_phases
        self._seconds[self._phase] = self._seconds.get(self._phase, 0.0) + uncounted
        if phase != self._phase:
            self._phase, self._since = phase, now

    def _status(self) -> str:
        now = time.monotonic()
        return f"starting vLLM: {self._phase} for {now - self._since:.0f} s, {now - self._began:.0f} s in all"
