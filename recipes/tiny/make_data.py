"""Write the toy task of this recipe: chains of additions and subtractions, with the flaws of a raw problem set.

``problems.jsonl`` has sound problems of all difficulties as well as proofs, several questions in one, multiple choice,
unfinished statements, missing answers and wrong ground truths. ``traces.jsonl`` is the cold start: solutions in two
styles, with every step or only with the result of the whole chain. ``held_out.jsonl`` is for evaluation,
``instructions.jsonl`` the general instructions of the cold start. No chain is in two files.

Usage: python make_data.py [FOLDER]
"""

import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SEED = 20250612
MAX_FIRST, MAX_OPERAND, MAX_TOTAL = 20, 9, 20

PROBLEMS = {2: 110, 3: 350, 4: 600, 5: 600, 6: 60}
HELD_OUT = {3: 120, 4: 120, 5: 120}
TRACES = {2: 110, 3: 300, 4: 330, 5: 360}
"""Rows by the number of terms in the chain."""
ONE_LINE_SHARE = 0.5
SLIPS = 50
LARGE, MISPRINTS, CHOICES = 80, 80, 40
PROOFS, MULTI_PART, UNFINISHED, UNANSWERED, UNVERIFIABLE = 30, 30, 25, 30, 25
INSTRUCTIONS = 150

TEMPLATES = ("Compute {}.", "What is {}?", "Find the value of {}.")

Row = dict[str, object]


class Chain(NamedTuple):
    """A chain of sums: ``first``, then steps such as ``("+", 7)``."""

    first: int
    steps: tuple[tuple[str, int], ...]

    @property
    def text(self) -> str:
        return str(self.first) + "".join(f"{sign}{operand}" for sign, operand in self.steps)

    @property
    def totals(self) -> list[int]:
        """The running total: the first number, then the result after each step."""
        totals = [self.first]
        for sign, operand in self.steps:
            totals.append(totals[-1] + operand if sign == "+" else totals[-1] - operand)
        return totals


