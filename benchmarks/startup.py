"""Time to three completions: the ``magcli generate`` process against a script that only loads the same model.

Both run with the toy model of ``examples/`` on one thread, so that the time is that of starting up. The script imports
AutoModelForCausalLM and AutoTokenizer, loads both and exits, the least that any script with transformers does.
"""

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.downloads import ROOT
from benchmarks.pairs import Result, compare, timed

MODEL = ROOT / "examples" / "model"
ROWS = 3
TOKENS = 32
PAIRS = 7
LEAST = 1.25

LOAD = """
import sys
from transformers import AutoModelForCausalLM, AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
model = AutoModelForCausalLM.from_pretrained(sys.argv[1])
"""


def against_load() -> Result:
    """Wall time of both processes; the ratio must be at least ``LEAST``."""
    with TemporaryDirectory() as folder:
        problems = Path(folder) / "problems.jsonl"
        lines = (ROOT / "examples" / "problems.jsonl").read_text(encoding="utf-8").splitlines()
        problems.write_text("\n".join(lines[:ROWS]) + "\n", encoding="utf-8")
        ours = timed(lambda: _generate(problems))
        theirs = timed(lambda: _run("-c", LOAD, MODEL))
        ours()
        theirs()
        return compare("startup-vs-bare", ours, theirs, amount=ROWS, unit="rows", pairs=PAIRS, least=LEAST)


def _generate(problems: Path) -> None:
    rows = problems.with_name("rows.jsonl")
    rows.unlink(missing_ok=True)
    options = ("--model", MODEL, "--engine", "torch", "--max-tokens", TOKENS, "-o", rows)
    _run("-m", "magcli", "generate", problems, *options)
    assert len(rows.read_text(encoding="utf-8").splitlines()) == ROWS


def _run(*arguments: object) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, *map(str, arguments)]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)
