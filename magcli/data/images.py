"""The images of a row, for vision-language models.

The column ``images`` holds one or a list of: the bytes of an image file; a mapping with ``bytes`` or ``path``, as
`datasets` stores images; a ``data:`` URI in base64, for JSON lines; or a path relative to the working directory. The
columns of MMMU (``image_1`` ... ``image_7``) and MathVista (``decoded_image``) are read too. ``<image 2>`` in a prompt
marks the position of the second image; images without a position come before the text.
"""

import base64
import binascii
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from magcli.errors import DataError

COLUMN = "images"
NUMBERED = tuple(f"image_{number}" for number in range(1, 8))
DECODED = "decoded_image"


def images_of(row: Mapping[str, Any]) -> list[bytes]:
    """The image files of a row in order.

    Raises:
        DataError: an image cannot be read; the message names the row and the image.
    """
    return [_bytes(value, f"row {row.get('id')}: image {number}") for number, value in enumerate(_values(row), 1)]


def _values(row: Mapping[str, Any]) -> list[Any]:
    given = row.get(COLUMN)
    if given is None:
        given = [row.get(name) for name in (*NUMBERED, DECODED)]
    return [value for value in (given if isinstance(given, list) else [given]) if value is not None]


def _bytes(value: Any, where: str) -> bytes:
    if isinstance(value, Mapping):
        value = value.get("bytes") or value.get("path")
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str) or not value:
        raise DataError(f"{where} is {type(value).__name__}; give bytes, a path or a data: URI")
    return _from_uri(value, where) if value.startswith("data:") else _from_file(value, where)


def _from_uri(uri: str, where: str) -> bytes:
    head, _, body = uri.partition(",")
    if not head.endswith(";base64"):
        raise DataError(f"{where} is a data: URI without ;base64")
    try:
        return base64.b64decode(body, validate=True)
    except binascii.Error as error:
        raise DataError(f"{where} is not base64: {error}") from None


def _from_file(path: str, where: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise DataError(
            f"{where}: cannot read {path}: {error.strerror}; paths are relative to the working directory"
        ) from None
