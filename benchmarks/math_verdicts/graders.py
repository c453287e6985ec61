"""Math graders, each in a process: public ones with the interpreter of ``.venv-peers``, magcli with its own.

A grader that does not answer within ``DEADLINE`` seconds is restarted; the case counts as rejected.
"""

import json
import select
import subprocess
import sys
import venv
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.downloads import ROOT, GithubFile, SourceFile, Unavailable

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
"""Files of graders that are not in a package; the first one is loaded."""
_PACKAGES = ("math-verify==0.9.0", "latex2sympy2_extended==1.11.0", "sympy==1.14.0", "pylatexenc==2.10", "tqdm",
             "word2number==1.1", "regex")  # fmt: skip
_WITHOUT_DEPENDENCIES = ("mathruler==0.1.0",)
"""It depends on vLLM, which its grader does not need."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A grader's verdict on a case; if it raised or timed out, ``same`` is False and ``failure`` has the reason."""

    same: bool
    failure: str = ""


@dataclass(slots=True)
class Grader:
    """A grader behind a pipe; a context manager.

    Raises:
        Unavailable: its files cannot be downloaded.
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
        """Grade one case."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"prediction": prediction, "gold": gold}) + "\n")
        self._process.stdin.flush()
        answer = self._read(DEADLINE)
        if answer is None:
            self._stop()
            self._start()
            return Answer(False, NO_ANSWER)
        return Answer(answer.get("same", False), answer.get("error", ""))

    def _read(self, seconds: float) -> dict[str, Any] | None:
        """Its next line; None after a timeout or if it has died."""
        assert self._process is not None
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], seconds)[0]:
            return None
        line = self._process.stdout.readline()
        answer: dict[str, Any] | None = json.loads(line) if line else None
        return answer

    def _start(self) -> None:
        files = [str(file.fetch()) for file in FILES.get(self.name, ())]
        python = sys.executable if self.name == "magcli" else PYTHON
        self._process = subprocess.Popen(
            [python, "-P", CHILD, self.name, *files],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        if self._read(START_SECONDS) is None:
            self._stop()
            raise Unavailable(f"{TITLES[self.name]} does not start: {PYTHON} {CHILD.name} {self.name}")

    def _stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()


def install() -> None:
    """Make ``.venv-peers`` unless it exists.

    Raises:
        Unavailable: a package cannot be installed.
    """
    done = VENV / ".done"
    if done.exists():
        return
    venv.create(VENV, with_pip=True)
    _pip(*_PACKAGES)
    _pip("--no-deps", *_WITHOUT_DEPENDENCIES)
    _pip("--no-deps", "--target", str(VENV / "antlr-4.11"), "antlr4-python3-runtime==4.11.1")
    done.touch()


def _pip(*arguments: str) -> None:
    command = [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode:
        raise Unavailable(f"pip install {' '.join(arguments)}: {run.stderr.strip().splitlines()[-1]}")
