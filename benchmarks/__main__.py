"""Compare magcli with other tools on this machine: ``python -m benchmarks [NAME ...]``, all comparisons without a name.

What a comparison needs besides magcli's own environment is downloaded into ``.peers`` and ``.venv-peers``. Those with
headline figures in the README take packages from pip's registry alone: TRL, and SmolLM2-135M, which is in one. Only
``math-accuracy`` among them, ``gsm8k-harness``, ``humaneval-checker``, ``language-*`` and ``clean-math-labels`` take
public files from GitHub. A comparison is skipped with a message if something is unavailable.

The last lines, one per comparison, are ``peer NAME ratio=X low=A high=B``: the median, smallest and largest ratio of
the paired runs. A ratio is the peer's time over magcli's, so above 1 magcli is faster, except for ``simulation-*``
(predicted over measured throughput), ``rl-occupancy`` (share of generation slots in use), ``rl-slow-verifier``,
``env-vs-reward`` and ``rl-auto-vs-best`` (throughput over that of other options of magcli), ``rl-vs-floor`` and
``rl-toy-vs-floor`` (lower bound over measured time) and ``humaneval-checker`` (share of equal verdicts). The exit code
is 1 if a ratio misses the bound of its comparison. Comparisons of accuracy, ``rank-memory`` and
``rollouts-page`` print tables instead.

``NAME-avx2`` runs a comparison with the instructions of a CPU without AVX-512 and AMX. ``PEERS_SHORT=1`` shortens those
with TRL and ``simulation-layouts``. ``PEERS_ARM`` skips the search for TRL's best configuration
(``PEERS_ARM='continuous bf16'``).
"""

import argparse
import os
import subprocess
import sys
import time
from importlib import import_module

from benchmarks.downloads import Unavailable
from benchmarks.pairs import Result, machine

COMPARISONS = {
    "startup-vs-bare": "startup:against_load",
    "engine-equal-vs-generate": "engine:equal_lengths",
    "engine-heavy-vs-generate": "engine:heavy_tail",
    "vllm-vs-offline": "vllm_offline:against_generate",
    "filter-ray-vs-shards": "shards:by_hand",
    "pack-vs-padded": "packing:in_random_order",
    "pack-vs-sorted": "packing:sorted_by_length",
    "collation-vs-random-order": "collation:against_random_order",
    "chunked-logprob-vs-plain": "logprobs:against_log_softmax",
    "plane-vs-svd": "landscape:against_svd",
    "plane-vs-reads": "landscape:against_reads",
    "plane-vs-cold-reads": "landscape:against_cold_reads",
    "math-accuracy": "math_verdicts.accuracy:table",
    "math-speed-vs-math-verify": "math_verdicts.speed:on_mix",
    "math-speed-distinct-vs-math-verify": "math_verdicts.speed:on_distinct",
    "code-python-tests": "sandbox:python_tests",
    "code-cpp-tests": "sandbox:cpp_tests",
    "code-pch": "sandbox:precompiled_header",
    "language-accuracy": "language:accuracy",
    "language-mixed": "language:mixed",
    "clean-math-labels": "clean_math_labels:run",
    "gsm8k-harness": "gsm8k_harness:run",
    "humaneval-checker": "humaneval_checker:run",
    "trl-reward": "trl_reward:run",
    "trl-parity": "trl_parity:run",
    "loss-parity": "loss_parity:run",
    "simulation-shared": "simulation:shared",
    "simulation-split": "simulation:split",
    "simulation-layouts": "simulation_layouts:run",
    "rank-memory": "rank_memory.table:run",
    "training-counts": "training_counts:run",
    "sft-vs-trl": "sft_trl:run",
    "rl-occupancy": "rl.occupancy:run",
    "rl-heavy-vs-trl": "rl.throughput:heavy_tail",
    "rl-fixed-vs-trl": "rl.throughput:fixed_length",
    "rl-slow-verifier": "rl.slow_verifier:run",
    "env-vs-reward": "rl.environment:run",
    "rl-auto-vs-best": "rl.auto_format:run",
    "rl-vs-floor": "rl.floor:smollm2",
    "rl-toy-vs-floor": "rl.floor:toy",
    "rl-reward-per-second": "rl.reward_curve:run",
    "rl-lora-vs-full": "rl.lora:against_full",
    "rl-lora-vs-trl": "rl.lora:against_trl",
    "rollouts-page": "rollouts_page:run",
}

AVX2 = "-avx2"
AVX2_ENVIRONMENT = {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"}
WITH_AVX2 = (
    "engine-equal-vs-generate",
    "engine-heavy-vs-generate",
    "sft-vs-trl",
    "rl-heavy-vs-trl",
    "rl-fixed-vs-trl",
    "rl-auto-vs-best",
)
NAMES = (*COMPARISONS, *(name + AVX2 for name in WITH_AVX2))


def main() -> int:
    """Run the named comparisons; 1 if a ratio misses its bound."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        epilog="comparisons:\n  " + "\n  ".join(NAMES),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="comparisons to run; all of them by default")
    names = parser.parse_args().names
    if unknown := [name for name in names if name not in NAMES]:
        parser.error(f"unknown comparison: {', '.join(unknown)} (see --help)")
    started = time.monotonic()
    print(machine(), flush=True)
    results = [result for name in names or NAMES if (result := _compare(name)) is not None]
    print(f"{time.monotonic() - started:.0f} s; {machine()}")
    for result in results:
        print(result.line())
    return 0 if all(result.holds for result in results) else 1


def _compare(name: str) -> Result | None:
    """The result of a comparison; None if it only prints a table or something it downloads is unavailable."""
    if name.endswith(AVX2):
        return _compare_with_avx2(name)
    module, _, function = COMPARISONS[name].partition(":")
    try:
        result: Result | None = getattr(import_module(f"benchmarks.{module}"), function)()
    except Unavailable as error:
        print(f"{name}: skipped: {error}", flush=True)
        return None
    return result


def _compare_with_avx2(name: str) -> Result | None:
    """Run a comparison in a process of its own, because the libraries read these variables when they are loaded."""
    command = [sys.executable, "-m", "benchmarks", name.removesuffix(AVX2)]
    peer_lines = []
    with subprocess.Popen(command, env=os.environ | AVX2_ENVIRONMENT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("peer "):
                peer_lines.append(line)
            else:
                print(f"{AVX2[1:]}: {line}", end="", flush=True)
    if not peer_lines:
        assert process.returncode == 0, f"{name} failed"
        return None
    ratios = tuple(float(word.partition("=")[2]) for word in peer_lines[0].split()[2:])
    return Result(name, ratios, least=0.0 if process.returncode == 0 else float("inf"))


if __name__ == "__main__":
    raise SystemExit(main())
