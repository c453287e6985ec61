"""Evaluation suites: TOML files with a benchmark's data, prompt, sampling and verifier.

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

Suites that ship with magcli are given by name, others by the path of their file. The first available source is read.
``variants = ["de", "fr"]`` makes one suite of each, called ``suite-variant``, with the variant in place of
``{variant}``. Other names in braces are columns of the data.

========== ===========================================================================================================
verifier   ``math``, ``code``, ``ifeval``, ``tools``, or a custom reward: ``file.py:function``, ``module:function``
note       a caveat about the metrics, printed with them
system     the system prompt: ``default`` (magcli's), ``none``, or a file, relative to the suite's
language   whether to report the share of samples in one language
files      of a source: names of files or folders, of which the first one under ``--data`` is read
origin     where these come from, for the error message; ``hub``: the dataset that ``--data hub`` reads instead
id         the row's id; its number by default
where      conditions on columns: a value, a list of values, ``{not = [..]}``, or ``{min = .., max = ..}``
choices    columns of the options, the right one first, or ``inline``: the prompt has ``A. ..`` and ``answer`` is the
           letter. The options are shuffled by the seed
tests      format of the tests of programs; see ``magcli.evaluation.programs``
reference  a correct solution, for tests of the suite itself
keep       columns for a custom verifier; lists and mappings become JSON text
names      the columns of a ``.tsv`` file without a header
========== ===========================================================================================================

Defaults of the sampling are those of the recipe (section 6).
"""

import hashlib
import importlib.util
import json
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from magcli.config import convert, did_you_mean, field_types
from magcli.errors import EnvironmentFault, UsageError

SHIPPED = Path(__file__).parent / "suites"
"""The folder of magcli's suites."""
VERIFIERS = ("math", "code")
"""Verifiers of answers and of programs."""
FUNCTIONS = {"ifeval": "magcli.evaluation.ifeval:reward", "tools": "magcli.evaluation.tools:reward"}
"""Verifiers that are reward functions, by name."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where a suite's data is, and what its columns contain."""

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
    """Sampling options of a suite; the recipe uses 40k tokens for AIME and LiveCodeBench, 32k for others."""

    temperature: float = 0.7
    top_p: float = 1.0
    max_tokens: int = 32768
    samples: int = 4


@dataclass(frozen=True, slots=True)
class Suite:
    """One suite. ``digest`` is the hash of its file."""

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
        """The kind of its problems, ``math`` or ``code``; irrelevant with a custom verifier."""
        return "code" if self.verifier == "code" else "math"

    @property
    def function(self) -> str:
        """The custom reward, as ``magcli.verify.custom`` names it; empty for answers and programs."""
        if self.verifier in VERIFIERS:
            return ""
        # From the right, as the path of a file may have a colon too.
        module, colon, name = FUNCTIONS.get(self.verifier, self.verifier).rpartition(":")
        if module.endswith(".py"):
            module = str(self.folder / module)
        return f"{module}{colon}{name}"


def shipped_names() -> list[str]:
    """The names of magcli's suites, without variants."""
    return sorted(path.stem for path in SHIPPED.glob("*.toml"))


def load(names: Sequence[str]) -> list[Suite]:
    """The distinct suites with these names or paths, in order; one with variants expands to all of them.

    Raises:
        UsageError: a suite does not exist, its file is invalid, or two have the same name.
    """
    by_name: dict[str, tuple[str, Suite]] = {}
    for name in names:
        for suite in _load(name):
            earlier, same = by_name.setdefault(suite.name, (name, suite))
            is_same_folder = same.folder.resolve() == suite.folder.resolve()
            # The same suite twice is read once; system prompts are relative to its folder.
            if same.digest != suite.digest or not is_same_folder:
                raise UsageError(
                    f"evaluate.suite: {earlier} and {name} are both called {suite.name}; rename one of them"
                )
    return [suite for _, suite in by_name.values()]


def _load(name: str) -> list[Suite]:
    path = Path(name)
    if path.suffix == ".toml":
        return _parsed(path.stem, _text(path), path.parent)
    shipped = shipped_names()
    for base in shipped:
        # A name may itself have a hyphen, so a base that fits is only a candidate.
        if name != base and not name.startswith(f"{base}-"):
            continue
        text = SHIPPED.joinpath(f"{base}.toml").read_text(encoding="utf-8")
        # The name of a suite stands for all of its variants.
        chosen = [suite for suite in _parsed(base, text, SHIPPED) if name in (base, suite.name)]
        if chosen:
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
    except (ValueError, RecursionError) as error:
        raise UsageError(f"suite {name} is not valid TOML: {error}") from None
    variants = table.pop("variants", None)
    if variants is None:
        return [_suite(name, table, text, folder)]
    return [_suite(f"{name}-{variant}", _filled(table, str(variant)), text, folder) for variant in variants]


