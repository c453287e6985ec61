"""The HTML report: all artifacts in pipeline order, in one self-contained file.

Untrusted text is escaped by the template, and the content security policy forbids every network request.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from markupsafe import Markup

from magcli import __version__
from magcli.data.html import CONTENT_POLICY, WATCHED_POLICY
from magcli.evaluation.metrics import labels
from magcli.report import arms, chart, evaluation, formatting, history, html, landscapes, training
from magcli.report.discovery import Artifacts, open_table
from magcli.report.landscapes import Landscape


@dataclass(frozen=True, slots=True)
class RolloutsPage:
    """A page of rollouts beside this one: what they are of, its file, and how many there are."""

    name: str
    file: str
    rows: int


@dataclass(frozen=True, slots=True)
class Contents:
    """The contents of the page by section; empty sections are omitted."""

    title: str
    comparisons: Sequence[arms.Comparison] = ()
    steps: Sequence[history.Step] = ()
    runs: Sequence[training.RunView] = ()
    suites: Sequence[evaluation.Suite] = ()
    landscapes: Sequence[Landscape] = ()
    origins: Sequence[history.Origin] = ()
    unread: Sequence[str] = ()
    rollouts: Sequence[RolloutsPage] = ()


@dataclass(frozen=True, slots=True)
class Live:
    """What a served page says of its run: the state, in a word and in a sentence, and the time of day it was read.

    ``version`` changes with what the page shows.
    """

    version: str
    state: str
    text: str
    read_at: str


def contents(
    artifacts: Artifacts,
    title: str,
    defaults: history.Defaults,
    *,
    samples_at: Sequence[str],
    groups: int,
    problems: arms.Problems | None = None,
) -> Contents:
    """Read all artifacts; samples of ``groups`` groups are shown for each update that ``samples_at`` names.

    ``problems`` are those of the runs whose models were evaluated, by which the runs are ranked.

    Raises:
        DataError: an artifact that was named explicitly is damaged.
    """
    # Several folders may have one name, so each is called by as much of its path as tells it apart.
    names = dict(zip(artifacts.runs, labels([str(path) for path in artifacts.runs]), strict=True))

    def read_run(folder: Path) -> training.RunView:
        return training.read(folder, names[folder], samples_at=samples_at, groups=groups)

    runs = artifacts.read_all(artifacts.runs, read_run)
    planes = artifacts.read_all(artifacts.landscapes, landscapes.read)
    # Folders of landscapes have tables too, whose histories say where these are from.
    tables_of_planes = [path for folder in artifacts.landscapes for path in landscapes.tables(folder)]
    points = artifacts.read_all(tables_of_planes, open_table)
    origins = [history.of_table(table, defaults) for table in [*artifacts.tables, *points]]
    origins += [history.of_run(run.trained, defaults) for run in runs]
    return Contents(
        title,
        arms.comparisons([run.trained.folder for run in runs], names, problems or {}),
        history.steps(artifacts.tables, [run.trained.history for run in runs]),
        runs,
        evaluation.suites([table for table in artifacts.tables if table.of_metrics]),
        planes,
        origins,
        artifacts.unread,
    )


def write(path: Path, contents: Contents) -> int:
    """Write the page and return its size in bytes. File names that are not valid Unicode are backslash-escaped.

    Raises:
        EnvironmentFault: the folder cannot be created or written.
    """
    return html.write(path, render(contents))


def render(contents: Contents, live: Live | None = None) -> str:
    """The page as HTML; ``live`` that of a run which is watched, which asks its server for newer versions."""
    scripts = ("hover.js", "folds.js", *(("watch.js",) if live else ()))
    environment = html.environment()
    # ``is flat`` in the template: such a chart is a line of text.
    environment.tests["flat"] = chart.is_flat
    return environment.get_template("page.html.jinja").render(
        contents=contents,
        live=live,
        version=__version__,
        policy=Markup(WATCHED_POLICY if live else CONTENT_POLICY),
        style=html.part("style.css"),
        script=Markup("").join(map(html.part, scripts)),
        draw=chart.draw,
        grouped=chart.grouped,
        legend=chart.legend,
        percent=formatting.percent,
        number=formatting.number,
        quote=quote,
        COLOURS=chart.COLOURS,
    )
