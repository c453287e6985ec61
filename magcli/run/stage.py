"""What a stage declares: the names that the command line and the harness look for in its module, with their defaults.

``CONTRIBUTING.md`` lists them. Constants are in capitals; functions take the stage's configuration.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from magcli import config as configuration

if TYPE_CHECKING:
    import pyarrow as pa

    from magcli.console import Console
    from magcli.data.source import Rows
    from magcli.run.job import Job

ROWS = "the rows"
"""The output of a stage that writes its rows to stdout by default."""


def _no_columns(_config: Any, _input_schema: pa.Schema | None = None) -> pa.Schema:
    import pyarrow as pa

    return pa.schema([])


def _unreported(_config: Any, rows: Rows, _job: Job) -> Rows:
    return rows


def _count_rows(_config: Any, rows: Rows, _job: Job) -> int:
    return sum(batch.num_rows for batch in rows)


def _not_loaded(_config: Any, _rows: Rows, _job: Job) -> Rows:
    raise RuntimeError("with_work was not called")


@dataclass(frozen=True)
class Stage:
    """A stage, as its module declares it; ``Config`` is the class of its options.

    A package declares its options, and its module ``work`` what needs more than them: ``with_work`` imports it.
    """

    name: str
    Config: type
    run: Callable[[Any, Rows, Job], Rows] = _not_loaded
    schema: Callable[[Any, pa.Schema], pa.Schema] = _no_columns
    reads: Callable[[Any], Sequence[str] | None] = lambda _: ()
    layouts: Callable[[Any, Sequence[pa.Schema]], Sequence[Any] | None] = lambda _config, _schemas: None
    defaults: Callable[[Any], Mapping[str, Any]] = lambda _: {}
    check: Callable[[Any], None] = lambda _: None
    writes: Callable[[Any], bool] = lambda _: True
    settings: Callable[[Any], Mapping[str, Any]] = lambda _: {}
    side_outputs: Callable[[Any], Sequence[Path]] = lambda _: ()
    unshardable_reason: Callable[[Any], str] | None = None
    head: Callable[[Any], int] = lambda _: 0
    trial: Callable[[Any], Callable[[Mapping[str, Any]], None] | None] = lambda _: None
    learned: Callable[[Any], pa.Schema] = _no_columns
    report: Callable[[Any, Rows, Job], Rows] = _unreported
    choose: Callable[[Any, Rows, Job], None] | None = None
    preview: Callable[[Any, Rows, Job], int] = _count_rows
    forecast: Callable[[Any, Console], None] | None = None
    FIRST: Sequence[str] = ()
    IN_RECIPE: Sequence[str] = ()
    INPUTS: str = ""
    OUTPUT: str = ROWS
    EXAMPLE: str = ""
    RECIPE_TABLE: str = ""
    RESUMES: bool = False
    NEEDS_ALL: bool = False
    ALIASES: Mapping[str, Sequence[str]] | None = None
    doc: str = ""
    work: str = ""

    def with_work(self) -> Stage:
        """The stage with the names of its module ``work``, which is imported now; without one, the stage itself."""
        return replace(self, **_hooks(importlib.import_module(self.work))) if self.work else self

    @property
    def default_output(self) -> str | None:
        """Where the table goes without ``--output``: rows to stdout, other results nowhere."""
        return "-" if self.OUTPUT == ROWS else None

    @property
    def positional(self) -> str | None:
        """The option that may be given without its name."""
        return next(iter(configuration.with_role(self.Config, "positional")), None)

    @property
    def shardable(self) -> bool:
        """Whether the stage has ``--shard``."""
        return self.RESUMES or self.unshardable_reason is not None

    @property
    def owns_dir(self) -> bool:
        """Whether the stage owns a folder, as a training run does."""
        return bool(configuration.with_role(self.Config, "owned_dir"))

    def owned_dir(self, config: Any) -> Path | None:
        """The folder that the stage owns."""
        return next((getattr(config, name) for name in configuration.with_role(self.Config, "owned_dir")), None)

    def more_tables(self, config: Any) -> list[str]:
        """The tables that the stage writes besides its output."""
        paths = (getattr(config, name) for name in configuration.with_role(self.Config, "output_table"))
        return [str(path) for path in paths if path is not None]

    def fingerprint(self, config: Any) -> dict[str, Any]:
        """What determines the rows, as histories record it: the options that affect them, and the stage's settings."""
        return configuration.row_options(config) | dict(self.settings(config))


def declared(name: str, module: ModuleType) -> Stage:
    """The stage that a module declares, or a package with a module ``work``, which is not yet imported.

    Raises:
        TypeError: the module lacks a name that every stage has.
    """
    hooks = _hooks(module)
    work = f"{module.__name__}.work" if hasattr(module, "__path__") else ""
    # ``find_spec`` of a submodule imports its package, which is imported already.
    if not work or find_spec(work) is None:
        work = ""
        if "run" not in hooks:
            raise TypeError(f"{module.__name__} has no function run")
    return Stage(name, doc=inspect.getdoc(module) or "", work=work, **hooks)


def _hooks(module: ModuleType) -> dict[str, Any]:
    """The names of a stage that a module has."""
    # Whatever else a module has, such as its helpers, is none of these names.
    names = vars(module)
    return {field.name: names[field.name] for field in fields(Stage) if field.name in names and field.name != "work"}
