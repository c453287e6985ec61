"""Custom rewards: a function of a completion and its row, named as ``module:function`` or ``file.py:function``.

    def short(completion, row):
        return 1.0 if len(completion) < 100 else 0.0

A function with a parameter ``thoughts`` also gets the form in which the model writes its thoughts, a ``ThoughtForm``:
``thoughts.split(completion)`` is the pair of thoughts and answer.

It returns what ``magcli.verify.returned`` reads, or is asynchronous and returns that. It runs in the pool's workers,
under their deadline. An exception or an invalid result is the verdict ``reward-error``: counted in no accuracy, never
trained on. Several functions with weights, ``a.py:f=0.7,b.py:g=0.3``, are one reward.
"""

import asyncio
import hashlib
import importlib
import importlib.util
import inspect
import math
import os
import re
import sys
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import deepcopy
from functools import cache, lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from magcli.errors import UsageError, first_line
from magcli.model.chat.thoughts import THINK, ThoughtForm
from magcli.verify import beside
from magcli.verify.returned import as_reward, weighted_sum
from magcli.verify.reward import Reward, ungraded
from magcli.verify.sources import import_digests

Function = Callable[..., Any]
"""A custom function; for rewards (completion, row) -> reward."""

THOUGHTS = "thoughts"
"""The parameter of a reward function that gets the form of thoughts."""

_PART = re.compile(r"(.+?:\w+)(?:=([^,]*))?(?:,|$)")
"""One function of several: its name, and its weight."""


class Weighted(NamedTuple):
    """One function of a reward: as it is named, and its weight; None for a function alone, without a weight."""

    spec: str
    weight: float | None


def functions_of(spec: str, option: str = "reward") -> list[Weighted]:
    """The functions that an option names, with their weights: ``a.py:f`` or ``a.py:f=0.7,b.py:g=0.3``.

    Raises UsageError if a weight is not a finite number.
    """
    parts: list[Weighted] = []
    at = 0
    while at < len(spec):
        match = _PART.match(spec, at)
        if match is None:
            return [Weighted(spec, None)]  # ``load`` says what is wrong with it
        name, stated_weight = match.groups()
        weight = None if stated_weight is None else _weight(stated_weight, spec, option)
        parts.append(Weighted(name.strip(), weight))
        at = match.end()
    if len(parts) > 1:
        return [part if part.weight is not None else Weighted(part.spec, 1.0) for part in parts]
    return parts or [Weighted(spec, None)]


