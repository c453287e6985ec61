"""Public cases on which math graders are compared: prediction, ground truth, and whether the answers are equal.

The test suites of other graders are parsed, not run. A prediction in prose is reduced to its answer (``answer_in``) for
all graders, since this measures the verdict, not the extraction. Labels are the public ones except for the cases of
``adjudicated.jsonl``, whose label is wrong or which do not ask for equality.
"""

import ast
import hashlib
import json
import random
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.downloads import GithubFile, SourceFile, Unavailable
from benchmarks.math_verdicts import rewrites
from magcli.verify.format import last_box

ADJUDICATED_FILE = Path(__file__).with_name("adjudicated.jsonl")
PAIRS_FILE = Path(__file__).with_name("pairs.jsonl")
MAX_WORDS = 3
MAX_BEFORE = 60
MAX_AFTER = 24
"""Characters of prose around the formula that is the answer: ``The answer is $28$ percent``."""
_FORMULA = re.compile(r"\$\$(.+?)\$\$|\\\[(.+?)\\\]|\\\((.+?)\\\)|(?<!\\)\$(.+?)(?<!\\)\$", re.DOTALL)
_WORD = re.compile(r"[^\W\d_]{2,}")
_SEPARATOR = re.compile(r"(?:[\s,;$]|\\[()]|\\quad|\\text\{ *(?:and|or) *\}|and|or)*")

_QWEN = ("QwenLM/Qwen2.5-Math", "a45202bd16f1ec06f433442dc1152d0074773465")
_GSM8K = ("openai/grade-school-math", "3101c7d5072418e28b9008a6636bde82a006892c")
_NEMO = ("NVIDIA-NeMo/Skills", "0b012df8a09cd4730d31b16e90a0d8f13d145fb8")
_RLLM = ("agentica-project/rllm", "874daa4acb7f451dc2a4b2b6e8ce28f5aa88d1f5")
TRACES = GithubFile(*_QWEN, "evaluation/data/eval_rm_maj_example/math_cot_100.jsonl",
                    "5b9128525733336c4b5bf5d3222f72b18655a305258dc09c301b546e9365ba5e",
                    "traces/qwen_math_cot_100x8.jsonl")  # fmt: skip
SOLUTIONS = GithubFile(*_GSM8K, "grade_school_math/data/example_model_solutions.jsonl",
                       "4bc62db838f8418365d51c627bd66294cbdca9fb7f01519cb13f0dce8c51580b",
                       "math/gsm8k_model_solutions.jsonl")  # fmt: skip
MATH = GithubFile(*_RLLM, "rllm/data/train/math/math.json",
                  "569230b362fd501e1a33d8f29aae3b4b989d32e2b91b07c3f48493528c3bf6d2",
                  "math/math_train.json")  # fmt: skip
OLYMPIAD = GithubFile(*_QWEN, "evaluation/data/olympiadbench/test.jsonl",
                      "bb8c1e38a16ea9eacb77530315a674d883f267fbff79183effc53681b4fcc416",
                      "math/olympiadbench_en_open.jsonl")  # fmt: skip
NEMO_TESTS = GithubFile(
    *_NEMO, "tests/test_math_equal.py", "95c779f564dc0677a47072c5341883d8d12c50b97c94d186a59ce3bc69f8a423"
)
SYMEVAL = GithubFile(
    "tongyx361/symeval",
    "54c1a844ea4a6db486c5af8b5b4d2f383224a83b",
    "README.md",
    "d0bcdc8c7da450e0835fc30d7e85e592959b2c79a92c1833511ff4598a2adffb",
)
MATH_VERIFY_TESTS = (
    "test_all",
    "test_boxed",
    "test_numina_cases",
    "test_open_thoughts",
    "test_strict",
    "test_yujianll",
)

Labelled = tuple[str, str, bool | None]
"""Prediction, ground truth and label; None if the answer cannot be extracted from the text."""


@dataclass(frozen=True, slots=True)
class Case:
    """A labelled pair of prediction and ground truth."""

    suite: str
    prediction: str
    gold: str
    same: bool | None

    @property
    def key(self) -> str:
        """Identifies the case without its text."""
        text = "\0".join((self.suite, self.prediction, self.gold))
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Suite:
    """The cases of one source, or why it is unavailable; ``left_out`` cases do not ask for equality."""

    name: str
    cases: tuple[Case, ...] = ()
    unavailable: str = ""
    left_out: int = 0
    relabelled: int = 0


