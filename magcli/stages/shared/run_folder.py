"""The folder of a run of `sft` or `rl`, with the number formats that are recorded in it, and its trackers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from magcli.data import checksum
from magcli.data.manifest import Input
from magcli.errors import usage
from magcli.plan import formats
from magcli.run.rundir import RunDir
from magcli.run.trackers import Source, no_samples, open_trackers
from magcli.stages.shared.forms import recorded_choice

if TYPE_CHECKING:
    from magcli.model.model import Model
    from magcli.plan.formats import Formats
    from magcli.run.job import Job
    from magcli.run.trackers import LogLines, Name, SamplesOf


@dataclass(frozen=True, slots=True)
class FolderSpec:
    """The folder that a training run asks for, and what is recorded in it.

    Attributes:
        stage: begins messages.
        path: that of the folder.
        options: all of the stage, as its history records them.
        lengths: options of which a larger value prolongs an earlier run.
        track: experiment trackers.
        formats: the options of ``SPELLINGS`` that matter to the run, perhaps ``auto``.
        device: that of the trainer.
        exact: ``auto`` is float32.
    """

    stage: str
    path: Path
    options: Mapping[str, Any]
    lengths: Sequence[str]
    track: Sequence[Name]
    formats: Mapping[str, str]
    device: str
    exact: bool = False

    @contextmanager
    def opened(self, model: Model, job: Job) -> Iterator[tuple[RunDir, Formats]]:
        """The folder and its number formats; it belongs to the settings of one job and its inputs.

        Open it after the last row was read: only then is the digest of a pipe known.

        Raises:
            UsageError: the folder is that of a run with other settings, or a finished one had another format.
        """
        # Formats are resolved in the folder: ``auto`` on another machine may mean another one.
        settings = {key: value for key, value in job.settings.items() if key not in formats.SPELLINGS}
        wanted = {**settings, "inputs": [source.sha256 for source in job.sources]}
        with RunDir.open(self.path, self.stage, wanted, restart=job.restart, lengths=self.lengths) as folder:
            inputs = [Input(Path(source.name).name, source.sha256, source.total or 0) for source in job.sources]
            folder.store_inputs(inputs, job.past())
            yield folder, resolve_formats(self.formats, model, self.device, folder, job, exact=self.exact)

    def tracked(self, folder: RunDir, job: Job, samples_of: SamplesOf = no_samples) -> AbstractContextManager[LogLines]:
        """The trackers of the run; those that have it already go on with it."""
        source = Source(self.stage, folder.path, self.options, samples_of)
        return open_trackers(self.track, source, job.console, resumed=bool(folder.metrics()))


def resolve_formats(
    asked: Mapping[str, str],
    model: Model,
    device: str,
    folder: RunDir,
    job: Job,
    *,
    exact: bool = False,
) -> Formats:
    """The number formats of a training run, those that options leave to ``auto`` included, recorded in its folder.

    A resumed run keeps its formats, on whatever machine, unless an option names another. ``asked`` are the options of
    ``SPELLINGS`` that matter to the run; ``exact`` runs default to float32.

    Raises:
        UsageError: the run is finished, and the options ask for another format.
    """
    if folder.finished:
        return formats.formats_of(_formats_of_finished(folder, asked, job))
    if exact:
        # Only what is left to ``auto``: a format that the user names stays.
        asked = formats.float32_for_auto(asked)
    chosen = job.choose(asked, lambda option: formats.spelled(option, model, device), [folder])
    return formats.formats_of(chosen)


def _formats_of_finished(folder: RunDir, asked: Mapping[str, str], job: Job) -> dict[str, str]:
    """The formats of a finished run, if the options do not ask for others."""
    used = {option: folder.notes.get(option, value) for option, value in asked.items()}
    for option, value in asked.items():
        text = f"{folder.path} holds a run with {option} {used[option]!r} (now {value!r})"
        usage(not formats.contradicts(value, used[option]), text)
    # The history of the output names them, although nothing is trained.
    job.chosen |= used
    return used


def recorded(run: Path, name: str) -> str:
    """What an unfinished run in a folder recorded under a name; empty if there is none."""
    try:
        return recorded_choice(checksum.read_object(run / "run.json"), name)
    except (OSError, ValueError):  # opening the run's folder says what is wrong with it
        return ""
