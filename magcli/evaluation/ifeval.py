"""IFEval: are all instructions of a prompt followed? The verifier ``ifeval`` of a suite.

The checks are those of lm-evaluation-harness (``magcli[ifeval]``). They are loaded when this module is imported: that
takes seconds, and would otherwise count towards the deadline of a worker's first verdict. Only the part of the
completion after its thoughts counts. ``correct`` is the strict metric; ``correct_anywhere`` the loose one, which also
accepts the answer without its first or last line or its asterisks.
"""

import importlib
import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from magcli.evaluation.suite import json_column, require_ifeval
from magcli.model.chat.thoughts import THINK, ThoughtForm

CHECKS = "lm_eval.tasks.ifeval.utils"


def _loaded() -> Any:
    """The module of the checks, without the rest of the harness, which needs more memory than a worker may use.

    The language detector is random unless it has a seed.
    """
    require_ifeval()
    from langdetect import DetectorFactory

    DetectorFactory.seed = 0
    # Importing a module runs its packages first, unless these are there already.
    parents = [name for name in ("lm_eval", "lm_eval.tasks") if name not in sys.modules]
    sys.modules.update({name: _bare(name) for name in parents})
    try:
        return importlib.import_module(CHECKS)
    # The real packages can be imported later.
    finally:
        for name in parents:
            del sys.modules[name]


def _bare(name: str) -> ModuleType:
    """A package whose modules can be imported, but which is not executed itself."""
    spec = importlib.util.find_spec("lm_eval")
    assert spec is not None
    assert spec.origin is not None
    package = ModuleType(name)
    package.__path__ = [str(Path(spec.origin).parent.joinpath(*name.split(".")[1:]))]
    return package


def reward(completion: str, row: Mapping[str, Any], thoughts: ThoughtForm = THINK) -> dict[str, Any]:
    """1 if all instructions are followed, else 0; ``detail`` names those that are not."""
    names = [name.removeprefix("en:") for name in json_column(row["instruction_id_list"])]
    example = _checks.InputExample(row["id"], names, row["prompt"], json_column(row["kwargs"]))
    answer = thoughts.answer(completion).strip()
    strict = _checks.test_instruction_following_strict(example, answer)
    loose = _checks.test_instruction_following_loose(example, answer)
    followed = zip(names, strict.follow_instruction_list, strict=True)
    broken = [name for name, is_followed in followed if not is_followed]
    return {
        "total": float(strict.follow_all_instructions),
        "correct_anywhere": loose.follow_all_instructions,
        "detail": ", ".join(broken),
    }


_FIRST = {
    "id": "",
    "prompt": "",
    "instruction_id_list": ["language:response_language", "length_constraints:number_sentences"],
    "kwargs": [{"language": "en"}, {"relation": "at least", "num_sentences": 2}],
}
_checks = _loaded()
reward("The first answer loads the language detector and the sentence splitter. It takes a second.", _FIRST)
