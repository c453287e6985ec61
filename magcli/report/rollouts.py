"""The rollouts of an RL run: standard errors of the mean reward, and sample completions."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from magcli.data import table
from magcli.errors import DataError, first_line
from magcli.report.formatting import sanitize
from magcli.run.rundir import RunDir
from magcli.verify.types import UNGRADED

NOT_SHOWN = ("prompt_tokens", "tokens", "logprobs")
Z = 1.96
"""Half-width of a 95 % interval in standard errors."""


def updates(run: Path) -> list[int]:
    """The updates that have rollouts, ascending."""
    return sorted(int(path.stem.removeprefix("step-")) for path in RunDir(run).rollouts.glob("step-*.arrow"))


def reward_errors(run: Path) -> dict[int, float]:
    """The standard error of each update's mean reward, clustered by group."""
    found = {}
    for step in updates(run):
        rows = _columns(RunDir(run).rollouts_of(step), ("group", "reward", "reason"))
        graded = rows.filter(pc.invert(pc.is_in(rows.column("reason"), pa.array(UNGRADED))))
        error = standard_error(*(graded.column(name).to_numpy() for name in ("group", "reward")))
        if error is not None:
            found[step] = error
    return found


def standard_error(groups: npt.NDArray[np.int64], rewards: npt.NDArray[np.float32]) -> float | None:
    """The clustered standard error of the mean of ``rewards`` (N,) by ``groups`` (N,); None for a single group.

    Linearised, as clusters may differ in size.
    """
    _, member = np.unique(groups, return_inverse=True)
    number = int(member.max(initial=-1)) + 1
    if number < 2:
        return None
    sums = np.bincount(member, weights=rewards - rewards.mean(dtype=np.float64))
    return float(math.sqrt(number / (number - 1) * np.square(sums).sum()) / len(rewards))


def _columns(path: Path, names: Sequence[str]) -> pa.Table:
    """Read only some columns of an update's table; the per-token ones are most of it.

    Raises:
        DataError: the file is truncated or damaged.
    """
    try:
        with pa.memory_map(str(path)) as file, pa.ipc.open_stream(file) as reader:
            wanted = [reader.schema.get_field_index(name) for name in names]
        options = pa.ipc.IpcReadOptions(included_fields=wanted)
        with pa.memory_map(str(path)) as file, pa.ipc.open_stream(file, options=options) as reader:
            rows = reader.read_all()
            rows.validate(full=True)
            return rows
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} is truncated or damaged: {first_line(error)}") from None


@dataclass(frozen=True, slots=True)
class SampleView:
    """One completion as shown on the page."""

    completion: str
    reward: float
    parts: Sequence[tuple[str, float]]
    reason: str
    extracted: str
    detail: str
    tokens: int
    ended: str
    advantage: float | None
    versions: Sequence[int]


@dataclass(frozen=True, slots=True)
class GroupView:
    """The best and the worst completion of a group; ``dropped`` is the reason if the group was not trained."""

    number: int
    id: str
    prompt: str
    answer: str
    size: int
    dropped: str
    samples: Sequence[SampleView]


@dataclass(frozen=True, slots=True)
class UpdateView:
    """Some groups of one update."""

    step: int
    groups: Sequence[GroupView]


def select_updates(steps: Sequence[int], at: Sequence[str]) -> list[int]:
    """The updates that ``at`` names: ``50%`` is halfway through the run; a number is the nearest update."""
    selected = set()
    for each in at if steps else ():
        if each.endswith("%"):
            selected.add(steps[round(float(each[:-1]) / 100 * (len(steps) - 1))])
        else:
            selected.add(min(steps, key=lambda step: abs(step - int(each))))
    return sorted(selected)


def samples(run: Path, at: Sequence[str], groups: int) -> list[UpdateView]:
    """Completions of ``groups`` groups at each update: one dropped group, if any, and trained ones."""
    steps = select_updates(updates(run), at) if groups else []
    return [UpdateView(step, list(_groups(RunDir(run).rollouts_of(step), groups))) for step in steps]


def _groups(path: Path, wanted: int) -> Iterator[GroupView]:
    rows = _columns(path, ("group", "dropped"))
    fates = dict(zip(rows.column("group").to_pylist(), rows.column("dropped").to_pylist(), strict=True))
    numbers = pa.array(_select_groups(fates, wanted), pa.int64())
    found: dict[int, list[dict[str, Any]]] = {number: [] for number in numbers.to_pylist()}
    for batch in table.read(str(path)).rows:
        shown = batch.select([name for name in batch.schema.names if name not in NOT_SHOWN])
        for row in shown.filter(pc.is_in(shown.column("group"), numbers)).to_pylist():
            found[row["group"]].append(row)
    yield from (_group(members) for members in found.values())


def _select_groups(fates: dict[int, str | None], wanted: int) -> list[int]:
    """Trained groups evenly spaced over the update, and one dropped group if there is any."""
    trained = sorted(number for number, dropped in fates.items() if dropped is None)
    dropped = sorted(number for number, dropped in fates.items() if dropped is not None)
    few = min(wanted - bool(dropped and wanted > 1), len(trained))
    spread = [trained[round(place)] for place in np.linspace(0, len(trained) - 1, few)] if few else []
    return spread + dropped[: wanted - len(spread)]


def _group(rows: Sequence[dict[str, Any]]) -> GroupView:
    first, ranked = rows[0], sorted(rows, key=lambda row: -row["reward"])
    shown = ranked[:1] if ranked[0]["completion"] == ranked[-1]["completion"] else [ranked[0], ranked[-1]]
    return GroupView(
        number=first["group"],
        id=sanitize(first["id"] or ""),
        prompt=sanitize(first["prompt"] or ""),
        answer=sanitize(first["answer"] or ""),
        size=len(rows),
        dropped=first["dropped"] or "",
        samples=[_sample(row) for row in shown],
    )


def _sample(row: dict[str, Any]) -> SampleView:
    return SampleView(
        completion=sanitize(row["completion"]),
        reward=row["reward"],
        parts=[(name, row[f"reward_{name}"]) for name in ("format", "correct", "length", "language")],
        reason=row["reason"],
        extracted=sanitize(row["extracted"] or ""),
        detail=sanitize(row["detail"] or ""),
        tokens=row["num_tokens"],
        ended="truncated" if row["finish"] == "length" else "ended with EOS",
        advantage=row["advantage"],
        versions=[span["version"] for span in row["versions"] or ()],
    )
