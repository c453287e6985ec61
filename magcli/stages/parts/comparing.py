"""Tables of metrics or of graded completions, read to be compared, and the equality of answers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from magcli.errors import DataError
from magcli.stages.parts import setup

if TYPE_CHECKING:
    from types import TracebackType

    from magcli.console import Console
    from magcli.data.source import Rows, Source
    from magcli.evaluation.comparison import Key, Side
    from magcli.evaluation.metrics import Estimate, Problem
    from magcli.run.job import Job
    from magcli.stages.parts.setup import GraderOptions
    from magcli.verify.grader import Grader

SLIM = (
    "id", "suite", "kind", "prompt", "correct", "correct_anywhere", "extracted", "num_tokens", "finish", "reason",
    "languages", "reward_language",
    "reward_format",
)  # fmt: skip
"""The columns of graded completions that metrics need."""
FACT = "completions"
"""Under which a metrics table's side file names the tables of its completions, by suite, and their digests."""


def by_suite(rows: Rows, job: Job | None = None) -> dict[str, list[Problem]]:
    """Graded completions by suite and problem; those that say nothing of the model are dropped.

    Raises:
        DataError: two problems have one id.
    """
    from magcli.evaluation import metrics
    from magcli.verify.types import UNCOUNTED

    found: dict[str, list[dict[str, Any]]] = {}
    for batch in rows:
        for row in batch.select([name for name in SLIM if name in batch.schema.names]).to_pylist():
            if row.get("reason") not in UNCOUNTED:
                found.setdefault(row.get("suite") or "", []).append(row)
            elif job is not None:
                job.drops.row(row["id"], row["reason"], row)
    if job is not None:
        _tell_late(found, job)
    return {suite: metrics.gather(each) for suite, each in found.items()}


def _tell_late(found: Mapping[str, Sequence[Mapping[str, Any]]], job: Job) -> None:
    """Say how many verdicts took too long: that they count as wrong may be the fault of a busy machine."""
    for suite, rows in found.items():
        if late := sum(row.get("reason") == "timeout" for row in rows):
            text = f"{late} of {len(rows)} verdicts took longer than --verify-deadline and count as wrong"
            job.console.say(f"{suite}: {text}" if suite else text, event="late", suite=suite, late=late)


def of_suites(path: Path) -> bool:
    """Whether a path is a folder of tables, one a suite, and no table itself."""
    return path.is_dir() and not (path / "state.json").exists()


def opened(path: Path, suite: str = "") -> Source:
    """The graded completions of a run, open: a table, or of a suite its table in a folder.

    Raises:
        DataError: there is no such table, or it lacks the columns of graded completions.
    """
    from magcli.data import table
    from magcli.data.schema import require

    if of_suites(path) and not suite:
        raise DataError(f"evaluate: {path} is a folder that is no table; name the table in it")
    place = str(path / f"{suite}.arrow" if of_suites(path) else path)
    source = table.read(place)
    require(source.schema, ("id", "correct"), stage="evaluate", where=place)
    return source


def completions(path: Path, suite: str = "") -> list[Problem]:
    """The problems of a suite in the graded completions of a run."""
    return by_suite(opened(path, suite).rows).get(suite, [])


class Equality:
    """The verifier's equality of answers, in its worker processes, which start when the first question comes."""

    def __init__(self, config: GraderOptions) -> None:
        self._config = config
        self._grader: Grader | None = None

    def __enter__(self) -> Equality:
        return self

    def __exit__(self, _kind: type | None, _error: BaseException | None, _trace: TracebackType | None) -> None:
        if self._grader is not None:
            self._grader.shutdown()

    def merged(self, problems: Sequence[Problem], ks: Iterable[int]) -> list[Problem]:
        """Problems whose equal answers are spelt alike, where some metric takes votes; programs are not merged."""
        from magcli.evaluation import metrics

        votes = any(k > 1 for k in ks)
        return [metrics.merged(each, self._same) if votes and each.kind == "math" else each for each in problems]

    def _same(self, one: str, other: str) -> bool:
        if self._grader is None:
            self._grader = setup.open_grader(self._config)
        return self._grader.equal(one, other)


