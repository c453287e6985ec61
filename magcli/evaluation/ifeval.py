"""IFEval: are all instructions of a prompt followed? The verifier ``ifeval`` of a suite.

The checks are those of lm-evaluation-harness, the keeper of the original ones (``magcli[ifeval]``). Of the completion
the part after ``</think>`` counts. ``correct`` is strict: all instructions of the prompt are followed as it stands;
``correct_anywhere`` is loose: they are without its first or last line or its asterisks.
"""

import importlib.util
import json
import sys
from collections.abc import Mapping
from functools import cache
from typing import Any

from magcli.errors import EnvironmentFault

CHECKS = "lm_eval.tasks.ifeval.utils"


def require() -> None:
    """Refuse where the checks, or the data that they split sentences by, are not installed.

    Without its data the harness would download it when it is imported.

    Raises:
        EnvironmentFault: which is missing and how to get it.
    """
    if missing := [name for name in ("lm_eval", "nltk", "langdetect", "immutabledict") if not _installed(name)]:
        raise EnvironmentFault(
            f"evaluate: the suite ifeval needs {missing[0]}; install its checks: pip install 'magcli[ifeval]'"
        )
    import nltk

    try:
        nltk.data.find("tokenizers/punkt_tab")
    except LookupError:
        raise EnvironmentFault(
            "evaluate: the suite ifeval needs NLTK's data punkt_tab; get it once: "
            f"{sys.executable} -m nltk.downloader punkt_tab"
        ) from None


def _installed(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


@cache
def _checks() -> Any:
    """The module of the checks; the language detector draws lots unless it is given a seed."""
    require()
    from langdetect import DetectorFactory

    DetectorFactory.seed = 0
    return importlib.import_module(CHECKS)


def reward(completion: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """1 where all instructions are followed, else 0; ``detail`` names those that are not."""
    checks, names = _checks(), [name.removeprefix("en:") for name in _value(row["instruction_id_list"])]
    asked = checks.InputExample(row["id"], names, row["prompt"], _value(row["kwargs"]))
    answer = completion.rpartition("</think>")[2].strip()
    strict = checks.test_instruction_following_strict(asked, answer)
    loose = checks.test_instruction_following_loose(asked, answer)
    broken = [name for name, kept in zip(names, strict.follow_instruction_list, strict=True) if not kept]
    told = {"correct_anywhere": loose.follow_all_instructions, "detail": ", ".join(broken)}
    return {"total": float(strict.follow_all_instructions), **told}


def _value(column: Any) -> Any:
    """A column that a table holds as JSON text."""
    return json.loads(column) if isinstance(column, str) else column
