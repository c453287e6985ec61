"""Fetch public word problems, split them, and write ``problems.jsonl`` and ``test_mawps.jsonl``.

    python recipes/smollm2/get_problems.py FOLDER [--local FOLDER_WITH_THE_FILES]

The problems are three parts of MAWPS (one or two steps, whole numbers below 1,000 or so), as published with the
evaluation code of Qwen2.5-Math (MIT). Their own licence is not stated, so they are not shipped. 320 of them are held
out: problems that begin with the same three words, often variants of one story, are on one side of the split.
``problems.jsonl`` holds the others and ``data/problems.jsonl``. The seed is fixed.
"""

import argparse
import hashlib
import json
import random
import sys
import urllib.error
import urllib.request
from collections.abc import Iterable
from pathlib import Path

HERE = Path(__file__).parent
BASE = "https://raw.githubusercontent.com/QwenLM/Qwen2.5-Math/a45202bd16f1ec06f433442dc1152d0074773465/evaluation/data/mawps"
SHA256 = {
    "singleop": "feb012e7ed5503cdb96fd127d539692b033000e9134655acaf4f4e0091328e94",
    "addsub": "2fae2c92530cdf1ac0487db9a90e68d6af84049d755c07c4486411c1d7f43e75",
    "singleeq": "07bec92bae226dd5231a966e907a0f097ba3170a1557c73ceeb135caad8d09f8",
}
HELD_OUT = 320
SEED = 20250610
TIMEOUT_SECONDS = 60.0

Row = dict[str, str]


def content(part: str, local: Path | None) -> bytes:
    """One file, from a folder or the network; the command ends if it is not there or another one."""
    name = f"mawps_{part}.jsonl" if local else f"{part}.jsonl"
    source = str(local / name) if local else f"{BASE}/{name}"
    try:
        if local:
            data = (local / name).read_bytes()
        else:
            with urllib.request.urlopen(source, timeout=TIMEOUT_SECONDS) as answer:
                data = answer.read()
    except (OSError, urllib.error.URLError) as error:
        sys.exit(f"get_problems: {source}: {error}. Download the three files and give their folder as --local.")
    if hashlib.sha256(data).hexdigest() != SHA256[part]:
        sys.exit(f"get_problems: {source} is another file than the one that this recipe was written for (SHA-256).")
    return data


def problems_of(part: str, data: bytes) -> Iterable[Row]:
    """The problems with whole answers; the spaces before punctuation are removed."""
    for number, line in enumerate(data.decode().splitlines()):
        row = json.loads(line)
        prompt = " ".join(row["input"].replace(" .", ".").replace(" ,", ",").replace(" ?", "?").split())
        if float(row["target"]).is_integer():
            answer = f"{row['target']:.12g}"
            yield {"id": f"mawps/{part}/{number:03}", "prompt": prompt, "answer": answer, "source": f"mawps/{part}"}


def split(problems: Iterable[Row], at_least: int) -> tuple[list[Row], list[Row]]:
    """Held-out problems and the others, without repeated statements."""
    distinct = {row["prompt"]: row for row in problems}
    stories: dict[str, list[Row]] = {}
    for row in distinct.values():
        stories.setdefault(" ".join(row["prompt"].split()[:3]), []).append(row)
    openings = sorted(stories)
    random.Random(SEED).shuffle(openings)
    held_out: list[Row] = []
    others: list[Row] = []
    for opening in openings:
        (held_out if len(held_out) < at_least else others).extend(stories[opening])
    return held_out, others


def write(path: Path, rows: list[Row]) -> None:
    """Write the rows as JSON lines, shuffled by the seed."""
    random.Random(SEED).shuffle(rows)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    print(f"{path}: {len(rows)} rows")


def main() -> None:
    """Fetch the files, write both tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="where the tables are written")
    parser.add_argument(
        "--local", type=Path, help="folder with mawps_singleop.jsonl, mawps_addsub.jsonl, mawps_singleeq.jsonl"
    )
    arguments = parser.parse_args()
    fetched = [row for part in SHA256 for row in problems_of(part, content(part, arguments.local))]
    held_out, others = split(fetched, HELD_OUT)
    shipped = [json.loads(line) for line in (HERE / "data" / "problems.jsonl").read_text(encoding="utf-8").splitlines()]
    arguments.folder.mkdir(parents=True, exist_ok=True)
    write(arguments.folder / "test_mawps.jsonl", held_out)
    write(arguments.folder / "problems.jsonl", others + shipped)


if __name__ == "__main__":
    main()
