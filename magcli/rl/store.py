"""A run's groups on disk: each finished one in a file of its own until the table of an update holds it.

RUN/groups/g-00000012.arrow        a group that is graded and waits: to train, or, dropped, to be written down
RUN/rollouts/step-000007.arrow     what was sampled for the update 7: its groups, and those dropped before it

What trains is what is on disk: a group is read back once it is written, so an update that is made again after a kill
sees the same bits.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from magcli.data import durable, manifest, seal, table
from magcli.errors import DataError
from magcli.rl.records import ROLLOUT, groups_of, rollout_rows
from magcli.rl.rollouts import Group
from magcli.run.rundir import RunDir


class Store:
    """The groups of a run."""

    def __init__(self, run: Path) -> None:
        self._run = RunDir(run)
        self._run.groups.mkdir(parents=True, exist_ok=True)

    def keep(self, group: Group) -> Group:
        """Write a finished group; returns it as it reads."""
        rows = rollout_rows([group], None, {})
        with durable.atomic_file(self._file(group.number)) as file, pa.ipc.new_stream(file, ROLLOUT) as writer:
            writer.write(rows)
        return groups_of([rows])[0]

    def load(self, number: int, advice: str = "remove it, and the group is made again") -> Group:
        """A group that waits.

        Raises:
            DataError: its file is damaged or gone; the message ends with ``advice``.
        """
        path = self._file(number)
        try:
            with path.open("rb") as file:
                return groups_of(pa.ipc.open_stream(file))[0]
        except (pa.ArrowInvalid, OSError, IndexError) as error:
            raise DataError(f"{path} is damaged ({error}); {advice}") from error

    def numbers(self) -> list[int]:
        """The groups that wait, ascending."""
        return sorted(int(path.stem.removeprefix("g-")) for path in self._run.groups.glob("g-*.arrow"))

    def write_table(
        self, step: int, trained: Sequence[Group], dropped: Sequence[Group], advantages: Mapping[int, Sequence[float]]
    ) -> None:
        """Write down what was sampled for an update; the files of its groups go."""
        groups = [*dropped, *trained]
        rows = rollout_rows(groups, step, advantages)
        with table.write(str(self._run.rollouts_of(step)), ROLLOUT, seal.pack({"stage": "rl"})) as sink:
            sink.write(rows)
            sink.finish((manifest.Link("rl", "", {"step": step}, rows_out=rows.num_rows),))
        self.remove(group.number for group in groups)

    def has_table(self, step: int) -> bool:
        """Whether an update's table is there."""
        return self._run.rollouts_of(step).exists()

    def groups(self, step: int) -> list[Group]:
        """The groups of an update's table: those that trained and those dropped before it."""
        return groups_of(table.read(str(self._run.rollouts_of(step))).rows)

    def written(self) -> Iterator[Path]:
        """The tables of all updates, in order."""
        yield from sorted(self._run.rollouts.glob("step-*.arrow"))

    def remove(self, numbers: Iterable[int]) -> None:
        """Take away the files of groups."""
        for number in numbers:
            self._file(number).unlink(missing_ok=True)

    def _file(self, number: int) -> Path:
        return self._run.groups / f"g-{number:08d}.arrow"
