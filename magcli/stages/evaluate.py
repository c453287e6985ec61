"""pass@k, avg@n and maj@k with 95% intervals, on stored completions or on a model.

Without --model the table holds graded completions (from `magcli grade`, an RL run or --completions). With --model it
holds problems, which are sampled and graded, or --suite names benchmarks: aime24, math500, gpqa-diamond, humaneval,
ifeval, tools and others, or .toml files of your own such as examples/suite.toml. A killed evaluation resumes.

With --completions the model never generates a sample twice: other metrics are computed from the stored completions.

--before MODEL evaluates two models and reports differences paired by problem, --against compares with a stored run in
the same way, and --compare shows several runs side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from magcli.config import opt
from magcli.errors import DataError, usage
from magcli.run import options
from magcli.run.options import MODEL
from magcli.stages.parts import checks, comparing, exams, setup, sitting

if TYPE_CHECKING:
    import pyarrow as pa

    from magcli.data.source import Rows
    from magcli.evaluation.metrics import Estimate, Problem
    from magcli.run.job import Job

INPUTS = "Graded completions (id, correct), or with --model problems (prompt, answer); - is stdin."
OUTPUT = "the metrics (also printed)"
DEFAULT_OUTPUT = None
ALIASES = setup.ALIASES
EXAMPLE = (
    "magcli evaluate examples/problems.jsonl --model examples/model --samples 4 --max-tokens 48 --ks 1,4 "
    "-o evaluation.arrow"
)


@dataclass(frozen=True)
class Config:
    """Options of `magcli evaluate`."""

    model: str = options.model()
    suite: tuple[str, ...] = opt((), "Suites to evaluate instead of a table: names, or .toml files of your own.")
    data: tuple[str, ...] = opt(
        (), "Folders with the suites' data; else beside the suite and in the current folder. hub: the Hugging Face hub."
    )
    ks: tuple[int, ...] = opt((1,), "Values of k for pass@k and maj@k; values above the number of samples are skipped.")
    against: Path | None = opt(None, "Graded completions of another run for a paired comparison by problem.")
    before: str = opt("", "Another model, such as the one before training, to evaluate and compare with.")
    compare: bool = opt(False, "Compare tables of metrics or of graded completions, one per model.")
    markdown: Path | None = opt(None, "With --compare: also write the table as Markdown.")
    completions: Path | None = opt(
        None, "With --model: store graded completions in this table (a folder for suites), and reuse those there."
    )
    language: bool = opt(
        False, "With --model: also report the share whose question, thoughts and answer are in one language."
    )
    samples: int | None = opt(None, "Number of samples per problem; the suite's, else 4.", panel=MODEL)
    max_tokens: int | None = opt(None, "Maximum new tokens per completion; the suite's, else 1024.", panel=MODEL)
    temperature: float | None = opt(None, "Sampling temperature; the suite's, else 0.7.", panel=MODEL)
    top_p: float | None = opt(
        None, "Nucleus sampling: total probability of the tokens to sample from; the suite's, else 1.0.", panel=MODEL
    )
    system: Path | None = options.system()
    seed: int = options.seed()
    engine: options.Engine = options.engine()
    dtype: options.DType = options.dtype()
    slots: int = options.slots()
    deterministic: bool = options.deterministic()
    device: str = options.device()
    deadline: float = options.deadline()
    workers: int = options.workers()
    verify_deadline: float = options.verify_deadline()
    sandbox: options.Sandbox = options.sandbox()


RUNTIME = ("workers", "completions", "deadline", "data", "markdown")
"""Options that do not change the rows."""


def reads(config: Config) -> tuple[str, ...]:
    """The columns that must be there."""
    if config.compare or config.suite:
        return ()
    return ("id", "prompt", "answer|tests") if config.model else ("id", "correct")


def takes_rows(config: Config) -> bool:
    """Whether a table is read; suites have their own."""
    return not config.suite


def check(config: Config) -> None:
    """Refuse options that contradict themselves, and suites whose sampling makes no sense."""
    from magcli.evaluation.suite import load

    usage(all(k > 0 for k in config.ks), "evaluate.ks: every k is at least 1")
    usage(bool(config.model) or config.completions is None, "evaluate: --completions goes with --model")
    usage(not (config.compare and config.model), "evaluate: --compare reads tables and asks no model")
    usage(bool(config.model) or not config.before, "evaluate: --before goes with --model")
    usage(not (config.before and config.against), "evaluate: --before and --against exclude each other")
    usage(config.compare or config.markdown is None, "evaluate: --markdown goes with --compare")
    if config.model or config.suite:
        checks.engine("evaluate", config)
        if config.before:
            checks.engine("evaluate", exams.earlier(config))
        checks.ask("evaluate", exams.asking(config))
        for suite in load(config.suite):
            checks.ask(f"evaluate: suite {suite.name}", exams.asking(config, suite))
        checks.grader("evaluate", config)


def settings(config: Config) -> dict[str, Any]:
    """What else decides the rows: the digests of the model, of the system prompt, of suites and of the other run."""
    identity = setup.model_identity(config.model, config.system) | setup.grader_identity(config) if config.model else {}
    if config.suite:
        identity["suites_sha256"] = {
            exam.name: exam.identity["problems_sha256"] for exam in exams.of_suites(config, None)
        }
    if config.before:
        identity["before"] = setup.model_identity(config.before, config.system)
    if config.against and comparing.of_suites(config.against):
        tables = sorted(config.against.glob("*.arrow"))
        return identity | {"against_sha256": {path.name: comparing.digest(path) for path in tables}}
    return identity | setup.table_identity("against", config.against)


def always(config: Config) -> bool:
    """Whether completions that side files name decide too: they may have come or gone since."""
    return config.compare


def beside(config: Config) -> tuple[Path, ...]:
    """The graded completions, when they are kept; of a comparison its Markdown."""
    from magcli.evaluation.suite import load

    if config.completions is None:
        return () if config.markdown is None else (config.markdown,)
    names = [suite.name for suite in load(config.suite)] if config.suite else [""]
    of = [config.completions, *filter(None, [exams.earlier(config).completions if config.before else None])]
    return tuple(path for place in of for name in names if (path := exams.table_of(place, name)))


def schema(config: Config, given: pa.Schema) -> pa.Schema:
    """One row a metric of a suite; of a comparison, one a metric of a table."""
    from magcli.evaluation import comparison

    return comparison.SCHEMA if config.compare else comparison.METRICS


def run(config: Config, rows: Rows, job: Job) -> Rows:
    """Sample and grade if there is a model, then estimate and tell."""
    import pyarrow as pa

    if config.compare:
        yield _compare(config, job)
        return
    given = list(rows) if config.model else rows
    _open_other(config, given if config.model else ())
    with comparing.Equality(config) as equality:
        earlier, theirs = _earlier(config, given, job, equality) if config.before else ([], {})
        sat, ours = _judged(config, given, job, equality)
        found = {suite: _estimated(suite, each, theirs.get(suite), config, equality) for suite, each in ours.items()}
    _tell_large(ours, config.ks, job)
    dropped = ", ".join(f"{reason} {count:,}" for reason, count in job.drops.counts.most_common())
    if not found:
        told = f"; dropped: {dropped}" if dropped else ""
        raise DataError(f"evaluate: there is no graded completion to evaluate{told}")
    ordered = [each for name in sorted(found, key=_order(sat)) for each in found[name]]
    _tell(ordered, job)
    if dropped:
        job.console.say(f"left out of these: {dropped}", event="left-out", dropped=dict(job.drops.counts))
    for exam in (exam for exam in sat if exam.note):
        job.console.say(f"{exam.name}: {exam.note}", event="note", suite=exam.name, note=exam.note)
    job.facts[comparing.FACT] = comparing.noted({exam.name: exam.table for exam in sat if exam.table})
    yield pa.RecordBatch.from_pylist([_known(suite, each) for suite, each in ordered], schema(config, pa.schema([])))
    sitting.forget([*sat, *earlier])


def _open_other(config: Config, given: Iterable[pa.RecordBatch]) -> None:
    """Refuse another run that cannot be compared with before any model is asked.

    Raises:
        DataError: its table, or that of a suite, is not there or lacks columns.
    """
    from magcli.evaluation.suite import load

    if config.against is None:
        return
    asked = {suite.name for suite in load(config.suite)} or _named_in(given)
    for suite in sorted(asked) if comparing.of_suites(config.against) else [""]:
        comparing.opened(config.against, suite)


def _named_in(problems: Iterable[pa.RecordBatch]) -> set[str]:
    """The suites that problems name themselves, the empty one of those that name none."""
    named = [batch.column("suite").to_pylist() if "suite" in batch.schema.names else [""] for batch in problems]
    return {suite or "" for each in named for suite in each}


def _judged(
    config: Config, rows: Iterable[pa.RecordBatch], job: Job, equality: comparing.Equality
) -> tuple[list[exams.Exam], dict[str, list[Problem]]]:
    """What the model was asked, nothing where the table holds its completions already, and its problems by suite."""
    if config.suite:
        sat = exams.of_suites(config, job.output)
    else:
        sat = [exams.of_table(config, list(rows), job.output)] if config.model else []
    parts = (graded for _, graded in sitting.graded(sat, config, job)) if sat else iter([iter(rows)])
    judged = (each for part in parts for each in comparing.by_suite(part, job).items())
    return sat, {suite: equality.merged(problems, config.ks) for suite, problems in judged}


def _earlier(
    config: Config, rows: Iterable[pa.RecordBatch], job: Job, equality: comparing.Equality
) -> tuple[list[exams.Exam], dict[str, list[Problem]]]:
    """The same of the model before; what it drops is not counted a second time."""
    from magcli.run.job import Drops

    output = f"{job.output}.before" if job.output not in (None, "-") else None
    return _judged(exams.earlier(config), rows, replace(job, drops=Drops(keep=False), output=output), equality)


def _compare(config: Config, job: Job) -> pa.RecordBatch:
    """The tables of the command side by side, told as Markdown."""
    import pyarrow as pa

    from magcli.data import durable
    from magcli.evaluation import comparison

    with comparing.Equality(config) as equality:
        sides = comparing.sides(job.sources, config.ks, config.seed, equality, job.console)
    for side in sides:
        _tell_large({f"{side.name} {suite}".rstrip(): each for suite, each in side.problems.items()}, config.ks, job)
    found = comparison.rows(sides, config.ks, config.seed)
    text = comparison.markdown(found)
    if config.markdown:
        with durable.atomic_file(config.markdown) as file:
            file.write(text.encode())
    job.console.say(text.rstrip(), event="comparison", rows=found)
    return pa.RecordBatch.from_pylist(found, comparison.SCHEMA)


def _order(sat: Sequence[exams.Exam]) -> Callable[[str], int]:
    """Suites as they were asked for, those of a table as they came."""
    names = [exam.name for exam in sat]
    return lambda name: names.index(name) if name in names else 0


def _estimated(
    suite: str, problems: list[Problem], before: list[Problem] | None, config: Config, equality: comparing.Equality
) -> list[tuple[str, Estimate]]:
    """The metrics of one suite, and the differences to another run or to the model before."""
    from magcli.evaluation import metrics

    found = metrics.estimate(problems, config.ks, config.seed)
    if config.against:
        before = equality.merged(comparing.completions(config.against, suite), config.ks)
    differences = metrics.paired(problems, before or (), config.ks, config.seed)
    if not differences and (config.against or config.before):
        other = config.against or config.before
        raise DataError(f"evaluate: {other} has no problem in common with the input; ids must be the same")
    return [(suite, each) for each in (*found, *differences)]


def _known(suite: str, estimate: Estimate) -> dict[str, Any]:
    """A row of the table; one problem alone has no interval, so its ends are null."""
    return {"suite": suite} | {k: None if value != value else value for k, value in estimate._asdict().items()}


def _tell_large(problems: Mapping[str, Sequence[Problem]], ks: Sequence[int], job: Job) -> None:
    """Say which k no metric is told of, as some problem has fewer samples."""
    from magcli.evaluation.metrics import fewest

    for suite, each in problems.items():
        least = fewest(each)
        if large := [k for k in ks if k > least]:
            named = f"{suite}: " if suite else ""
            text = f"{named}--ks {', '.join(map(str, large))} left out: the fewest samples of a problem are {least}"
            job.console.say(text, event="ks-left-out", suite=suite, ks=large, fewest=least)


def _tell(estimates: Sequence[tuple[str, Estimate]], job: Job) -> None:
    from magcli.evaluation.metrics import scale

    width = max(len(f"{suite} {each.metric}".strip()) for suite, each in estimates)
    for suite, each in estimates:
        sign = "+" if "difference" in each.metric else ""
        value, low, high = (scale(each.metric) * number for number in (each.value, each.low, each.high))
        bounds = f"[{low:{sign}.1f}, {high:{sign}.1f}]" if low == low else "(one problem has no interval)"
        text = f"{f'{suite} {each.metric}'.strip():<{width}}  {value:{sign}.1f}  {bounds}"
        job.console.say(
            f"{text}  {each.num_problems} problems, {each.num_samples} samples", event="metric", **_known(suite, each)
        )
