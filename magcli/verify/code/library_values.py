"""Values of the standard library and numpy as text for the judge of a suite, which gets them as what they are.

Runs inside the program's sandbox, in ``driver.py``, whose ``WRITERS`` and ``LIBRARY`` it extends. The judge reads them
with ``magcli.verify.code.suite_referee.LIBRARY_READERS``. Only values of exactly these types are written, by the
methods of these types.
"""

import collections

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from magcli.verify.code.driver import LIBRARY, WRITERS, text_of

FACTORIES = {kind: kind.__name__ for kind in (int, float, str, list, dict, set, bool, tuple)}
"""Factories of a defaultdict that have a name; another one is left out."""
NUMBERS = "biufcUS"
"""Kinds of numpy's types whose values are plain: Booleans, numbers and text."""


def text_of_mapping(tag: str) -> "Callable[[Any], str]":
    """A converter of a kind of dict."""
    return lambda value: f'{{"{tag}":[{WRITERS[dict](value)}]}}'


def text_of_defaultdict(value: "Any") -> str:
    """Its pairs, and its factory by name."""
    factory = text_of(FACTORIES.get(value.default_factory))
    return f'{{"defaultdict":[{factory},{WRITERS[dict](value)}]}}'


def text_of_deque(value: "Any") -> str:
    """Its items and its maximum length."""
    items = [*collections.deque.__iter__(value)]
    return f'{{"deque":{text_of([items, value.maxlen])}}}'


def text_of_array(value: "Any") -> "str | None":
    """An array of numpy, or one of its floats: its type, shape and elements; None for anything else."""
    if type(value).__module__ != "numpy":
        return None
    import numpy

    # The usual type of a single number; others come as plain numbers.
    if type(value) is numpy.float64:
        return f'{{"array":{text_of(["<f8", None, [value.item()]])}}}'
    if type(value) is not numpy.ndarray or value.dtype.kind not in NUMBERS:
        return None
    # The elements in the order of C, and the shape beside them: an empty array keeps all its dimensions.
    parts = [value.dtype.str, list(value.shape), value.ravel().tolist()]
    return f'{{"array":{text_of(parts)}}}'


# Other judges get the first three as the dicts that they are, and a deque as an object.
WRITERS.update(
    {
        collections.Counter: text_of_mapping("Counter"),
        collections.OrderedDict: text_of_mapping("OrderedDict"),
        collections.defaultdict: text_of_defaultdict,
        collections.deque: text_of_deque,
    }
)
LIBRARY.append(text_of_array)
