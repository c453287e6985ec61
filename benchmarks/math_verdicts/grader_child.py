"""``python grader_child.py NAME [FILE ...]``: one math grader as a process, one JSON line in and one out.

Public graders run with the interpreter of ``.venv-peers``, where they and their dependencies are installed.
{"prediction": str, "gold": str} is answered by {"same": bool}, or by {"error": str} if the grader raised.
"""

import contextlib
import importlib.util
import json
import logging
import math
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Grader = Callable[[str, str], bool]


def magcli() -> Grader:
    """magcli's grader."""
    from magcli.verify.math import equal

    return equal


def math_verify() -> Grader:
    """Math-Verify, with both sides between dollar signs, which it handles better than a box."""
    from math_verify import parse, verify

    return lambda prediction, gold: bool(verify(parse(f"${gold}$"), parse(f"${prediction}$")))


def nemo() -> Grader:
    """NeMo-Skills ``math_equal``; its package is only needed for the name of a logger."""
    package = types.ModuleType("nemo_skills")
    helpers = types.ModuleType("nemo_skills.utils")
    helpers.get_logger_name = lambda file: file  # type: ignore[attr-defined]
    sys.modules.update({"nemo_skills": package, "nemo_skills.utils": helpers})
    grader = _module(Path(sys.argv[2]))
    return lambda prediction, gold: bool(grader.math_equal(gold, prediction))


def prm800k() -> Grader:
    """The grader of PRM800K, as the package mathruler has it."""
    from mathruler.grader import grade_answer

    return lambda prediction, gold: bool(grade_answer(prediction, gold))


def qwen() -> Grader:
    """The grader of Qwen2.5-Math; it imports a module of helpers that it does not use."""
    _older_antlr()
    evaluation = Path(sys.argv[2]).parent
    sys.path[:0] = [str(evaluation / "latex2sympy"), str(evaluation)]
    sys.modules["utils"] = types.ModuleType("utils")
    from grader import math_equal
    from parser import strip_string

    return lambda prediction, gold: bool(math_equal(strip_string(prediction), strip_string(gold)))


def verl() -> Grader:
    """verl's ``prime_math``: PRM800K's rules, then a variant of Qwen's; its timeout, broken in 0.9.1, is replaced."""
    _older_antlr()
    clock = types.ModuleType("verl.utils.py_functional")
    clock.timeout_limit = contextlib.contextmanager(_no_limit)  # type: ignore[attr-defined]
    sys.modules.update({"verl": types.ModuleType("verl"), "verl.utils": types.ModuleType("verl.utils"),
                        "verl.utils.py_functional": clock})  # fmt: skip
    package = Path(sys.argv[2]).parent
    sys.path.insert(0, str(package.parent))
    import prime_math

    def same(prediction: str, gold: str) -> bool:
        if prime_math.grade_answer(prediction, gold):
            return True
        pis = (math.pi, 3.14) if "\\pi" in prediction + gold else (math.pi,)
        return any(prime_math.math_equal(prediction, gold, timeout=True, pi=pi) for pi in pis)

    return same


def _no_limit(**_: float) -> Iterator[None]:
    yield


def _older_antlr() -> None:
    """SymPy's LaTeX parser needs an older release of ANTLR than Math-Verify."""
    sys.path.insert(0, str(Path(sys.prefix) / "antlr-4.11"))


GRADERS = {"magcli": magcli, "math-verify": math_verify, "nemo": nemo, "prm800k": prm800k, "qwen": qwen, "verl": verl}


def main(name: str) -> None:
    """Serve until stdin ends."""
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    answers = sys.stdout
    sys.stdout = sys.stderr
    grader = GRADERS[name]()
    print(json.dumps({"ready": name}), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(_answer(grader, json.loads(line))), file=answers, flush=True)


def _answer(grader: Grader, case: dict[str, str]) -> dict[str, Any]:
    try:
        return {"same": grader(case["prediction"], case["gold"])}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[:200]}


def _module(file: Path) -> Any:
    spec = importlib.util.spec_from_file_location(f"peer_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main(sys.argv[1])
