"""Publishing on the Hugging Face hub: the model card, and the upload of a model folder.

Names and values in a card come from tables, runs and models of others: they are text, never HTML or Markdown.
"""

import html
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi, ModelCardData
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.utils.tqdm import disable_progress_bars

from magcli.data.manifest import Chain, Input
from magcli.errors import EnvironmentFault, first_line

HTTP_ERROR: type[Exception] = HfHubHTTPError.__bases__[0]
"""The base class of errors of the hub client's HTTP library (httpx or its successor)."""

USE = """```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained({name})
model = AutoModelForCausalLM.from_pretrained({name})
```"""
USE_WITH_IMAGES = """```python
from transformers import AutoModelForImageTextToText, AutoProcessor

processor = AutoProcessor.from_pretrained({name})
model = AutoModelForImageTextToText.from_pretrained({name})
```"""


@dataclass(frozen=True, slots=True)
class Training:
    """A training run in the card: stage, steps, initial model, options."""

    stage: str
    steps: int
    started_from: str
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Figure:
    """A row of the evaluation table: model, metric, value with interval, number of problems and samples."""

    of: str
    metric: str
    value: float
    low: float | None
    high: float | None
    problems: int
    samples: int


@dataclass(frozen=True, slots=True)
class Card:
    """The content of a card.

    ``origins`` are the files the model was made from: a description, name, digest, rows. ``reads_images``: it is the
    text model of a vision-language model, and the other parts are in the folder too.
    """

    name: str
    license: str
    base: str
    version: str
    trainings: Sequence[Training]
    data: Chain
    figures: Sequence[Figure]
    origins: Sequence[tuple[str, Input]]
    reads_images: bool = False


def render(card: Card) -> str:
    """The card as the text of a README.md."""
    example = USE_WITH_IMAGES if card.reads_images else USE
    # As a string of Python, whatever characters the name has.
    use = example.format(name=json.dumps(card.name, ensure_ascii=False))
    parts = [
        f"---\n{_front(card)}\n---\n",
        f"# {plain(card.name)}\n\n{_summary(card)}\n",
        f"## Use\n\n{use}\n",
        f"## Recipe\n\n{_recipe(card.trainings)}\n",
        f"## Data\n\n{_data(card.data)}\n",
        f"## Evaluation\n\n{_evaluation(card.figures)}\n",
        f"## Provenance\n\n{_provenance(card)}\n",
    ]
    return "\n".join(parts)


def _front(card: Card) -> str:
    tags = ["magcli"]
    if any(training.stage == "rl" for training in card.trainings):
        tags += ["grpo", "reinforcement-learning"]
    data = ModelCardData(
        license=card.license or None,
        base_model=card.base or None,
        library_name="transformers",
        pipeline_tag="image-text-to-text" if card.reads_images else "text-generation",
        tags=tags,
    )
    return str(data.to_yaml())


def _summary(card: Card) -> str:
    path = ", then ".join(f"{code(run.stage)} ({run.steps:,} steps)" for run in card.trainings)
    licence = f"Licence: {plain(card.license)}." if card.license else "No licence is stated."
    start = code(card.trainings[0].started_from)
    return f"Trained from {start} by magcli {card.version}: {path}. {licence}"


def _recipe(trainings: Sequence[Training]) -> str:
    sections = []
    for run in trainings:
        rows = [(plain(name), plain(_text(value))) for name, value in run.options.items()]
        start = f"Started from {code(run.started_from)}, {run.steps:,} steps."
        sections.append(f"### {plain(run.stage)}\n\n{start}\n\n{table(('option', 'value'), rows)}")
    return "\n\n".join(sections)


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(_text, value)) or "-"
    return "-" if value in (None, "") else str(value)


def _data(data: Chain) -> str:
    if not data:
        return "The input tables of the runs have no history."
    rows = []
    for link in data:
        rows.append((plain(link.stage), f"{link.rows_in:,}", f"{link.rows_out:,}", plain(_dropped(link.dropped))))
    return table(("stage", "rows in", "rows out", "dropped by reason"), rows)


def _dropped(dropped: Mapping[str, int]) -> str:
    most_first = sorted(dropped.items(), key=lambda item: -item[1])
    return ", ".join(f"{reason} {count:,}" for reason, count in most_first) or "-"


def _evaluation(figures: Sequence[Figure]) -> str:
    if not figures:
        return "No evaluation was given."
    head = ("model", "metric", "value [95% interval]", "problems", "samples")
    rows = []
    for figure in figures:
        problems, samples = f"{figure.problems:,}", f"{figure.samples:,}"
        rows.append((plain(figure.of), plain(figure.metric), _figure(figure), problems, samples))
    return "Metrics are in %, tokens in numbers.\n\n" + table(head, rows)


def _figure(figure: Figure) -> str:
    scale = 1 if figure.metric.startswith("tokens") else 100
    value = f"{scale * figure.value:.1f}"
    if figure.low is None or figure.high is None:
        return value
    return f"{value} [{scale * figure.low:.1f}, {scale * figure.high:.1f}]"


def _provenance(card: Card) -> str:
    rows = []
    for what, origin in card.origins:
        num_rows = f"{origin.rows:,}" if origin.rows else "-"
        rows.append((plain(what), plain(origin.name) or "-", num_rows, code(origin.sha256)))
    note = "Digests are SHA-256; those of models cover configuration and weights. `export.json` has all of this."
    return note + "\n\n" + table(("file", "name", "rows", "digest"), rows)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; the cells are Markdown in one line, such as of ``plain`` and ``code``."""
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    for row in rows:
        # A bar would begin the next cell.
        cells = [cell.replace("|", "\\|") for cell in row]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def plain(text: str) -> str:
    """A text as Markdown in one line that shows it unchanged, without HTML, links, images or emphasis."""
    line = " ".join(text.split())
    # Quotes need no escape outside of tags.
    without_html = html.escape(line, quote=False)
    return re.sub(r"([\\`*\[\]~$])", r"\\\1", without_html)


def code(text: str) -> str:
    """A text as a code span."""
    line = " ".join(text.split())
    longest = max(map(len, re.findall("`+", line)), default=0)
    fence = "`" * (longest + 1)  # a code span ends with as many backticks as it begins with
    edge = " " if longest else ""  # of which Markdown strips one, so that the text may begin with a backtick
    return f"{fence}{edge}{line}{edge}{fence}"


def push(folder: Path, repository: str, *, public: bool) -> str:
    """Upload a folder to a repository, which is created if it does not exist; returns its URL.

    Raises:
        EnvironmentFault: the hub cannot be reached or refuses; the folder is left unchanged.
    """
    disable_progress_bars()
    try:
        hub = HfApi()
        hub.create_repo(repository, private=not public, exist_ok=True)
        commit = hub.upload_folder(repo_id=repository, folder_path=folder, commit_message="magcli export")
    except (HTTP_ERROR, OSError, ValueError, RuntimeError) as error:
        raise EnvironmentFault(
            f"{folder} is complete, but pushing it to {repository} failed: {first_line(error).rstrip('.')}; "
            "log in with `hf auth login` if needed, then run the same command again"
        ) from error
    return str(commit.repo_url if hasattr(commit, "repo_url") else commit)
