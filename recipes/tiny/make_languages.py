"""Write the toy task in two languages of this recipe: one-step word problems in English and in French.

``traces.jsonl`` is the cold start: worked solutions, a third of which are not in the language of their question.
``problems.jsonl`` is for RL and ``held_out.jsonl`` for evaluation; no problem is in two files, and half are in each
language.

Usage: python make_languages.py FOLDER
"""

import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SEED = 20250710
TRACES, PROBLEMS, HELD_OUT = 1600, 480, 300
LARGEST = 20
SAME_LANGUAGE = 2 / 3
"""Share of the worked solutions in the language of their question."""

Row = dict[str, object]


class Language(NamedTuple):
    """A language: the things to count, question and chain of thought of each story, and the start of the answer."""

    things: tuple[str, ...]
    stories: dict[str, tuple[str, str]]
    answer: str


NAMES = ("Anna", "Paul", "Marie", "Louis", "Clara", "Hugo", "Emma", "Jules")
LANGUAGES = {
    "en": Language(
        ("apples", "books", "flowers", "chairs", "letters", "candles", "pencils", "stones"),
        {
            "+": (
                "{name} has {a} {things} and then buys {b} more of them. How many {things} are there now?",
                "At the beginning there were {a} {things}, and {b} were added, which makes {a}+{b}={c}.",
            ),
            "-": (
                "{name} has {a} {things} and then gives {b} of them away. How many {things} are left?",
                "At the beginning there were {a} {things}, and {b} were taken away, which leaves {a}-{b}={c}.",
            ),
        },
        "So the answer to the question is",
    ),
    "fr": Language(
        ("pommes", "livres", "fleurs", "chaises", "lettres", "bougies", "crayons", "pierres"),
        {
            "+": (
                "{name} possède {a} {things} et en achète ensuite {b} de plus. "
                "Combien de {things} y a-t-il maintenant ?",
                "Au début il y avait {a} {things}, et on en ajoute {b}, ce qui donne {a}+{b}={c}.",
            ),
            "-": (
                "{name} possède {a} {things} et en donne ensuite {b} à quelqu'un. Combien de {things} reste-t-il ?",
                "Au début il y avait {a} {things}, et on en retire {b}, ce qui laisse {a}-{b}={c}.",
            ),
        },
        "La réponse à la question est donc",
    ),
}
OTHERS = {language: [other for other in LANGUAGES if other != language] for language in LANGUAGES}


class Story(NamedTuple):
    """A problem independent of its language; ``thing`` is an index into each language's list."""

    name: str
    thing: int
    sign: str
    a: int
    b: int

    @property
    def result(self) -> int:
        """The ground truth."""
        return self.a + self.b if self.sign == "+" else self.a - self.b

    def fill(self, text: str, words: Language) -> str:
        """Fill in a template."""
        return text.format(name=self.name, things=words.things[self.thing], a=self.a, b=self.b, c=self.result)


def stories(rng: random.Random) -> Iterator[Story]:
    """An endless stream of distinct stories."""
    seen = set()
    while True:
        a, b = rng.randint(1, LARGEST), rng.randint(1, LARGEST)
        story = Story(rng.choice(NAMES), rng.randrange(8), rng.choice("+-"), max(a, b), min(a, b))
        if story not in seen:
            seen.add(story)
            yield story


def problem(story: Story, language: str) -> Row:
    words = LANGUAGES[language]
    prompt = story.fill(words.stories[story.sign][0], words)
    return {"kind": "math", "prompt": prompt, "answer": str(story.result), "source": language}


def completion(story: Story, language: str) -> str:
    words = LANGUAGES[language]
    thoughts = story.fill(words.stories[story.sign][1], words)
    return f"<think>{thoughts}</think>{words.answer} \\boxed{{{story.result}}}."


def traces(found: Iterator[Story], rng: random.Random) -> Iterator[Row]:
    for language in languages(TRACES):
        story, writer = next(found), language if rng.random() < SAME_LANGUAGE else rng.choice(OTHERS[language])
        yield problem(story, language) | {"completion": completion(story, writer)}


def languages(count: int) -> Iterator[str]:
    """Alternate both languages."""
    return (list(LANGUAGES)[number % 2] for number in range(count))


def write(path: Path, rows: list[Row], prefix: str, rng: random.Random) -> None:
    rng.shuffle(rows)
    lines = (json.dumps({"id": f"{prefix}-{number:04d}"} | row, ensure_ascii=False) for number, row in enumerate(rows))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(SEED)
    found = stories(rng)
    for name, count in (("held_out", HELD_OUT), ("problems", PROBLEMS)):
        write(folder / f"{name}.jsonl", [problem(next(found), each) for each in languages(count)], name, rng)
    write(folder / "traces.jsonl", list(traces(found, rng)), "trace", rng)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
