"""The environment of `magcli rl`, and its episodes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from magcli.environments.episodes import Episodes
from magcli.stages.rl.config import Config
from magcli.stages.shared import environments

if TYPE_CHECKING:
    from magcli.environments.environment import Environment
    from magcli.generate.types import RolloutEngine
    from magcli.model.model import Model


@contextmanager
def opened_environment(config: Config, model: Model) -> Iterator[Environment | None]:
    """The run's environment, if the model's chat template can show its turns; None without one.

    Raises:
        UsageError: it cannot.
    """
    if not config.environment:
        yield None
        return
    with environments.open_environment(config, config.environment) as environment:
        environments.turn_renderer(model, config.system).check(environment.terms.roles)
        yield environment


def episodes_in(environment: Environment, config: Config, model: Model, engine: RolloutEngine) -> Episodes:
    """Continues first turns of an engine to episodes in an environment."""
    renderer = environments.turn_renderer(model, config.system)
    return Episodes(engine, environment, renderer, model.tokenizer, model.ends, model.thoughts)
