"""The tracker Trackio."""

import os
from collections.abc import Mapping, Sequence

import trackio

from magcli.run.trackers.types import PROJECT, SAMPLES, Run, Sample


class OpenRun:
    """Trackio on this machine, in a Space of the Hub or on a server."""

    def __init__(self, run: Run) -> None:
        project = os.environ.get("TRACKIO_PROJECT", PROJECT)
        no_monitors = {"auto_log_gpu": False, "auto_log_cpu": False}
        self._run = trackio.init(project, run.id, config=dict(run.config), resume="allow", embed=False, **no_monitors)
        self.last_step = self._run._next_step - 1
        self.location = f"trackio show --project {project}"

    def log(self, step: int, values: Mapping[str, float], samples: Sequence[Sample]) -> None:
        """Send an update to Trackio's thread."""
        rows = [list(sample) for sample in samples]
        table = {SAMPLES: trackio.Table(columns=list(Sample._fields), data=rows)} if rows else {}
        self._run.log({**values, **table}, step=step)

    def finish(self, *, completed: bool) -> None:
        """Write the rest."""
        trackio.finish()
