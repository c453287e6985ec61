"""From options to environments, and episodes in them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from magcli.environments.environment import Environment, in_workers
from magcli.environments.text import TextEpisodes, as_user
from magcli.environments.trial import failure_of
from magcli.errors import usage
from magcli.model.chat.turns import TurnRenderer
from magcli.stages.shared import engines, graders, templates

if TYPE_CHECKING:
    from magcli.model.model import Model
    from magcli.stages.shared.options import GraderOptions


def open_environment(config: GraderOptions, spec: str) -> AbstractContextManager[Environment]:
    """The environment that a stage's options name, in processes of its own."""
    return in_workers(spec, config.workers, graders.isolation(config.sandbox)[0])


def turn_renderer(model: Model, system: Path | None) -> TurnRenderer:
    """Renders what an environment says to a model."""
    return TurnRenderer(model.tokenizer, model.ends, engines.system_text(system, model.thoughts), model.thoughts)


@contextmanager
def opened_episodes(grading: GraderOptions, config: Any) -> Iterator[TextEpisodes | None]:
    """The environment of the options of a stage that samples text; None, and no model, without one."""
    if not config.environment:
        yield None
        return
    model = templates.open_model(config)
    with open_environment(grading, config.environment) as environment:
        yield text_episodes(environment, model, config.system)


def text_episodes(environment: Environment, model: Model, system: Path | None) -> TextEpisodes:
    """Episodes of a model in an environment, for stages that sample text."""
    return TextEpisodes(environment, as_user if model.is_url else turn_renderer(model, system).shown)


def environment_trial(config: GraderOptions, spec: str) -> Callable[[Mapping[str, Any]], None] | None:
    """Asks an environment on a row before any work, about a turn that says little; None without one.

    What is returned raises UsageError where the environment fails.
    """
    if not spec:
        return None

    def attempt(row: Mapping[str, Any]) -> None:
        # One process is enough for one row.
        with in_workers(spec, 1, graders.isolation(config.sandbox)[0]) as opened:
            failure = asyncio.run(failure_of(opened, row))
        usage(not failure, f"{failure}, on row {row.get('id', '1')}")

    return attempt
