"""Evaluation suites: small TOML files that say where a benchmark's rows are, how they are prompted, sampled and graded.

    about = "AIME 2024, I and II"
    verifier = "math"

    [sampling]
    temperature = 0.7
    top_p = 1.0
    max_tokens = 40960
    samples = 64

    [[source]]
    files = ["aime2024.jsonl"]
    prompt = "{problem}"
    answer = "{answer}"

    [[source]]
    hub = "owner/name:split"
    prompt = "{Problem}"
    answer = "{Answer}"

A suite comes with magcli, by its name, or is a file of the user's, by its path. The first source that is at hand is
read. With ``variants = ["de", "fr"]`` it stands for one suite each: ``{variant}`` in its texts is the variant, its name
``suite-variant``. Texts in braces are columns of the data.

========== ===========================================================================================================
verifier   ``math``, ``code``, ``ifeval``, ``tools``, or a user's own reward: ``file.py:function``, ``module:function``
note       a caveat about the figures, printed with them
system     the system prompt: ``default`` (magcli's), ``none``, or a file, relative to the suite's
language   whether the share in one language is reported too
files      of a source: names of files or folders; where one is found under ``--data``, that is read
origin     where these come from, named if they are not found; ``hub``: the data set that ``--data hub`` reads instead
id         the row's id; its number where there is none
where      columns that must have a value, be one of a list, none of ``{not = [..]}``, or in ``{min = .., max = ..}``
choices    columns of the options, the right one first, or ``inline``: they stand in the prompt as ``A. ..`` and
           ``answer`` is the letter. Either way they are shuffled by the seed
tests      how the tests of programs are written; see ``magcli.evaluation.programs``
reference  a solution that must be right, for checks of the suite itself
keep       columns that go to a user's own verifier; lists and mappings go as JSON text
names      the columns of a ``.tsv`` file without a head
========== ===========================================================================================================

Defaults of the sampling are those of the recipe (section 6).
"""

import hashlib
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from magcli.config import convert, did_you_mean, field_types
from magcli.errors import UsageError

SHIPPED = Path(__file__).parent / "suites"
"""Where the suites are that come with magcli."""
VERIFIERS = ("math", "code")
"""Verifiers of answers and of programs."""
FUNCTIONS = {"ifeval": "magcli.evaluation.ifeval_checks:reward", "tools": "magcli.evaluation.tools:reward"}
"""Verifiers that are reward functions, by name."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where rows lie and which of their columns say what."""

    files: tuple[str, ...] = ()
    origin: str = ""
    hub: str = ""
    names: tuple[str, ...] = ()
    id: str = ""
    prompt: str = ""
    answer: str = ""
    choices: tuple[str, ...] = ()
    tests: str = ""
    reference: str = ""
    keep: tuple[str, ...] = ()
    where: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SamplingOptions:
    """How a suite is sampled: 40k tokens for AIME and LiveCodeBench in the recipe, 32k for the rest."""

    temperature: float = 0.7
    top_p: float = 1.0
    max_tokens: int = 32768
    samples: int = 4


@dataclass(frozen=True, slots=True)
class Suite:
    """One suite, its variant put in. ``digest`` is of the file that describes it."""

    name: str
    verifier: str
    sources: tuple[Source, ...]
    sampling: SamplingOptions
    about: str = ""
    note: str = ""
    system: str = "default"
    language: bool = False
    digest: str = ""
    folder: Path = Path()

    @property
    def kind(self) -> str:
        """Of its problems: ``math`` or ``code``; irrelevant with a custom verifier."""
        return "code" if self.verifier == "code" else "math"

    @property
    def function(self) -> str:
        """The custom reward, as ``magcli.verify.custom`` names it; empty for answers and programs."""
        if self.verifier in VERIFIERS:
            return ""
        place, colon, name = FUNCTIONS.get(self.verifier, self.verifier).rpartition(":")
        return f"{self.folder / place}{colon}{name}" if place.endswith(".py") else f"{place}{colon}{name}"


def known() -> list[str]:
    """The names of the suites that come with magcli, one for those with variants."""
    return sorted(path.stem for path in SHIPPED.glob("*.toml"))


