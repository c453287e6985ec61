"""Math graders to be compared, each in its own process: public ones under ``.venv-peers``, magcli under its own Python.

A grader that does not answer within ``DEADLINE`` seconds is killed and started again; that case counts as rejected.
"""

import json
import select
import subprocess
import sys
import venv
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.public import ROOT, GithubFile, Missing, SourceFile

VENV = ROOT / ".venv-peers"
PYTHON = VENV / "bin" / "python"
CHILD = Path(__file__).with_name("grader_child.py")
DEADLINE = 10.0
START_SECONDS = 60.0
NO_ANSWER = "no answer"
TITLES = {
    "magcli": "magcli",
    "math-verify": "Math-Verify 0.9.0",
    "nemo": "NeMo-Skills",
    "qwen": "Qwen2.5-Math",
    "prm800k": "PRM800K",
    "verl": "verl prime_math",
}
_NEMO = ("NVIDIA-NeMo/Skills", "0b012df8a09cd4730d31b16e90a0d8f13d145fb8")
_QWEN = ("QwenLM/Qwen2.5-Math", "a45202bd16f1ec06f433442dc1152d0074773465")
_PRIME = "verl/utils/reward_score/prime_math"
FILES: dict[str, tuple[GithubFile | SourceFile, ...]] = {
    "nemo": (
        GithubFile(*_NEMO, "nemo_skills/evaluation/math_grader.py",
                   "6037156485b1ac10006cbba2a0d5920abb9c96b40f8232bd1f1a351dd0db740c"),
    ),
    "qwen": (
        GithubFile(*_QWEN, "evaluation/grader.py", "ed9494a388e7117735fccf2985de6c444d5bdba4d493b425e92a91e9ab97742a"),
        GithubFile(*_QWEN, "evaluation/parser.py", "2bee38c8721c3c0ce120edd73de6ad5bf2e4aa7bf14b988f96aa1d590153e8fe"),
        GithubFile(*_QWEN, "evaluation/latex2sympy/latex2sympy2.py",
                   "cb5fd507db8d0e4beac3e96f2a096f82f946b9f979ac4c5a3f6376d0258330b6"),
        GithubFile(*_QWEN, "evaluation/latex2sympy/asciimath_printer.py",
                   "3dbccdc82bea098cffc8a469004c176f7148d75bc5ec17bc0419af89b6d4446c"),
        GithubFile(*_QWEN, "evaluation/latex2sympy/gen/PSLexer.py",
                   "01ceb9cb9691c7ceba454c4a7bbb54d82af6b11927632f0570e434520841444a"),
        GithubFile(*_QWEN, "evaluation/latex2sympy/gen/PSParser.py",
                   "ca1a0674924d2e09e9d76b8af2bdd0a9a07be19f5ed0531df6c1b11b6b41fb83"),
        GithubFile(*_QWEN, "evaluation/latex2sympy/gen/PSListener.py",
                   "e8509046ad88ef68066a89576da26197a4916f1a78b773792f1ee985c3dddf36"),
    ),
    "verl": (
        SourceFile("verl", "0.9.1", f"{_PRIME}/__init__.py"),
        SourceFile("verl", "0.9.1", f"{_PRIME}/grader.py"),
        SourceFile("verl", "0.9.1", f"{_PRIME}/math_normalize.py"),
    ),
}  # fmt: skip
"""What a grader that no package holds is made of; the first file is the one that is loaded."""
_PACKAGES = ("math-verify==0.9.0", "latex2sympy2_extended==1.11.0", "sympy==1.14.0", "pylatexenc==2.10", "tqdm",
             "word2number==1.1", "regex")  # fmt: skip
_ALONE = ("mathruler==0.1.0",)
"""A package of which the grader is wanted, and not vLLM, which it would pull in."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a grader said of one case; ``same`` is False where it raised or never answered, and ``failure`` tells."""

    same: bool
    seconds: float
    failure: str = ""


@dataclass(slots=True)
class Grader:
    """A grader that is asked over a pipe; a context manager.

    Raises:
        Missing: what it needs cannot be had.
    """

    name: str
    _process: "subprocess.Popen[str] | None" = field(default=None, repr=False)

    def __enter__(self) -> "Grader":
        if self.name != "magcli":
            install()
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def same(self, prediction: str, gold: str) -> Answer:
        """Ask about one case."""
        told = self._ask({"prediction": prediction, "gold": gold})
        if told is None:
            self._stop()
            self._start()
            return Answer(False, DEADLINE, NO_ANSWER)
        return Answer(told.get("same", False), told.get("seconds", 0.0), told.get("error", ""))

    def forget(self) -> None:
        """Have it empty its caches."""
        self._ask({"forget": True})

    def _ask(self, question: dict[str, Any]) -> dict[str, Any] | None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        return self._read(DEADLINE)

    def _read(self, seconds: float) -> dict[str, Any] | None:
        """Its next line; None when there is none in time, or it has died."""
        assert self._process is not None
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], seconds)[0]:
            return None
        line = self._process.stdout.readline()
        told: dict[str, Any] | None = json.loads(line) if line else None
        return told

    def _start(self) -> None:
        files = [str(file.kept()) for file in FILES.get(self.name, ())]
        python = sys.executable if self.name == "magcli" else PYTHON
        self._process = subprocess.Popen(
            [python, "-P", CHILD, self.name, *files],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        if self._read(START_SECONDS) is None:
            self._stop()
            raise Missing(f"{TITLES[self.name]} does not start: {PYTHON} {CHILD.name} {self.name}")

    def _stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()


def install() -> None:
    """Make ``.venv-peers``, once.

    Raises:
        Missing: the registry does not answer or has not got them.
    """
    done = VENV / ".done"
    if done.exists():
        return
    venv.create(VENV, with_pip=True)
    _pip(*_PACKAGES)
    _pip("--no-deps", *_ALONE)
    _pip("--no-deps", "--target", str(VENV / "antlr-4.11"), "antlr4-python3-runtime==4.11.1")
    done.touch()


def _pip(*arguments: str) -> None:
    command = [PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode:
        raise Missing(f"pip install {' '.join(arguments)}: {run.stderr.strip().splitlines()[-1]}")
