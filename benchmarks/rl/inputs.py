"""Models and problems of the RL comparisons: SmolLM2-135M-Instruct, with and without an end token, and GSM8K.

The model comes from the package registry; the problems are shipped with ``recipes/smollm2``.
"""

import json
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

from benchmarks.downloads import CACHE, ROOT, Unavailable
from benchmarks.rl.settings import COMPLETIONS, GROUP, UNUSED_TOKEN

FOLDER = CACHE / "rl"
SHIPPED = tuple(ROOT / "recipes/smollm2/data" / name for name in ("test_gsm8k.jsonl", "problems.jsonl"))
"""Tables with problems of GSM8K among others."""


@cache
def smollm2() -> Path:
    """The model as published.

    Raises:
        Unavailable: it cannot be downloaded.
    """
    folder = CACHE / "smollm2"
    command = [sys.executable, str(ROOT / "recipes/smollm2/get_model.py"), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise Unavailable(f"SmolLM2-135M-Instruct: {done.stderr.strip()[-300:]}")
    return folder


@cache
def smollm2_without_end() -> Path:
    """The same model with an end token that it never generates: every completion reaches the limit."""
    from transformers import AutoTokenizer

    source, folder = smollm2(), FOLDER / "smollm2-without-end"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(source, folder)
    tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=False)
    end = tokenizer.convert_tokens_to_ids(UNUSED_TOKEN)
    assert end != tokenizer.unk_token_id, f"{UNUSED_TOKEN} is not in the vocabulary of {source}"
    tokenizer.eos_token = UNUSED_TOKEN
    tokenizer.save_pretrained(folder)
    for name in ("config.json", "generation_config.json"):
        settings = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps(settings | {"eos_token_id": end}))
    return folder


def problems(updates: int) -> Path:
    """The word problems of a number of updates; each side trains on all of them, in its own order.

    Raises:
        ValueError: there are fewer problems than the updates take.
    """
    count = updates * COMPLETIONS // GROUP
    rows = _gsm8k()
    if count > len(rows):
        raise ValueError(f"{updates} updates take {count} problems; {len(rows)} are shipped")
    path = FOLDER / f"problems-{updates}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows[:count]))
    return path


def _gsm8k() -> list[dict[str, str]]:
    """All shipped problems of GSM8K, as they are in the files."""
    lines = [line for table in SHIPPED for line in table.read_text().splitlines()]
    rows = [json.loads(line) for line in lines]
    return [
        {"id": row["id"], "prompt": row["prompt"], "answer": row["answer"]} for row in rows if row["source"] == "gsm8k"
    ]