def load(names: Sequence[str]) -> list[Suite]:
    """The suites of these names or paths, in order, each once; one with variants expands to all of them.

    Raises:
        UsageError: there is no such suite, a file is none, or two have one name; the message says what is wrong.
    """
    found: dict[str, tuple[str, Suite]] = {}
    for given, suite in ((name, suite) for name in names for suite in _load(name)):
        earlier, same = found.setdefault(suite.name, (given, suite))
        if (same.digest, same.folder.resolve()) != (suite.digest, suite.folder.resolve()):
            raise UsageError(f"evaluate.suite: {earlier} and {given} are both called {suite.name}; rename one of them")
    return [suite for _, suite in found.values()]


def _load(name: str) -> list[Suite]:
    path = Path(name)
    if path.suffix == ".toml":
        return _parsed(path.stem, _text(path), path.parent)
    shipped = known()
    for own in (own for own in shipped if name == own or name.startswith(f"{own}-")):
        text = SHIPPED.joinpath(f"{own}.toml").read_text(encoding="utf-8")
        if chosen := [suite for suite in _parsed(own, text, SHIPPED) if name in (own, suite.name)]:
            return chosen
    raise UsageError(
        f"evaluate.suite: '{name}' is neither a suite nor a .toml file{did_you_mean(name, shipped)}; "
        f"suites are the .toml files in {SHIPPED}"
    )


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"evaluate.suite: {path} cannot be read: {error}") from None


def _parsed(name: str, text: str, folder: Path) -> list[Suite]:
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"suite {name} is not valid TOML: {error}") from None
    variants = table.pop("variants", None)
    if variants is None:
        return [_suite(name, table, text, folder)]
    return [_suite(f"{name}-{each}", _filled(table, str(each)), text, folder) for each in variants]


def _filled(value: Any, variant: str) -> Any:
    """A table with the variant in place of ``{variant}`` in all its texts."""
    match value:
        case str():
            return value.replace("{variant}", variant)
        case list():
            return [_filled(each, variant) for each in value]
        case dict():
            return {key: _filled(each, variant) for key, each in value.items()}
    return value


_SUITE_KEYS = {"about": str, "note": str, "system": str, "language": bool, "verifier": str}


def _suite(name: str, table: Mapping[str, Any], text: str, folder: Path) -> Suite:
    given = dict(table)
    sampling, sources = given.pop("sampling", {}), given.pop("source", [])
    options = {
        key: convert(kind, given.pop(key), f"suite {name}: {key}") for key, kind in _SUITE_KEYS.items() if key in given
    }
    if given:
        key = next(iter(given))
        raise UsageError(f"suite {name}: unknown key '{key}'{did_you_mean(key, (*_SUITE_KEYS, 'sampling', 'source'))}")
    if not options.get("verifier") or not sources:
        raise UsageError(f"suite {name}: it needs a verifier and at least one [[source]]")
    verifier = _verifier(options.pop("verifier"), name)
    places = tuple(_source(name, each, verifier) for each in sources)
    return Suite(name, verifier, places, _made(SamplingOptions, sampling, name), **options,
                 digest=hashlib.sha256(text.encode()).hexdigest(), folder=folder)  # fmt: skip


def _verifier(verifier: str, name: str) -> str:
    known = (*VERIFIERS, *FUNCTIONS)
    if verifier not in known and ":" not in verifier:
        raise UsageError(
            f"suite {name}: unknown verifier '{verifier}'{did_you_mean(verifier, known)}; "
            "a function of your own is named as file.py:function"
        )
    return verifier


def _source(name: str, table: Mapping[str, Any], verifier: str) -> Source:
    given = dict(table)
    where = given.pop("where", {})
    found: Source = replace(_made(Source, given, name), where=where)
    if not found.prompt or not (found.files or found.hub):
        raise UsageError(f"suite {name}: a source needs a prompt, and files or a hub id")
    if verifier == "math" and not (found.answer or found.choices):
        raise UsageError(f"suite {name}: with the verifier math a source needs an answer, or choices")
    if verifier == "code" and not found.tests:
        raise UsageError(f"suite {name}: with the verifier code a source needs tests; see magcli.evaluation.programs")
    return found


def _made(shape: Any, table: Mapping[str, Any], name: str) -> Any:
    """A dataclass from a table; keys and types are checked."""
    kinds = field_types(shape)
    if unknown := [key for key in table if key not in kinds]:
        raise UsageError(f"suite {name}: unknown key '{unknown[0]}'{did_you_mean(unknown[0], kinds)}")
    values = {key: [value] if kinds[key] == tuple[str, ...] and isinstance(value, str) else value
              for key, value in table.items()}  # fmt: skip
    return shape(**{key: convert(kinds[key], value, f"suite {name}: {key}") for key, value in values.items()})
