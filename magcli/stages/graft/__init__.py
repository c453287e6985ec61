"""Put a trained text model back under the vision encoder that it came from.

The result is the vision-language model with the text model's weights: its vision encoder, configuration, tokenizer and
processor are copied byte by byte, and the text weights are rounded once to its number format. Names, shapes, settings
and vocabularies must agree; otherwise the error names the first difference. Weights are streamed, a few megabytes at a
time; the folder is written atomically.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from magcli.config import opt
from magcli.errors import usage

INPUTS = ""
OUTPUT = ""
EXAMPLE = "magcli graft --text examples/model --into examples/model-vision -o grafted"


@dataclass(frozen=True)
class Config:
    """Options of `magcli graft`."""

    text: str = opt("", "The trained text model: a folder, such as a run's model, or a hub id.")
    into: str = opt("", "The vision-language model that it came from: a folder or a hub id.")
    out: Path | None = opt(None, "Folder for the result; it must not exist.", short="-o")


def check(config: Config) -> None:
    """Refuse a command without a model or an output."""
    usage(bool(config.text), "graft: --text is missing: the trained text model, a folder or a hub id")
    usage(bool(config.into), "graft: --into is missing: the vision-language model, a folder or a hub id")
    usage(config.out is not None, "graft: -o is missing: the folder for the result")
