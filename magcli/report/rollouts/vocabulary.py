"""The tokens of a page, numbered in the order of their first appearance, with the text of each.

Texts come from ``tokenizer.json``, so no tokenizer is loaded. A token may be part of a character: texts are bytes.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

SPACE = "\u2581"
"""What stands for a space in vocabularies of SentencePiece."""
BYTE = re.compile(r"<0x([0-9A-F]{2})>")
"""A token that stands for one byte."""
MAX_ID = 1 << 22
"""The largest id of a token: vocabularies have some 260,000."""


@dataclass(slots=True)
class Vocabulary:
    """The ids of the tokens so far; ``_code`` is the number of each id, -1 for one that has not appeared."""

    ids: list[int] = field(default_factory=list)
    _code: npt.NDArray[np.int64] = field(default_factory=lambda: np.full(1 << 16, -1, np.int64))

    def codes(self, tokens: npt.NDArray[np.int32]) -> npt.NDArray[np.uint32]:
        """The numbers (T,) of tokens (T,); an id that no vocabulary has counts as 0."""
        is_valid = (tokens >= 0) & (tokens <= MAX_ID)
        tokens = np.where(is_valid, tokens, 0)
        largest = int(tokens.max(initial=0))
        # The table from ids to codes grows to the largest id that appeared.
        num_missing = largest + 1 - len(self._code)
        if num_missing > 0:
            self._code = np.pad(self._code, (0, num_missing), constant_values=-1)
        without_code = tokens[self._code[tokens] < 0]
        ascending, first_index = np.unique(without_code, return_index=True)
        in_order = ascending[np.argsort(first_index)]  # of their first appearance
        next_code = len(self.ids)
        self._code[in_order] = np.arange(next_code, next_code + len(in_order))
        self.ids += in_order.tolist()
        return self._code[tokens].astype(np.uint32)


def texts(ids: Sequence[int], tokenizer: Path | None) -> list[bytes]:
    """The text of each token, as bytes of UTF-8; its id in ‹› where no tokenizer has one.

    Raises:
        ValueError: the file is not a tokenizer of Hugging Face.
    """
    by_id = {} if tokenizer is None else _read(tokenizer)
    return [by_id.get(number, f"‹{number}›".encode()) for number in ids]


def _read(tokenizer: Path) -> dict[int, bytes]:
    """The text of each token by its id."""
    try:
        settings = json.loads(tokenizer.read_text(encoding="utf-8"))
        return _texts_by_id(settings)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{tokenizer} is not a tokenizer: {error}") from None


def _texts_by_id(settings: Mapping[str, Any]) -> dict[int, bytes]:
    vocabulary = settings["model"]["vocab"]
    names = vocabulary.items() if isinstance(vocabulary, dict) else _numbered(vocabulary)
    to_bytes = _of_bytes if _has_bytes(settings.get("decoder")) else _of_pieces
    texts = {number: to_bytes(name) for name, number in names}
    # Added tokens, such as those of a chat, are plain text in any vocabulary.
    for token in settings.get("added_tokens") or []:
        texts[token["id"]] = _utf8(token["content"])
    return texts


def _numbered(vocabulary: Iterable[Sequence[Any]]) -> Iterable[tuple[str, int]]:
    """The names of a Unigram vocabulary, which has pairs of name and score."""
    return ((entry[0], number) for number, entry in enumerate(vocabulary))


def _has_bytes(decoder: Any) -> bool:
    """Whether the names of tokens stand for bytes, as in GPT-2."""
    # At any depth, because decoders may be in a sequence.
    return "ByteLevel" in json.dumps(decoder)


def _letters_of_bytes() -> dict[str, int]:
    """GPT-2's letter for each byte: printable ones are themselves, the others follow from U+0100 on."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAC + 1), *range(0xAE, 0xFF + 1)]
    # In ascending order, as GPT-2 numbers them.
    others = [byte for byte in range(256) if byte not in printable]
    letters = {chr(byte): byte for byte in printable}
    letters |= {chr(0x100 + place): byte for place, byte in enumerate(others)}
    return letters


LETTERS = _letters_of_bytes()


def _of_bytes(name: str) -> bytes:
    """The bytes that a token's letters stand for; a name with another letter is itself."""
    try:
        return bytes(LETTERS[letter] for letter in name)
    except KeyError:
        return _utf8(name)


def _of_pieces(name: str) -> bytes:
    byte = BYTE.fullmatch(name)
    if byte is not None:
        return bytes.fromhex(byte[1])
    return _utf8(name.replace(SPACE, " "))


def _utf8(text: str) -> bytes:
    return text.encode(errors="backslashreplace")
