"""Tables of rollouts with all that the page shows, and what a page has inside."""

import base64
import json
import re
import zlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from magcli.data.schema import EPISODE
from magcli.report.rollouts import page
from magcli.report.rollouts.rows import TEXTS
from magcli.report.rollouts.source import of_table
from magcli.rl.store import CUSTOM_ROLLOUT

HOSTILE = "</script><script>document.title='broken'</script><b>&amp;\u202e\0"
WORDS = ["I ", "think ", "that ", "the ", "answer ", "is ", "\\boxed{", "3", "}", "\n", "é", "<b>", "😀"]
"""The texts of the tokens; the last character is in two of them."""
SCHEMA = pa.schema([*CUSTOM_ROLLOUT, *EPISODE, pa.field("ratios", pa.list_(pa.float32()))])


def rollout(number):
    """A row: 4 of each problem at each of 30 updates; those of problem 1 have a turn of an environment."""
    step, sample, problem = number // 8 + 1, number % 4, number // 4 % 2
    tokens = [(number + place) % 14 for place in range(10 + number % 3)]
    correct = (number + step) % 3 == 0
    turns = [("user", "Ask."), ("assistant", "I call."), ("user", "Tool says 3."), ("assistant", HOSTILE)]
    row = dict.fromkeys(SCHEMA.names)
    return row | {
        "id": f"p{problem}",
        "prompt": f"Question {problem}? {HOSTILE if problem else ''}",
        "answer": "3",
        "sample": sample,
        "completion": f"needle{number} " + HOSTILE + "Word " * 50,
        "num_tokens": len(tokens),
        "finish": "length" if sample == 3 else "stop",
        "tokens": tokens,
        "logprobs": [-0.25 * place for place in range(len(tokens))],
        "ratios": [2 ** ((place - 5) / 10) for place in range(len(tokens))],
        "versions": [{"start": 0, "version": step - 1}, {"start": 5, "version": step}][: 1 + sample // 2],
        "reward": float(correct),
        "reward_correct": 0.0,
        "reward_parts": json.dumps({"correct": float(correct), HOSTILE: 0.5}),
        "correct": correct,
        "reason": "correct" if correct else "wrong",
        "extracted": "3" if correct else HOSTILE,
        "languages": "en fr" if problem else "en en",
        "group": number // 4,
        "step": step,
        "advantage": 1.0 if correct else -0.5,
        "dropped": "all-wrong" if step == 2 else None,
        "messages": [{"role": role, "content": text} for role, text in turns] if problem else [],
        "given": [{"start": 3, "end": 6}] if problem else [],
    }


@pytest.fixture(scope="session")
def rows():
    return [rollout(number) for number in range(240)]


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """A folder with a tokenizer in the way of SentencePiece, for ``WORDS`` by bytes for the last one."""
    folder = tmp_path_factory.mktemp("model")
    names = [word.replace(" ", "\u2581") for word in WORDS[:-1]] + ["<0xF0>", "<0x9F>"]
    settings = {"model": {"vocab": {name: number for number, name in enumerate(names)}}, "decoder": None}
    (folder / "tokenizer.json").write_text(json.dumps(settings))
    return folder


@pytest.fixture(scope="session")
def written(rows, model, tmp_path_factory):
    """The page of the rows."""
    folder = tmp_path_factory.mktemp("rollouts")
    pq.write_table(pa.Table.from_pylist(rows, SCHEMA), folder / "rollouts.parquet")
    source = of_table(folder / "rollouts.parquet", f"Rollouts {HOSTILE}", chain_of(model))
    page.write(folder / "page.html", source)
    return folder / "page.html"


def chain_of(model):
    from magcli.data.manifest import Link

    return (Link("rl", "", {"model": str(model)}),)


class Inside:
    """What a page has inside."""

    def __init__(self, path):
        self.text = path.read_text(encoding="utf-8")
        self.head = json.loads(self.found('<script type="application/json" id="head">'))

    def found(self, opening):
        return self.text.partition(opening)[2].partition("</script>")[0]

    def parts(self, name):
        data = zlib.decompress(base64.b64decode(self.found(f'<script type="text/plain" id="{name}">')))
        count = int(np.frombuffer(data[:4], "<u4")[0])
        lengths = np.frombuffer(data[4 : 4 + 4 * count], "<u4")
        ends = 4 + 4 * count + np.cumsum(lengths)
        assert ends[-1] == len(data)
        return [data[end - length : end] for end, length in zip(ends, lengths, strict=True)]

    def names(self):
        return re.findall(r'<script type="text/plain" id="([\w-]+)">', self.text)

    def texts(self, number):
        parts = self.parts(f"texts-{number}")
        return {name: split(*parts[2 * place : 2 * place + 2]) for place, name in enumerate(TEXTS)}

    def column(self, name):
        """The values of a column of the index: numbers, or choices (None where there is none)."""
        place = [column["name"] for column in self.head["columns"]].index(name)
        choices = self.head["columns"][place].get("choices")
        values = np.frombuffer(self.parts("index")[place + 1], "<i4" if choices else "<f4").tolist()
        return [choices[code] if code >= 0 else None for code in values] if choices else values


def split(lengths, text):
    ends = np.cumsum(np.frombuffer(lengths, "<u4")).tolist()
    return [text[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True)]


@pytest.fixture(scope="session")
def inside():
    return Inside
