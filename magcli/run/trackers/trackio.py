"""The tracker Trackio."""

import os
from collections.abc import Mapping, Sequence

import trackio

from magcli.run.trackers.types import PROJECT, Run, Sample, sample_table


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
        self._run.log({**values, **sample_table(samples, trackio.Table)}, step=step)

    def amend(self, step: int, values: Mapping[str, float]) -> None:
        """Send another row of the update."""
        self.log(step, values, ())

    def finish(self, *, completed: bool) -> None:
        """Write the rest."""
        trackio.finish()
