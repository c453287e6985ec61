"""The trackers that a run's curves may go to, each behind the same three words: what it holds, log, close.

Each keeps its runs where its own environment says (`WANDB_MODE`, `MLFLOW_TRACKING_URI`, `TRACKIO_SPACE_ID` and so on);
the files of TensorBoard and of Weights & Biases lie in the run's folder. An account is the user's own: `wandb login` or
`WANDB_API_KEY`, `MLFLOW_TRACKING_TOKEN`, `hf auth login`.
"""

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, Protocol

from magcli.errors import EnvironmentFault

Name = Literal["tensorboard", "wandb", "trackio", "mlflow"]
PROJECT = "magcli"
"""The project or experiment of runs whose environment names no other."""

LAST_SECONDS = 60.0
"""What Weights & Biases may take to upload the rest of a run that has ended."""


@dataclass(frozen=True, slots=True)
class Run:
    """A run as trackers know it: ``id`` is its own among all runs of a project, and the same when it goes on."""

    id: str
    folder: Path
    config: Mapping[str, Any]


class Tracker(Protocol):
    """One run in a tracker.

    ``last`` is the last update that the tracker held when it was opened, 0 for none, ``where`` the place to look at.
    ``log`` hands over an update's values; what a client may still lose then, the tracker does not hold when it is
    opened again. ``close`` waits until all is written.
    """

    last: int
    where: str

    def log(self, step: int, values: Mapping[str, float]) -> None: ...
    def close(self, *, finished: bool) -> None: ...


class TensorBoard:
    """Event files in the run's folder. An update is one event, so that a kill leaves all of it or nothing."""

    def __init__(self, run: Run) -> None:
        from torch.utils.tensorboard.writer import FileWriter, SummaryWriter

        folder = run.folder / "tensorboard"
        self.last, self.where = _last_event(folder), str(folder)
        if not self.last:
            with SummaryWriter(self.where) as config:
                config.add_text("config", f"```\n{json.dumps(run.config, indent=1)}\n```", 0)
        self._writer = FileWriter(self.where)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Write an event and hand it to the system."""
        from tensorboard.compat.proto.summary_pb2 import Summary

        all_of_it = Summary(value=[Summary.Value(tag=name, simple_value=value) for name, value in values.items()])
        self._writer.add_summary(all_of_it, step)
        self._writer.flush()

    def close(self, *, finished: bool) -> None:
        """Close the file."""
        self._writer.close()


def _last_event(folder: Path) -> int:
    """The last update that event files hold."""
    from tensorboard.backend.event_processing.event_accumulator import SCALARS, EventAccumulator

    folder.mkdir(exist_ok=True)
    events = EventAccumulator(str(folder), size_guidance={SCALARS: 1}).Reload()
    return max((event.step for name in events.Tags()[SCALARS] for event in events.Scalars(name)), default=0)


class WandB:
    """Weights & Biases. A server says which update it holds; offline, the run's own files do."""

    def __init__(self, run: Run) -> None:
        import wandb

        from magcli.rl.wandb_files import last_step

        quiet = wandb.Settings(console="off", silent=True, finish_timeout=LAST_SECONDS)
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            dir=os.environ.get("WANDB_DIR", run.folder),
            id=run.id,
            name=run.id,
            config=dict(run.config),
            resume="allow",
            settings=quiet,
        )
        files = Path(self._run.settings.wandb_dir)
        self.last = last_step(files, run.id) if self._run.offline else max(0, self._run.step - 1)
        self.where = str(files) if self._run.offline else str(self._run.url)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Hand an update to the client's process."""
        self._run.log(dict(values), step=step, commit=True)

    def close(self, *, finished: bool) -> None:
        """Upload the rest."""
        self._run.finish(exit_code=0 if finished else 1)


class Trackio:
    """Trackio, on this machine, in a Space of the Hub or on a server."""

    def __init__(self, run: Run) -> None:
        import trackio

        project = os.environ.get("TRACKIO_PROJECT", PROJECT)
        meters = {"auto_log_gpu": False, "auto_log_cpu": False}
        self._run = trackio.init(project, run.id, config=dict(run.config), resume="allow", embed=False, **meters)
        self.last = max(0, self._run._next_step - 1)
        self.where = f"trackio show --project {project}"

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Hand an update to the client's thread."""
        self._run.log(dict(values), step=step)

    def close(self, *, finished: bool) -> None:
        """Write the rest."""
        import trackio

        trackio.finish()


class MLflow:
    """MLflow, in its default store or on a server. The run is found by a tag; an update is written at once or not."""

    def __init__(self, run: Run) -> None:
        import mlflow
        from mlflow.entities import Param

        self._client, name = mlflow.MlflowClient(), os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        known = self._client.get_experiment_by_name(name)
        experiment = known.experiment_id if known else self._client.create_experiment(name)
        found = self._client.search_runs([experiment], f"tags.magcli = '{run.id}'")
        opened = found[0] if found else self._client.create_run(experiment, tags={"magcli": run.id}, run_name=run.id)
        self._id, self.last = opened.info.run_id, int(opened.data.metrics.get("update", 0))
        self.where = f"{mlflow.get_tracking_uri()}, experiment {name}"
        told = {key: json.dumps(value)[:6000] for key, value in run.config.items() if key not in opened.data.params}
        self._client.log_batch(self._id, params=[Param(*each) for each in told.items()])

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Write an update."""
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        told = [Metric(name, value, now, step) for name, value in {**values, "update": step}.items()]
        self._client.log_batch(self._id, metrics=told)

    def close(self, *, finished: bool) -> None:
        """Say how the run ended."""
        self._client.set_terminated(self._id, "FINISHED" if finished else "KILLED")


TRACKERS: Mapping[Name, Callable[[Run], Tracker]] = {
    "tensorboard": TensorBoard,
    "wandb": WandB,
    "trackio": Trackio,
    "mlflow": MLflow,
}


def require(name: Name) -> None:
    """Refuse to go on without a tracker's package.

    Raises:
        EnvironmentFault: it is not installed; names the extra.
    """
    if find_spec(name) is None:
        raise EnvironmentFault(f"rl: --track {name} needs its package: pip install 'magcli[{name}]'")
