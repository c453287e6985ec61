"""The page: everything that was found, in the order of the pipeline, in one HTML file that asks nothing of the network.

Texts of others are escaped by the template; the page forbids itself every address but those within it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from magcli import __version__
from magcli.data.durable import atomic_file, disk_errors
from magcli.evaluation.labels import labels
from magcli.report import chart, figures, funnel, landscapes, provenance, training, wording
from magcli.report.found import Found, opened
from magcli.report.provenance import Defaults


@dataclass(frozen=True, slots=True)
class Contents:
    """What the page tells, section by section; an empty one is left out."""

    title: str
    steps: Sequence[funnel.Step]
    runs: Sequence[training.Run]
    suites: Sequence[figures.Suite]
    landscapes: Sequence[landscapes.Landscape]
    origins: Sequence[provenance.Origin]
    unread: Sequence[str]


def contents(found: Found, title: str, defaults: Defaults, *, samples_at: Sequence[str], groups: int) -> Contents:
    """Read what was found. ``groups`` are shown of each update that ``samples_at`` names.

    Raises:
        DataError: something that was found is damaged.
    """
    names = dict(zip(found.runs, labels([str(path) for path in found.runs]), strict=True))
    runs = found.readable(
        found.runs, lambda path: training.read(path, names[path], samples_at=samples_at, groups=groups)
    )
    planes = found.readable(found.landscapes, landscapes.read)
    points = found.readable([path for folder in found.landscapes for path in landscapes.tables(folder)], opened)
    tables = [*found.tables, *points]
    origins = [provenance.of_table(each, defaults) for each in tables]
    origins += [provenance.of_run(run, defaults) for run in runs]
    return Contents(
        title,
        funnel.steps(found.tables, [run.trained.history for run in runs]),
        runs,
        figures.suites([each for each in found.tables if each.of_metrics]),
        planes,
        origins,
        found.unread,
    )


def write(path: Path, told: Contents) -> int:
    """Write the page; how many bytes it has. What is no Unicode in the name of a file is written by its number.

    Raises:
        EnvironmentFault: its folder cannot be made or written.
    """
    text = render(told).encode(errors="backslashreplace")
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as file:
        file.write(text)
    return len(text)


def render(told: Contents) -> str:
    """The page as text."""
    environment = Environment(
        loader=PackageLoader("magcli.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(_words())
    return environment.get_template("page.html.jinja").render(told=told, version=__version__)


def _words() -> Mapping[str, Any]:
    """What the template calls by name."""
    place = files("magcli.report").joinpath("templates")
    return {
        "style": Markup(place.joinpath("style.css").read_text(encoding="utf-8")),
        "script": Markup(place.joinpath("hover.js").read_text(encoding="utf-8")),
        "draw": chart.draw,
        "keys": chart.keys,
        "share": wording.share,
        "number": wording.number,
        "COLOURS": chart.COLOURS,
    }
