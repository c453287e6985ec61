"""Verdicts on GSM8K solutions against lm-evaluation-harness and the GSM8K paper.

The 5,276 solutions are those that the paper's four models wrote for the test set, with the paper's verdicts. The
harness's verdict is ``flexible-extract``, its own filter with the settings of its ``gsm8k.yaml``; magcli's is
``correct_anywhere``, which ignores the format. Every solution on which two of the three differ is printed.
"""

import json
import re
import sys
from collections import Counter
from collections.abc import Callable
from types import ModuleType
from typing import Any

from benchmarks.downloads import GithubFile, wheel
from magcli.verify import math

RELEASE = "0.4.13"
SOLUTIONS = GithubFile(
    "openai/grade-school-math",
    "3101c7d5072418e28b9008a6636bde82a006892c",
    "grade_school_math/data/example_model_solutions.jsonl",
    "4bc62db838f8418365d51c627bd66294cbdca9fb7f01519cb13f0dce8c51580b",
    "math/gsm8k_model_solutions.jsonl",
)
MODELS = ("6b_finetuning", "6b_verification", "175b_finetuning", "175b_verification")


def run() -> None:
    """Print every disagreement and the number of solutions on which all three agree."""
    harness = _harness()
    rows = [json.loads(line) for line in SOLUTIONS.text().splitlines()]
    counts: Counter[tuple[bool, bool, bool]] = Counter()
    for row in rows:
        gold = row["ground_truth"].rpartition("A:")[2].strip()
        for model in MODELS:
            text, label = row[model]["solution"], bool(row[model]["is_correct"])
            verdicts = (label, harness(text, gold), math.correct_anywhere(text, gold))
            counts[verdicts] += 1
            if len(set(verdicts)) > 1:
                print(f"  paper, harness, magcli: {verdicts}: gold {gold}: ..{text[-80:]!r}")
    agreed = counts[True, True, True] + counts[False, False, False]
    print(
        f"gsm8k-harness: {agreed:,} of {counts.total():,} solutions have the same verdict from the paper, "
        f"lm-eval {RELEASE} and magcli"
    )


def _harness() -> Callable[[str, str], bool]:
    """The harness's verdict on a solution, given its ground truth.

    Raises:
        Unavailable: its wheel cannot be downloaded.
    """
    import yaml

    package = wheel("lm_eval", RELEASE)
    task = yaml.safe_load(package.read("lm_eval/tasks/gsm8k/gsm8k.yaml"))
    options = next(filters for filters in task["filter_list"] if filters["name"] == "flexible-extract")["filter"][0]
    ignored = task["metric_list"][0]["regexes_to_ignore"]
    extract = _filter(package.read("lm_eval/filters/extraction.py").decode())(
        options["regex_pattern"], options["group_select"]
    )

    def normalise(text: str) -> str:
        for pattern in ignored:
            text = re.sub(pattern, "", text)
        return text.lower()

    return lambda text, gold: normalise(extract.apply([[text]], [{}])[0][0]) == normalise(gold)


def _filter(source: str) -> Any:
    """The class ``RegexFilter``, loaded without the rest of the package."""
    api = ModuleType("filter")
    registry = ModuleType("registry")
    module = ModuleType("extraction")
    api.Filter, registry.register_filter = object, lambda _name: lambda kind: kind  # type: ignore[attr-defined]
    sys.modules |= {"lm_eval.api.filter": api, "lm_eval.api.registry": registry}
    sys.modules |= {"lm_eval": ModuleType("lm_eval"), "lm_eval.api": ModuleType("lm_eval.api"), "extraction": module}
    try:
        exec(compile(source, "extraction.py", "exec"), vars(module))
    finally:
        for name in ("lm_eval", "lm_eval.api", "lm_eval.api.filter", "lm_eval.api.registry"):
            del sys.modules[name]
    return module.RegexFilter
