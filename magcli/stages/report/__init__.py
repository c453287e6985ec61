"""A whole pipeline on one HTML page, or its main figures in the terminal.

PATHS are tables that magcli wrote or that have completions, folders of runs, folders of landscapes, or folders that
contain these, such as the output of a recipe. With -o report.html they become one page that needs no network: the
funnel of the data with reasons, curves of every run, samples with the parts of their reward, evaluations with
intervals, figures of landscapes, and the origin of every file. Beside it, report-rollouts.html has all rollouts of each
run, and of each named table of completions, to search and filter. Without -o the main figures are printed to stdout.

`--watch RUN` serves the page of a run that goes on, follows it, and ends with it; with -o it then writes the page.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from magcli.config import opt
from magcli.errors import usage
from magcli.stages.shared.options import check_page

INPUTS = ""
OUTPUT = ""
EXAMPLE = "magcli report runs kept.arrow evaluation.arrow -o report.html"

DEFAULT_METRICS = ("avg@n", "avg@n anywhere")
"""The metrics that are shown by default."""

PAGE = "The page"

TEXT = "Tables in the terminal, without -o"


@dataclass(frozen=True)
class Config:
    """Options of `magcli report`."""

    paths: tuple[str, ...] = opt((), "Tables, runs, landscapes, and folders that hold them.", positional=True)
    out: Path | None = opt(None, "The page to write: a file that ends in .html.", panel=PAGE, short="-o")
    samples_at: tuple[str, ...] = opt(
        ("0%", "25%", "50%", "100%"),
        "RL updates whose samples are shown: numbers, or percentages of the run.",
        panel=PAGE,
    )
    samples: int = opt(
        3,
        "Number of problems shown per update, with the best and the worst completion; 0 shows none.",
        panel=PAGE,
        ge=0,
    )
    watch: bool = opt(
        False,
        "Serve the page of one run on this machine while the run goes on, at a link that is printed, and end with it.",
        panel=PAGE,
    )
    title: str = opt("", "Title of the page (default: the names of the paths).", panel=PAGE)
    only: tuple[str, ...] = opt(DEFAULT_METRICS, "Metrics to show.", panel=TEXT)
    files: tuple[str, ...] = opt((), "Files and folders to list at the end.", panel=TEXT)


def check(config: Config) -> None:
    """Refuse a command without paths, and outputs that are not a page."""
    out = config.out
    usage(bool(config.paths or config.files), "report: name what to report on: magcli report PATH... -o report.html")
    check_page("report: -o", out)
    usage(
        not config.watch or (len(config.paths) == 1 and not config.files),
        "report: --watch follows one run: magcli report --watch RUN",
    )
    usage(out is None or bool(config.paths), "report: --files are listed in the terminal only; a page needs PATHS")
    for update in config.samples_at:
        usage(
            _is_update(update), f"report.samples_at: '{update}' is neither an update nor a percentage from 0% to 100%"
        )


def _is_update(text: str) -> bool:
    share = text.removesuffix("%")
    # A number of an update has no upper bound here.
    return share.isdecimal() and (share == text or int(share) <= 100)
