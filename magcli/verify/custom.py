"""Custom rewards: a function of a completion and its row, named as ``module:function`` or ``file.py:function``.

    def short(completion, row):
        return 1.0 if len(completion) < 100 else 0.0

A function with a parameter ``thoughts`` also gets the form in which the model writes its thoughts, a ``ThoughtForm``:
``thoughts.split(completion)`` is the pair of thoughts and answer.

It returns a number, a boolean, a ``Reward``, or a mapping with ``total`` and any other fields of a ``Reward``. A number
of 1 or more, or True, counts as correct. It runs in the pool's workers, under their deadline. An exception or an
invalid result is the verdict ``reward-error``: counted in no accuracy, never trained on.
"""

import hashlib
import importlib
import importlib.util
import inspect
import math
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import fields
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from magcli.errors import UsageError, first_line
from magcli.model.thoughts import THINK, ThoughtForm
from magcli.verify.reward import Reward, printable, ungraded
from magcli.verify.sources import import_digests

Function = Callable[..., Any]
"""A custom function; for rewards (completion, row) -> reward."""

THOUGHTS = "thoughts"
"""The parameter of a reward function that gets the form of thoughts."""

_FIELDS = {field.name for field in fields(Reward)}


def load(spec: str, option: str = "reward") -> Function:
    """The function that an option names; modules are also searched for in the working directory.

    Raises UsageError if there is no such module or function, or importing it fails.
    """
    location, _, name = spec.rpartition(":")
    if not location or not name:
        raise UsageError(f"{option} {spec!r}: name it as module:function or file.py:function")
    function = getattr(_module(location, f"{option} {spec!r}"), name, None)
    if not callable(function):
        raise UsageError(f"{option} {spec!r}: {location} has no function {name}")
    loaded: Function = function
    return loaded


def digests(spec: str, option: str = "reward") -> dict[str, Any]:
    """SHA-256 of the function's source file, and by file of what that imports from its own folder or package.

    They determine rows as an option does.
    """
    load(spec, option)
    location = spec.rpartition(":")[0]
    module = _module(location, option)
    file = Path(str(module.__file__))
    package = "" if location.endswith(".py") else module.__package__ or ""
    imports = import_digests(file, package)
    own = {f"{option}_sha256": hashlib.sha256(file.read_bytes()).hexdigest()}
    return own | ({f"{option}_imports": imports} if imports else {})


def _module(location: str, subject: str) -> ModuleType:
    try:
        if location.endswith(".py"):
            return _from_file(Path(location))
        if (here := os.getcwd()) not in sys.path:
            sys.path.append(here)
        return importlib.import_module(location)
    except Exception as error:
        raise UsageError(f"{subject}: {location} cannot be imported: {type(error).__name__}: {error}") from None


def _from_file(path: Path) -> ModuleType:
    loaded = sys.modules.get(path.stem)
    if loaded is not None and loaded.__file__ == str(path.resolve()):
        return loaded
    plan = importlib.util.spec_from_file_location(path.stem, path.resolve())
    assert plan is not None
    assert plan.loader is not None
    module = importlib.util.module_from_spec(plan)
    sys.path.append(str(path.resolve().parent))
    sys.modules[path.stem] = module
    plan.loader.exec_module(module)
    return module


def graded(function: Function, text: str, row: Mapping[str, Any], thoughts: ThoughtForm = THINK) -> Reward:
    """The reward of a completion; a failure of the function is a verdict, not an error.

    The function gets a copy of the row, which other completions share: what it changes there is its own.
    """
    try:
        return _as_reward(function(text, deepcopy(row), **extra_arguments(function, thoughts)))
    except Exception as error:
        return ungraded("reward-error", f"{type(error).__name__}: {first_line(error)}{_location(function, error)}")


def extra_arguments(function: Function, thoughts: ThoughtForm) -> dict[str, ThoughtForm]:
    """What a reward function gets besides the completion and its row: ``thoughts``, if it has such a parameter."""
    return {THOUGHTS: thoughts} if _takes_thoughts(function) else {}


@lru_cache
def _takes_thoughts(function: Function) -> bool:
    try:
        return THOUGHTS in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False  # one without a readable signature


def _location(function: Function, error: Exception) -> str:
    """Where in the user's file an exception was raised, or where the function with an invalid result is."""
    code = getattr(function, "__code__", None)
    if code is None:
        return ""
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == code.co_filename]
    line = own[-1].lineno if own else code.co_firstlineno
    return f" ({Path(code.co_filename).name}:{line}, {function.__name__})"


def _as_reward(value: Any) -> Reward:
    """The function's result as a reward. Raises TypeError or ValueError if it is invalid."""
    if isinstance(value, Mapping):
        unknown = set(value) - _FIELDS
        if unknown or "total" not in value:
            raise TypeError(
                f"a reward needs total and may have {', '.join(sorted(_FIELDS))}; got {', '.join(map(str, value))}"
            )
        value = Reward(**{**_plain(value["total"], value.get("correct")), **value})
    elif value is None or isinstance(value, str | bytes | list | tuple):
        kind = "None" if value is None else f"a {type(value).__name__}"
        raise TypeError(f"the function returned {kind}, not a number, a truth value or a mapping")
    reward = value if isinstance(value, Reward) else Reward(**_plain(value, None))
    if not math.isfinite(reward.total):
        raise ValueError(f"a reward of {reward.total} is not finite")
    return _for_a_table(reward)


def _for_a_table(reward: Reward) -> Reward:
    """The reward with the exact types of its fields, for a table.

    Raises TypeError or ValueError if a field cannot be converted.
    """
    values: dict[str, Any] = {}
    for part in fields(Reward):
        value = getattr(reward, part.name)
        if part.type in (float, bool):
            values[part.name] = float(value) if part.type is float else bool(value)
        elif isinstance(value, str):
            values[part.name] = printable(value)
        else:
            raise TypeError(f"{part.name} of a reward is text, not {type(value).__name__}")
    before = {name: getattr(reward, name) for name in values}
    same = all(type(value) is type(before[name]) and value == before[name] for name, value in values.items())
    return reward if same else Reward(**values)


def _plain(total: Any, correct: bool | None) -> dict[str, Any]:
    """All fields of a reward given as one number."""
    number = float(total)
    right = number >= 1 if correct is None else bool(correct)
    values = {"total": number, "correctness": number, "correct": right, "correct_anywhere": right}
    return values | {"format": 0.0, "length": 0.0, "language": 0.0, "reason": "correct" if right else "wrong"}
