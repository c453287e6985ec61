"""What the newest rollouts of a run say of its problems, for the data work that follows it."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from magcli.data import table
from magcli.data.schema import PROBLEM, REWARD
from magcli.errors import DataError
from magcli.run.rundir import RunDir, read_run
from magcli.verify.reward import Reward
from magcli.verify.reward_columns import from_row as reward_of

COLUMNS = ["group", *PROBLEM.names, *REWARD.names]


class Problem(NamedTuple):
    """A problem as the run had it."""

    prompt: str
    answer: str


def tables_of(run: Path) -> list[Path]:
    """The tables of a run's rollouts, in the order of the updates.

    Raises:
        DataError: the folder is not a run, or has no rollouts yet.
    """
    read_run(run)
    paths = sorted(RunDir(run).rollouts.glob("step-*.arrow"))
    if not paths:
        raise DataError(f"{run} has no rollouts: give the folder of a run of magcli rl after its first update")
    return paths


def digest_of(run: Path) -> str:
    """SHA-256 over a run's rollouts; another one once the run has gone on.

    Raises:
        DataError: as ``Rewards``.
    """
    digest = hashlib.sha256()
    for path in tables_of(run):
        with path.open("rb") as file:
            # A digest of digests: the bounds between the files count, too.
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


class Rewards:
    """The rewards of the last completions of each problem of a run, at least ``most`` where there are so many.

    Groups are never cut, since their completions are of one policy: the newest ones are taken until ``most`` is
    reached. Groups that were dropped count, those that wait for an update do not.

    Raises:
        DataError: the folder is not a run, has no rollouts yet, or a table is damaged.
    """

    def __init__(self, run: Path, most: int) -> None:
        self.problems: dict[str, Problem] = {}
        self._rewards: dict[str, list[Reward]] = defaultdict(list)
        # The newest first, since older groups are of an earlier policy.
        for path in reversed(tables_of(run)):
            self._add(path, most)

    def _add(self, path: Path, most: int) -> None:
        """Add the groups of one update, the newest first, of problems that have too few completions yet."""
        rows_by_group: dict[int, list[Mapping[str, object]]] = defaultdict(list)
        for batch in table.read(str(path)).rows:
            for row in batch.select(COLUMNS).to_pylist():
                rows_by_group[row["group"]].append(row)
        for group in sorted(rows_by_group, reverse=True):
            rows = rows_by_group[group]
            first = rows[0]
            problem_id = str(first["id"])
            problem = Problem(str(first["prompt"]), str(first["answer"]))
            # The newest statement of the problem is the first to come, and stays.
            self.problems.setdefault(problem_id, problem)
            rewards = self._rewards[problem_id]
            if len(rewards) < most:
                rewards += [reward_of(row) for row in rows]

    def of(self, problem: Mapping[str, object]) -> list[Reward]:
        """The rewards of a problem; none if the run did not sample it, or had another statement or answer."""
        problem_id = str(problem["id"])
        sampled = self.problems.get(problem_id)
        wanted = Problem(str(problem["prompt"]), str(problem.get("answer") or ""))
        return self._rewards[problem_id] if sampled == wanted else []
