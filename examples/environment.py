"""Your own environment: a task that no model can solve without its tool. `bash environment.sh` trains on it.

python environment.py FOLDER    writes traces for a cold start and problems for RL
"""

import json
import random
import sys
from pathlib import Path

QUESTION = "What is under the cup?"


class Cup:
    """A digit is under a cup. A turn that is `look` shows it; any other turn is the answer."""

    max_turns = 3

    def reply(self, row: dict, messages: list[dict]) -> str | None:
        """What comes after a turn of the model: a turn of the user, or None at the end."""
        return row["answer"] if messages[-1]["content"] == "look" else None


class CupOnce(Cup):
    """The same with a judge of its own: each look after the first costs half a point."""

    def reward(self, row: dict, messages: list[dict]) -> dict:
        """The reward of an episode, and its parts."""
        turns = [message["content"] for message in messages if message["role"] == "assistant"]
        looks, right = turns.count("look"), turns[-1].endswith(f"\\boxed{{{row['answer']}}}")
        return {"total": right - 0.5 * max(0, looks - 1), "correct": right, "looks": looks}


def trace(digit: int, *, looks: bool) -> list[dict]:
    """A conversation of a model that looks, or guesses."""
    turns = ["look", str(digit)] if looks else []
    contents = [QUESTION, *turns, f"<think>{digit}</think>\\boxed{{{digit}}}"]
    return [{"role": ("user", "assistant")[number % 2], "content": text} for number, text in enumerate(contents)]


def write(path: Path, rows: list[dict]) -> None:
    """Write rows as JSON lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    folder, choose = Path(sys.argv[1]), random.Random(0)
    digits = [choose.randint(1, 9) for _ in range(400)]
    traces = [trace(digit, looks=number % 4 == 0) for number, digit in enumerate(digits[:300])]
    problems = [{"id": f"c{i}", "prompt": QUESTION, "answer": str(digit)} for i, digit in enumerate(digits[300:])]
    write(folder / "traces.jsonl", [{"id": f"t{i}", "messages": messages} for i, messages in enumerate(traces)])
    write(folder / "cups.jsonl", problems)