def _weight(text: str, spec: str, option: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        weight = math.nan
    if not math.isfinite(weight):
        raise UsageError(f"{option} {spec!r}: the weight {text!r} is not a number, as in a.py:f=0.7,b.py:g=0.3")
    return weight


def load(spec: str, option: str = "reward") -> Function:
    """The function that an option names; modules are also searched for in the working directory.

    Raises UsageError if there is no such module or function, or importing it fails.
    """
    location, _, name = spec.rpartition(":")
    if not location or not name:
        raise UsageError(f"{option} {spec!r}: name it as module:function or file.py:function")
    module = _module(location, f"{option} {spec!r}")
    function = getattr(module, name, None)
    if not callable(function):
        # Another module of that name may come first.
        file = getattr(module, "__file__", None) or "built in"
        source = "" if location.endswith(".py") else f" ({file})"
        what = "class" if option == "environment" else "function"
        raise UsageError(f"{option} {spec!r}: {location}{source} has no {what} {name}")
    loaded: Function = function
    return loaded


def digests(spec: str, option: str = "reward") -> dict[str, Any]:
    """SHA-256 of the functions' source files, and by file of what they import from their own folder or package.

    They determine rows as an option does.
    """
    own: list[str] = []
    imports: dict[str, str] = {}
    for part in functions_of(spec, option):
        load(part.spec, option)
        location = part.spec.rpartition(":")[0]
        # Loaded already, so this only looks it up.
        file = Path(str(_module(location, option).__file__))
        is_file = location.endswith(".py")
        package = "" if is_file else sys.modules[location].__package__ or ""
        own.append(hashlib.sha256(file.read_bytes()).hexdigest())
        imports |= import_digests(file, package)
    digest = own[0] if len(own) == 1 else hashlib.sha256(" ".join(own).encode()).hexdigest()
    settings: dict[str, Any] = {f"{option}_sha256": digest}
    if imports:
        settings[f"{option}_imports"] = imports
    return settings


def _module(location: str, subject: str) -> ModuleType:
    """The module of a file or of a name. Raises UsageError, with the option, if it cannot be imported."""
    try:
        if location.endswith(".py"):
            return beside.load_file(Path(location))
        # At the end: no installed module is replaced by one of that name here.
        working_directory = os.getcwd()
        if working_directory not in sys.path:
            sys.path.append(working_directory)
        return importlib.import_module(location)
    except UsageError as error:
        raise UsageError(f"{subject}: {error}") from None
    except (Exception, SystemExit) as error:
        raise UsageError(f"{subject}: {location} cannot be imported: {type(error).__name__}: {error}") from None


def grader_of(spec: str) -> Callable[..., Reward]:
    """What grades a completion by the functions that an option names: ``(completion, tokens, row, rule) -> Reward``.

    Raises UsageError as ``load`` does.
    """
    parts = functions_of(spec)
    functions = [load(part.spec) for part in parts]
    # Only a function that is alone may have no weight.
    if parts[0].weight is None:
        return lambda text, num_tokens, row, rule: graded(functions[0], text, row, rule.thoughts)
    names = _names([part.spec for part in parts])
    weights = [part.weight or 0.0 for part in parts]

    def grade(text: str, num_tokens: int, row: Mapping[str, Any], rule: Any) -> Reward:
        rewards: list[Reward] = []
        for function in functions:
            reward = graded(function, text, row, rule.thoughts)
            # A sum without one of its parts would mean something else.
            if not reward.trainable:
                return reward
            rewards.append(reward)
        return weighted_sum(names, weights, rewards)

    return grade


def _names(specs: Sequence[str]) -> list[str]:
    """What the parts of several functions are called: the function, after its file if two have the same name.

    Raises UsageError if a function is named twice.
    """
    functions = [spec.rpartition(":")[2] for spec in specs]
    count = Counter(functions)
    names = []
    for spec, function in zip(specs, functions, strict=True):
        source = Path(spec.rpartition(":")[0]).name.removesuffix(".py")
        names.append(function if count[function] == 1 else f"{source}.{function}")
    for name, number in Counter(names).items():
        if number > 1:
            raise UsageError(f"reward {','.join(specs)!r}: two functions are called {name}; rename one")
    return names


def graded(function: Function, text: str, row: Mapping[str, Any], thoughts: ThoughtForm = THINK) -> Reward:
    """The reward of a completion; a failure of the function is a verdict, not an error.

    The function gets a copy of the row, which other completions share: what it changes there is its own.
    """
    try:
        value = function(text, deepcopy(row), **extra_arguments(function, thoughts))
        return as_reward(result_of(value))
    except KeyboardInterrupt:
        raise
    # SystemExit, asyncio's CancelledError and pytest's outcomes are no Exception, and end no worker either
    except BaseException as error:
        return ungraded("reward-error", f"{type(error).__name__}: {first_line(error)}{location(function, error)}")


def result_of(value: Any) -> Any:
    """What a function returned, or the result of the asynchronous one that it is."""
    if not inspect.isawaitable(value):
        return value
    return _event_loop().run(_result(value))


@cache
def _event_loop() -> asyncio.Runner:
    """The event loop of all asynchronous functions of this process, so that their connections may stay open."""
    return asyncio.Runner()


async def _result(value: Awaitable[Any]) -> Any:
    return await value


def extra_arguments(function: Function, thoughts: ThoughtForm) -> dict[str, ThoughtForm]:
    """What a reward function gets besides the completion and its row: ``thoughts``, if it has such a parameter."""
    return {THOUGHTS: thoughts} if _takes_thoughts(function) else {}


@lru_cache
def _takes_thoughts(function: Function) -> bool:
    try:
        return THOUGHTS in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False  # one without a readable signature


def location(function: Function, error: BaseException) -> str:
    """Where in the user's file an exception was raised, or where the function with an invalid result is."""
    code = getattr(function, "__code__", None)
    if code is None:
        return ""
    frames = traceback.extract_tb(error.__traceback__)
    # The innermost of the user's own; what it called may be in a library.
    own_frames = [frame for frame in frames if frame.filename == code.co_filename]
    line = own_frames[-1].lineno if own_frames else code.co_firstlineno
    return f" ({Path(code.co_filename).name}:{line}, {function.__name__})"
