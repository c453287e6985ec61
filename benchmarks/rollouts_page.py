"""The page of 50,000 rollouts: seconds to write it, its size against the tables, and its times in Chromium.

The rollouts are pieces of the shipped cold-start traces and of the documentation, cut and joined at random: some 200
tokens each, with a log-prob for every token that no compression can guess. Those of a model compress better.
"""

import json
import re
import shutil
import sys
import time
from importlib import import_module
from itertools import count, pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks.downloads import ROOT, Unavailable
from magcli.data import manifest, seal, table
from magcli.report.rollouts import page
from magcli.report.rollouts.source import of_run
from magcli.report.rollouts.vocabulary import LETTERS
from magcli.rl.store import ROLLOUT
from magcli.run.rundir import RunDir

UPDATES, GROUPS, SAMPLES = 100, 32, 16
ROWS = GROUPS * SAMPLES
"""Rollouts of an update; 51,200 of the run."""
TOKENS = 200
"""Mean length."""
PIECES = re.compile(r" ?[A-Za-z]+| ?\d|\s+|[^A-Za-z\d\s]")
"""What a token is: a word with the space before it, a digit, white space, another sign."""
LETTER_OF = {byte: letter for letter, byte in LETTERS.items()}
MOST_SIZE, MOST_FIRST, MOST_FILTER = 1.3, 1.0, 0.3
"""Bounds: size as a multiple of the tables', seconds of CPU to the first view and of a filter."""


def run() -> None:
    """Write and use the page, and print a table; AssertionError if a bound is missed."""
    if not shutil.which("chromium"):
        raise Unavailable("no Chromium on this machine: apt-get install chromium")
    with TemporaryDirectory() as folder:
        run_folder = Path(folder) / "run"
        size = make_run(run_folder)
        source = of_run(run_folder, "Rollouts")
        assert source is not None
        started, cpu = time.perf_counter(), time.process_time()
        written = page.write(Path(folder) / "rollouts.html", source)
        seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
        print(f"  {written.rows:,} rollouts, tables {size / 1e6:.0f} MB, page {written.size / 1e6:.0f} MB", flush=True)
        print(
            f"  size {written.size / size:.2f} of the tables, written in {seconds:.1f} s, {cpu:.1f} s of CPU",
            flush=True,
        )
        times = in_browser(Path(folder))
    for name, (wall, cpu) in times.items():
        print(f"  {name}: {wall:.2f} s, CPU time of the page {cpu:.2f} s", flush=True)
    assert written.size <= MOST_SIZE * size
    assert times["first view"][1] <= MOST_FIRST
    assert all(cpu <= MOST_FILTER for name, (_, cpu) in times.items() if name.startswith("filter"))


def make_run(folder: Path) -> int:
    """Write a run of this many rollouts; returns the bytes of its tables."""
    choose = np.random.default_rng(0)
    corpus, pieces = read_corpus()
    run = RunDir(folder)
    for path in (run.rollouts, run.model):
        path.mkdir(parents=True)
    run.note_path.write_text(json.dumps({"command": "rl", "version": "0.1.0", "inputs": []}))
    write_tokenizer(run.model / "tokenizer.json", pieces)
    for step in range(1, UPDATES + 1):
        rows = update(step, corpus, pieces, choose)
        with table.write(str(run.rollouts_of(step)), ROLLOUT, seal.pack({"stage": "rl"})) as sink:
            sink.write(rows)
            sink.finish((manifest.Link("rl", "", {"step": step}, rows_out=rows.num_rows),))
    return sum(path.stat().st_size for path in run.rollouts.iterdir())