def sides(sources: Sequence[Source], ks: Sequence[int], seed: int, equality: Equality, console: Console) -> list[Side]:
    """What the tables tell, by model: those that a comparison names, else one a table, named by what tells paths apart.

    Raises:
        DataError: a table holds neither metrics nor graded completions.
    """
    from magcli.evaluation.comparison import Side
    from magcli.evaluation.labels import apart, labels
    from magcli.evaluation.metrics import known_ks

    found: list[Side] = []
    named = labels([source.name for source in sources])
    told = [_by_model(source, label) for source, label in zip(sources, named, strict=True)]
    ks = [*ks, *known_ks(metric for models in told for each in models.values() for _, metric in each)]
    for source, label, estimates in zip(sources, named, told, strict=True):
        if "model" in source.schema.names and estimates:
            found += [Side(model, each, {}) for model, each in estimates.items()]
        else:
            problems = _at_hand(Path(source.name), console) if "metric" in source.schema.names else _judged(source)
            voting = {suite: equality.merged(each, ks) for suite, each in problems.items()}
            found.append(Side(label, estimates.get(label) or _estimated(voting, ks, seed), voting))
    return [side._replace(name=name) for side, name in zip(found, apart(side.name for side in found), strict=True)]


def _by_model(source: Source, label: str) -> dict[str, dict[Key, Estimate]]:
    """The metrics in a table by the models that it names, under ``label`` where it names none."""
    found: dict[str, dict[Key, Estimate]] = {}
    if "metric" in source.schema.names:
        for row in (row for batch in source.rows for row in batch.to_pylist()):
            found.setdefault(row.get("model") or label, {})[row.get("suite") or "", row["metric"]] = _estimate(row)
    return found


def _judged(source: Source) -> dict[str, list[Problem]]:
    from magcli.data.schema import require

    require(source.schema, ("id", "correct"), stage="evaluate", where=source.name)
    return by_suite(source.rows)


def _estimate(row: Mapping[str, Any]) -> Estimate:
    from magcli.evaluation.metrics import Estimate

    low, high = (float("nan") if row[end] is None else row[end] for end in ("low", "high"))
    return Estimate(row["metric"], row["value"], low, high, row["num_problems"], row["num_samples"])


def _estimated(
    problems: Mapping[str, Sequence[Problem]], ks: Sequence[int], seed: int
) -> dict[tuple[str, str], Estimate]:
    from magcli.evaluation import metrics

    return {(suite, each.metric): each for suite, of in problems.items() for each in metrics.estimate(of, ks, seed)}


def noted(tables: Mapping[str, Path]) -> dict[str, dict[str, str]]:
    """What a metrics table's side file tells of its completions: by suite, where they lie and their digest."""
    return {suite: {"path": str(place.resolve()), "sha256": digest(place)} for suite, place in tables.items()}


def digest(place: Path) -> str:
    """The digest of a table in a file or a folder, as its history tells it."""
    from magcli.data import table

    return table.read(str(place)).sha256


def _at_hand(metrics: Path, console: Console) -> dict[str, list[Problem]]:
    """The completions that a table of metrics was made of, where they are still there and still the same."""
    found = {}
    for suite, told in _told(metrics).items():
        place = Path(told["path"])
        if place.exists() and _is(place, told["sha256"]):
            found[suite] = completions(place, suite)
        elif place.exists():
            text = f"evaluate: {place} has changed since {metrics} was made of it; no differences are taken from it"
            console.warn(text, path=str(place))
    return found


def _is(place: Path, sha256: str) -> bool:
    try:
        return digest(place) == sha256
    except DataError:
        return False


def _told(metrics: Path) -> dict[str, dict[str, str]]:
    """What the side file tells of completions with their digests; nothing where it is damaged or not there."""
    try:
        told = json.loads(metrics.with_name(f"{metrics.name}.run.json").read_text(encoding="utf-8"))[FACT]
        return {suite: each for suite, each in told.items() if isinstance(each, dict) and {"path", "sha256"} <= {*each}}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