class Chains:
    """Samples distinct chains, unique over all files, with a running total from 0 to ``MAX_TOTAL``."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.seen: set[Chain] = set()

    def draw(self, terms: int) -> Chain:
        while True:
            steps = tuple((self.rng.choice("+-"), self.rng.randint(1, MAX_OPERAND)) for _ in range(terms - 1))
            chain = Chain(self.rng.randint(1, MAX_FIRST), steps)
            if chain not in self.seen and all(0 <= total <= MAX_TOTAL for total in chain.totals):
                self.seen.add(chain)
                return chain

    def many(self, count_by_terms: dict[int, int]) -> Iterator[Chain]:
        for terms, count in count_by_terms.items():
            for _ in range(count):
                yield self.draw(terms)


def problem(prompt: str, answer: object, source: str) -> Row:
    return {"prompt": prompt, "answer": str(answer), "source": source}


def sound(chains: Chains, count_by_terms: dict[int, int]) -> Iterator[Row]:
    for chain in chains.many(count_by_terms):
        prompt = chains.rng.choice(TEMPLATES).format(chain.text)
        yield problem(prompt, chain.totals[-1], f"chain-{len(chain.totals)}")


def large(rng: random.Random) -> Iterator[Row]:
    """Products of numbers far outside the cold start, never solved."""
    for _ in range(LARGE):
        a, b = rng.randint(112, 989), rng.randint(12, 98)
        yield problem(rng.choice(TEMPLATES).format(f"{a}*{b}"), a * b, "large")


def misprints(chains: Chains) -> Iterator[Row]:
    """Sound statements whose ground truth is wrong."""
    for chain in chains.many({3: MISPRINTS}):
        wrong = [total for total in range(MAX_TOTAL + 1) if 1 <= abs(total - chain.totals[-1]) <= 4]
        yield problem(chains.rng.choice(TEMPLATES).format(chain.text), chains.rng.choice(wrong), "misprint")


def choices(chains: Chains) -> Iterator[Row]:
    for chain in chains.many({3: CHOICES}):
        truth = chain.totals[-1]
        options = [truth, *chains.rng.sample([n for n in range(MAX_TOTAL + 1) if n != truth], 2)]
        chains.rng.shuffle(options)
        listed = " ".join(f"({letter}) {option}" for letter, option in zip("ABC", options, strict=True))
        yield problem(f"What is {chain.text}? {listed}", "ABC"[options.index(truth)], "choice")


def proofs(chains: Chains) -> Iterator[Row]:
    for chain in chains.many({3: PROOFS}):
        verb = chains.rng.choice(("Prove that", "Show that"))
        yield problem(f"{verb} {chain.text}={chain.totals[-1]}.", chain.totals[-1], "proof")


def multi_part(chains: Chains) -> Iterator[Row]:
    for _ in range(MULTI_PART):
        a, b = chains.draw(3), chains.draw(3)
        answer = f"{a.totals[-1]}, {b.totals[-1]}"
        yield problem(f"(a) Compute {a.text}. (b) Compute {b.text}.", answer, "multi-part")


def unfinished(chains: Chains) -> Iterator[Row]:
    for chain in chains.many({3: UNFINISHED}):
        ending = chains.rng.choice((f"Compute {chain.text}+", f"What is the value of {chain.text} plus", "Compute"))
        yield problem(ending, chain.totals[-1], "unfinished")


def unanswered(chains: Chains) -> Iterator[Row]:
    for chain in chains.many({4: UNANSWERED}):
        yield problem(chains.rng.choice(TEMPLATES).format(chain.text), "", "unanswered")


def unverifiable(chains: Chains) -> Iterator[Row]:
    for chain in chains.many({4: UNVERIFIABLE}):
        answer = chains.rng.choice(("answers may vary", "see the figure", "it depends"))
        yield problem(chains.rng.choice(TEMPLATES).format(chain.text), answer, "unverifiable")


def solution(chain: Chain, *, one_line: bool, slip: int = 0) -> str:
    """A worked solution. ``slip`` is added to the last result, for a wrong solution."""
    totals = [*chain.totals[:-1], chain.totals[-1] + slip]
    if one_line:
        thought = f"{chain.text}={totals[-1]}"
    else:
        pairs = zip(totals[:-1], chain.steps, totals[1:], strict=True)
        thought = " ".join(f"{before}{sign}{operand}={after}" for before, (sign, operand), after in pairs)
    return f"<think>{thought}</think>\\boxed{{{totals[-1]}}}"


def traces(chains: Chains) -> Iterator[Row]:
    """Solutions, most of them correct. For a two-term chain both styles are equal."""
    drawn = list(chains.many(TRACES))
    slips = set(chains.rng.sample(range(len(drawn)), SLIPS))
    for index, chain in enumerate(drawn):
        one_line = chains.rng.random() < ONE_LINE_SHARE
        slip = chains.rng.choice((1, 2)) if index in slips else 0
        prompt = chains.rng.choice(TEMPLATES).format(chain.text)
        row = problem(prompt, chain.totals[-1], "one-line" if one_line else "steps")
        yield row | {"completion": solution(chain, one_line=one_line, slip=slip)}


def instruction(rng: random.Random) -> tuple[str, str]:
    """A small general request and its reply."""
    a, b, c = rng.sample(range(MAX_TOTAL + 1), 3)
    low, high = min(a, b), max(a, b)
    return rng.choice(
        (
            (f"Repeat {a} {b} {c}.", f"{a} {b} {c}"),
            (f"Write {a} {b} {c} from right to left.", f"{c} {b} {a}"),
            (f"Which is larger, {a} or {b}?", f"{high}"),
            (f"Which is smaller, {a} or {b}?", f"{low}"),
            (f"Count from {a} to {a + 3}.", f"{a} {a + 1} {a + 2} {a + 3}"),
            (f"What comes after {a}?", f"{a + 1}"),
        )
    )


def instructions(rng: random.Random) -> Iterator[Row]:
    pairs: dict[str, str] = {}
    while len(pairs) < INSTRUCTIONS:
        request, reply = instruction(rng)
        pairs[request] = reply
    for request, reply in pairs.items():
        turns = [{"role": "user", "content": request}, {"role": "assistant", "content": reply}]
        yield {"messages": turns, "source": "instruction"}


def raw_problems(chains: Chains) -> list[Row]:
    """All kinds of problems, shuffled."""
    makers = (misprints, choices, proofs, multi_part, unfinished, unanswered, unverifiable)
    rows = [*sound(chains, PROBLEMS), *large(chains.rng), *(row for make in makers for row in make(chains))]
    chains.rng.shuffle(rows)
    return rows


def write(path: Path, rows: list[Row], prefix: str) -> None:
    lines = (json.dumps({"id": f"{prefix}-{number:04d}"} | row) for number, row in enumerate(rows))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    chains = Chains(random.Random(SEED))
    write(folder / "problems.jsonl", raw_problems(chains), "tiny")
    write(folder / "held_out.jsonl", list(sound(chains, HELD_OUT)), "held-out")
    write(folder / "traces.jsonl", list(traces(chains)), "trace")
    write(folder / "instructions.jsonl", list(instructions(chains.rng)), "instruction")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "data")
