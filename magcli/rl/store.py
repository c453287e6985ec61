"""A run's groups on disk: each finished group has a file until the table of an update contains it.

RUN/groups/g-00000012.arrow        a graded group that waits for its update, or a dropped one for the next table
RUN/rollouts/step-000007.arrow     the groups of update 7, and those dropped since update 6

A group is read back after it is written, so that an update repeated after a kill trains on the same bits.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa

from magcli.data import manifest, seal, table
from magcli.data.schema import COMPLETION, CUSTOM_REWARD, EPISODE, PROBLEM, REWARD, REWARD_PARTS, TOKENS
from magcli.errors import DataError, first_line
from magcli.generate.types import Rollout
from magcli.rl.types import Batch, Group
from magcli.run.rundir import RunDir
from magcli.run.settings import CHOSEN
from magcli.verify.reward import Reward
from magcli.verify.reward_columns import columns as reward_columns
from magcli.verify.reward_columns import from_row as reward_of

OUTCOME = pa.schema(
    [
        pa.field("group", pa.int64()),
        pa.field("step", pa.int64()),
        pa.field("advantage", pa.float32()),
        pa.field("dropped", pa.string()),
        pa.field("temperature", pa.float32()),
        pa.field("kind", pa.string()),
    ]
)
"""The outcome of a rollout: its group, the update (for a dropped one, the next update), the reason for dropping it, the
sampling temperature, and the kind of the problem (math or code)."""

ROLLOUT = pa.schema([*PROBLEM, *COMPLETION, *TOKENS, *REWARD, *OUTCOME])
"""The output of `magcli rl`: all sampled completions, trained or not."""
CUSTOM_ROLLOUT = pa.schema([*PROBLEM, *COMPLETION, *TOKENS, *CUSTOM_REWARD, *OUTCOME])
"""The same of a run with a custom reward, which may have parts."""
EPISODE_ROLLOUT = pa.schema([*CUSTOM_ROLLOUT, *EPISODE])
"""The same of a run with an environment."""


def rollout_schema(*, custom: bool, environment: bool) -> pa.Schema:
    """The columns of a run's rollouts, with a custom reward or an environment."""
    if environment:
        return EPISODE_ROLLOUT
    return CUSTOM_ROLLOUT if custom else ROLLOUT


class RolloutStore:
    """The groups of a run on disk; the tables of updates have ``chosen`` in their history, as a run's output does.

    ``schema`` has the columns of the run's rollouts.
    """

    def __init__(self, run: Path, chosen: Mapping[str, str] | None = None, schema: pa.Schema = ROLLOUT) -> None:
        self._run = RunDir(run)
        self._schema = schema
        self._settings = {CHOSEN: dict(chosen)} if chosen else {}
        self._run.groups.mkdir(parents=True, exist_ok=True)

    def add(self, group: Group) -> Group:
        """Write a finished group; returns it as read back."""
        rows = rollout_rows([group], None, {}, self._schema)
        self._write(self._file(group.number), rows, manifest.Link("rl", "", {"group": group.number}))
        # Rewards and temperatures are rounded to float32 in the file.
        return groups_of([rows])[0]

    def load(self, number: int, advice: str = "remove it, and the group is generated again") -> Group:
        """A waiting group.

        Raises:
            DataError: its file is damaged or gone; the message ends with ``advice``.
        """
        path = self._file(number)
        try:
            (group,) = self._read(path)
        except (DataError, ValueError) as error:
            raise DataError(f"{path} is damaged ({error}); {advice}") from error
        # A file that was renamed or copied.
        if group.number != number:
            raise DataError(f"{path} is damaged (it has group {group.number}); {advice}")
        return group

    def numbers(self) -> list[int]:
        """The waiting groups, ascending."""
        return sorted(int(path.stem.removeprefix("g-")) for path in self._run.groups.glob("g-*.arrow"))

    def write_table(self, step: int, batch: Batch, advantages: Mapping[int, Sequence[float]]) -> None:
        """Write the table of an update, and remove the files of its groups."""
        groups = [*batch.dropped, *batch.trained]
        rows = rollout_rows(groups, step, advantages, self._schema)
        self._write(self._run.rollouts_of(step), rows, manifest.Link("rl", "", {"step": step, **self._settings}))
        self.remove(group.number for group in groups)

    def has_table(self, step: int) -> bool:
        """Whether an update's table exists."""
        return self._run.rollouts_of(step).exists()

    def read_table(self, step: int) -> Batch:
        """The batch in the table of an update; DataError if it is damaged."""
        return Batch.of(self._read(self._run.rollouts_of(step)))

    def tables(self) -> Iterator[Path]:
        """The tables of all updates, in order."""
        yield from sorted(self._run.rollouts.glob("step-*.arrow"))

    def remove(self, numbers: Iterable[int]) -> None:
        """Delete the files of groups."""
        for number in numbers:
            self._file(number).unlink(missing_ok=True)

    def _write(self, path: Path, rows: pa.RecordBatch, link: manifest.Link) -> None:
        """A sealed table, which appears complete or not at all."""
        # The name is there only once the table is complete.
        with table.write(str(path), self._schema, seal.pack({"stage": "rl"})) as sink:
            sink.write(rows)
            sink.finish((replace(link, rows_out=rows.num_rows),))

    def _read(self, path: Path) -> list[Group]:
        """The groups of a table.

        Raises:
            DataError: it is missing or damaged, or has other columns.
        """
        source = table.read(str(path))
        # A table of another tool, or of another version.
        if source.schema.names not in (ROLLOUT.names, CUSTOM_ROLLOUT.names, EPISODE_ROLLOUT.names):
            raise DataError(f"{path} does not have the columns of rollouts")
        return groups_of(source.rows)

    def _file(self, number: int) -> Path:
        return self._run.groups / f"g-{number:08d}.arrow"