def _filled(value: Any, variant: str) -> Any:
    """A table with ``{variant}`` replaced in all texts."""
    match value:
        case str():
            return value.replace("{variant}", variant)
        case list():
            return [_filled(part, variant) for part in value]
        case dict():
            return {key: _filled(part, variant) for key, part in value.items()}
    return value


_SUITE_KEYS = {
    **dict.fromkeys(("about", "note", "system"), str),
    "language": bool,
    "verifier": str,
    # Tables, which are read by themselves.
    "sampling": dict,
    "source": list,
}


def _suite(name: str, table: Mapping[str, Any], text: str, folder: Path) -> Suite:
    rest = dict(table)
    sampling = rest.pop("sampling", {})
    tables = rest.pop("source", [])
    options = _converted(_SUITE_KEYS, rest, name)
    if not options.get("verifier") or not tables:
        raise UsageError(f"suite {name}: it needs a verifier and at least one [[source]]")
    verifier = _verifier(options.pop("verifier"), name)
    return Suite(
        name=name,
        verifier=verifier,
        sources=tuple(_source(name, source, verifier) for source in tables),
        sampling=_made(SamplingOptions, sampling, name),
        **options,
        # Of the whole file, so all variants have the same.
        digest=hashlib.sha256(text.encode()).hexdigest(),
        folder=folder,
    )


def _verifier(verifier: str, name: str) -> str:
    named = (*VERIFIERS, *FUNCTIONS)
    if verifier not in named and ":" not in verifier:
        raise UsageError(
            f"suite {name}: unknown verifier '{verifier}'{did_you_mean(verifier, named)}; "
            "a custom function is file.py:function"
        )
    return verifier


def _source(name: str, table: Mapping[str, Any], verifier: str) -> Source:
    options = dict(table)
    # The conditions are of any type, so they are not converted.
    where = options.pop("where", {})
    source: Source = replace(_made(Source, options, name), where=where)
    if not source.prompt or not (source.files or source.hub):
        raise UsageError(f"suite {name}: a source needs a prompt, and files or a hub id")
    if verifier == "math" and not (source.answer or source.choices):
        raise UsageError(f"suite {name}: with the verifier math a source needs an answer, or choices")
    if verifier == "code" and not source.tests:
        raise UsageError(f"suite {name}: with the verifier code a source needs tests; see magcli.evaluation.programs")
    return source


def _made(shape: Any, table: Mapping[str, Any], name: str) -> Any:
    """A dataclass from a table; keys and types are checked."""
    return shape(**_converted(field_types(shape), table, name))


def _converted(kinds: Mapping[str, Any], table: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The values of a table by key, each of its kind; unknown keys are refused."""
    for key in table:
        if key not in kinds:
            raise UsageError(f"suite {name}: unknown key '{key}'{did_you_mean(key, kinds)}")
    values = {}
    for key, value in table.items():
        kind = kinds[key]
        if kind == tuple[str, ...] and isinstance(value, str):  # one text stands for a list of it
            value = [value]
        values[key] = convert(kind, value, f"suite {name}: {key}")
    return values


def json_column(column: Any) -> Any:
    """The value of a column of lists or mappings, which tables store as JSON text."""
    return json.loads(column) if isinstance(column, str) else column


def require_ifeval() -> None:
    """Refuse if the checks of the verifier ``ifeval``, or the data of their sentence splitter, are missing.

    The harness would download the data itself.

    Raises:
        EnvironmentFault: what is missing and how to install it.
    """
    packages = ("lm_eval", "nltk", "langdetect", "immutabledict")
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise EnvironmentFault(
            f"evaluate: the suite ifeval needs {missing[0]}; install its checks: pip install 'magcli[ifeval]'"
        )
    # Part of an extra, as the checks are.
    import nltk

    try:
        nltk.data.find("tokenizers/punkt_tab")
    except LookupError:
        raise EnvironmentFault(
            "evaluate: the suite ifeval needs NLTK's data punkt_tab; get it once: "
            f"{sys.executable} -m nltk.downloader punkt_tab"
        ) from None
