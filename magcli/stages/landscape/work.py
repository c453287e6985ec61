"""Run `magcli landscape`: the plane of a run's checkpoints, the visits of its points, the figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from magcli.choices import AUTO
from magcli.config import as_json, row_options
from magcli.data import durable
from magcli.data.values import all_rows
from magcli.errors import DataError, usage
from magcli.landscape import components, pca, results
from magcli.landscape.box import parse_box
from magcli.landscape.checkpoints import open_checkpoint
from magcli.landscape.pca import cost
from magcli.landscape.results import POINT
from magcli.landscape.surface import grid
from magcli.landscape.visits import VISIT, JournalledVisits, SurveyPlan, survey
from magcli.model.model import Model
from magcli.run.journal import Journal
from magcli.run.rundir import RunDir
from magcli.run.units import AsyncRunner
from magcli.stages.landscape.config import EXTENT, Config, output_folder, reads
from magcli.stages.landscape.points import Work, open_points
from magcli.stages.shared import engines, forms, graders, run_folder, run_options, tables, templates

if TYPE_CHECKING:
    import pyarrow as pa

    from magcli.data.source import Rows
    from magcli.landscape.gram import Array
    from magcli.landscape.pca import Plane
    from magcli.landscape.visits import Survey
    from magcli.run.job import Job


ALIASES = tables.ALIASES
layouts = tables.problem_layouts(reads)


def settings(config: Config) -> dict[str, Any]:
    """Digests of the system prompt, of the grader and of the run's checkpoints."""
    if reads(config) is None:
        return {}

    stored = RunDir(config.run).stored_weights()
    # ``run`` says what is missing.
    if not stored:
        return sampling_identity(config)
    weights = {"checkpoints": [folder.name for folder in stored], "last": Model.open(stored[-1]).digest}
    return sampling_identity(config) | weights


def sampling_identity(config: Config) -> dict[str, Any]:
    """Digests of the system prompt and of the grader."""
    prompts = engines.model_identity(templates.open_model(config, ""), config.system)
    return prompts | graders.grader_identity(config, config.reward)


def schema(config: Config, input_schema: pa.Schema) -> pa.Schema:
    """One row a point: its coordinates, means with intervals, and the means of each problem."""
    return POINT


def trial(config: Config) -> Callable[[Mapping[str, Any]], None] | None:
    """Tries a custom reward function on the first problem."""
    return None if config.plane_only or config.cost else graders.reward_trial(config)


def run(config: Config, rows: Rows, job: Job) -> Rows:
    """Compute the plane, sample every point, write the figures."""
    checkpoints = _checkpoints(config)
    if config.cost:
        job.console.result(_cost(checkpoints), event="cost")
        return
    input_rows = all_rows(rows)
    out = output_folder(config)
    # Two commands would write one journal.
    with durable.locked(out):
        plane = _plane(checkpoints, out, job)
        components.write_components(plane, out / "components")
        # Before anything is sampled, which may take hours.
        results.write_plane(out, plane, job)
        if config.plane_only:
            return
        _warn_of_differences(config, job)
        model = _model(plane.folders[-1], config, job)
        problems = _problems(config, input_rows, model, job)
        usage(len(problems) > 1, "landscape: at least 2 usable problems are needed")
        with _journal(config, plane, model, out, job) as journal:
            survey = survey_points(config, model, _grid(config, plane), problems, plane, out, journal, job)
        points = results.point_table(survey)
        fit = results.fit_length(points, shortest=config.shortest, longest=config.longest)
        results.write(out, survey, points, plane, fit, job)
        yield from points.to_batches()


def _warn_of_differences(config: Config, job: Job) -> None:
    """Warn of options that make rewards and lengths differ from those of the run's own completions."""
    different = run_options.differences_from_run(config.run, as_json(config), sampling_identity(config))
    if different:
        job.console.warn(f"landscape: not as in the run: {different}", event="differs")


