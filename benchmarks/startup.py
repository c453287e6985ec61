"""The time to three rows: ``magcli generate`` beside a script that a user of transformers would write.

Whole processes with the toy model of ``examples/``, where starting is all there is, on one thread each. The script
imports AutoModelForCausalLM and AutoTokenizer and loads both; ``against_load`` ends there, which is the least that any
such script takes, and ``against_generate`` answers the same three problems by ``generate``.
"""

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.pairs import Result, compare, report, timed

ROOT = Path(__file__).parent.parent
MODEL = ROOT / "examples" / "model"
ROWS, TOKENS, PAIRS = 3, 32, 7
LEAST = 1.25
"""What the ratio to a script that only loads must reach."""

LOAD = """
import json, sys
from transformers import AutoModelForCausalLM, AutoTokenizer
model, problems, tokens = sys.argv[1:]
tokenizer = AutoTokenizer.from_pretrained(model)
loaded = AutoModelForCausalLM.from_pretrained(model)
"""
GENERATE = """
with open(problems) as file:
    prompts = [json.loads(line)["prompt"] for line in file]
for prompt in prompts:
    turns = [{"role": "user", "content": prompt}]
    given = tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    made = loaded.generate(**given, max_new_tokens=int(tokens), do_sample=True)
    print(json.dumps({"completion": tokenizer.decode(made[0, given["input_ids"].shape[1] :])}))
"""


def against_load() -> Result:
    """A script that loads model and tokenizer and ends."""
    result = _race("startup-vs-bare", LOAD)
    return Result(result.name, result.ratios, least=LEAST)


def against_generate() -> Result:
    """A script that answers the problems as well."""
    return _race("startup-vs-bare-generate", LOAD + GENERATE)


def _race(name: str, script: str) -> Result:
    with TemporaryDirectory() as folder:
        problems = Path(folder) / "problems.jsonl"
        lines = (ROOT / "examples" / "problems.jsonl").read_text(encoding="utf-8").splitlines()
        problems.write_text("\n".join(lines[:ROWS]) + "\n", encoding="utf-8")
        ours, theirs = timed(lambda: _magcli(problems)), timed(lambda: _run("-c", script, MODEL, problems, TOKENS))
        ours()
        theirs()
        return compare(name, ours, theirs, amount=ROWS, unit="rows", pairs=PAIRS)


def _magcli(problems: Path) -> None:
    rows = problems.with_name("rows.jsonl")
    rows.unlink(missing_ok=True)
    options = ("--model", MODEL, "--engine", "torch", "--max-tokens", TOKENS, "-o", rows)
    _run("-m", "magcli", "generate", problems, *options)
    assert len(rows.read_text(encoding="utf-8").splitlines()) == ROWS


def _run(*arguments: object) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, *map(str, arguments)]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)


if __name__ == "__main__":
    report(against_load, against_generate)
