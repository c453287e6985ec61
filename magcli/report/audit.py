"""The page of an audit: each finding with its count, its share with an interval, and examples, in one file.

Texts of a dump are untrusted: the template escapes them, and the content security policy forbids every request.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from magcli import __version__
from magcli.data.html import CONTENT_POLICY
from magcli.report import html
from magcli.report.formatting import number, percent, sanitize

MAX_PROMPT = 600
"""Characters of a prompt that are shown."""
MAX_END = 1_200
"""Characters of a completion that are shown, from its end, where the answer is."""


@dataclass(frozen=True, slots=True)
class Share:
    """How many of those that could be checked have a finding, and the share with its 95 % interval."""

    count: int
    checked: int
    share: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Example:
    """A rollout: the trainer's reward, our verdict, the answer found, and why it is a finding."""

    where: str
    prompt: str
    completion: str
    reward: float | None
    verdict: str
    found: str
    why: str


@dataclass(frozen=True, slots=True)
class Section:
    """A finding; ``unit`` is what is counted: rollouts or groups."""

    name: str
    title: str
    meaning: str
    unit: str
    counts: Share
    examples: Sequence[Example]


@dataclass(frozen=True, slots=True)
class Contents:
    """The page: the dumps by name, facts about them, the findings, and what the dumps lack."""

    dumps: Sequence[str]
    facts: Sequence[str]
    sections: Sequence[Section]
    lacking: Sequence[str]


def write(path: Path, contents: Contents) -> int:
    """Write the page and return its size in bytes.

    Raises:
        EnvironmentFault: the folder cannot be created or written.
    """
    return html.write(path, render(contents))


def render(contents: Contents) -> str:
    """The page as HTML."""
    return (
        html.environment()
        .get_template("audit.html.jinja")
        .render(
            contents=contents,
            version=__version__,
            policy=Markup(CONTENT_POLICY),
            style=html.part("style.css"),
            percent=percent,
            number=number,
            start=lambda text: sanitize(text, MAX_PROMPT),
            end=end_of,
        )
    )


def end_of(text: str) -> str:
    """The end of an untrusted text."""
    left_out = len(text) - MAX_END
    # Cut before it is escaped, which would make it longer.
    shown = sanitize(text[-MAX_END:])
    return shown if left_out <= 0 else f"[{left_out:,} characters before ...] {shown}"
