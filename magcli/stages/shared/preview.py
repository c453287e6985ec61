"""What ``--dry-run`` of the stages with a model checks: tokenizer, configuration, and which rows would be dropped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from magcli.data.values import all_rows
from magcli.errors import DataError, EnvironmentFault
from magcli.model.model import Model
from magcli.model.weights.plain import require_json
from magcli.stages.shared import engines, graders, templates

if TYPE_CHECKING:
    from pathlib import Path

    from magcli.data.source import Rows
    from magcli.run.job import Job

    Row = dict[str, Any]


def open_readable(config: Any, job: Job) -> Model | None:
    """The model of a stage's options if its configuration and tokenizer can be read, without its weights.

    None if the model is not there yet, has no tokenizer yet, or is a server's; a line says what is not checked then.

    Raises:
        EnvironmentFault: its folder is there and cannot be read.
    """
    model = templates.open_model(config)
    if model.is_url:
        _say_unchecked("a server has its own tokenizer", job)
        return None
    if model.is_local:
        require_json(model.folder)
    try:
        # Both are read from files, so that they fail here if they cannot be read.
        _ = model.context, model.ends
    except EnvironmentFault as error:
        # A tokenizer may still be put beside a configuration; other damage is refused.
        if model.is_local and not model.is_config_alone:
            raise
        _say_unchecked(str(error), job)
        return None
    return templates.with_date(model, job, [], system=config.system)


def check_model(name: str) -> None:
    """Refuse a dry run of a model that is not there; a server may start later, and a damaged folder is named by others.

    Raises:
        DataError: it is neither a folder nor available from the hub.
    """
    model = Model.open(name)
    if model.is_local:
        return
    try:
        engines.require_model(model)
    except EnvironmentFault as error:
        raise DataError(f"{error}; --allow-missing checks the rest without it") from None


def _say_unchecked(why: str, job: Job) -> None:
    job.console.say(f"{job.stage}: dry run: prompts are not checked: {why}", event="not-checked", reason=why)


def sampled_problems(config: Any, rows: Rows, job: Job) -> list[Row]:
    """The problems that a stage can sample; those whose prompt is too long are dropped."""
    model = open_readable(config, job)
    return fitting(all_rows(rows), model, config.system, job)


def graded_problems(config: Any, rows: Rows, job: Job) -> int:
    """The number of problems that a stage can sample and grade; also those with a bad ground truth are dropped."""
    problems = sampled_problems(config, rows, job)
    # After the lengths, which need no worker processes.
    with graders.open_grader(config, environment=config.environment) as grader:
        return sum(1 for _ in engines.gradable(problems, grader, job))


def fitting(problems: Sequence[Row], model: Model | None, system: Path | None, job: Job) -> list[Row]:
    """The problems whose prompt fits into the context, all if the model is None; the others are dropped."""
    if model is None:
        return list(problems)
    text = engines.system_text(system, model.thoughts)
    with job.console.progress(len(problems), "rows", job.stage) as bar:
        # A row is counted once the next one is asked for, when it is done.
        def counted() -> Iterator[Row]:
            for row in problems:
                yield row
                bar.advance()

        return list(engines.fitting(counted(), model, text, job))
