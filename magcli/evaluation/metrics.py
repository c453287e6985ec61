"""pass@k, avg@n, maj@k, lengths, and shares of truncated, well-formed and one-language samples, with 95% intervals.

Every metric is a mean of one number per problem, so its interval resamples problems (bootstrap), and two runs are
compared problem by problem: a difference is that of a model and the first one on the problems that both answered, so it
needs the completions of both; it is null if only metrics are available. Intervals of single models do not replace it:
they may overlap although the paired difference is significant.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations
from math import comb
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from magcli.data.seal import hash_text
from magcli.errors import DataError
from magcli.verify.types import FormatReason

Floats = NDArray[np.float64]
RESAMPLES = 10_000
MAX_SUBSETS = 200
"""Subsets of the samples over which maj@k is averaged; random ones if there are more."""
DIFFERENCE = " difference"
"""Suffix of the name of a paired difference."""
BEFORE = " before"
"""Suffix of the name of a metric of the ``--before`` model."""
_OF_K = re.compile(r"(?:pass|maj)@(\d+)")

_FIGURE = [pa.field(name, pa.float64()) for name in ("value", "low", "high")]
_COUNTS = [pa.field(name, pa.int64()) for name in ("num_problems", "num_samples")]
_NAMES = [pa.field("suite", pa.string()), pa.field("metric", pa.string())]
METRICS = pa.schema([*_NAMES, *_FIGURE, *_COUNTS, pa.field("num_left_out", pa.int64())])
"""One row per suite and metric; the suite is empty if the problems came from a table."""

_DIFFERENCE = [pa.field(name, pa.float64()) for name in ("difference", "difference_low", "difference_high")]
COMPARISON = pa.schema([*_NAMES, pa.field("model", pa.string()), *_FIGURE, *_COUNTS, *_DIFFERENCE,
                        pa.field("num_paired", pa.int64())])  # fmt: skip
"""One row per suite, metric and model. Differences are to the first model, in the unit of the metric."""

Key = tuple[str, str]
"""A suite and a metric."""


@dataclass(frozen=True, slots=True)
class Problem:
    """The samples of one problem: the answer of each (empty for none) and whether it is correct.

    ``one_language``: whether question, thoughts and answer are in one language; ``truncated``: whether the sample
    reached the maximum length; ``has_format``: whether it has the required format. These and ``lengths`` are empty if
    unknown. ``kind`` is math or code. ``statement`` is a digest of its prompt, empty if that is unknown.
    """

    id: str
    answers: tuple[str, ...]
    correct: tuple[bool, ...]
    correct_anywhere: tuple[bool, ...]
    lengths: tuple[int, ...]
    one_language: tuple[bool, ...] = ()
    truncated: tuple[bool, ...] = ()
    has_format: tuple[bool, ...] = ()
    kind: str = "math"
    statement: str = ""


_MEANS = {
    "avg@n": "correct",
    "avg@n anywhere": "correct_anywhere",
    "tokens": "lengths",
    "format": "has_format",
    "truncated": "truncated",
    "one language": "one_language",
}
"""Metrics that are means over samples, and their fields of a problem."""


class Estimate(NamedTuple):
    """A metric with its 95% interval over ``num_problems`` problems.

    ``num_left_out`` problems are not among them: their prompts were too long or refused, or no sample has a verdict.
    It is None for stored completions, which do not record all problems that were asked.
    """

    metric: str
    value: float
    low: float
    high: float
    num_problems: int
    num_samples: int
    num_left_out: int | None = None


def pass_at_k(num_samples: int, num_correct: int, k: int) -> float:
    """Unbiased estimate of the probability that at least one of k samples is correct (Chen et al. 2021, eq. 1)."""
    num_wrong = num_samples - num_correct
    if num_wrong < k:  # every choice of k has a correct one
        return 1.0
    return 1.0 - comb(num_wrong, k) / comb(num_samples, k)


def majority_right(answers: Sequence[str], correct: Sequence[bool]) -> float:
    """1 if the most frequent answer is correct; in a tie, the fraction of tied answers that are correct.

    Samples without an answer do not vote.
    """
    votes: Counter[str] = Counter()
    for answer, ok in zip(answers, correct, strict=True):
        text = answer.strip()
        if ok:
            # The correct answers are one answer, whatever their spellings.
            votes[""] += 1
        elif text:
            votes[text] += 1
    if not votes:
        return 0.0
    max_votes = max(votes.values())
    winners = [answer for answer, count in votes.items() if count == max_votes]
    return ("" in winners) / len(winners)


def merge_answers(problem: Problem, same: Callable[[str, str], bool]) -> Problem:
    """The problem with equal wrong answers spelled the same, so they count as one answer in the majority vote.

    ``same`` is the verifier's equality of two answers, assumed transitive; n texts need at most n(n - 1) / 2 calls.
    """
    wrong: Counter[str] = Counter()
    for answer, is_correct in zip(problem.answers, problem.correct, strict=True):
        text = answer.strip()
        if text and not is_correct:
            wrong[text] += 1
    spellings: list[str] = []  # one of each answer
    spelling_of: dict[str, str] = {}
    # The most common spelling of an answer comes first, so the others are replaced by it.
    for text, _ in wrong.most_common():
        equal = next((other for other in spellings if same(text, other)), None)
        if equal is None:
            spellings.append(text)
        spelling_of[text] = equal or text
    answers = tuple(spelling_of.get(answer.strip(), answer) for answer in problem.answers)
    return replace(problem, answers=answers)


def maj_at_k(problem: Problem, k: int, seed: int) -> float:
    """Expected ``majority_right`` of k of the samples: over all subsets, or random ones if there are many."""
    # By id, so that it does not depend on which other problems are there.
    seed_of_problem = [seed, *problem.id.encode("utf-8", "surrogatepass")]
    shares = []
    for subset in _subsets(len(problem.correct), k, seed_of_problem):
        answers = [problem.answers[index] for index in subset]
        correct = [problem.correct[index] for index in subset]
        shares.append(majority_right(answers, correct))
    return float(np.mean(shares))


def _subsets(n: int, k: int, seed: Sequence[int]) -> Iterable[Sequence[int]]:
    """All choices of k among n, or ``MAX_SUBSETS`` random ones if there are more."""
    if comb(n, k) <= MAX_SUBSETS:
        return combinations(range(n), k)
    random = np.random.default_rng([n, k, *seed])
    return (random.choice(n, k, replace=False).tolist() for _ in range(MAX_SUBSETS))


def gather(rows: Iterable[Mapping[str, Any]]) -> list[Problem]:
    """Graded completions, one per row, grouped by problem in order of first appearance.

    Raises:
        DataError: two problems (with different prompts) have the same id, an id or a verdict is missing, or a verdict
            or a length is text, which would always count as true.
    """
    by_id: dict[str, list[Mapping[str, Any]]] = {}
    prompts: dict[str, Any] = {}
    for row in rows:
        id, prompt = row["id"], row.get("prompt")
        if id is None or id == "":
            raise DataError("a completion has no id, which tells of which problem it is a sample; give each row one")
        if prompts.setdefault(id, prompt) != prompt:
            raise DataError(f"id {id!r} belongs to two different problems; ids must be unique")
        # Without its prompt, which may be long and is the same for all samples.
        sample = {name: value for name, value in row.items() if name != "prompt"}
        by_id.setdefault(id, []).append(sample)

    samples = list(chain.from_iterable(by_id.values()))
    has_lengths = any(sample.get("num_tokens") is not None for sample in samples)
    has_languages = any(sample.get("languages") for sample in samples)
    has_finish = all(sample.get("finish") for sample in samples)
    has_formats = any(_has_format(sample) is not None for sample in samples)
    # A field that is unknown for the run is empty for every problem, so that all problems have the same metrics.
    return [
        Problem(
            id=id,
            answers=tuple(sample.get("extracted") or "" for sample in samples),
            correct=tuple(map(_correct, samples)),
            correct_anywhere=tuple(map(_correct_anywhere, samples)),
            lengths=tuple(int(_number(sample, "num_tokens")) for sample in samples if has_lengths),
            one_language=tuple((sample.get("reward_language") or 0) > 0 for sample in samples if has_languages),
            truncated=tuple(sample["finish"] == "length" for sample in samples if has_finish),
            has_format=tuple(_has_format(sample) is not False for sample in samples if has_formats),
            kind=samples[0].get("kind") or "math",
            statement=_statement(prompts[id]),
        )
        for id, samples in by_id.items()
    ]


def _statement(prompt: Any) -> str:
    """A digest of a prompt, a text or messages, without regard to spaces; empty if there is none."""
    if not prompt:
        return ""
    text = prompt if isinstance(prompt, str) else json.dumps(prompt, default=str)
    return hash_text(" ".join(text.split()))


def _correct(row: Mapping[str, Any]) -> bool:
    if row.get("correct") is None:
        raise DataError(f"a completion of id {row['id']!r} has no verdict in column correct; grade it first")
    verdict = _number(row, "correct")
    if verdict not in (0, 1):
        raise DataError(
            f"correct of id {row['id']!r} is {verdict:g}, expected true or false; a partial reward belongs in another "
            "column"
        )
    return bool(verdict)


def _correct_anywhere(row: Mapping[str, Any]) -> bool:
    column = "correct_anywhere" if "correct_anywhere" in row else "correct"
    return bool(_number(row, column))


def _number(row: Mapping[str, Any], column: str) -> float:
    """A verdict or a length; 0 for null."""
    value = row.get(column)
    if isinstance(value, str):
        kind = "a number" if column == "num_tokens" else "true or false"
        raise DataError(f"{column} of id {row['id']!r} is the text {value!r}, expected {kind}")
    return float(value or 0)


def _has_format(row: Mapping[str, Any]) -> bool | None:
    """Whether a completion has the required format; None if its row does not say."""
    if row.get("reason") in get_args(FormatReason):
        return False
    return True if (row.get("reward_format") or 0) > 0 else None


def ignoring_format(problems: Iterable[Problem]) -> list[Problem]:
    """The problems with answers accepted anywhere in a completion, for models that do not know the format."""
    return [replace(problem, correct=problem.correct_anywhere) for problem in problems]


def known_ks(names: Iterable[str]) -> list[int]:
    """The distinct values of k of metrics with these names."""
    matches = (_OF_K.match(name) for name in names)
    return sorted({int(match[1]) for match in matches if match})


def min_samples(problems: Iterable[Problem]) -> int:
    """The fewest samples of a problem, which limit k."""
    return min(len(problem.correct) for problem in problems)


def estimate(problems: Sequence[Problem], ks: Sequence[int], seed: int = 0) -> list[Estimate]:
    """All metrics of a run; ``ks`` above the number of samples of some problem are skipped."""
    num_samples = sum(len(problem.correct) for problem in problems)
    estimates = []
    for name, metric in _metrics(problems, ks, seed).items():
        values = [metric(problem) for problem in problems]
        estimates.append(_estimate(name, values, num_samples, seed, lowest=0))
    return estimates


def _estimate(metric: str, values: Sequence[float], num_samples: int, seed: int, *, lowest: float) -> Estimate:
    """A metric from its value for each problem; ``lowest`` bounds a share."""
    value, low, high = interval(np.array(values), seed, _range(metric, lowest))
    return Estimate(metric, value, low, high, len(values), num_samples)


def of_other_model(estimates: Iterable[Estimate]) -> list[Estimate]:
    """The metrics of the ``--before`` model, with ``BEFORE`` at the end of their names."""
    return [measured._replace(metric=f"{measured.metric}{BEFORE}") for measured in estimates]


def paired(ours: Sequence[Problem], theirs: Sequence[Problem], ks: Sequence[int], seed: int = 0) -> list[Estimate]:
    """Each metric, ours minus theirs, on the problems that both have."""
    theirs_by_id = {problem.id: problem for problem in theirs}
    pairs = [(our, theirs_by_id[our.id]) for our in ours if our.id in theirs_by_id]
    if not pairs:
        return []
    num_samples = sum(len(our.correct) for our, _ in pairs)
    differences = []
    for name, metric in _metrics(list(chain.from_iterable(pairs)), ks, seed).items():
        values = [metric(our) - metric(their) for our, their in pairs]
        # Differences of shares lie between -1 and 1.
        differences.append(_estimate(f"{name}{DIFFERENCE}", values, num_samples, seed, lowest=-1))
    return differences


def _metrics(problems: Sequence[Problem], ks: Sequence[int], seed: int) -> dict[str, Callable[[Problem], float]]:
    """The functions of the metrics that all problems have data for, by name."""

    def mean(field: str) -> Callable[[Problem], float]:
        return lambda problem: sum(getattr(problem, field)) / len(getattr(problem, field))

    table = {}
    for name, field in _MEANS.items():
        if all(getattr(problem, field) for problem in problems):
            table[name] = mean(field)
    max_k = min_samples(problems)
    for k in ks:
        if k > max_k:
            continue
        # The default argument binds the k of this iteration.
        table[f"pass@{k}"] = lambda p, k=k: pass_at_k(len(p.correct), sum(p.correct), k)  # type: ignore[misc]
        if k > 1:
            table[f"maj@{k}"] = lambda p, k=k: maj_at_k(p, k, seed)  # type: ignore[misc]
    return table


def scale(metric: str) -> int:
    """The factor for display: shares are shown in percent."""
    return 1 if metric.startswith("tokens") else 100


def _range(metric: str, lowest: float) -> tuple[float, float] | None:
    """The bounds of a problem's share or difference of shares; lengths have none."""
    return None if metric.startswith("tokens") else (lowest, 1.0)