def rollout_rows(
    groups: Sequence[Group], step: int | None, advantages: Mapping[int, Sequence[float]], schema: pa.Schema = ROLLOUT
) -> pa.RecordBatch:
    """Groups as rows of a run's rollouts, one per rollout; ``step`` is None while they wait."""
    rows: list[dict[str, Any]] = []
    all_rewards: list[Reward] = []
    for group in groups:
        rows += _rows_of(group, step, advantages.get(group.number))
        all_rewards += group.rewards
    has_parts = REWARD_PARTS in schema.names
    rewards = reward_columns(all_rewards, custom=has_parts)
    reward_names = rewards.schema.names
    other_fields = [field for field in schema if field.name not in reward_names]
    others = pa.RecordBatch.from_pylist(rows, pa.schema(other_fields))
    # Both have the same rows; the columns are put together in the order of the schema.
    arrays = [(rewards if name in reward_names else others).column(name) for name in schema.names]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _rows_of(group: Group, step: int | None, advantages: Sequence[float] | None) -> Iterator[dict[str, Any]]:
    """A row for each rollout of a group, without its reward; ``advantages`` are those of its rollouts."""
    # Only episodes have messages.
    conversations = group.messages or [()] * len(group.rollouts)
    problem = {name: str(group.problem.get(name) or "") for name in PROBLEM.names}
    for rollout, text, messages in zip(group.rollouts, group.texts, conversations, strict=True):
        yield {
            **problem,
            "sample": rollout.index,
            "completion": text,
            "num_tokens": rollout.num_generated,
            "finish": rollout.finish,
            "seed": rollout.seed,
            "prompt_tokens": list(group.prompt),
            "tokens": list(rollout.tokens),
            "logprobs": list(rollout.logprobs),
            "versions": [{"start": start, "version": version} for start, version in rollout.versions],
            "group": group.number,
            "step": step,
            "advantage": None if advantages is None else advantages[rollout.index],
            "dropped": group.dropped,
            "temperature": group.temperature,
            "kind": group.kind,
            "messages": list(messages),
            "given": [{"start": start, "end": end} for start, end in rollout.given],
        }


def groups_of(batches: Iterable[pa.RecordBatch]) -> list[Group]:
    """The inverse of ``rollout_rows``: groups in the order of their rows."""
    rows = [row for batch in batches for row in batch.to_pylist()]
    return [group_of(list(rows_of_group)) for _, rows_of_group in groupby(rows, key=itemgetter("group"))]


def group_of(rows: Sequence[Mapping[str, Any]]) -> Group:
    """A group from its rows, one for each rollout in their order."""
    # What belongs to the group is in each of its rows.
    first = rows[0]
    problem = {name: first[name] for name in PROBLEM.names}
    # The rollouts share one prompt instead of equal ones.
    prompt = tuple(first["prompt_tokens"])
    is_episode = "messages" in first
    return Group(
        number=first["group"],
        problem={**problem, "kind": first.get("kind")},
        prompt=prompt,
        rollouts=tuple(_rollout(row, prompt) for row in rows),
        texts=tuple(row["completion"] for row in rows),
        rewards=tuple(reward_of(row) for row in rows),
        dropped=first["dropped"],
        temperature=first["temperature"],
        messages=tuple(tuple(row["messages"]) for row in rows) if is_episode else (),
    )


def _rollout(row: Mapping[str, Any], prompt: tuple[int, ...]) -> Rollout:
    return Rollout(
        index=row["sample"],
        prompt=prompt,
        tokens=tuple(row["tokens"]),
        logprobs=tuple(row["logprobs"]),
        versions=tuple((span["start"], span["version"]) for span in row["versions"]),
        finish=row["finish"],
        seed=row["seed"],
        given=tuple((span["start"], span["end"]) for span in row.get("given", ())),
    )


def read_columns(path: Path, names: Sequence[str]) -> pa.Table:
    """Read only some columns of an update's table; the per-token ones are most of it.

    Raises:
        DataError: the file is truncated or damaged.
    """
    try:
        # Arrow takes the numbers of the columns, which are in the schema, so the file is opened twice.
        with pa.memory_map(str(path)) as file, pa.ipc.open_stream(file) as reader:
            indices = [reader.schema.get_field_index(name) for name in names]
        options = pa.ipc.IpcReadOptions(included_fields=indices)
        with pa.memory_map(str(path)) as file, pa.ipc.open_stream(file, options=options) as reader:
            rows = reader.read_all()
            rows.validate(full=True)
            return rows
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} is truncated or damaged: {first_line(error)}") from None
