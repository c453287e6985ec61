"""Programs whose verdicts are known, as many as wanted, no two alike."""

import random
from collections.abc import Iterator
from typing import NamedTuple

from magcli.verify.sandbox import Limits

LIMITS = Limits(cpu=0.6, memory=100 << 20, output=1 << 20)


class Known(NamedTuple):
    """A program, its tests, and what the judge must say."""

    program: str
    language: str
    tests: list[dict[str, str]]
    reason: str


PYTHON = [
    ("accepted", "print(sum(map(int, input().split())))"),
    ("accepted", "import sys\nprint(sum(map(int, sys.stdin.read().split())))"),
    ("accepted", "a, b = map(int, input().split())\nx = bytearray(40 << 20)\nprint(a + b)"),
    ("accepted", "import time\na, b = map(int, input().split())\nwhile time.process_time() < .25: pass\nprint(a + b)"),
    ("accepted", "import time\na, b = map(int, input().split())\ntime.sleep(.3)\nprint(a + b)"),
    (
        "accepted",
        "import threading as t\na, b = map(int, input().split())\nt.Thread(target=print, args=(a + b,)).start()",
    ),
    ("wrong-answer", "a, b = map(int, input().split())\nprint(a + b + (a == 6))"),
    ("wrong-answer", "pass"),
    ("wrong-answer", "import os\nos.close(1)"),
    ("runtime-error", "a, b = map(int, input().split())\nprint(a + b)\nraise SystemExit(1)"),
    ("runtime-error", "print(int('x'))"),
    ("runtime-error", "import ctypes\nctypes.string_at(0)"),
    ("runtime-error", "import os\nos.kill(os.getpid(), 9)"),
    ("compile-error", "print("),
    ("time-limit", "while True: pass"),
    ("time-limit", "import time\ntime.sleep(30)"),
    ("memory-limit", "x = []\nwhile True: x.append(bytearray(1 << 20))"),
    ("output-limit", "while True: print('x' * 1000)"),
]
CALLED = [
    ("accepted", "def f(a, b): return a + b"),
    ("accepted", "class N(int): pass\ndef f(a, b): return N(a + b)"),
    ("wrong-answer", "def f(a, b): return a - b"),
    ("wrong-answer", "class N:\n    def __eq__(self, other): return True\ndef f(a, b): return N()"),
    ("runtime-error", "def g(a, b): return a + b"),
]
CPP = [
    ("accepted", '#include <cstdio>\nint main() { int a, b; scanf("%d %d", &a, &b); printf("%d", a + b); }'),
    ("wrong-answer", '#include <cstdio>\nint main() { puts("0"); }'),
    ("runtime-error", "int main() { return *(volatile int*)8; }"),
    ("compile-error", "int main() { return x; }"),
    ("time-limit", "int main() { for (volatile int i = 0;; i = i + 1); }"),
]
SLOW = ("while True: pass", "sleep(30)", "volatile int i")


def programs(count: int, seed: int) -> Iterator[Known]:
    """``count`` programs: 19 in 20 are Python, those that meet a time limit are rare."""
    choose = random.Random(seed)
    for number in range(count):
        kind = choose.choices([PYTHON, CALLED, CPP], [80, 15, 5])[0]
        reason, source = choose.choices(kind, [0.2 if any(word in text for word in SLOW) else 1 for _, text in kind])[0]
        note = f"// {number}\n" if kind is CPP else f"# {number}\n"
        a, b = choose.randrange(10**6), choose.randrange(10**6)
        yield Known(note + source, "cpp" if kind is CPP else "python", _tests(kind is CALLED, a, b), reason)


def _tests(called: bool, a: int, b: int) -> list[dict[str, str]]:
    pairs = [(a, b), (b, a + 1), (6, 7)]
    if called:
        return [{"assert": f"assert f({one}, {other}) == {one + other}"} for one, other in pairs]
    return [{"input": f"{one} {other}\n", "output": f"{one + other}\n"} for one, other in pairs]