def _problems(config: Config, rows: list[dict[str, Any]], model: Model, job: Job) -> list[dict[str, Any]]:
    """The problems that fit into the context and can be graded, the same at every point."""
    tables.check_ids("landscape", rows, custom_reward=bool(config.reward))
    system = engines.system_text(config.system, model.thoughts)
    with graders.open_grader(config, config.reward) as grader:
        return engines.answerable(rows, model, system, grader, job)


def _grid(config: Config, plane: Plane) -> Array:
    box = parse_box(config.range) if config.range else None
    return grid(plane.trajectory, points=config.points, box=box)


def _checkpoints(config: Config) -> list[Path]:
    """The run's stored weights, in training order."""
    folder = RunDir(config.run)
    if not config.run.is_dir():
        raise DataError(f"landscape: run folder {config.run} does not exist")
    stored = folder.stored_weights()
    # Two checkpoints lie on a line.
    if len(stored) < 3:
        raise DataError(
            f"landscape: {folder.trajectory} holds {len(stored)} checkpoints, but a plane needs at least 3; "
            f"{_advice_for_more(config.run)}"
        )
    return stored


def _advice_for_more(run: Path) -> str:
    """How a run stores more weights: by the option for that, or if it has that already, by more updates."""
    every = run_options.record(run).get("trajectory_every")
    if not every:
        return "run magcli rl with --trajectory-every"
    more = "prolong the run by --updates"
    return more if every == 1 else f"{more}, or run another one with a --trajectory-every below {every}"


def _cost(checkpoints: Sequence[Path]) -> str:
    return cost([open_checkpoint(folder) for folder in checkpoints])


def _plane(checkpoints: list[Path], out: Path, job: Job) -> Plane:
    job.console.result(_cost(checkpoints), event="cost")
    plane = pca.plane(checkpoints, cache=out / "grams.npz")
    job.console.result(pca.summary(plane), event="plane", explained=plane.explained.tolist())
    for text in pca.details(plane):
        job.console.say(text, event="plane-detail")
    for text in pca.warnings(plane):
        job.console.warn(text)
    return plane


def _journal(config: Config, plane: Plane, model: Model, out: Path, job: Job) -> AbstractContextManager[Journal]:
    """The finished visits of these weights and problems with these options of sampling and grading."""
    # More points or samples extend a journal, other options make other points.
    options = {key: value for key, value in row_options(config).items() if key not in EXTENT}
    identity = options | sampling_identity(config)
    identity["plane"] = plane.digest
    identity["model_settings"] = model.config_digest
    identity["problems"] = [source.sha256 for source in job.sources]
    path = out / "points.journal"
    if job.restart:
        path.unlink(missing_ok=True)
    return closing(Journal.open(path, VISIT, identity))


def survey_points(
    config: Config,
    model: Model,
    grid: Array,
    problems: Sequence[dict[str, Any]],
    plane: Plane,
    out: Path,
    journal: Journal,
    job: Job,
) -> Survey:
    """Visit the points with engines whose weights are replaced; the journal holds finished visits."""
    plan = SurveyPlan(config.samples, config.refine, config.more_samples)
    work = Work(config, model, problems, out / "components")
    # The origin is visited once more at the end. Which points get more samples is known late.
    total = None if config.more_samples else len(grid) + config.refine + 1
    points = open_points(work, job, journal)
    with job.console.progress(total, "points", job.stage) as bar, AsyncRunner() as loop:
        visits = JournalledVisits(journal, points.visit, lambda reused: bar.advance(reused=reused))
        surveying = survey(grid, plane.trajectory, plan, visits.measure, at_once=points.at_once)
        try:
            return loop.run(surveying)
        finally:
            # In the loop that has opened the engines' connections.
            loop.run(points.close())


def _model(folder: Path, config: Config, job: Job) -> Model:
    """A model of the run, which renders prompts with the date of the run's own, and has its form of thoughts."""
    recorded = run_folder.recorded(config.run, forms.THOUGHTS)
    # As the run had it, also where the folder of weights would tell another.
    if config.thoughts == AUTO and recorded:
        config = replace(config, thoughts=recorded)
    model = templates.open_model(config, folder)
    forms.record(model.thoughts, job, [])
    return templates.with_date(model, job, [], date=run_folder.recorded(config.run, "date"))
