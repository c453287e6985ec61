"""How many trainer ranks a run has, how they share weights, and how many devices each of its engines has.

They are noted in the run's folder.

They do not belong to the run's settings, because it may be resumed with others. ``magcli simulate`` needs them to take
speeds from the run.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from magcli.data import checksum
from magcli.errors import DataError
from magcli.run.rundir import RunDir
from magcli.run.settings import CHOSEN

NAME = "trainers_and_tensor_parallel"
SEVERAL = "several"
"""The note of a run that was resumed with another layout."""


class NotedLayout(NamedTuple):
    """Number of trainer ranks, of an engine's devices, and of ranks that share one copy of the weights (0: all)."""

    trainers: int = 1
    tensor_parallel: int = 1
    fsdp_size: int = 0


def note_layout(folder: RunDir, *, trainers: int, tensor_parallel: int, fsdp_size: int) -> None:
    """Note the layout of a run that starts or is resumed."""
    layout = f"{trainers},{tensor_parallel}"
    # One copy of the weights for all ranks is the usual layout, and goes without saying.
    if 0 < fsdp_size < trainers:
        layout += f",{fsdp_size}"
    # A run without a note has just begun.
    earlier = folder.notes.get(NAME, layout)
    folder.note(NAME, layout if earlier == layout else SEVERAL)


def noted_layout(record: Mapping[str, Any]) -> NotedLayout:
    """The layout in the record of a run; one device each without a note.

    Raises:
        DataError: the run was resumed with another layout.
    """
    layout = record.get(CHOSEN, {}).get(NAME, "1,1")
    if layout == SEVERAL:
        raise DataError("it was resumed with other --trainers, --fsdp-size or --tensor-parallel")
    return NotedLayout(*map(int, layout.split(",")))


def noted_model(run: Path) -> tuple[str, bool]:
    """The model that a run started from, and whether its matrix products are in bf16.

    Raises:
        DataError: the record of the run is missing or damaged.
    """
    try:
        record = checksum.read_object(RunDir(run).note_path)
    except (OSError, ValueError) as error:
        raise DataError(f"{run} is not a run of magcli: {error}") from None
    return str(record.get("model", "")), record.get(CHOSEN, {}).get("bf16") == "yes"
