"""``python grader_child.py NAME [FILE ...]``: one math grader as a process, one JSON line in and one out.

Public graders run under the interpreter of ``.venv-peers``, where they and what they need are installed.
{prediction, gold} is answered by {"same": bool, "seconds": float}, or by {"error": text} when the grader raised;
``{"forget": true}`` empties its caches.
"""

import contextlib
import importlib.util
import json
import logging
import math
import sys
import time
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Grader = Callable[[str, str], bool]


def magcli() -> tuple[Grader, Callable[[], None]]:
    """magcli's own."""
    from sympy.core.cache import clear_cache

    from magcli.verify.math import equal

    return equal, clear_cache


def math_verify() -> tuple[Grader, Callable[[], None]]:
    """Math-Verify; both sides between dollar signs, which serves it better than a box."""
    from math_verify import parse, parser, verify
    from sympy.core.cache import clear_cache

    def forget() -> None:
        clear_cache()
        parser.parse_latex_cached.cache_clear()
        parser.parse_expr_cached.cache_clear()

    return lambda prediction, gold: bool(verify(parse(f"${gold}$"), parse(f"${prediction}$"))), forget


def nemo() -> tuple[Grader, Callable[[], None]]:
    """NeMo-Skills ``math_equal``; the package around it only names its logger."""
    package = types.ModuleType("nemo_skills")
    helpers = types.ModuleType("nemo_skills.utils")
    helpers.get_logger_name = lambda file: file  # type: ignore[attr-defined]
    sys.modules.update({"nemo_skills": package, "nemo_skills.utils": helpers})
    grader = _module(Path(sys.argv[2]))
    return lambda prediction, gold: bool(grader.math_equal(gold, prediction)), math_verify()[1]


def prm800k() -> tuple[Grader, Callable[[], None]]:
    """The grader of PRM800K, as the package mathruler has it."""
    from mathruler.grader import grade_answer
    from sympy.core.cache import clear_cache

    return lambda prediction, gold: bool(grade_answer(prediction, gold)), clear_cache


def qwen() -> tuple[Grader, Callable[[], None]]:
    """The grader of Qwen2.5-Math, with a module of helpers that it takes nothing of."""
    _older_antlr()
    evaluation = Path(sys.argv[2]).parent
    sys.path[:0] = [str(evaluation / "latex2sympy"), str(evaluation)]
    sys.modules["utils"] = types.ModuleType("utils")
    from grader import math_equal
    from parser import strip_string
    from sympy.core.cache import clear_cache

    return lambda prediction, gold: bool(math_equal(strip_string(prediction), strip_string(gold))), clear_cache


def verl() -> tuple[Grader, Callable[[], None]]:
    """verl's ``prime_math``: PRM800K's rules, then a relative of Qwen's; its clock, broken in 0.9.1, is ours."""
    _older_antlr()
    clock = types.ModuleType("verl.utils.py_functional")
    clock.timeout_limit = contextlib.contextmanager(_no_limit)  # type: ignore[attr-defined]
    sys.modules.update({"verl": types.ModuleType("verl"), "verl.utils": types.ModuleType("verl.utils"),
                        "verl.utils.py_functional": clock})  # fmt: skip
    package = Path(sys.argv[2]).parent
    sys.path.insert(0, str(package.parent))
    import prime_math
    from sympy.core.cache import clear_cache

    def same(prediction: str, gold: str) -> bool:
        if prime_math.grade_answer(prediction, gold):
            return True
        pis = (math.pi, 3.14) if "\\pi" in prediction + gold else (math.pi,)
        return any(prime_math.math_equal(prediction, gold, timeout=True, pi=pi) for pi in pis)

    return same, clear_cache


def _no_limit(**_: float) -> Iterator[None]:
    yield


def _older_antlr() -> None:
    """SymPy's own LaTeX parser wants another release of ANTLR than Math-Verify's."""
    sys.path.insert(0, str(Path(sys.prefix) / "antlr-4.11"))


GRADERS = {"magcli": magcli, "math-verify": math_verify, "nemo": nemo, "prm800k": prm800k, "qwen": qwen, "verl": verl}


def main(name: str) -> None:
    """Serve until stdin ends."""
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    answers = sys.stdout
    sys.stdout = sys.stderr
    grader, forget = GRADERS[name]()
    print(json.dumps({"ready": name}), file=answers, flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(_answer(grader, forget, asked)), file=answers, flush=True)


def _answer(grader: Grader, forget: Callable[[], None], asked: dict[str, Any]) -> dict[str, Any]:
    if asked.get("forget"):
        forget()
        return {}
    begun = time.perf_counter()
    try:
        same = grader(asked["prediction"], asked["gold"])
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[:200]}
    return {"same": same, "seconds": time.perf_counter() - begun}


def _module(file: Path) -> Any:
    spec = importlib.util.spec_from_file_location(f"peer_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main(sys.argv[1])
