"""Generates the pages of the stages, and of the rules for math answers, when the site is built.

Options, defaults and texts come from each stage's ``Config``, its module and its command line; the rules from
``math-rules.toml``.
"""

import dataclasses
import html
import re
import tomllib
import types
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

import typer

from magcli import config as configuration
from magcli.cli import PACKAGES, STAGES, with_stages
from magcli.command import PLUGIN_PANEL, Entry, stage_of
from magcli.run.stage import Stage
from magcli.stages.shared.panels import FIRST, in_panels

GUIDES: Mapping[str, str] = {
    "data": "[Data and columns](../data.md)",
    "rewards": "[Rewards and verifiers](../rewards.md)",
    "environments": "[Environments](../environments.md)",
    "code": "[Code problems](../data.md#code-problems)",
    "models": "[Models and engines](../models.md)",
    "rl": "[Reinforcement learning](../rl.md)",
    "cluster": "[Clusters](../cluster.md)",
    "evaluation": "[Evaluation](../evaluation.md)",
    "landscape": "[Landscape](../landscape.md)",
    "looking": "[Look at a run](../looking.md)",
    "publishing": "[Reports and publishing](../publishing.md)",
    "shards": "[Shards](../reliability.md#shards)",
    "start": "[Getting started](../getting-started.md)",
    "labels": "[clean-math on hand-labelled rows](../benchmarks.md#clean-math-on-hand-labelled-rows)",
    "funnels": "[Funnels of public data](../benchmarks.md#funnels-of-public-data-and-the-papers-scale)",
}
"""The guides that a stage's page links to."""

GUIDES_OF: Mapping[str, Sequence[str]] = {
    "convert": ("data",),
    "split": ("data",),
    "clean-math": ("data", "labels", "funnels"),
    "filter-math": ("data", "models", "environments"),
    "filter-code": ("code", "rewards", "funnels"),
    "make-tests": ("code", "funnels"),
    "duplicate": ("code", "funnels"),
    "translate": ("data", "models"),
    "generate": ("models", "environments"),
    "grade": ("rewards",),
    "audit": ("looking", "rewards"),
    "commit": ("shards",),
    "cold-start": ("data",),
    "sft": ("models", "cluster"),
    "rl": ("rl", "rewards", "environments", "cluster"),
    "simulate": ("cluster", "rl"),
    "evaluate": ("evaluation", "environments"),
    "landscape": ("landscape",),
    "show": ("data", "looking"),
    "report": ("looking", "publishing"),
    "compare": ("evaluation", "rl", "looking"),
    "export": ("publishing",),
    "graft": ("publishing",),
    "doctor": ("start",),
}
"""The guides of each stage."""


def summary(name: str) -> str:
    """The first sentence of a stage's documentation, on one line."""
    return " ".join(stage_of(name).doc.split("\n\n")[0].split())


PAGES = (*STAGES, *(Entry(name, PLUGIN_PANEL, summary(name)) for name in PACKAGES))
"""The stages that have a page: magcli's, and those of other packages in this repository."""

INDEX = """# Stages

A stage is one subcommand of `magcli`. Each reads a table and writes a table, so stages chain in shell pipes and
Makefiles. Each page has the options of `magcli STAGE --help`.

Values come from the defaults, then from the stage's table in `--recipe FILE.toml`, then from flags. An unknown key is
an error that suggests the nearest name. `--dry-run` prints the resolved configuration and writes nothing.
Of the stages that train or sample it also opens the tables and the model's tokenizer and configuration, which needs no
weights, and counts the rows that would be dropped. A message names tables and models that are not there yet.
`magcli --install-completion` installs shell completion.
"""


MATH_RULES = """# Rules for math answers

When an answer equals the ground truth. Every pair is judged in the same way whichever side is the ground truth, except
those with an arrow `→` from an answer to its ground truth. See also [Math answers](rewards.md#math-answers).
"""


