"""Suite tasks: problems to sample and grade, and everything that determines their completions.

The completions of a finished task are a table whose history records this; an unfinished task has a journal next to it.
Options that only change the metrics, such as ``--ks``, need no new samples.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from magcli.stages.evaluate.config import sampling_options
from magcli.stages.shared import engines, grading

if TYPE_CHECKING:
    import pyarrow as pa

    from magcli.curate.sampling import SamplingPlan
    from magcli.evaluation.suite import Suite
    from magcli.stages.evaluate.config import Config
    from magcli.stages.shared.options import SamplingOptions
    from magcli.verify.reward import RewardRule


MAX_TEST_BYTES = 16 << 20
"""Maximum total size of a suite's tests that are stored with every completion, so that it can be graded again."""


class SuiteTask(NamedTuple):
    """One suite, or a table of problems (its name is empty then).

    ``identity`` is everything that determines its completions. ``table``: where they are stored, if requested.
    ``journal``: the journal of unfinished work, if the command has an output. ``note`` is printed with the metrics.
    """

    name: str
    problems: Sequence[pa.RecordBatch]
    plan: SamplingPlan
    function: str
    rule: RewardRule
    identity: Mapping[str, Any]
    table: Path | None
    journal: Path | None
    note: str = ""

    @property
    def columns(self) -> list[str]:
        """The columns of a problem that are repeated in its completions: all, except large tests of a suite."""
        names: list[str] = self.problems[0].schema.names
        if not self.name or "tests" not in names:
            return names
        size = sum(batch.column("tests").nbytes for batch in self.problems)
        return [name for name in names if name != "tests" or size <= MAX_TEST_BYTES]

    @property
    def schema(self) -> pa.Schema:
        """The columns of its graded completions."""
        import pyarrow as pa

        from magcli.data.schema import COMPLETION, REWARD, extend_schema

        given = pa.schema([self.problems[0].schema.field(name) for name in self.columns])
        return extend_schema(extend_schema(given, COMPLETION), REWARD)


def tasks_of_suites(config: Config, output: str | None) -> list[SuiteTask]:
    """The tasks of a command's suites.

    Raises:
        UsageError, DataError: a suite is unknown, or its data is missing.
        EnvironmentFault: a package that a suite's verifier needs is not installed.
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
        found.append(_task(config, sampling_options(config, each), noted, problems, output))
    return found


def task_of_table(config: Config, problems: Sequence[pa.RecordBatch], output: str | None) -> SuiteTask:
    """The task of a table of problems."""
    return _task(config, sampling_options(config), None, problems, output)


def _task(
    config: Config,
    sampling: SamplingOptions,
    suite: Suite | None,
    problems: Sequence[pa.RecordBatch],
    output: str | None,
) -> SuiteTask:
    from magcli.verify.reward import ALL_TESTS, RewardRule

    name, function, note = (suite.name, suite.function, suite.note) if suite else ("", "", "")
    language = config.language or bool(suite and suite.language)
    identity = {
        "suite": name,
        "problems_sha256": digest(problems),
        "model": config.model,
        **{part: getattr(config, part) for part in ("engine", "dtype", "deterministic", "verify_deadline", "sandbox")},
        **{part: getattr(sampling, part) for part in ("samples", "max_tokens", "temperature", "top_p", "seed")},
        "language": language,
        **engines.model_identity(config.model, sampling.system),
        **grading.grader_identity(config, function),
    }
    table = completions_table(config.completions, name)
    base = table
    if base is None and output not in (None, "-"):
        base = Path(f"{output}.{name or 'completions'}")
    journal = base.with_name(f".{base.name}.journal") if base else None
    rule = RewardRule(use_language=language, num_tests=ALL_TESTS)
    plan = engines.sampling_plan(sampling)
    return SuiteTask(name, problems, plan, function, rule, identity, table, journal, note)


def completions_table(completions: Path | None, name: str) -> Path | None:
    """The table that stores a task's completions: in a folder, one table a suite."""
    return completions if completions is None or not name else completions / f"{name}.arrow"


def digest(problems: Sequence[pa.RecordBatch]) -> str:
    """SHA-256 of problems, as values."""
    sha = hashlib.sha256()
    for batch in problems:
        sha.update(repr((batch.schema.names, batch.to_pylist())).encode("utf-8", "surrogatepass"))
    return sha.hexdigest()
