"""What a stage declares: the names of its module that the command line and the harness ask for, and their defaults.

``CONTRIBUTING.md`` tells of each name. Constants of the module are in capitals; its functions take a configuration.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from magcli import config as configuration

if TYPE_CHECKING:
    import pyarrow as pa

    from magcli.data.source import Rows
    from magcli.run.job import Job


@dataclass(frozen=True)
class Stage:
    """A stage, as its module declares it; ``Config`` is the class of its options."""

    name: str
    Config: type
    run: Callable[[Any, Rows, Job], Rows]
    schema: Callable[[Any, pa.Schema], pa.Schema]
    reads: Callable[[Any], Sequence[str]]
    INPUTS: str = ""
    OUTPUT: str = ""
    DEFAULT_OUTPUT: str | None = None
    EXAMPLE: str = ""
    SUBJECT: str = ""
    RESTART: str = "Forget unfinished work and make the output anew."
    RESUMES: bool = False
    ALIASES: Mapping[str, Sequence[str]] | None = None
    RUNTIME: Sequence[str] = ()
    check: Callable[[Any], None] = lambda _: None
    settings: Callable[[Any], Mapping[str, Any]] = lambda _: {}
    always: Callable[[Any], bool] = lambda _: False
    beside: Callable[[Any], Sequence[Path]] = lambda _: ()
    makes: Callable[[Any], Path | None] = lambda _: None
    takes_rows: Callable[[Any], bool] = lambda _: True
    looks: Callable[[Any], bool] = lambda _: False
    follow: Callable[[Any], bool] = lambda _: False
    whole: Callable[[Any], str] | None = None
    doc: str = ""

    def decides(self, config: Any) -> dict[str, Any]:
        """What decides the rows, as histories tell it: the options, but for places, and what the stage adds."""
        options = configuration.as_json(config)
        return {key: value for key, value in options.items() if key not in self.RUNTIME} | dict(self.settings(config))


def declared(name: str, module: ModuleType) -> Stage:
    """The stage that a module declares.

    Raises:
        TypeError: the module lacks a name that every stage has.
    """
    told = {field.name: vars(module)[field.name] for field in fields(Stage) if field.name in vars(module)}
    return Stage(name, doc=inspect.getdoc(module) or "", **told)
