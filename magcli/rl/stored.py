"""The rollouts of an earlier run as a replay reads them: update by update, checked as a whole before the first one."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from magcli.choices import DiverseBy
from magcli.data import table
from magcli.data.schema import COMPLETION, EPISODE, PROBLEM, REWARD, REWARD_PARTS, TOKENS
from magcli.errors import DataError
from magcli.rl.algorithm import drop_reason, drop_reason_of
from magcli.rl.last_rewards import digest_of, tables_of
from magcli.rl.store import CUSTOM_ROLLOUT, EPISODE_ROLLOUT, ROLLOUT, group_of
from magcli.rl.types import Batch, Group

LIGHT = ["step", "group", "sample", "reward", "correct", "reason"]
"""The columns from which it follows which groups train."""
COLUMNS = (*TOKENS.names, "step", "group", "temperature", *REWARD.names, *COMPLETION.names, *PROBLEM.names)
"""The columns that a replay needs, those first that only `magcli rl` writes."""
NAMED = 3
"""How many missing columns an error names."""


class StoredUpdate(NamedTuple):
    """The groups of an update of the earlier run, and the version of the weights that it changed."""

    version: int
    groups: list[Group]


@dataclass(frozen=True, slots=True)
class Extent:
    """What stored rollouts have: the number of updates, the tokens of the longest prompt, the largest token id."""

    updates: int
    longest_prompt: int
    largest_id: int


class StoredRollouts:
    """The rollouts of an earlier run: its folder, or a table of them with the rows of a group, of an update together.

    Raises:
        DataError: there are none, a column is missing, or a table is damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.is_run = (path / "run.json").is_file()
        self._tables = tables_of(path) if self.is_run else [path]
        self._names = table.read(str(self._tables[0])).schema.names
        # The columns of the first table are those of all: they are of one run.
        missing = [name for name in COLUMNS if name not in self._names]
        if missing:
            lacks = ", ".join(missing[:NAMED])
            if len(missing) > NAMED:
                lacks += " and others"
            raise DataError(
                f"rl: {path} cannot be replayed: it lacks {lacks}; give the folder of a run of magcli rl, or the "
                "table of its -o: only these have the token ids and log-probs of their sampler"
            )

    @property
    def schema(self) -> pa.Schema:
        """The columns of a run's rollouts that these have."""
        if set(EPISODE.names) <= set(self._names):
            return EPISODE_ROLLOUT
        return CUSTOM_ROLLOUT if REWARD_PARTS in self._names else ROLLOUT

    @property
    def sha256(self) -> str:
        """SHA-256 over the rollouts; another one once their run has gone on."""
        if self.is_run:
            return digest_of(self.path)
        source = table.read(str(self.path))
        for _ in source.rows:  # some formats have their digest only at their end
            pass
        return str(source.sha256)

    def history(self, stage: str) -> Mapping[str, Any]:
        """The settings with which a stage made a table; empty without a record."""
        links = [link for link in table.read(str(self.path)).chain if link.stage == stage]
        return links[-1].config if links else {}

    def count(self) -> int:
        """The number of updates."""
        if self.is_run:
            return len(self._tables)
        steps = (step for batch in self._batches() for step in batch.column("step").to_pylist())
        return sum(1 for _ in groupby(steps))

    def updates(self, after: int = 0) -> Iterator[StoredUpdate]:
        """The updates in order, without the first ``after``."""
        # Read as they are needed: all rollouts of a run need not fit the memory.
        by_step = groupby(self._rows(), key=itemgetter("step"))
        for step, rows in islice(by_step, after, None):
            by_group = groupby(rows, key=itemgetter("group"))
            groups = [group_of(list(rows_of_group)) for _, rows_of_group in by_group]
            yield StoredUpdate(step - 1, groups)

    def _rows(self) -> Iterator[dict[str, Any]]:
        for batch in self._batches():
            yield from batch.to_pylist()

    def _batches(self) -> Iterator[pa.RecordBatch]:
        for path in self._tables:
            yield from table.read(str(path)).rows

    def check(self, group_size: int, diverse_by: DiverseBy) -> Extent:
        """Look through all of them for what a replay would fail on.

        Raises:
            DataError: tokens or log-probs are missing, a group is not whole, or no group of an update would train.
        """
        rows: list[dict[str, Any]] = []
        longest_prompt = largest_id = 0
        for batch in self._batches():
            self._check_tokens(batch)
            rows += batch.select(LIGHT).to_pylist()
            prompts, completions = batch.column("prompt_tokens"), batch.column("tokens")
            longest_prompt = max(longest_prompt, _largest(pc.list_value_length(prompts)))
            largest_id = max(largest_id, _largest(pc.list_flatten(prompts)))
            largest_id = max(largest_id, _largest(pc.list_flatten(completions)))
        updates = [list(members) for _, members in groupby(rows, key=itemgetter("step"))]
        self._check_order(updates, group_size)
        for members in updates:
            self._check_trains(members, diverse_by)
        return Extent(len(updates), longest_prompt, largest_id)

    def _check_tokens(self, batch: pa.RecordBatch) -> None:
        """Refuse rows without token ids, or without a log-prob for each."""
        prompt_lengths = pc.list_value_length(batch.column("prompt_tokens"))
        token_lengths = pc.list_value_length(batch.column("tokens"))
        logprob_lengths = pc.list_value_length(batch.column("logprobs"))
        # The length of a missing list is null, and so is what it is compared with.
        has_logprobs = pc.fill_null(pc.equal(token_lengths, logprob_lengths), False)
        is_complete = pc.and_(has_logprobs, pc.is_valid(prompt_lengths))
        # -1: no row is incomplete.
        row = is_complete.index(pa.scalar(False)).as_py()
        if row == -1:
            return
        group = batch.column("group")[row].as_py()
        raise DataError(
            f"rl: {self.path} cannot be replayed: a completion of group {group} lacks its token ids, or log-probs "
            "for them; only rollouts as magcli rl stores them have both"
        )

    def _check_order(self, updates: Sequence[Sequence[Mapping[str, Any]]], group_size: int) -> None:
        """Refuse updates out of order, and groups that are not whole or not together."""
        steps = [members[0]["step"] for members in updates]
        # Groups that waited for an update have no step; a step twice means that its rows are apart.
        if None in steps or steps != sorted(set(steps)):
            raise DataError(f"rl: {self.path} cannot be replayed: its rows are not in the order of the column step")
        seen: set[int] = set()
        for members in updates:
            for number, rows in groupby(members, key=itemgetter("group")):
                samples = [row["sample"] for row in rows]
                # Advantages compare the completions of a group, so none may be missing.
                is_whole = samples == list(range(group_size))
                if number in seen or not is_whole:
                    raise DataError(
                        f"rl: {self.path} cannot be replayed: group {number} has {len(samples)} completions in a row, "
                        f"not --group-size {group_size} in order; a replay needs whole groups, as magcli rl wrote them"
                    )
                seen.add(number)

    def _check_trains(self, members: Sequence[Mapping[str, Any]], diverse_by: DiverseBy) -> None:
        """Refuse an update without a group that trains."""
        for _, rows_of_group in groupby(members, key=itemgetter("group")):
            rows = list(rows_of_group)
            rewards = [row["reward"] for row in rows]
            correct = [row["correct"] for row in rows]
            reasons = [row["reason"] for row in rows]
            if drop_reason(rewards, correct, reasons, by=diverse_by) is None:
                return
        raise DataError(
            f"rl: no group of update {members[0]['step']} in {self.path} trains with --diverse-by {diverse_by}; "
            "give --diverse-by none"
        )


def _largest(values: pa.Array) -> int:
    """The largest of some integers, 0 without any."""
    return int(pc.max(values).as_py() or 0)


def batch_of(groups: Sequence[Group], diverse_by: DiverseBy) -> Batch:
    """The groups that train and those that do not, by their stored rewards."""
    return Batch.of([replace(group, dropped=drop_reason_of(group.rewards, by=diverse_by)) for group in groups])