def on_config(config: Any) -> Any:
    """Add the pages of the stages to the navigation, under the headings of ``magcli --help``."""
    pages = next(part["Stages"] for part in config["nav"] if "Stages" in part)
    panels = dict.fromkeys(entry.panel for entry in PAGES)
    pages += [{panel: [f"stages/{e.name}.md" for e in PAGES if e.panel == panel]} for panel in panels]
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages to the site."""
    from mkdocs.structure.files import File  # here, so that tests need no mkdocs

    for path, content in pages().items():
        files.append(File.generated(config, path, content=content))
    return files


def on_page_content(content: str, **_: Any) -> str:
    """Mark options in a page; the style sheet forbids line breaks in them."""
    return re.sub(r"<code>(-[^<\s]*)</code>", r'<code class="option">\1</code>', content)


def pages() -> dict[str, str]:
    """Every generated page: path in the site -> Markdown."""
    stages = {f"stages/{entry.name}.md": page(entry) for entry in PAGES}
    return {"stages/index.md": index(), "math-rules.md": math_rules()} | stages


def index() -> str:
    """The list of all stages, by panel."""
    parts = [INDEX]
    for panel in dict.fromkeys(entry.panel for entry in PAGES):
        rows = [(f"[`{e.name}`]({e.name}.md)", escape(e.help)) for e in PAGES if e.panel == panel]
        parts.append(f"## {panel}\n\n{table(('stage', 'what it does'), rows)}")
    return "\n\n".join(parts) + "\n"


def math_rules() -> str:
    """The rules of ``math-rules.toml``, a table for each topic."""
    rules = tomllib.loads(Path(__file__).with_name("math-rules.toml").read_text(encoding="utf-8"))["rule"]
    parts = [MATH_RULES]
    for topic in dict.fromkeys(rule["topic"] for rule in rules):
        rows = [math_rule(rule) for rule in rules if rule["topic"] == topic]
        parts.append(f"## {topic}\n\n{table(('rule', 'equal', 'not equal'), rows)}")
    return "\n\n".join(parts) + "\n"


def math_rule(rule: Mapping[str, Any]) -> tuple[str, str, str]:
    """One rule as a row: what it says, the answers that are equal by it, and those that are not."""
    says = rule["says"]
    if "question" in rule:
        says += f" Here the question is: {rule['question']}"
    equal = answer_pairs(rule.get("equal", ()), "=") + answer_pairs(rule.get("right", ()), "→")
    different = answer_pairs(rule.get("different", ()), "≠") + answer_pairs(rule.get("wrong", ()), "→")
    return says.replace("|", r"\|"), "<br>".join(equal), "<br>".join(different)


def answer_pairs(pairs: Iterable[Sequence[str]], sign: str) -> list[str]:
    """Pairs of answers as code with a sign between them."""
    return [f"{answer_code(one)} {sign} {answer_code(other)}" for one, other in pairs]


def answer_code(answer: str) -> str:
    """An answer as code in a cell; its signs are entities, so that none of them is Markdown."""
    return "<code>" + re.sub(r"[!-/:-@\[-`{-~]", lambda sign: f"&#{ord(sign[0])};", answer) + "</code>"


def page(entry: Entry) -> str:
    """One stage: what it does, what it reads and writes, an example, and its options by panel."""
    stage = stage_of(entry.name)
    title, *paragraphs = stage.doc.split("\n\n")
    parts = [f"# magcli {entry.name}", f"**{escape(' '.join(title.split()))}**"]
    parts += [escape(" ".join(paragraph.split())) for paragraph in paragraphs]
    parts += [tables_of(stage), f"```sh\n{wrapped(stage.EXAMPLE)}\n```", guides(entry.name)]
    parts += ["## Options", option_tables(stage), recipe_keys(stage), nested_tables(stage)]
    parts += ["### Tables and running", table(("option", "meaning"), main_options(entry.name, stage))]
    return "\n\n".join(filter(None, parts)) + "\n"


def tables_of(stage: Stage) -> str:
    """What the stage reads and writes, as a list."""
    lines = [
        ("Reads", escape(stage.INPUTS)),
        ("Writes", escape(stage.OUTPUT)),
        ("Other names", "; ".join(f"`{name}`: {names_of(aka)}" for name, aka in (stage.ALIASES or {}).items())),
        ("After a kill", "the same command resumes by row" if stage.RESUMES else ""),
        ("Shards", "`--shard I/N`" if stage.shardable else ""),
        ("Recipe table", f"`[{stage.RECIPE_TABLE or stage.name}]`; its keys are the options without `--`"),
    ]
    return "\n".join(f"- **{name}:** {text}" for name, text in lines if text)


def wrapped(command: str, width: int = 80) -> str:
    """A long command on several lines of shell."""
    words = re.findall(r"--?[a-zA-Z][\w-]*(?: (?!-)\S+)*|\S+", command)
    lines = [""]
    for word in words:
        if lines[-1] and len(lines[-1]) + len(word) + 3 > width:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    return " \\\n  ".join(lines)


def names_of(columns: Iterable[str]) -> str:
    """Names of columns as code."""
    return ", ".join(f"`{name}`" for name in columns)


def guides(name: str) -> str:
    """Links to the guides of a stage."""
    return "See also: " + ", ".join(GUIDES[guide] for guide in GUIDES_OF[name])


def option_tables(stage: Stage) -> str:
    """The options of a stage, one table a panel."""
    kinds = configuration.field_types(stage.Config)
    placed = in_panels(stage.Config, stage.FIRST)
    fields = [
        (panel, field)
        for panel, field in placed
        if configuration.has_flag(kinds[field.name]) and field.name not in stage.IN_RECIPE
    ]
    panels = dict.fromkeys(panel for panel, _ in fields)
    title = "The options that matter first" if stage.FIRST else "This stage"
    return "\n\n".join(
        f"### {title if panel == FIRST else panel}\n\n"
        + table(
            ("option", "type", "default", "meaning"),
            [option(field, kinds[field.name]) for place, field in fields if place == panel],
        )
        for panel in panels
    )


def recipe_keys(stage: Stage) -> str:
    """The options that are for recipes, in the order of the stage."""
    if not stage.IN_RECIPE:
        return ""
    kinds = configuration.field_types(stage.Config)
    fields = {field.name: field for field in dataclasses.fields(stage.Config)}
    rows = [(f"`{name}`", *option(fields[name], kinds[name])[1:]) for name in stage.IN_RECIPE]
    about = f"Keys of the table `[{stage.name}]` that `--help` does not list. A flag of the same name works too."
    return f"### In a recipe\n\n{about}\n\n{table(('key', 'type', 'default', 'meaning'), rows)}"


def option(field: Any, kind: Any) -> tuple[str, ...]:
    """One option as a row."""
    flag = configuration.flag_name(field.name)
    negated = [f"--no-{flag[2:]}"] if kind is bool else []
    flags = [flag, *negated, *filter(None, [field.metadata["short"]])]
    return (
        ", ".join(f"`{flag}`" for flag in flags),
        escape(type_name(kind)),
        default_name(field.default),
        escape(field.metadata["help"]),
    )


def nested_tables(stage: Stage) -> str:
    """The keys of options that are arrays of tables in a recipe, such as ``[[rl.stage]]``."""
    parts = []
    for field in dataclasses.fields(stage.Config):
        kind = configuration.field_types(stage.Config)[field.name]
        if not configuration.has_flag(kind):
            rows = nested_rows(get_args(kind)[0])
            about = escape(field.metadata["help"])
            parts.append(f"### `[[{stage.name}.{field.name}]]`\n\n{about}\n\n{table(('key', 'type', 'meaning'), rows)}")
    return "\n\n".join(parts)


def nested_rows(inner: type) -> list[tuple[str, ...]]:
    """The keys of one such table, with their meaning from the docstring of its class."""
    docs = dict(re.findall(r"^\s+(\w+): (.+)$", inner.__doc__ or "", re.M))
    kinds = configuration.field_types(inner)
    return [(f"`{key}`", escape(type_name(kind)), escape(docs[key])) for key, kind in kinds.items()]


def main_options(name: str, stage: Stage) -> list[tuple[str, ...]]:
    """The options that every stage has, from its command line."""
    command: Any = typer.main.get_command(with_stages(PAGES))
    options = set(configuration.field_types(stage.Config))
    return [
        (", ".join(f"`{flag}`" for flag in parameter.opts), escape(parameter.help.replace("\\[", "[")))
        for parameter in command.commands[name].params
        if not parameter.hidden and parameter.name not in {*options, "inputs", "positional"}
    ]


def type_name(kind: Any) -> str:
    """A type as the help shows it."""
    if get_origin(kind) in (Union, types.UnionType):
        kind = next(arg for arg in get_args(kind) if arg is not type(None))
    if get_origin(kind) is Literal:
        return " | ".join(map(str, get_args(kind)))
    if get_origin(kind) is tuple:
        return f"list of {type_name(get_args(kind)[0])}"
    return {"Path": "path", "str": "text", "bool": "flag"}.get(kind.__name__, kind.__name__)


def default_name(default: Any) -> str:
    """A default as a table cell."""
    if isinstance(default, bool):
        return "on" if default else "off"
    if default is None or default in ((), ""):
        return ""
    return f"`{','.join(map(str, default)) if isinstance(default, tuple) else default}`"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def escape(text: str) -> str:
    """Escape plain text for Markdown; options become code, and code in backticks stays code."""
    parts = text.split("`")
    for place in range(0, len(parts), 2):
        part = html.escape(parts[place], quote=False)
        part = re.sub(r"[*_\[|]", r"\\\g<0>", part)
        parts[place] = re.sub(r"(?<![\w-])--[a-z][\w-]*", r"`\g<0>`", part)
    return "`".join(parts)
