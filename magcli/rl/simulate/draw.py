"""The groups of a simulated run: how long each completion gets, and whether the group trains.

A group is drawn by its number and the seed alone, so the same groups meet every machine and every schedule.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, log, sqrt
from pathlib import Path
from statistics import NormalDist

import numpy as np
from numpy.random import Generator

from magcli.data import table
from magcli.errors import DataError
from magcli.rl.simulate.machine import Lengths


@dataclass(frozen=True, slots=True)
class Drawn:
    """A group before it is sampled: tokens of each completion and of the prompt."""

    lengths: tuple[int, ...]
    prompt: int
    dropped: bool


Draw = Callable[[int], Drawn]
"""The group of a number."""


def draws(lengths: Lengths, *, group: int, max_tokens: int, seed: int) -> Draw:
    """Groups of ``group`` completions, none longer than ``max_tokens``.

    Raises:
        DataError: the table of rollouts lacks columns, is empty, or has no group that trained.
    """
    if lengths.rollouts:
        known = read_groups(Path(lengths.rollouts))
        return resampled(list(known.values()), group=group, max_tokens=max_tokens, seed=seed)
    quantile = _quantile(lengths)

    def draw(number: int) -> Drawn:
        random = np.random.default_rng([seed, number])
        normal = sqrt(lengths.within) * random.normal() + sqrt(1 - lengths.within) * random.normal(size=group)
        tokens = (min(max(1, round(quantile(z))), max_tokens) for z in normal.tolist())
        return Drawn(tuple(tokens), lengths.prompt, bool(random.random() < lengths.dropped))

    return draw


def _quantile(lengths: Lengths) -> Callable[[float], float]:
    """Tokens by standard normal deviate: so one problem's completions correlate whatever the distribution."""
    if not lengths.quantiles:
        return lambda z: exp(min(log(lengths.median) + lengths.sigma * z, 50.0))
    shares = [pair[0] for pair in lengths.quantiles]
    logs = [log(pair[1]) for pair in lengths.quantiles]
    cdf = NormalDist().cdf
    return lambda z: exp(float(np.interp(cdf(z), shares, logs)))


def resampled(known: Sequence[Drawn], *, group: int, max_tokens: int, seed: int) -> Draw:
    """Whole groups of a run, each as likely as any other; of another size, their completions are drawn again."""
    if not any(not drawn.dropped for drawn in known):
        raise DataError(f"rollouts of {len(known)} groups, none of which trained: nothing can be simulated from them")

    def draw(number: int) -> Drawn:
        random = np.random.default_rng([seed, number])
        like = known[int(random.integers(len(known)))]
        tokens = like.lengths if len(like.lengths) == group else _again(like.lengths, group, random)
        return Drawn(tuple(min(length, max_tokens) for length in tokens), like.prompt, like.dropped)

    return draw


def _again(lengths: tuple[int, ...], group: int, random: Generator) -> tuple[int, ...]:
    return tuple(random.choice(lengths, size=group).tolist())


QUANTILES = (0.0, 0.01, 0.05, *(share / 10 for share in range(1, 10)), 0.95, 0.99, 1.0)


def described(known: Sequence[Drawn]) -> Lengths:
    """Some groups as a distribution: quantiles, the share of the variance that lies between groups, mean prompt."""
    logs = [np.log(np.array(group.lengths, dtype=float)) for group in known]
    everything = np.concatenate(logs)
    pairs = [(part, len(part)) for part in logs if len(part) > 1]
    inside = sum(part.var(ddof=1) * size for part, size in pairs) / max(1, sum(size for _, size in pairs))
    spread = float(everything.var())
    tokens = np.exp(np.quantile(everything, QUANTILES)).round().tolist()
    return Lengths(
        quantiles=tuple(zip(QUANTILES, tokens, strict=True)),
        within=min(1.0, max(0.0, 1 - float(inside) / spread)) if pairs and spread else 0.0,
        prompt=round(float(np.mean([group.prompt for group in known]))),
        dropped=float(np.mean([group.dropped for group in known])),
    )


def read_groups(place: Path) -> Mapping[int, Drawn]:
    """The groups of a table of rollouts, or of a run's folder of them, by number.

    Raises:
        DataError: there is no table, or it lacks a column that `magcli rl` writes.
    """
    paths = sorted(place.glob("step-*.arrow")) if place.is_dir() else [place]
    if not paths:
        raise DataError(f"{place}: no rollouts (step-*.arrow) in it")
    rows = defaultdict(list)
    for path in paths:
        source = table.read(str(path))
        missing = {"group", "num_tokens", "prompt_tokens", "dropped"} - set(source.schema.names)
        if missing:
            raise DataError(f"{path}: no rollouts of magcli rl: column {', '.join(sorted(missing))} is missing")
        for batch in source.rows:
            for row in batch.select(["group", "num_tokens", "prompt_tokens", "dropped"]).to_pylist():
                rows[row["group"]].append(row)
    return {
        number: Drawn(
            tuple(row["num_tokens"] for row in group), len(group[0]["prompt_tokens"]), group[0]["dropped"] is not None
        )
        for number, group in sorted(rows.items())
    }
