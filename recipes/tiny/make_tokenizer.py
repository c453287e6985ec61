"""Make the toy model's tokenizer: byte-level BPE over the task's own text, so that any text survives a round trip.

Numbers below 100, the task's words, ``<think>``, ``</think>`` and ``\\boxed{`` are single tokens.

Usage: python make_tokenizer.py (after make_data.py; writes model/tokenizer.json and model/tokenizer_config.json)
"""

import json
from collections.abc import Iterator
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

HERE = Path(__file__).parent
SPECIAL = ("<|pad|>", "<|end|>", "<|user|>", "<|assistant|>")
MARKS = ("<think>", "</think>", "\\boxed{")
VOCAB_SIZE = 512
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'user' %}<|user|>{{ message['content'] }}"
    "{% elif message['role'] == 'assistant' %}<|assistant|>"
    "{% generation %}{{ message['content'] }}<|end|>{% endgeneration %}"
    "{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
"""System messages are left out: a model of this size learns nothing from them and would pay for their length."""


def corpus() -> Iterator[str]:
    yield from (str(number) for number in range(100) for _ in range(100))
    for name in ("problems", "held_out", "traces", "instructions"):
        for line in (HERE / "data" / f"{name}.jsonl").read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            yield from (turn["content"] for turn in row.get("messages", []))
            yield row.get("prompt", "")


def train() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"\d{1,2}| ?[A-Za-z]+|[^A-Za-z\d]"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus(), trainer)
    tokenizer.add_tokens([AddedToken(mark, normalized=False, special=False) for mark in MARKS])
    return tokenizer


def main() -> None:
    tokenizer = train()
    tokenizer.save(str(HERE / "model" / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "pad_token": SPECIAL[0],
        "eos_token": SPECIAL[1],
        "additional_special_tokens": list(SPECIAL[2:]),
        "clean_up_tokenization_spaces": False,
        "model_max_length": 256,
        "chat_template": CHAT_TEMPLATE,
    }
    (HERE / "model" / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
