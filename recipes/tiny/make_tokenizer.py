"""Make the toy models' tokenizers: byte-level BPE on the task's own text, so that any text can be encoded.

Numbers below 100, the task's words, ``<think>``, ``</think>`` and ``\\boxed{`` are single tokens; for code also code
fences and line starts.

Usage: python make_tokenizer.py (after make_data.py; writes model/tokenizer.json and model/tokenizer_config.json)
       python make_tokenizer.py code FOLDER (after make_code.py FOLDER; writes the same into model-code)
       python make_tokenizer.py languages FOLDER (after make_languages.py FOLDER; into model-languages)
"""

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

HERE = Path(__file__).parent
SPECIAL = ("<|pad|>", "<|end|>", "<|user|>", "<|assistant|>")
MARKS = ("<think>", "</think>", "\\boxed{")
CODE_MARKS = ("```python\n", "\n```")
TURNS = (
    "{% if message['role'] == 'user' %}<|user|>{{ message['content'] }}"
    "{% elif message['role'] == 'assistant' %}<|assistant|>"
    "{% generation %}{{ message['content'] }}<|end|>{% endgeneration %}"
)
SYSTEM_TURN = "{% elif message['role'] == 'system' %}<|system|>{{ message['content'] }}"


class Make(NamedTuple):
    """A tokenizer's folder, pre-tokenizer pattern, size, special tokens and other fixed tokens."""

    folder: str
    pieces: str
    vocab_size: int
    special: tuple[str, ...] = SPECIAL
    marks: tuple[str, ...] = MARKS
    turns: str = TURNS


MATH = Make("model", r"\d{1,2}| ?[A-Za-z]+|[^A-Za-z\d]", 512)
"""The template ignores system messages: a model of this size learns nothing from them, and they cost time."""
CODE = Make(
    "model-code",
    r"\d{1,2}|\n    return|\n    | ?[A-Za-z]+|[^A-Za-z\d]",
    640,
    (*SPECIAL, "<|system|>"),
    (*MARKS, *CODE_MARKS),
    TURNS + SYSTEM_TURN,
)
LANGUAGES = Make("model-languages", r"\d{1,2}| ?[^\W\d_]+|[^\p{L}\d]", 512)


def rows(file: Path) -> Iterator[dict]:
    return map(json.loads, file.read_text(encoding="utf-8").splitlines())


def math_corpus() -> Iterator[str]:
    yield from (str(number) for number in range(100) for _ in range(100))
    for name in ("problems", "held_out", "traces", "instructions"):
        for row in rows(HERE / "data" / f"{name}.jsonl"):
            yield from (turn["content"] for turn in row.get("messages", []))
            yield row.get("prompt", "")


def code_corpus(folder: Path) -> Iterator[str]:
    """The math corpus, and prompts and completions of the code task."""
    yield from math_corpus()
    for name in ("problems", "held_out", "traces"):
        for row in rows(folder / f"{name}.jsonl"):
            yield row["prompt"]
            yield row.get("completion", "")


def languages_corpus(folder: Path) -> Iterator[str]:
    yield from (str(number) for number in range(100) for _ in range(100))
    for row in rows(folder / "traces.jsonl"):
        yield row["prompt"]
        yield row["completion"]


def train(make: Make, corpus: Iterable[str]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(make.pieces), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=make.vocab_size,
        special_tokens=list(make.special),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus, trainer)
    tokenizer.add_tokens([AddedToken(mark, normalized=False, special=False) for mark in make.marks])
    return tokenizer


def config(make: Make) -> dict[str, object]:
    template = (
        "{% for message in messages %}" + make.turns + "{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>{% endif %}"
    )
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "pad_token": make.special[0],
        "eos_token": make.special[1],
        "additional_special_tokens": list(make.special[2:]),
        "clean_up_tokenization_spaces": False,
        "model_max_length": 256,
        "chat_template": template,
    }


def write(make: Make, corpus: Iterable[str]) -> None:
    folder = HERE / make.folder
    train(make, corpus).save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(config(make), indent=2) + "\n", encoding="utf-8")


def main(task: str = "math", folder: str = "") -> None:
    made = {
        "math": lambda: write(MATH, math_corpus()),
        "code": lambda: write(CODE, code_corpus(Path(folder))),
        "languages": lambda: write(LANGUAGES, languages_corpus(Path(folder))),
    }
    made[task]()


if __name__ == "__main__":
    main(*sys.argv[1:])
