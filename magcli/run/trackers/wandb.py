"""The tracker Weights & Biases."""

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import wandb

from magcli.run.trackers.types import FINISH_TIMEOUT, PROJECT, Run, Sample, sample_table


class OpenRun:
    """Weights & Biases. The server knows the last step; offline W&B cannot resume, so all steps are logged again.

    `wandb sync` keeps the last of several offline folders of a run, so that one must be complete.
    """

    def __init__(self, run: Run) -> None:
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            dir=os.environ.get("WANDB_DIR", run.folder),
            id=run.id,
            name=run.id,
            config=dict(run.config),
            # Goes on with the run of this id, or begins it.
            resume="allow",
            settings=wandb.Settings(console="off", silent=True, finish_timeout=FINISH_TIMEOUT),
        )
        self._folder = Path(self._run.settings.sync_dir)
        # ``step`` is that of the next update.
        self.last_step = -1 if self._run.offline else self._run.step - 1
        self.location = str(self._folder.parent) if self._run.offline else str(self._run.url)

    def log(self, step: int, values: Mapping[str, float], samples: Sequence[Sample]) -> None:
        """Send an update to W&B's process."""
        self._run.log({**values, **sample_table(samples, wandb.Table)}, step=step, commit=True)

    def amend(self, step: int, values: Mapping[str, float]) -> None:
        """Set them as the run's last values: the history takes nothing more for a step that it has."""
        self._run.summary.update(dict(values))

    def finish(self, *, completed: bool) -> None:
        """Upload the rest; offline, remove the older folders that this one replaces."""
        self._run.finish(exit_code=0 if completed else 1)
        for older in self._folder.parent.glob(f"offline-run-*-{self._run.id}") if self._run.offline else ():
            if older != self._folder:
                shutil.rmtree(older)
