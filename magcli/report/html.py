"""The templates of the report's pages, and a page as a file.

Untrusted text is escaped by the templates, and the content security policy of each page forbids every network request.
"""

from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from magcli.data.durable import atomic_file, disk_errors


def environment() -> Environment:
    """The templates; a name without a value is an error."""
    return Environment(
        loader=PackageLoader("magcli.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def part(name: str) -> Markup:
    """A style sheet or script of the folder ``templates``, which a page has as it is."""
    return Markup(files("magcli.report").joinpath("templates", name).read_text(encoding="utf-8"))


def write(path: Path, page: str) -> int:
    """Write a page and return its size in bytes. File names that are not valid Unicode are backslash-escaped.

    Raises:
        EnvironmentFault: the folder cannot be created or written.
    """
    text = page.encode(errors="backslashreplace")
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as file:
        file.write(text)
    return len(text)
