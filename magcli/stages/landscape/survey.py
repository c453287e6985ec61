"""`magcli landscape` from the checkpoints to the figures."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from magcli.errors import DataError, usage
from magcli.stages.landscape.config import EXTENT, Config, output_folder, reads
from magcli.stages.shared import engines, grading

if TYPE_CHECKING:
    import pyarrow as pa

    from magcli.data.source import Rows
    from magcli.landscape.kernels import Array
    from magcli.landscape.pca import Plane
    from magcli.run.job import Job
    from magcli.run.journal import Journal


def settings(config: Config) -> dict[str, Any]:
    """Digests of the system prompt, of the grader and of the run's checkpoints."""
    if reads(config) is None:
        return {}
    from magcli.model.load import fingerprint
    from magcli.run.rundir import RunDir

    stored = RunDir(config.run).stored_weights()
    weights = {"checkpoints": [folder.name for folder in stored], "last": fingerprint(stored[-1])} if stored else {}
    return _sampling_identity(config) | weights


def _sampling_identity(config: Config) -> dict[str, Any]:
    return engines.model_identity("", config.system) | grading.grader_identity(config, config.reward)


def schema(config: Config, given: pa.Schema) -> pa.Schema:
    """One row a point: its coordinates, means with intervals, and the means of each problem."""
    from magcli.landscape.results import POINT

    return POINT


def run(config: Config, rows: Rows, job: Job) -> Rows:
    """Compute the plane, sample every point, write the figures."""
    from magcli.data import durable
    from magcli.landscape import components, results

    checkpoints = _checkpoints(config)
    if config.cost:
        job.console.say(_cost(checkpoints), event="cost")
        return
    given = [row for batch in rows for row in batch.to_pylist()]
    out = output_folder(config)
    with durable.locked(out):
        plane = _plane(config, checkpoints, out, job)
        components.write_components(plane, out / "components")
        results.write_plane(out, plane, job)
        if config.plane_only:
            return
        problems = _problems(config, given, plane, job)
        usage(len(problems) > 1, "landscape: at least 2 usable problems are needed")
        from magcli.stages.landscape.points import survey_points

        with _journal(config, plane, out, job) as journal:
            found = survey_points(config, _grid(config, plane), problems, plane, out, journal, job)
        points = results.point_table(found)
        fit = results.fit_length(points, shortest=config.shortest, longest=config.longest)
        results.write(out, found, points, plane, fit, job)
        yield from points.to_batches()


def _problems(config: Config, given: list[dict[str, Any]], plane: Plane, job: Job) -> list[dict[str, Any]]:
    """The problems that fit into the context and can be graded, the same at every point."""
    found = []
    with grading.open_grader(config, config.reward) as grader:
        for row in engines.answerable(given, str(plane.folders[-1]), engines.system_text(config.system), grader, job):
            if grader.gradable(row):
                found.append(row)
            else:
                job.drops.row(row["id"], "bad-gold", row)
    return found


def _grid(config: Config, plane: Plane) -> Array:
    from magcli.landscape.surface import grid, parse_box

    box = parse_box(config.range) if config.range else None
    return grid(plane.trajectory, points=config.points, pad=config.pad, box=box)


def _checkpoints(config: Config) -> list[Path]:
    """The run's stored weights, in training order."""
    from magcli.run.rundir import RunDir

    folder = RunDir(config.run)
    stored = folder.stored_weights()
    if len(stored) < 3:
        raise DataError(
            f"landscape: {folder.trajectory} holds {len(stored)} checkpoints, but a plane needs at least 3; "
            "run magcli rl with --trajectory-every"
        )
    return stored


def _cost(checkpoints: Sequence[Path]) -> str:
    from magcli.landscape.checkpoints import open_checkpoint
    from magcli.landscape.diagnosis import cost

    return cost([open_checkpoint(folder) for folder in checkpoints])


def _plane(config: Config, checkpoints: list[Path], out: Path, job: Job) -> Plane:
    from magcli.landscape import diagnosis, pca

    job.console.say(_cost(checkpoints), event="cost")
    plane = pca.plane(checkpoints, method=config.method, cache=out / "grams.npz")
    job.console.say(diagnosis.summary(plane), event="plane", explained=plane.explained.tolist())
    for text in diagnosis.details(plane):
        job.console.say(text, event="plane-detail")
    for text in diagnosis.warnings(plane):
        job.console.warn(text)
    return plane


def _journal(config: Config, plane: Plane, out: Path, job: Job) -> AbstractContextManager[Journal]:
    """The finished visits of these weights and problems with these options of sampling and grading."""
    from magcli.config import row_options
    from magcli.landscape.visits import VISIT
    from magcli.run.journal import Journal

    options = {key: value for key, value in row_options(config).items() if key not in EXTENT}
    identity = options | _sampling_identity(config)
    identity["plane"] = plane.digest
    identity["problems"] = [source.sha256 for source in job.sources]
    path = out / "points.journal"
    if job.restart:
        path.unlink(missing_ok=True)
    return closing(Journal.open(path, VISIT, identity))
