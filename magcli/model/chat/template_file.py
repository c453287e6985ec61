"""A chat template in a file of the user's."""

from pathlib import Path

from jinja2 import TemplateSyntaxError
from transformers.utils.chat_template_utils import _compile_jinja_template

from magcli.errors import UsageError


def read_template(path: Path) -> str:
    """The text of --chat-template.

    Raises:
        UsageError: the file cannot be read, or is not a Jinja template.
    """
    try:
        text = path.read_text(encoding="utf-8")
        # Only compiled: rendering is tried with the tokenizer.
        _compile_jinja_template(text)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--chat-template {path} cannot be read: {error}") from error
    except TemplateSyntaxError as error:
        location = f"{path}, line {error.lineno}"
        raise UsageError(f"--chat-template {location}: {error.message}") from error
    return text