def suites() -> list[Suite]:
    """All suites, unavailable ones included."""
    return [_suite(name, read) for name, read in SOURCES.items()]


def _suite(name: str, read: Callable[[], Iterable[Labelled]]) -> Suite:
    try:
        public = [Case(name, *labelled) for labelled in read()]
    except Unavailable as error:
        return Suite(name, unavailable=str(error))
    labels = adjudicated()
    relabelled_cases = [replace(case, same=labels.get(case.key, case.same)) for case in public]
    cases = tuple(case for case in relabelled_cases if case.same is not None)
    relabelled = sum(
        now.same is not None and now.same != before.same for now, before in zip(relabelled_cases, public, strict=True)
    )
    return Suite(name, cases, left_out=len(public) - len(cases), relabelled=relabelled)


def adjudicated() -> dict[str, Any]:
    """Corrected labels by case: True, False, or None if the case does not ask for equality."""
    return {row["case"]: row["ours"] for row in _json_lines(ADJUDICATED_FILE.read_text())}


def _math_verify() -> Iterator[Labelled]:
    """Parametrised (gold, prediction, expected) under default options."""
    for name in MATH_VERIFY_TESTS:
        for names, row in _parametrised(SourceFile("math-verify", "0.9.0", f"tests/{name}.py").text()):
            values = dict(zip(names, row, strict=True))
            if values.get("precision", 6) != 6 or values.get("strict", True) is not True:
                continue
            prediction, gold = answer_in(values["pred"]), answer_in(values["gold"])
            label = bool(values.get("expected", values.get("result")))
            yield prediction, gold, label if prediction and gold else None


def _minerva() -> Iterator[Labelled]:
    """Pairs, and answers that must equal themselves; tests of parsing are left out."""
    for names, row in _parametrised(SourceFile("lm-eval", "0.4.13", "tests/test_minerva_math.py").text()):
        if names == ["answer"]:
            yield str(row[0]), str(row[0]), True
        elif names == ["x1", "x2"]:
            yield str(row[0]), str(row[1]), False


def _nemo() -> Iterator[Labelled]:
    tree = ast.parse(NEMO_TESTS.text())
    for test in ast.walk(tree):
        if isinstance(test, ast.FunctionDef):
            for _, pair in _decorated(test):
                if None not in pair:
                    yield str(pair[0]), str(pair[1]), "incorrect" not in test.name
                    yield str(pair[1]), str(pair[0]), "incorrect" not in test.name


def _symeval() -> Iterator[Labelled]:
    """``test_eq(evaluator.eq(prediction, gold), expected)`` in the README, under default options."""
    for block in re.findall(r"``` python\n(.*?)```", SYMEVAL.text(), re.DOTALL):
        for call in ast.walk(ast.parse(block)):
            match call:
                case ast.Call(
                    func=ast.Name("test_eq"),
                    args=[
                        ast.Call(func=ast.Attribute(attr="eq"), args=[prediction, gold], keywords=[]),
                        ast.Constant(bool(expected)),
                    ],
                ):
                    pair = (ast.literal_eval(prediction), ast.literal_eval(gold))
                    if all(isinstance(text, str) for text in pair):
                        yield *pair, expected


def _traces() -> Iterator[Labelled]:
    """Eight responses to each of 100 problems of MATH; ground truths as boxed by MATH's authors."""
    for problem in _json_lines(TRACES.text()):
        for response, right in zip(problem["code"], problem["score"], strict=True):
            yield last_box(response) or "", problem["answer"], right


def _solutions() -> Iterator[Labelled]:
    """Four models' solutions of GSM8K, except those without an answer."""
    for row in _json_lines(SOLUTIONS.text()):
        gold = row["ground_truth"].rpartition("A:")[2].strip()
        for model in ("6b_finetuning", "6b_verification", "175b_finetuning", "175b_verification"):
            _, marker, prediction = row[model]["solution"].rpartition("A:")
            if marker and prediction.strip():
                yield prediction.strip(), gold, row[model]["is_correct"]


def _project_pairs() -> Iterator[Labelled]:
    """Written for this project and labelled before any grader was run on them."""
    for row in _json_lines(PAIRS_FILE.read_text()):
        yield row["prediction"], row["gold"], row["same"]


