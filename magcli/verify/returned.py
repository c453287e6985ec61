"""What a user's reward function returned, as a ``Reward``.

It returns a number, a boolean, a ``Reward``, or a mapping with ``total``. A number of 1 or more, or True, counts as
correct. Other keys of a mapping are fields of a ``Reward``, or parts of the user's own, which are numbers.
"""

import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from magcli.verify.reward import Reward, printable

LARGEST = 1e15
"""The largest size of a reward: sums of squares over a batch still fit the float32 of columns and gradients."""
SIMILAR = 0.85
"""How similar a name is to a field at least if it is one that was misspelt."""
MAX_NAME = 60
"""Longest name of a part."""

_FIELDS = {field.name for field in fields(Reward)}


def as_reward(value: Any) -> Reward:
    """The function's result as a reward. Raises TypeError or ValueError if it is invalid."""
    if isinstance(value, Mapping):
        value = _from_mapping(value)
    elif not isinstance(value, Reward):
        value = Reward(**_plain(_number(value, "the function returned"), None))
    # First, so that the message speaks of the reward rather than of a field that follows from it.
    _check_size(value.total, "a reward of")
    return _for_a_table(value)


def weighted_sum(names: Sequence[str], weights: Sequence[float], rewards: Sequence[Reward]) -> Reward:
    """Several rewards of one completion as one; each total is a part. What is correct, and why, the first one says."""
    parts: dict[str, float] = {}
    for name, reward in zip(names, rewards, strict=True):
        parts[name] = reward.total
        parts |= {f"{name}.{part}": value for part, value in reward.parts.items()}

    def total(field: str) -> float:
        # The same sum whatever the order of the functions.
        return math.fsum(weight * getattr(reward, field) for weight, reward in zip(weights, rewards, strict=True))

    totals: dict[str, Any] = {field: total(field) for field in ("total", "format", "correctness", "length", "language")}
    return replace(rewards[0], **totals, parts=parts)


def _from_mapping(value: Mapping[Any, Any]) -> Reward:
    """A mapping with ``total``, fields of a reward, and parts."""
    if "total" not in value:
        others = ", ".join(sorted(_FIELDS - {"total"}))
        names = ", ".join(map(str, value)) or "nothing"
        raise TypeError(
            f"a reward needs total and may have {others}, and numbers under other names, its parts; got {names}"
        )
    own_parts = {name: part for name, part in value.items() if name not in _FIELDS}
    parts = _parts({**own_parts, **(value.get("parts") or {})})
    total = _number(value["total"], "total of a reward is")
    # What the mapping does not state, or leaves open as None, follows from its total.
    stated = {name: field for name, field in value.items() if name in _FIELDS and field is not None}
    correct = _truth(stated["correct"], "correct") if "correct" in stated else None
    fields_of_total = _plain(total, correct)
    return Reward(**{**fields_of_total, **stated, "total": total, "parts": parts})


def _parts(values: Mapping[Any, Any]) -> dict[str, float]:
    """The parts of the user's own as numbers; those that are None are left out."""
    parts: dict[str, float] = {}
    for name, value in values.items():
        if not isinstance(name, str) or not name or len(name) > MAX_NAME:
            raise TypeError(f"the part {name!r:.80} of a reward needs a name of 1 to {MAX_NAME} characters")
        # A misspelt field would silently be a part, and the field have its default.
        if meant := difflib.get_close_matches(name, _FIELDS, n=1, cutoff=SIMILAR):
            raise TypeError(
                f"the part {name} of a reward is nearly {meant[0]}, a field of rewards; write that or rename"
            )
        if value is None:
            continue
        number = _number(value, f"the part {name} of a reward is")
        _check_size(number, f"the part {name} of")
        parts[printable(name)] = number
    return parts


def _number(value: Any, subject: str) -> float:
    """A value as a number: Python's, NumPy's, or a tensor of one element."""
    if value is None or isinstance(value, str | bytes | list | tuple | Mapping):
        # ``float`` would read a text, which may be a mistake.
        kind = "None" if value is None else f"a {type(value).__name__}"
        expected = "a number, a truth value or a mapping" if subject.endswith("returned") else "a number"
        raise TypeError(f"{subject} {kind}, not {expected}")
    return float(value)


def _truth(value: Any, name: str) -> bool:
    """A field as a truth value: a boolean or the number 0 or 1; Python's, NumPy's, or a tensor's."""
    # ``bool`` would take the text "no" and a score of 0.3 for True.
    if isinstance(value, bool):
        return value
    try:
        number = _number(value, name)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if number not in (0, 1):
        raise TypeError(f"{name} of a reward is {value!r:.80}, not True or False")
    return bool(number)


def _check_size(number: float, subject: str) -> None:
    if not math.isfinite(number):
        raise ValueError(f"{subject} {number} is not finite")
    if abs(number) > LARGEST:
        raise ValueError(f"{subject} {number:g} is too large: at most {LARGEST:g} in size, so divide all rewards")


def _for_a_table(reward: Reward) -> Reward:
    """The reward with the exact types of its fields, for a table.

    Raises TypeError or ValueError if a field cannot be converted.
    """
    values: dict[str, Any] = {}
    for part in fields(Reward):
        value = getattr(reward, part.name)
        if part.type is float:
            values[part.name] = float(value)
            _check_size(values[part.name], f"{part.name} of")
        elif part.type is bool:
            values[part.name] = _truth(value, part.name)
        elif part.name == "parts":
            values[part.name] = _parts(value)
        elif isinstance(value, str):
            values[part.name] = printable(value)
        else:
            raise TypeError(f"{part.name} of a reward is text, not {type(value).__name__}")
    # Most rewards need no conversion, and no copy then.
    for name, value in values.items():
        stated = getattr(reward, name)
        if type(value) is not type(stated) or value != stated:
            return Reward(**values)
    return reward


def _plain(number: float, correct: bool | None) -> dict[str, Any]:
    """All fields of a reward given as one number."""
    right = number >= 1 if correct is None else correct
    reason = "correct" if right else "wrong"
    values = {"total": number, "correctness": number, "correct": right, "correct_anywhere": right, "reason": reason}
    # The number is not made of the parts of the built-in reward.
    return values | dict.fromkeys(("format", "length", "language"), 0.0)
