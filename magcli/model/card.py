"""A model card: what the hub reads in its front matter, and recipe, data, figures and origin in Markdown tables."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from huggingface_hub import ModelCardData

from magcli.data.manifest import Chain, Input

USE = """```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("{name}")
model = AutoModelForCausalLM.from_pretrained("{name}")
```"""


@dataclass(frozen=True, slots=True)
class Training:
    """One run as the card tells it: stage, steps, the name of the model it began from, its options."""

    stage: str
    steps: int
    begun_from: str
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the evaluation table: whose figure it is, the metric, value and interval, how much was evaluated."""

    of: str
    metric: str
    value: float
    low: float | None
    high: float | None
    problems: int
    samples: int


@dataclass(frozen=True, slots=True)
class Card:
    """All that a card tells. ``origins`` are the files behind the model: what they are, name, digest, rows."""

    name: str
    license: str
    base: str
    version: str
    trainings: Sequence[Training]
    data: Chain
    figures: Sequence[Figure]
    origins: Sequence[tuple[str, Input]]


def render(card: Card) -> str:
    """The card as the text of a README.md."""
    parts = [
        f"---\n{_front(card)}\n---\n",
        f"# {card.name}\n\n{_summary(card)}\n",
        f"## Use\n\n{USE.format(name=card.name)}\n",
        f"## Recipe\n\n{_recipe(card.trainings)}\n",
        f"## Data\n\n{_data(card.data)}\n",
        f"## Evaluation\n\n{_evaluation(card.figures)}\n",
        f"## Provenance\n\n{_provenance(card)}\n",
    ]
    return "\n".join(parts)


def _front(card: Card) -> str:
    data = ModelCardData(
        license=card.license or None,
        base_model=card.base or None,
        library_name="transformers",
        pipeline_tag="text-generation",
        tags=["magcli", *(["grpo", "reinforcement-learning"] if any(t.stage == "rl" for t in card.trainings) else [])],
    )
    return str(data.to_yaml())


def _summary(card: Card) -> str:
    path = ", then ".join(f"`{run.stage}` ({run.steps:,} steps)" for run in card.trainings)
    licence = f"Licence: {card.license}." if card.license else "No licence is stated."
    start = card.trainings[0].begun_from
    return f"Trained from `{start}` by magcli {card.version}: {path}. {licence}"


def _recipe(trainings: Sequence[Training]) -> str:
    return "\n\n".join(
        f"### {run.stage}\n\nBegun from `{run.begun_from}`, {run.steps:,} steps.\n\n{_options(run.options)}"
        for run in trainings
    )


def _options(options: Mapping[str, Any]) -> str:
    return table(("option", "value"), ((name, _told(value)) for name, value in options.items()))


def _told(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(_told, value)) or "-"
    return "-" if value in (None, "") else str(value)


def _data(data: Chain) -> str:
    if not data:
        return "The tables that the runs read carry no history."
    rows = [(link.stage, f"{link.rows_in:,}", f"{link.rows_out:,}", _dropped(link.dropped)) for link in data]
    return table(("stage", "rows in", "rows out", "dropped by reason"), rows)


def _dropped(dropped: Mapping[str, int]) -> str:
    parts = (f"{reason} {count:,}" for reason, count in sorted(dropped.items(), key=lambda item: -item[1]))
    return ", ".join(parts) or "-"


def _evaluation(figures: Sequence[Figure]) -> str:
    if not figures:
        return "No evaluation was given."
    rows = ((f.of, f.metric, _figure(f), f"{f.problems:,}", f"{f.samples:,}") for f in figures)
    head = ("of", "metric", "value [95% interval]", "problems", "samples")
    return "Shares are in %.\n\n" + table(head, rows)


def _figure(figure: Figure) -> str:
    scale = 1 if figure.metric.startswith("tokens") else 100
    told = f"{scale * figure.value:.1f}"
    if figure.low is None or figure.high is None:
        return told
    return f"{told} [{scale * figure.low:.1f}, {scale * figure.high:.1f}]"


def _provenance(card: Card) -> str:
    rows = [(what, i.name or "-", f"{i.rows:,}" if i.rows else "-", f"`{i.sha256}`") for what, i in card.origins]
    told = "Digests are SHA-256; those of models go over configuration and weights. `export.json` has all of this."
    return told + "\n\n" + table(("what", "name", "rows", "digest"), rows)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; what would end a cell or a line is escaped."""
    lines = ["| " + " | ".join(_cell(cell) for cell in row) + " |" for row in rows]
    return "\n".join(["| " + " | ".join(head) + " |", "|" + " --- |" * len(head), *lines])


def _cell(text: str) -> str:
    return " ".join(text.replace("\\", "\\\\").replace("|", "\\|").split())
