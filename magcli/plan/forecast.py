"""The forecast of memory and disk that `sft` and `rl` report before they start; runs that cannot fit are refused."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO
from operator import itemgetter
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console as RichConsole
from rich.table import Table

from magcli.errors import EnvironmentFault
from magcli.plan import fit, memory
from magcli.plan.memory import AFTER_LOADING, UPDATE

if TYPE_CHECKING:
    from pathlib import Path

    from magcli.console import Console
    from magcli.plan.fit import Change, Plan
    from magcli.plan.machine import Card
    from magcli.plan.memory import Line, Phase

GIB, MIB = 1 << 30, 1 << 20

CLEARLY = 1.15
"""Ratio of a run's memory to this machine's free memory above which it is warned of: the forecast's accuracy."""

WHEN = {"loading": "while loading", "forward": "forward pass", "scoring": "backward pass of the logits",
        "backward": "backward pass of the layers", "sampling": "while sampling"}  # fmt: skip
"""The phases in messages."""


@dataclass(frozen=True)
class Forecast:
    """The memory of a run on a ``card``; ``changes`` are what its options could do about it, by kind."""

    stage: str
    plan: Plan
    card: Card
    changes: Sequence[Sequence[Change]]
    disk: Sequence[Line]

    @property
    def fits(self) -> bool:
        """Whether the largest phase fits."""
        return self.plan.peak <= self.card.usable

    @property
    def host(self) -> Sequence[Line]:
        """What ranks on GPUs take of host memory, which is not checked: on a cluster it is that of other machines."""
        return memory.host_lines(self.plan.training)


def check(forecast: Forecast, folder: Path, console: Console) -> None:
    """Report at the start of a run whether it fits its GPU; refuse it if not.

    Raises:
        EnvironmentFault: it does not fit.
    """
    warn_of_full_disk(forecast, folder, console)
    require(forecast, console)
    if forecast.card.is_gpu:
        console.say(summary(forecast), event="memory", peak=forecast.plan.peak, usable=forecast.card.usable)


def show(forecast: Forecast, console: Console) -> None:
    """Print the parts of the memory and of the disk, a line each, and the peak."""
    plan, card = forecast.plan, forecast.card
    if console.as_json:
        console.say(
            summary(forecast),
            event="memory",
            fits=forecast.fits,
            card=card.name,
            usable=card.usable,
            peak=plan.peak,
            lines=[{"part": line.name, "bytes": line.size, "phases": line.phases} for line in plan.lines],
            host=[{"part": line.name, "bytes": line.size} for line in forecast.host],
            disk=[{"part": line.name, "bytes": line.size} for line in forecast.disk],
        )
    else:
        console.say(table(forecast) + (summary(forecast) if forecast.fits else ""))


def summary(forecast: Forecast) -> str:
    """The peak in one line."""
    bytes_by_phase = memory.phase_bytes(forecast.plan.lines)
    phase, peak = max(bytes_by_phase.items(), key=itemgetter(1))
    card = forecast.card
    verb = "fits" if forecast.fits else "does not fit"
    need = f"{forecast.stage}: the peak is {size(peak)} ({WHEN[phase]})"
    return f"{need}; it {verb} the {size(card.usable)} that {card.name} has for it"


def table(forecast: Forecast) -> str:
    """The parts as a table for people."""
    rows = Table(box=box.SIMPLE)
    rows.add_column("memory")
    rows.add_column("size", justify="right")
    rows.add_column("when")
    for line in forecast.plan.lines:
        rows.add_row(line.name, size(line.size), when(line.phases))
    for line in forecast.host:
        rows.add_row(f"host: {line.name}", size(line.size), when(line.phases))
    for line in forecast.disk:
        rows.add_row(f"disk: {line.name}", size(line.size), "on disk")
    text = StringIO()
    RichConsole(file=text, width=100).print(rows)
    # Rich fills lines with spaces, and puts empty ones above and below.
    lines = [line.rstrip() for line in text.getvalue().splitlines()]
    return "\n".join(line for line in lines if line) + "\n"


def when(phases: Sequence[Phase]) -> str:
    """The phases of a part in words."""
    # Loading is over before anything else begins, so what stays after it is always there.
    if set(phases) >= set(AFTER_LOADING):
        return "always"
    if set(phases) == set(UPDATE):
        return "updates"
    return ", ".join(WHEN[phase] for phase in phases)


def size(number: int) -> str:
    """A number of bytes in GiB, or MiB below 1 GiB."""
    return f"{number / GIB:,.1f} GiB" if number >= GIB else f"{number / MIB:,.1f} MiB"


def require(forecast: Forecast, console: Console) -> None:
    """Refuse a run that does not fit its GPU; on a CPU only warn, if it clearly takes more memory than is free.

    Raises:
        EnvironmentFault: it does not fit; the message has the smallest change that makes it fit.
    """
    if forecast.card.is_gpu:
        if not forecast.fits:
            raise EnvironmentFault(f"{summary(forecast)}; {advice(forecast)}")
    elif forecast.plan.peak > CLEARLY * forecast.card.usable:
        console.warn(f"{summary(forecast)}; {advice(forecast)}", peak=forecast.plan.peak)


def advice(forecast: Forecast) -> str:
    """What to do about a run that does not fit."""
    plan, card = forecast.plan, forecast.card
    changes = fit.smallest(plan, forecast.changes, card.usable)
    if changes:
        return f"it would with {flags(changes)}"
    split = fit.sharded(plan, forecast.changes, card.usable) if card.is_gpu else None
    if split is None:
        return "no option makes it fit; take a smaller model"
    ranks, changes = split
    # Several ranks may fit without another change.
    options = f"--trainers {ranks} {flags(changes)}".rstrip()
    generators = ", and more cards for --generators" if forecast.stage == "rl" else ""
    return f"take a smaller model, or {ranks} such cards with {options}{generators}"


def flags(changes: Sequence[Change]) -> str:
    """The options of changes, as they are written in a command."""
    return " ".join(change.flags for change in changes)


def warn_of_full_disk(forecast: Forecast, folder: Path, console: Console) -> None:
    """Warn before a run if the disk of its folder has less space than the run will write."""
    # The folder of a run is made later, so ask the one in which it will be.
    existing = folder.absolute()
    while not existing.exists():
        existing = existing.parent
    free = shutil.disk_usage(existing).free
    wanted = sum(line.size for line in forecast.disk)
    if wanted <= free:
        return
    console.warn(
        f"{forecast.stage}: the run writes up to {size(wanted)}, and {existing} has {size(free)} free; lower "
        "--keep-checkpoints, or give another --run",
        wanted=wanted,
        free=free,
    )
