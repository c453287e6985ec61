"""Exams: problems put to a model, their samples graded and kept, so that none is ever asked for twice. No stage.

A finished exam is a table of graded completions whose history tells what decided them; an unfinished one is a journal
beside it. What only decides the metrics, such as ``--ks``, asks the model nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from magcli.stages.parts import setup

if TYPE_CHECKING:
    import pyarrow as pa

    from magcli.curate.sampling import Ask
    from magcli.evaluation.suite import Suite
    from magcli.stages.evaluate import Config
    from magcli.verify.reward import RewardRule


MOST_TESTS = 16 << 20
"""Bytes of tests in all up to which they are kept with every completion of a suite, so that it can be graded again."""


@dataclass(frozen=True, slots=True)
class Asking:
    """How a model is asked: the options of a command, where it gives none those of the suite, else the defaults."""

    samples: int
    max_tokens: int
    temperature: float
    top_p: float
    system: Path | None
    seed: int


class Exam(NamedTuple):
    """One suite, or a table of problems (its name is empty then).

    ``identity`` is all that decides its completions. They stay in ``table``, where asked for; ``journal`` is where
    an unfinished exam goes on, where the evaluation has a place for it. ``note`` is what must be known of its figures.
    """

    name: str
    problems: Sequence[pa.RecordBatch]
    ask: Ask
    function: str
    rule: RewardRule
    identity: Mapping[str, Any]
    table: Path | None
    journal: Path | None
    note: str = ""

    @property
    def columns(self) -> list[str]:
        """The columns of a problem that its completions have too: all, but for a suite's tests if those are large."""
        names: list[str] = self.problems[0].schema.names
        if not self.name or "tests" not in names:
            return names
        size = sum(batch.column("tests").nbytes for batch in self.problems)
        return [name for name in names if name != "tests" or size <= MOST_TESTS]

    @property
    def schema(self) -> pa.Schema:
        """The columns of its graded completions."""
        import pyarrow as pa

        from magcli.data.columns import extended
        from magcli.data.schema import COMPLETION, REWARD

        given = pa.schema([self.problems[0].schema.field(name) for name in self.columns])
        return extended(extended(given, COMPLETION), REWARD)


def asking(config: Config, suite: Suite | None = None) -> Asking:
    """How the problems of a suite, or of a table, are asked."""
    given = {name: getattr(config, name) for name in ("samples", "max_tokens", "temperature", "top_p")}
    default: dict[str, Any] = {"samples": 4, "max_tokens": 1024, "temperature": 0.7, "top_p": 1.0}
    if suite is not None:
        default = {name: getattr(suite.sampling, name) for name in default}
    chosen = {name: default[name] if value is None else value for name, value in given.items()}
    return Asking(**chosen, system=config.system or (_system(suite) if suite else None), seed=config.seed)


def _system(suite: Suite) -> Path | None:
    if suite.system in ("default", "none"):
        return None if suite.system == "default" else Path("none")
    return suite.folder / suite.system


def earlier(config: Config) -> Config:
    """The options by which the model before is asked; its completions stand beside those of the model."""
    kept = config.completions
    if kept is not None:
        kept = kept / "before" if config.suite else kept.with_name(f"before-{kept.name}")
    return replace(config, model=config.before, before="", completions=kept)


def of_suites(config: Config, output: str | None) -> list[Exam]:
    """The exams that a command's suites are.

    Raises:
        UsageError, DataError: a suite is not known, or its data is not there.
        EnvironmentFault: what the checks of a suite need is not installed.
    """
    import pyarrow as pa

    from magcli.evaluation import ifeval, programs, rows, suite

    found = []
    for each in suite.load(config.suite):
        if each.verifier == "ifeval":
            ifeval.require()
        given = rows.problems(each, config.data, config.seed)
        noted = replace(each, note="; ".join(filter(None, (each.note, programs.in_process_note(given)))))
        problems = pa.Table.from_pylist(given).to_batches()
        found.append(_exam(config, asking(config, each), noted, problems, output))
    return found


def of_table(config: Config, problems: Sequence[pa.RecordBatch], output: str | None) -> Exam:
    """The exam that a table of problems is."""
    return _exam(config, asking(config), None, problems, output)


def _exam(
    config: Config, how: Asking, suite: Suite | None, problems: Sequence[pa.RecordBatch], output: str | None
) -> Exam:
    from magcli.verify.reward import ALL_TESTS, RewardRule

    name, function = (suite.name, suite.function) if suite else ("", "")
    language = config.language or bool(suite and suite.language)
    identity = {
        "suite": name,
        "problems_sha256": digest(problems),
        "model": config.model,
        **{part: getattr(config, part) for part in ("engine", "dtype", "deterministic", "verify_deadline", "sandbox")},
        **{part: getattr(how, part) for part in ("samples", "max_tokens", "temperature", "top_p", "seed")},
        "language": language,
        **setup.model_identity(config.model, how.system),
        **setup.grader_identity(config, function),
    }
    table = table_of(config.completions, name)
    beside = Path(output) if output not in (None, "-") else None
    journal = table or (beside.with_name(f"{beside.name}.{name or 'completions'}") if beside else None)
    rule = RewardRule(use_language=language, num_tests=ALL_TESTS)
    going = journal.with_name(f".{journal.name}.journal") if journal else None
    note = suite.note if suite else ""
    return Exam(name, problems, setup.ask(how), function, rule, identity, table, going, note)


def table_of(completions: Path | None, name: str) -> Path | None:
    """Where the completions of a suite stay: in a folder a table of its name."""
    return completions if completions is None or not name else completions / f"{name}.arrow"


def digest(problems: Sequence[pa.RecordBatch]) -> str:
    """SHA-256 of problems, as values."""
    told = hashlib.sha256()
    for batch in problems:
        told.update(repr((batch.schema.names, batch.to_pylist())).encode("utf-8", "surrogatepass"))
    return told.hexdigest()
