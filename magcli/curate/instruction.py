"""The instruction for a model that translates, and the languages into which it does."""

from importlib.resources import files
from pathlib import Path

from magcli.errors import EnvironmentFault, UsageError

NAMES = {"fr": "French", "es": "Spanish", "it": "Italian", "de": "German", "zh": "Chinese", "ru": "Russian"}
"""The languages of the recipe, and their names in the instruction."""
PLACEHOLDER = "{language}"
"""What the name of the language replaces."""


def instruction(path: Path | None) -> str:
    """The instruction for the model with the placeholder ``{language}``, from a file or the default.

    Raises:
        EnvironmentFault: the file cannot be read.
        UsageError: it lacks the placeholder.
    """
    # Both kinds of paths have ``read_text``.
    source = files("magcli.curate").joinpath("translate.txt") if path is None else path
    try:
        text = source.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise EnvironmentFault(f"cannot read the instruction {path}: {error.strerror}") from error
    if PLACEHOLDER not in text:
        raise UsageError(f"{path} lacks the placeholder {PLACEHOLDER} for the target language")
    return text