def interval(values: Floats, seed: int = 0, bounds: tuple[float, float] | None = None) -> tuple[float, float, float]:
    """Mean and the 2.5% and 97.5% points of the bootstrap over the values' first axis.

    With few values it is slightly too narrow: in simulations it covers the true value in 95% of cases with 100
    problems, 93% with 30 and 90% with 10. If all n values are equal, resampling would give a single point; with
    ``bounds`` of the values, the interval then extends to the means that result if a share 1 - 0.025^(1/n) of the
    values were at a bound.
    """
    # One value has no spread, so its interval is unknown.
    if len(values) < 2:
        return float(values.mean()), float("nan"), float("nan")
    if bounds is not None and (values == values[0]).all():
        value = float(values[0])
        lowest, highest = bounds
        # With a larger share of other values, n draws would all miss them in less than 2.5% of cases.
        unseen = 1 - 0.025 ** (1 / len(values))
        low = value - unseen * (value - lowest)
        high = value + unseen * (highest - value)
        return value, low, high
    random = np.random.default_rng(seed)
    means = []
    # In blocks of 100, as all resamples at once may need too much memory.
    for _ in range(RESAMPLES // 100):
        # Indices of shape (resamples, problems), each resample as large as the sample.
        drawn = random.integers(0, len(values), (100, len(values)))
        means.append(values[drawn].mean(1))
    low, high = np.quantile(np.concatenate(means), [0.025, 0.975])
    return float(values.mean()), float(low), float(high)


class Side(NamedTuple):
    """One model: its name, its metrics, and its problems by suite, if their completions are available."""

    name: str
    estimates: Mapping[Key, Estimate]
    problems: Mapping[str, Sequence[Problem]]


def compare(sides: Sequence[Side], ks: Sequence[int], seed: int = 0) -> list[dict[str, Any]]:
    """The comparison, one row per suite, metric and model, in the order of their first appearance.

    Differences are computed for ``ks`` and every other k for which some model has a metric.
    """
    # A dictionary, as a set has no order.
    keys = dict.fromkeys(chain.from_iterable(side.estimates for side in sides))
    ks = [*ks, *known_ks(metric for _, metric in keys)]
    differences = [_differences(side, sides[0], ks, seed) for side in sides]
    rows = []
    for key in keys:
        for side, differences_of_side in zip(sides, differences, strict=True):
            if key in side.estimates:
                rows.append(_row(key, side, differences_of_side.get(key)))
    return rows


def _differences(side: Side, first: Side, ks: Sequence[int], seed: int) -> dict[Key, Estimate]:
    """The differences of a model and the first one, by suite and metric."""
    if side is first:
        return {}
    differences = {}
    for suite, problems in side.problems.items():
        for difference in paired(problems, first.problems.get(suite, ()), ks, seed):
            metric = difference.metric.removesuffix(DIFFERENCE)
            differences[suite, metric] = difference
    return differences


def _row(key: Key, side: Side, difference: Estimate | None) -> dict[str, Any]:
    suite, _ = key
    columns = {"suite": suite, "model": side.name, **side.estimates[key]._asdict()}
    if difference is not None:
        columns |= {"difference": difference.value, "num_paired": difference.num_problems}
        columns |= {"difference_low": difference.low, "difference_high": difference.high}
    # NaN, the only value that differs from itself, becomes null.
    return {name: None if value != value else value for name, value in columns.items()}


def comparison_markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """The comparison as a Markdown table: one line per suite and metric, one column per model and difference.

    Shares are in percent; an asterisk marks a difference whose interval excludes 0.
    """
    models: dict[str, bool] = {}  # whether some row has its difference from the first model
    by_metric: dict[Key, dict[str, Mapping[str, Any]]] = {}
    for row in rows:
        model = row["model"]
        models[model] = models.get(model, False) or row.get("difference") is not None
        by_metric.setdefault((row["suite"], row["metric"]), {})[model] = row
    compared = [model for model, has_difference in models.items() if has_difference]

    names = list(models)
    head = ["suite", "metric", *names, *(f"{model} - {names[0]}" for model in compared)]
    alignment = ["---", "---", *["---:"] * (len(head) - 2)]
    table = [head, alignment]
    for (suite, metric), by_model in by_metric.items():
        values = [_cell(by_model.get(model), "", "") for model in names]
        differences = [_cell(by_model.get(model), "difference", "+") for model in compared]
        table.append([suite or "-", metric, *values, *differences])
    lines = []
    for cells in table:
        # A vertical bar would end the cell.
        texts = [cell.replace("|", "/") for cell in cells]
        lines.append(f"| {' | '.join(texts)} |\n")
    return "".join(lines)


def _cell(row: Mapping[str, Any] | None, name: str, sign: str) -> str:
    """A value or a difference with its interval; empty if there is none."""
    if row is None:
        return ""
    prefix = f"{name}_" if name else ""
    value, low, high = row.get(name or "value"), row.get(f"{prefix}low"), row.get(f"{prefix}high")
    if value is None:
        return ""
    unit = scale(row["metric"])
    text = f"{unit * value:{sign}.1f}"
    if low is None or high is None:
        return text
    excludes_zero = low > 0 or high < 0
    mark = "*" if name and excludes_zero else ""
    return f"{text}{mark} [{unit * low:{sign}.1f}, {unit * high:{sign}.1f}]"


def labels(names: Sequence[str]) -> list[str]:
    """Distinct short labels of paths: each without the folders shared by all, and without its suffix.

    If only the suffix differs it is included; equal paths are numbered.
    """
    parts_of_paths = [_parts(Path(name)) for name in names]
    # A label keeps at least the last part of its path.
    folders = [parts[:-1] for parts in parts_of_paths]
    num_shared = 0
    for folders_at_depth in zip(*folders, strict=False):
        if len(set(folders_at_depth)) > 1:
            break
        num_shared += 1
    short = ["/".join(parts[num_shared:]) for parts in parts_of_paths]
    labelled = []
    for label, name in zip(short, names, strict=True):
        is_repeated = short.count(label) > 1
        labelled.append(label + Path(name).suffix if is_repeated else label)
    return distinct(labelled)


def _parts(path: Path) -> tuple[str, ...]:
    """The parts of a path without its suffix."""
    if path.name in ("", ".."):  # only the resolved path of a folder such as . or .. has a name
        path = path.resolve()
    return path.with_suffix("").parts if path.name else path.parts


def distinct(names: Iterable[str]) -> list[str]:
    """The names made distinct: a repeated one gets the next free number."""
    unique: list[str] = []
    for name in names:
        candidate = name
        number = 1
        while candidate in unique:
            number += 1
            candidate = f"{name} ({number})"
        unique.append(candidate)
    return unique