def _math_golds() -> list[str]:
    return [row["answer"].strip() for row in json.loads(MATH.text()) if row["answer"]]


def _olympiad_golds() -> list[str]:
    return [row["final_answer"][0].replace("$", "") for row in _json_lines(OLYMPIAD.text())]


def _against_each_other(golds: list[str]) -> Iterator[Labelled]:
    """Each ground truth against itself, and against the next one, which differs unless the text is the same."""
    for gold, other in zip(golds, golds[1:] + golds[:1], strict=True):
        yield gold, gold, True
        yield other, gold, _letters(other) == _letters(gold)


def _letters(text: str) -> str:
    return re.sub(r"[^\w.+-]", "", text)


SOURCES: dict[str, Callable[[], Iterable[Labelled]]] = {
    "Math-Verify 0.9.0, its tests": _math_verify,
    "NeMo-Skills, its tests": _nemo,
    "symeval, its tests": _symeval,
    "lm-eval minerva, its tests": _minerva,
    "Qwen2.5-Math on MATH": _traces,
    "GPT-3 on GSM8K": _solutions,
    "MATH, ground truths": lambda: _against_each_other(random.Random(0).sample(_math_golds(), 1000)),
    "MATH, rewritten": lambda: rewrites.labelled(random.Random(1).sample(_math_golds(), 1000), seed=1),
    "OlympiadBench, ground truths": lambda: _against_each_other(_olympiad_golds()),
    "OlympiadBench, rewritten": lambda: rewrites.labelled(_olympiad_golds(), seed=2),
    "magcli, pairs of many kinds": _project_pairs,
}


def answer_in(text: str) -> str:
    """The answer in a text, or "" if that takes reading prose.

    The last box, or all boxes with only separators between them; without a box the formula at the end of a short text
    or of a sentence with "answer is", or the whole text if it has few words.
    """
    text = text.replace("\\\\boxed", "\\boxed").strip()
    if "\\boxed" in text:
        return _boxed(text).strip()
    formulas = list(_FORMULA.finditer(text))
    if not formulas:
        return text if len(_WORD.findall(text)) <= MAX_WORDS else ""
    before, after = text[: formulas[-1].start()], text[formulas[-1].end() :]
    introduced = len(before) <= MAX_BEFORE or "answer is" in before[-MAX_BEFORE:]
    last = len(after) <= MAX_AFTER and not re.search(r"\d", after)
    return "".join(formulas[-1].groups("")).strip() if introduced and last else ""


def _boxed(text: str) -> str:
    """The content of the last box, or of all boxes of a list."""
    contents, rest = [], text
    while (content := last_box(rest)) is not None:
        contents.append(content)
        at = rest.rindex(f"boxed{{{content}}}")
        rest = rest[:at].rstrip("\\")
        if not _SEPARATOR.fullmatch(rest[rest.rfind("}") + 1 :]):
            break
    return ", ".join(reversed(contents))


def _parametrised(source: str) -> Iterator[tuple[list[str], list[Any]]]:
    for test in ast.walk(ast.parse(source)):
        if isinstance(test, ast.FunctionDef):
            yield from _decorated(test)


def _decorated(test: ast.FunctionDef) -> Iterator[tuple[list[str], list[Any]]]:
    """Argument names and values of each row of ``pytest.mark.parametrize``, except computed rows."""
    for decorator in test.decorator_list:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.parametrize":
            names = [name.strip() for name in ast.literal_eval(decorator.args[0]).split(",")]
            rows = decorator.args[1]
            for row in rows.elts if isinstance(rows, ast.List) else []:
                values = _values(row)
                if values is not None:
                    yield names, values


def _values(row: ast.expr) -> list[Any] | None:
    """The values of a row: a tuple, one value or a ``pytest.param``; None if they are not literals."""
    parts = row.args if isinstance(row, ast.Call) else row.elts if isinstance(row, ast.Tuple) else [row]
    try:
        return [_literal(part) for part in parts]
    except ValueError:
        return None


def _literal(node: ast.expr) -> Any:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        return ast.literal_eval(node.left) / ast.literal_eval(node.right)
    return ast.literal_eval(node)


def _json_lines(text: str) -> Iterator[dict[str, Any]]:
    return (json.loads(line) for line in text.splitlines() if line.strip())
