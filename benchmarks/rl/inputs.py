"""Models and problems of the RL comparisons: SmolLM2-135M-Instruct, with and without an end token, and MultiArith."""

import json
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

from benchmarks.downloads import CACHE, ROOT, GithubFile, Unavailable
from benchmarks.rl.settings import COMPLETIONS, GROUP, UNUSED_TOKEN

FOLDER = CACHE / "rl"
MULTIARITH = GithubFile(
    "QwenLM/Qwen2.5-Math",
    "a45202bd16f1ec06f433442dc1152d0074773465",
    "evaluation/data/mawps/multiarith.jsonl",
    "12e8295088364af21fb6591dbdbd1dda452aade57227f63d725677471ded2951",
    shared="math/mawps_multiarith.jsonl",
)


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
    """The word problems of a number of updates; each side trains on all of them, in its own order."""
    count = updates * COMPLETIONS // GROUP
    rows = [json.loads(line) for line in MULTIARITH.text().splitlines()[:count]]
    lines = [
        json.dumps({"id": str(number), "prompt": row["input"], "answer": f"{row['target']:g}"})
        for number, row in enumerate(rows)
    ]
    path = FOLDER / f"problems-{updates}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    return path
