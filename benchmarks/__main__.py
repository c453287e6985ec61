"""``python -m benchmarks [NAME ...]``: measure magcli beside other tools on this machine; all of them without names.

Models of random weights and lengths from fixed seeds are made on the spot; public math graders and their cases are
downloaded into ``.venv-peers`` and ``.peers``. Prints the machine, every pair, and at the end one line a comparison:
``peer NAME ratio=X low=A high=B``, where the ratio is the peer's time over magcli's, median of paired runs, and low and
high are the smallest and the largest pair. ``math-accuracy`` and ``language-*`` print tables instead. The ratio of
``simulation-*`` is the predicted over the measured throughput; the exit code is 1 where it is too far from 1, where
``rl-slow-verifier`` loses more than 5%, and where ``startup-vs-bare`` is below 1.25. That of ``humaneval-checker`` is
the share of programs judged alike or for a known cause, which must be 1. A name with ``-avx2`` at its end is that
comparison on a processor that computes as one without AVX-512 and AMX does.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from importlib import import_module

from benchmarks.pairs import Result, machine

COMPARISONS = {
    "startup-vs-bare": ("startup", "against_load"),
    "startup-vs-bare-generate": ("startup", "against_generate"),
    "engine-equal-vs-generate": ("engine", "equal_lengths"),
    "engine-heavy-vs-generate": ("engine", "heavy_tail"),
    "vllm-vs-offline": ("offline", "against_generate"),
    "pack-vs-padded": ("packing", "in_random_order"),
    "pack-vs-sorted": ("packing", "sorted_by_length"),
    "collation-vs-random-order": ("collation", "against_random_order"),
    "chunked-logprob-vs-plain": ("logprobs", "head"),
    "plane-vs-svd": ("landscape", "against_svd"),
    "plane-vs-gram": ("landscape", "against_gram"),
    "plane-vs-reads": ("landscape", "against_reads"),
    "plane-vs-cold-reads": ("landscape", "against_cold_reads"),
    "math-accuracy": ("math_verdicts.grading", "accuracy"),
    "math-speed-vs-math-verify": ("math_verdicts.grading", "speed_on_mix"),
    "math-speed-distinct-vs-math-verify": ("math_verdicts.grading", "speed_on_distinct"),
    "code-python-tests": ("sandbox", "python_tests"),
    "code-cpp-tests": ("sandbox", "cpp_tests"),
    "code-pch": ("sandbox", "header"),
    "language-accuracy": ("language", "accuracy"),
    "language-mixed": ("language", "mixed"),
    "clean-math-labels": ("clean_math_labels", "run"),
    "gsm8k-harness": ("gsm8k_harness", "run"),
    "humaneval-checker": ("humaneval_checker", "run"),
    "trl-reward": ("trl_reward", "run"),
    "simulation-shared": ("simulation", "shared"),
    "simulation-split": ("simulation", "split"),
    "trl-parity": ("trl_parity", "run"),
    "sft-vs-trl": ("sft_trl", "run"),
    "rl-heavy-vs-trl": ("rl.speed", "heavy"),
    "rl-fixed-vs-trl": ("rl.speed", "fixed"),
    "rl-slow-verifier": ("rl.slow_verifier", "run"),
    "rl-auto-vs-best": ("rl.automatic", "run"),
    "rl-vs-floor": ("rl.floor", "race"),
    "rl-toy-vs-floor": ("rl.floor", "toy"),
    "rl-reward-per-second": ("rl.learning", "run"),
}

AVX2 = "-avx2"
"""At the end of a name: emulate the slower kind of x86 processor."""
EMULATION = {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"}
EMULATED = (
    "engine-equal-vs-generate",
    "engine-heavy-vs-generate",
    "sft-vs-trl",
    "rl-heavy-vs-trl",
    "rl-fixed-vs-trl",
    "rl-auto-vs-best",
)
"""Comparisons that are made on both kinds."""


def main(names: Sequence[str]) -> int:
    """Run the named comparisons; returns the exit code."""
    known = [*COMPARISONS, *(name + AVX2 for name in EMULATED)]
    unknown = [name for name in names if name.removesuffix(AVX2) not in COMPARISONS]
    if unknown:
        print(f"no comparison {', '.join(unknown)}; there are: {', '.join(known)}", file=sys.stderr)
        return 2
    begun = time.monotonic()
    print(machine(), flush=True)
    results = [_comparison(name)() for name in names or known]
    print(f"{time.monotonic() - begun:.0f} s; {machine()}")
    found = [result for result in results if result is not None]
    for result in found:
        print(result.line())
    return 0 if all(result.holds for result in found) else 1


def _comparison(name: str) -> Callable[[], Result | None]:
    if name.endswith(AVX2):
        return lambda: _emulated(name.removesuffix(AVX2))
    module, function = COMPARISONS[name]
    found: Callable[[], Result | None] = getattr(import_module(f"benchmarks.{module}"), function)
    return found


def _emulated(name: str) -> Result | None:
    """A comparison in a process of its own, whose libraries read the emulation when they are loaded."""
    command, lines = [sys.executable, "-m", "benchmarks", name], []
    with subprocess.Popen(command, env=os.environ | EMULATION, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if not line.startswith("peer "):
                print(f"{AVX2[1:]}: {line}", end="", flush=True)
    found = [line.split() for line in lines if line.startswith("peer ")]
    figures = [float(part.partition("=")[2]) for words in found for part in words[2:]]
    least = 0.0 if process.returncode == 0 else float("inf")
    return Result(name + AVX2, tuple(figures), least=least) if figures else None


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