def read_corpus() -> tuple[npt.NDArray[np.int32], list[str]]:
    """The tokens of the shipped traces and of the documentation (T,), and the text of each."""
    lines = (ROOT / "recipes/smollm2/data/cold_start.jsonl").read_text(encoding="utf-8").splitlines()
    texts = [json.loads(line)["completion"] for line in lines]
    texts += [path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").glob("*.md"))]
    text = "\n".join(texts)
    numbers: dict[str, int] = {}
    tokens = [numbers.setdefault(piece, len(numbers)) for piece in PIECES.findall(text)]
    return np.array(tokens, np.int32), list(numbers)


def write_tokenizer(path: Path, pieces: list[str]) -> None:
    """A tokenizer of these tokens, as GPT-2's names them."""
    names = ("".join(LETTER_OF[byte] for byte in piece.encode()) for piece in pieces)
    settings = {"model": {"type": "BPE", "vocab": dict(zip(names, count()))}, "decoder": {"type": "ByteLevel"}}
    path.write_text(json.dumps(settings))


def update(step: int, corpus: npt.NDArray[np.int32], pieces: list[str], choose: np.random.Generator) -> pa.RecordBatch:
    """The rollouts of an update, with every column of a run's."""
    problems = np.repeat(choose.integers(0, 1_000, GROUPS), SAMPLES)
    asked = corpus[(50 * problems[:, None] + np.arange(50)) % len(corpus)]
    lengths = np.clip(choose.lognormal(np.log(TOKENS) - 0.125, 0.5, ROWS), 10, 1_500).astype(np.int32)
    tokens = joined_parts(corpus, int(lengths.sum()), choose)
    logprobs = -choose.exponential(0.6, len(tokens)) * choose.choice([0.01, 1.0], len(tokens))
    correct = choose.random(ROWS) < 0.4
    numbers = {
        "sample": np.tile(np.arange(SAMPLES), GROUPS),
        "num_tokens": lengths,
        "seed": choose.integers(0, 1 << 62, ROWS),
        "reward": 0.1 + 0.9 * correct,
        "reward_format": np.full(ROWS, 0.1),
        "reward_correct": 0.9 * correct,
        "correct": correct,
        "correct_anywhere": correct,
        "group": np.repeat(np.arange(GROUPS) + (step - 1) * GROUPS, SAMPLES),
        "step": np.full(ROWS, step),
        "advantage": choose.normal(size=ROWS),
    }
    columns = {name: pa.array(values) for name, values in numbers.items()} | {
        "id": pa.array([f"gsm8k-{problem}" for problem in problems]),
        "answer": pa.array(map(str, problems)),
        "prompt": pa.array(texts_of(asked.ravel(), np.full(ROWS, 50), pieces)),
        "completion": pa.array(texts_of(tokens, lengths, pieces)),
        "prompt_tokens": pa.array(list(asked)),
        "tokens": list_array(lengths, pa.array(tokens)),
        "logprobs": list_array(lengths, pa.array(logprobs.astype(np.float32))),
        "versions": pa.array([[{"start": 0, "version": step - 1}]] * ROWS),
        "reason": pa.array(np.where(correct, "correct", "wrong")),
        "extracted": pa.array(map(str, choose.integers(0, 1_000, ROWS))),
    }
    constants = {"finish": "stop", "detail": "number", "languages": "en en en", "kind": "math", "temperature": 1.0}
    columns |= {name: pa.array([value] * ROWS) for name, value in constants.items()}
    arrays = [columns.get(field.name, pa.nulls(ROWS)).cast(field.type) for field in ROLLOUT]
    return pa.RecordBatch.from_arrays(arrays, schema=ROLLOUT)


def joined_parts(corpus: npt.NDArray[np.int32], length: int, choose: np.random.Generator) -> npt.NDArray[np.int32]:
    """Tokens (length,): parts of the corpus of 5 to 40 tokens, one after the other."""
    sizes = choose.integers(5, 41, length // 5 + 1)
    starts = np.repeat(choose.integers(0, len(corpus), len(sizes)), sizes)
    within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return corpus[(starts + within)[:length] % len(corpus)]


def texts_of(tokens: npt.NDArray[np.int32], lengths: npt.NDArray[np.int32], pieces: list[str]) -> list[str]:
    """The texts of the tokens of all rows."""
    words = [pieces[token] for token in tokens.tolist()]
    ends = np.cumsum(lengths).tolist()
    return ["".join(words[start:end]) for start, end in pairwise([0, *ends])]


def list_array(lengths: npt.NDArray[np.int32], values: pa.Array) -> pa.Array:
    """The values of all rows as a list for each."""
    return pa.ListArray.from_arrays(pa.array(np.append(0, np.cumsum(lengths)).astype(np.int32)), values)


def in_browser(folder: Path) -> dict[str, tuple[float, float]]:
    """The times of the page in Chromium: wall time, and CPU time of the page's thread, in seconds.

    They are until it shows rows, and from a change of filters to the new rows.
    """
    sys.path.insert(0, str(ROOT / "tests"))
    times = {}
    with import_module("browser").tab(folder) as opened:
        opened.look(1280, 900, "light")
        opened.call("Performance.enable", timeDomain="threadTicks")
        opened.call("Page.navigate", url=(folder / "rollouts.html").as_uri())
        shown = int(opened.until("document.documentElement?.dataset.shown")) / 1000
        times["first view"] = shown, busy(opened)
        searchable = int(opened.until("document.documentElement.dataset.searchable")) / 1000
        times["texts searchable"] = searchable, busy(opened)
        for name, state in STATES.items():
            before = busy(opened)
            wall = opened.run(TIME % json.dumps(state)) / 1000
            times[name] = wall, busy(opened) - before
    return times


def busy(opened: Any) -> float:
    """The CPU time that the thread of the page has taken, in seconds."""
    metrics = opened.call("Performance.getMetrics")["metrics"]
    return float(next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration"))


STATES = {
    "filter by reward": "f.reward=0.5..",
    "filter by reason and update, sorted": "f.reason=wrong&f.step=20..80&sort=-advantage",
    "filter by text": "q=the total number",
    "filter by a text that is nowhere": "q=zzzzqqqq",
    "group of 16, tokens coloured": "view=group&id=1000&colour=logprobs",
    "problem": "view=problem&id=500",
}
TIME = """(async () => {
  history.replaceState(null, "", "#" + %s);
  const started = performance.now();
  await render(true);
  document.body.getBoundingClientRect();
  return performance.now() - started;
})()"""
