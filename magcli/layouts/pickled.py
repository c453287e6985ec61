"""Plain data from pickles, without ``pickle``: nothing in them can be executed.

LiveCodeBench stores its private tests as a pickle that is compressed and in base64. Only the opcodes that build texts,
bytes, numbers, None, booleans, lists, tuples and dictionaries are followed; any other one is refused, in particular
those that look up a name, call something or build an object.
"""

import base64
import binascii
import contextlib
import json
import pickletools
import zlib
from collections.abc import Callable, MutableSequence
from typing import Any

from magcli.errors import DataError

MAX_BYTES = 1 << 30
"""Maximum size after decompression; the largest private tests of LiveCodeBench have about a third of it."""
MARK = object()
"""The start of the items that the next opcode collects."""
CONSTANTS: dict[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
VALUES = {
    "BININT", "BININT1", "BININT2", "INT", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT",
    "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8",
    "SHORT_BINBYTES", "BINBYTES", "BINBYTES8",
}  # fmt: skip
"""Opcodes whose argument is the value."""
EMPTY: dict[str, Callable[[], Any]] = {"EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_TUPLE": tuple}
TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
STORES = {"PUT", "BINPUT", "LONG_BINPUT"}
LOADS = {"GET", "BINGET", "LONG_BINGET"}
IGNORED = {"PROTO", "FRAME"}


def packed_json(text: str) -> Any:
    """The value of a text that is JSON, or JSON in a pickle, compressed by zlib, in base64.

    Raises:
        DataError: it is neither, or nested too deeply.
    """
    # Text that zlib compressed begins with ``eJ`` in base64, which no JSON does.
    with contextlib.suppress(ValueError):
        return _parsed(text)
    value = plain_data(_decompressed(text))
    try:
        return _parsed(value) if isinstance(value, str) else value
    except ValueError:
        raise DataError("the pickled text is not JSON") from None


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise DataError("the JSON text is nested too deeply") from None


def _decompressed(text: str) -> bytes:
    try:
        unpacking = zlib.decompressobj()
        # Bounded, as a few bytes may decompress to any size.
        data = unpacking.decompress(base64.b64decode(text, validate=True), MAX_BYTES)
    except (binascii.Error, ValueError, zlib.error):
        raise DataError("the text is neither JSON nor a compressed pickle in base64") from None
    # The limit was reached, or the end of the stream is missing.
    if not unpacking.eof:
        raise DataError(f"the compressed text is truncated, or larger than {MAX_BYTES:,} bytes")
    return data


def plain_data(data: bytes) -> Any:
    """The value of a pickle of plain data.

    Raises:
        DataError: it holds anything else, or is damaged.
    """
    stack: list[Any] = []
    memo: dict[int, Any] = {}
    try:
        # ``genops`` only splits the bytes into opcodes.
        for opcode, argument, _ in pickletools.genops(data):
            if opcode.name == "STOP":
                (value,) = stack
                return value
            _follow(opcode.name, argument, stack, memo)
    except DataError:
        raise
    except Exception:  # genops and the stack raise many kinds on damaged data
        raise DataError("the pickle is damaged") from None
    raise DataError("the pickle is truncated")


def _follow(name: str, argument: Any, stack: MutableSequence[Any], memo: dict[int, Any]) -> None:
    """Follow one opcode."""
    if name in VALUES:
        stack.append(argument)
    elif name in CONSTANTS:
        stack.append(CONSTANTS[name])
    elif name in EMPTY:
        stack.append(EMPTY[name]())
    elif name == "MARK":
        stack.append(MARK)
    elif name == "MEMOIZE":
        # Without an argument: the next free number, as protocol 4 counts them.
        memo[len(memo)] = stack[-1]
    elif name in STORES:
        memo[argument] = stack[-1]
    elif name in LOADS:
        stack.append(memo[argument])
    elif name not in IGNORED:
        _collect(name, stack)


def _collect(name: str, stack: MutableSequence[Any]) -> None:
    """Follow an opcode that takes values from the stack."""
    match name:
        case "APPEND":
            item = stack.pop()
            stack[-1].append(item)
        case "SETITEM":
            # The value is on top.
            value, key = stack.pop(), stack.pop()
            stack[-1][key] = value
        case "APPENDS":
            items = _items_after_mark(stack)
            stack[-1].extend(items)
        case "SETITEMS":
            items = _items_after_mark(stack)
            stack[-1].update(zip(items[::2], items[1::2], strict=True))
        case "LIST":
            stack.append(_items_after_mark(stack))
        case "TUPLE":
            stack.append(tuple(_items_after_mark(stack)))
        case "DICT":
            items = _items_after_mark(stack)
            stack.append(dict(zip(items[::2], items[1::2], strict=True)))
        case _ if name in TUPLES:
            items = [stack.pop() for _ in range(TUPLES[name])]
            stack.append(tuple(reversed(items)))
        case _:
            raise DataError(f"the pickle has opcode {name}, which does not build plain data; it is not read")


def _items_after_mark(stack: MutableSequence[Any]) -> list[Any]:
    """Take the values from the stack down to the last mark, which is taken too."""
    items = []
    item = stack.pop()
    while item is not MARK:
        items.append(item)
        item = stack.pop()
    return items[::-1]
