"""The groups of a simulated run: the length of each completion, and whether the group is dropped.

A group depends only on its number and the seed, so every machine and every schedule gets the same groups.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, log, sqrt
from pathlib import Path
from statistics import NormalDist

import numpy as np

from magcli.data import table
from magcli.errors import DataError
from magcli_simulate.machine import LengthSpec

COLUMNS = ("group", "num_tokens", "prompt_tokens", "dropped")
QUANTILES = (0.0, 0.01, 0.05, *(share / 10 for share in range(1, 10)), 0.95, 0.99, 1.0)


@dataclass(frozen=True, slots=True)
class GroupShape:
    """The tokens of each completion of a group and of its prompt, and whether the group is dropped."""

    lengths: tuple[int, ...]
    prompt: int
    dropped: bool


GroupSource = Callable[[int], GroupShape]
"""The group with a given number."""


def group_source(lengths: LengthSpec, *, group: int, max_tokens: int, seed: int) -> GroupSource:
    """Groups of ``group`` completions of at most ``max_tokens`` tokens.

    Raises:
        DataError: the table of rollouts lacks columns, is empty, or has no group that trained.
    """
    if lengths.rollouts:
        measured = read_groups(Path(lengths.rollouts))
        return resampled_source(list(measured.values()), group=group, max_tokens=max_tokens, seed=seed)
    quantile = _quantile(lengths)

    def draw(number: int) -> GroupShape:
        random = np.random.default_rng([seed, number])
        shared = sqrt(lengths.correlation) * random.normal()
        own = random.normal(size=group)
        deviates = shared + sqrt(1 - lengths.correlation) * own
        tokens = (min(max(1, round(quantile(deviate))), max_tokens) for deviate in deviates.tolist())
        return GroupShape(tuple(tokens), lengths.prompt, bool(random.random() < lengths.dropped))

    return draw


def _quantile(lengths: LengthSpec) -> Callable[[float], float]:
    """Tokens as a function of a standard normal deviate, which makes lengths correlate for any distribution."""
    if not lengths.quantiles:
        return lambda deviate: exp(min(log(lengths.median) + lengths.sigma * deviate, 50.0))
    shares = [pair[0] for pair in lengths.quantiles]
    logs = [log(pair[1]) for pair in lengths.quantiles]
    cdf = NormalDist().cdf
    return lambda deviate: exp(float(np.interp(cdf(deviate), shares, logs)))


def resampled_source(groups: Sequence[GroupShape], *, group: int, max_tokens: int, seed: int) -> GroupSource:
    """Whole groups of a real run, drawn uniformly; if they have another size, their completions are resampled."""
    if all(shape.dropped for shape in groups):
        raise DataError(f"none of {len(groups)} groups of rollouts trained; a simulation needs some that did")

    def draw(number: int) -> GroupShape:
        random = np.random.default_rng([seed, number])
        shape = groups[int(random.integers(len(groups)))]
        lengths = shape.lengths
        if len(lengths) != group:
            lengths = tuple(random.choice(lengths, size=group).tolist())
        return GroupShape(tuple(min(length, max_tokens) for length in lengths), shape.prompt, shape.dropped)

    return draw


def fit_lengths(groups: Sequence[GroupShape]) -> LengthSpec:
    """A distribution for some groups: quantiles, the share of the variance between groups, and the mean prompt."""
    logs = [np.log(np.array(group.lengths, dtype=float)) for group in groups]
    everything = np.concatenate(logs)
    pairs = [(part, len(part)) for part in logs if len(part) > 1]
    inside = sum(part.var(ddof=1) * size for part, size in pairs) / max(1, sum(size for _, size in pairs))
    spread = float(everything.var())
    tokens = np.exp(np.quantile(everything, QUANTILES)).round().tolist()
    return LengthSpec(
        quantiles=tuple(zip(QUANTILES, tokens, strict=True)),
        correlation=min(1.0, max(0.0, 1 - float(inside) / spread)) if pairs and spread else 0.0,
        prompt=round(float(np.mean([group.prompt for group in groups]))),
        dropped=float(np.mean([group.dropped for group in groups])),
    )


def read_groups(path: Path) -> Mapping[int, GroupShape]:
    """The groups of a table of rollouts, or of a run's folder of such tables, by number.

    Raises:
        DataError: there is no table, or it lacks a column that `magcli rl` writes.
    """
    tables = sorted(path.glob("step-*.arrow")) if path.is_dir() else [path]
    if not tables:
        raise DataError(f"{path} contains no rollouts (step-*.arrow)")
    rows = defaultdict(list)
    for file in tables:
        source = table.read(str(file))
        if missing := sorted(set(COLUMNS) - set(source.schema.names)):
            raise DataError(f"{file} is not a table of rollouts of magcli rl: it lacks column {', '.join(missing)}")
        for batch in source.rows:
            for row in batch.select(COLUMNS).to_pylist():
                rows[row["group"]].append(row)
    return {
        number: GroupShape(
            tuple(row["num_tokens"] for row in group), len(group[0]["prompt_tokens"]), group[0]["dropped"] is not None
        )
        for number, group in sorted(rows.items())
    }
