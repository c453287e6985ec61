"""``magcli filter-math --cluster local`` against two processes by hand, each with ``--shard`` and a model of its own.

A random model of SmolLM2-135M's shape samples problems on this machine. The clock runs from the command to the joined
table, so that the start of Ray and of its engine counts, and by hand the start of two processes. Each of those gets
half of the cores: with a thread for every core in both, the default, they are several times slower.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.downloads import ROOT
from benchmarks.models import SMOLLM2_135M, random_llama
from benchmarks.pairs import Result, compare, timed

NAME = "filter-ray-vs-shards"
TOKENIZER = ROOT / "examples" / "model"
PROBLEMS = 144
SAMPLES = 8
TOKENS = 64
PAIRS = 2
LEAST = 0.9


def by_hand() -> Result:
    """Wall time of both ways on the same rows; the ratio must be at least ``LEAST``."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        _make_model(folder / "model")
        rows = [{"id": str(number), "prompt": f"{number} + {number}?", "answer": "0"} for number in range(PROBLEMS)]
        (folder / "problems.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        ours = timed(lambda: _on_ray(folder))
        theirs = timed(lambda: _two_processes(folder))
        return compare(NAME, ours, theirs, amount=PROBLEMS * SAMPLES, unit="completions", pairs=PAIRS, least=LEAST)


def _make_model(folder: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(TOKENIZER, trust_remote_code=False)
    tokenizer.save_pretrained(folder)
    random_llama(**SMOLLM2_135M, eos_token_id=tokenizer.eos_token_id).save_pretrained(folder)


def _on_ray(folder: Path) -> None:
    _finish([_start(folder, "ray.arrow", ["--cluster", "local"])])


def _two_processes(folder: Path) -> None:
    shards = [f"hand-{number}.arrow" for number in (1, 2)]
    half = str(max(len(os.sched_getaffinity(0)) // 2, 1))
    processes = [
        _start(folder, shard, ["--shard", f"{number}/2"], threads=half) for number, shard in enumerate(shards, 1)
    ]
    _finish(processes)
    joined = [*(folder / shard for shard in shards), "-o", folder / "hand.arrow", "--restart", "--allow-empty"]
    _finish([_magcli("commit", *joined)])


def _start(folder: Path, output: str, options: Sequence[str], threads: str = "") -> "subprocess.Popen[bytes]":
    sampling = ["--samples", SAMPLES, "--max-tokens", TOKENS, "--system", "none", "--keep", "0..1"]
    arguments = ["--model", folder / "model", *sampling, "-o", folder / output, "--restart", "--allow-empty"]
    return _magcli("filter-math", folder / "problems.jsonl", *arguments, *options, threads=threads)


def _magcli(*arguments: object, threads: str = "") -> "subprocess.Popen[bytes]":
    """Start a command; ``threads`` is how many PyTorch uses for an operation, all cores if empty."""
    command = [sys.executable, "-m", "magcli", *map(str, arguments), "--quiet"]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    if threads:
        environment["OMP_NUM_THREADS"] = threads
    return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL)


def _finish(processes: Sequence["subprocess.Popen[bytes]"]) -> None:
    for process in processes:
        if process.wait():
            raise RuntimeError(f"{process.args!r} ended with exit code {process.returncode}")
