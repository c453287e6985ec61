"""The front matter of a hub repository's card (README.md), which is YAML of others: small, and read in bounded time.

An alias of YAML stands for a value again. Aliases within aliases are few bytes that stand for billions of values, which
``yaml.safe_load`` copies where they are merged.
"""

import re
from pathlib import Path
from typing import Any

import yaml

from magcli.data.inside import refuse_outside
from magcli.errors import DataError

FRONT_MATTER = re.compile(r"\A---[^\S\n]*\n(.*?)\n---", re.DOTALL)
MAX_BYTES = 1 << 22
"""Of a card; the rest is not read."""
MAX_NODES = 1_000_000
"""Values with all that their aliases stand for."""


def read_card(folder: Path) -> dict[str, Any]:
    """The front matter of a folder's card; empty without one, or if it is not a YAML object.

    Raises:
        DataError: its aliases stand for too many values, it is nested too deeply, or a link leads out of the folder.
    """
    path = folder / "README.md"
    try:
        with open(refuse_outside(path, folder), encoding="utf-8") as file:
            head = FRONT_MATTER.match(file.read(MAX_BYTES))
        card = _loaded(head[1]) if head else None
    except RecursionError:
        raise DataError(f"{path}: its front matter is nested too deeply; remove it to read the files by name") from None
    except _Endless:
        problem = "its front matter stands for too many values, by aliases within aliases"
        raise DataError(f"{path}: {problem}; remove it to read the files by name") from None
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    return card if isinstance(card, dict) else {}


class _Endless(Exception):
    """Aliases that stand for too many values."""


def _loaded(text: str) -> Any:
    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        _count(node, {})
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _count(node: Any, counted: dict[int, int]) -> int:
    """The number of values that a node stands for; a node that contains itself is endless."""
    if id(node) in counted:
        total = counted[id(node)]
    else:
        # Until its parts are counted: a node that contains itself meets this number.
        counted[id(node)] = MAX_NODES + 1
        parts = node.value if isinstance(node, yaml.CollectionNode) else []
        total = 1
        for part in parts:
            # A mapping has pairs of a key and a value, a sequence has nodes.
            nodes = part if isinstance(part, tuple) else (part,)
            total += sum(_count(inner, counted) for inner in nodes)
        counted[id(node)] = total
    if total > MAX_NODES:
        raise _Endless
    return total
