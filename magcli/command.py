"""Make a Typer command from a stage's options, by reflection, which no other module uses.

Every flag defaults to None, whatever the option's default, so that only flags on the command line override a recipe.
"""

import contextlib
import dataclasses
import importlib
import importlib.util
import inspect
import json
import signal
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

import typer

from magcli import config as configuration
from magcli import plugins
from magcli.choices import AUTO
from magcli.console import Console, put
from magcli.errors import UsageError
from magcli.model.device import default_device
from magcli.run.shutdown import handle_once, sigterm_waits
from magcli.run.stage import ROWS, Stage, declared
from magcli.stages.shared.panels import in_panels

MAIN_PANEL = "Tables and running"
PLUGIN_PANEL = "Other packages"
MODELS = ("model", "before", "teacher")
"""Options that name a model whose weights a stage with a table loads."""
RESTART = "Discard unfinished work and an existing output, and start over."
RESTART_OWNED = "Delete the run's folder, a finished model and its checkpoints included, and start over."
ALLOW_EMPTY = "Success also if no row is kept."
LIMIT = "Read only this many rows, from the start of the input."
ALLOW_MISSING = "With --dry-run: a model that is not there yet is no error."
TABLE_OPTIONS = ("inputs", "allow_empty", "output", "format", "dropped", "restart", "shard", "overwrite")
OVERWRITE = "Replace an existing output that magcli did not make, or that was edited since."
TARGETS = "a file (.arrow .feather .parquet .jsonl .csv), a folder for datasets, or - for stdout."
FORMAT = "Format of the table on stdout or in a named pipe: arrow (default), jsonl or csv."


class EndedBySignal(BaseException):
    """A signal, or a pipe that its reader closed, ended the command. The exit code is 128 + ``signal``.

    Not an ``Exception``: neither stages nor Typer may handle it as a failure.
    """

    def __init__(self, number: signal.Signals) -> None:
        self.signal = number


class _Interrupt(KeyboardInterrupt):
    """A subclass, because CPython ends the process by SIGINT, whatever its exit code, once ``KeyboardInterrupt`` itself
    has passed through the ``exec`` of a string, which dataclasses call on import.
    """


@contextlib.contextmanager
def signals_passed_on() -> Iterator[None]:
    """Turn a closed pipe, SIGINT and SIGTERM into ``EndedBySignal``.

    SIGTERM is handled like SIGINT, on which ``AsyncRunner`` cancels its tasks; a second one ends the process at once.
    A training run may end its step first (``SaveFirst``).
    Background jobs of a shell ignore SIGINT and must still end on SIGTERM.
    """
    number = signal.SIGINT

    def interrupt(_number: int, _frame: types.FrameType | None) -> None:
        raise _Interrupt

    def terminate(_number: int, _frame: types.FrameType | None) -> None:
        nonlocal number
        number = signal.SIGTERM
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # if ``handle_once`` could not
        # A training run may end by itself after its step (``SaveFirst.end``).
        if not sigterm_waits():
            signal.raise_signal(signal.SIGINT)

    try:
        with _handled(signal.SIGINT, interrupt), _handled(signal.SIGTERM, terminate):
            yield
    except BrokenPipeError:
        raise EndedBySignal(signal.SIGPIPE) from None
    except KeyboardInterrupt:
        raise EndedBySignal(number) from None


@contextlib.contextmanager
def _handled(number: signal.Signals, handler: Callable[[int, types.FrameType | None], Any]) -> Iterator[None]:
    """Handle a signal by ``handler`` within the block."""
    earlier = signal.getsignal(number)
    try:
        handle_once(number, handler)
        yield
    finally:
        signal.signal(number, earlier)


class Entry(NamedTuple):
    """A stage in the list of commands: one line of the table in ``cli.py``."""

    name: str
    panel: str
    help: str


def stage_of(name: str) -> Stage:
    """The stage that the module ``magcli.stages.NAME`` declares, else the one that another package declares.

    Raises:
        UsageError: that of another package cannot be loaded.
    """
    module = f"magcli.stages.{name.replace('-', '_')}"
    # A stage of magcli comes first: another package cannot replace it.
    if importlib.util.find_spec(module) is None:
        points = plugins.points().select(name=name)
        if points:
            return plugins.load(next(iter(points)))
    return declared(name, importlib.import_module(module))


def register_plugins(app: typer.Typer, stages: Iterable[str], console: Console) -> None:
    """Add the stages of other packages.

    One that cannot be loaded, or has the name of another stage, is left out with a warning.
    """
    names = list(stages)
    for point in plugins.points():
        if point.name in names:
            console.warn(f"the stage {point.name} of {point.value} is left out: magcli has one of that name")
            continue
        try:
            stage = plugins.load(point)
        except UsageError as error:
            console.warn(str(error))
            continue
        names.append(point.name)
        summary = " ".join(stage.doc.split("\n\n")[0].split())
        _add(app, Entry(point.name, PLUGIN_PANEL, summary), stage, names)


def register(app: typer.Typer, entry: Entry, stages: Iterable[str]) -> None:
    """Add a stage of magcli to the application; ``stages`` are the names that a recipe may have as tables."""
    _add(app, entry, stage_of(entry.name), stages)


def outline(app: typer.Typer, entry: Entry) -> None:
    """Add a stage's line in the list of commands, without its options."""
    app.command(entry.name, short_help=entry.help, rich_help_panel=entry.panel)(lambda: None)


def _add(app: typer.Typer, entry: Entry, stage: Stage, stages: Iterable[str]) -> None:
    names = list(stages)

    def command(**arguments: Any) -> None:
        with signals_passed_on():
            run_command(stage, names, arguments)

    # Typer reads the flags of a command from its signature.
    signature = [*_table_parameters(stage), *_option_parameters(stage)]
    command.__signature__ = inspect.Signature(signature)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in signature}
    paragraphs = [" ".join(paragraph.split()) for paragraph in stage.doc.split("\n\n")]
    if stage.IN_RECIPE:
        keys = ", ".join(name.rstrip("_") for name in stage.IN_RECIPE)
        paragraphs.append(f"More keys of a recipe, which a page of the documentation explains: {keys}.")
    app.command(
        entry.name,
        short_help=entry.help,
        help="\n\n".join([*paragraphs, f"Example:  {stage.EXAMPLE}"]),
        rich_help_panel=entry.panel,
    )(command)


def _parameter(name: str, kind: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=kind, default=default)


def _table_parameters(stage: Stage) -> list[inspect.Parameter]:
    """The parameters of every command: its tables and how to run."""
    parameters = []

    def argument(name: str, kind: Any, text: str, metavar: str) -> None:
        info = typer.Argument(help=text, metavar=metavar, show_default=False)
        parameters.append(_parameter(name, Annotated[kind | None, info], None))

    def option(name: str, kind: Any, text: str, *flags: str, metavar: str | None = None) -> None:
        info = typer.Option(*flags, help=text, metavar=metavar, rich_help_panel=MAIN_PANEL)
        # A recipe cannot set these, so a switch needs no third value for "not given".
        parameters.append(_parameter(name, Annotated[kind, info], False if kind is bool else None))

    kinds = configuration.field_types(stage.Config)
    if stage.INPUTS:
        argument("inputs", list[str], stage.INPUTS, "TABLE")
    positional = stage.positional
    if positional:
        takes_several = get_origin(kinds[positional]) is tuple
        text = f"The same as {configuration.flag_name(positional)}."
        argument("positional", list[str] if takes_several else str, text, positional.upper())
    # A stage with another meaning of --limit declares it as an option of its own.
    if stage.INPUTS and not stage.NEEDS_ALL and "limit" not in kinds:
        option("limit", int | None, LIMIT, "--limit", "-n")
    if stage.shardable:
        text = "Process one part of the rows: 2/8 is the second eighth; magcli commit joins the outputs."
        option("shard", str | None, text, "--shard", metavar="I/N")
    if stage.OUTPUT:
        text = f"Where {stage.OUTPUT} go: {TARGETS}" + (" [-]" if stage.default_output else "")
        option("output", str | None, text, "--output", "-o", metavar="TABLE")
        option("format", Literal["arrow", "jsonl", "csv"] | None, FORMAT, "--format")
        option("dropped", str | None, "Table for dropped rows with their reasons.", "--dropped", metavar="TABLE")
        if stage.OUTPUT == ROWS:
            option("allow_empty", bool, ALLOW_EMPTY, "--allow-empty")
        option("restart", bool, RESTART_OWNED if stage.owns_dir else RESTART, "--restart")
        option("overwrite", bool, OVERWRITE, "--overwrite")
    option("recipe", Path | None, "A TOML recipe; flags override it.", "--recipe", "-r", metavar="FILE")
    option("dry_run", bool, "Print the resolved configuration as JSON, check the inputs, write nothing.", "--dry-run")
    if MODELS[0] in kinds:
        option("allow_missing", bool, ALLOW_MISSING, "--allow-missing")
    option("quiet", bool, "Print only errors to stderr.", "--quiet", "-q")
    option("json_events", bool, "Print events as JSON lines to stderr.", "--json")
    return parameters


def _option_parameters(stage: Stage) -> list[inspect.Parameter]:
    """The parameters of a stage's own options; those for recipes are not listed, and neither are former names."""
    kinds = configuration.field_types(stage.Config)
    parameters = []
    for panel, field in in_panels(stage.Config, stage.FIRST):
        kind = kinds[field.name]
        # An array of tables, which only a recipe can have.
        if not configuration.has_flag(kind):
            continue
        flags = [_flags(field.name, kind)]
        if field.metadata["short"]:
            flags.append(field.metadata["short"])
        option = typer.Option(
            *flags,
            help=field.metadata["help"] + _default_text(field.default),
            show_default=False,
            rich_help_panel=panel,
            hidden=field.name in stage.IN_RECIPE,
        )
        # Typer collects the values of a flag that is repeated; ``_resolved`` joins them.
        flag_type = list[str] | None if field.metadata["several"] else _flag_type(kind)
        parameters.append(_parameter(field.name, Annotated[flag_type, option], None))
    for name, present in configuration.former_names(stage.Config).items():
        kind = configuration.former_type(kinds[present])
        text = f"The former name of {configuration.flag_name(present)}."
        hidden = typer.Option(_flags(name, kind), help=text, hidden=True)
        parameters.append(_parameter(name, Annotated[_flag_type(kind), hidden], None))
    return parameters


def _flags(name: str, kind: Any) -> str:
    """The flag of an option, of a switch also the one that turns it off."""
    flag = configuration.flag_name(name)
    if kind is not bool:
        return flag
    return f"{flag}/--no-{flag.removeprefix('--')}"


def _default_text(default: Any) -> str:
    """A default in brackets, of which Rich would read an unescaped one as markup."""
    if default is True:
        return " \\[on]"
    # By identity: 0 equals False, and a default of 0 is shown.
    is_unset = default is None or default is False or default in ((), "")
    if is_unset:
        return ""
    text = ",".join(map(str, default)) if isinstance(default, tuple) else default
    return f" \\[{text}]"


def _flag_type(kind: Any) -> Any:
    """The type that Typer parses: optional, tuples as comma-separated text that may be given several times."""
    if get_origin(kind) in (Union, types.UnionType):
        kind = next(arg for arg in get_args(kind) if arg is not type(None))
    if get_origin(kind) is tuple:
        kind = list[str]
    return kind | None


def run_command(stage: Stage, stages: Iterable[str], arguments: dict[str, Any]) -> None:
    """Resolve the configuration, then run the stage on its tables."""
    recipe_path = arguments.pop("recipe")
    dry_run = arguments.pop("dry_run")
    allow_missing = arguments.pop("allow_missing", False)
    console = Console(quiet=arguments.pop("quiet"), as_json=arguments.pop("json_events"))
    # What stays in ``arguments`` are the options of the stage.
    tables = {key: arguments.pop(key, None) for key in TABLE_OPTIONS}
    if "limit" not in configuration.field_types(stage.Config):
        tables["limit"] = arguments.pop("limit", None)
    if stage.positional:
        _move_positional(stage.name, stage.positional, arguments)
    tables_of_recipe = _read_recipe(stage, recipe_path, stages) if recipe_path else {}
    own_table = _own_table(stage, tables_of_recipe)
    for key, reason in configuration.removed_in(own_table, stage.Config).items():
        console.warn(f"{stage.name}: {key} in {recipe_path} is no option any more, and ignored: {reason}")
    recipe = configuration.renamed(own_table, stage.Config)
    config = _resolved(stage, recipe, arguments)
    config = _with_kept_pipes(stage, config)
    config = _with_device(config)
    stage.check(config)
    # Heavy modules are imported only once the options are accepted.
    stage = stage.with_work()
    from magcli import execution

    limit = tables.get("limit")
    if limit is not None and limit < 1:
        raise UsageError(f"{stage.name}: --limit {limit} is not positive")
    if tables["shard"] is not None:
        execution.check_shard(stage, config, tables["shard"])
    # What is only shown goes into no table, and needs no --dry-run.
    if configuration.is_set(config, "preview_only"):
        tables |= {"output": None, "dropped": None}
    elif dry_run:
        if stage.INPUTS and not allow_missing:
            execution.require_models(config, MODELS, _models_of_recipe(tables_of_recipe))
        execution.try_command(stage, config, tables, console)
        resolved = {"stage": stage.name, "config": configuration.as_json(config), **tables}
        put(json.dumps(resolved, indent=2) + "\n")
        return
    execution.execute(stage, config, tables, console)


def _move_positional(stage: str, option: str, arguments: dict[str, Any]) -> None:
    """Make the positional argument, if it is given, the value of the option that it stands for."""
    value = arguments.pop("positional", None)
    if not value:
        return
    if arguments.get(option):
        raise UsageError(f"{stage}: {option} is given twice, as an argument and as an option")
    arguments[option] = tuple(value) if isinstance(value, list) else value


def _resolved(stage: Stage, recipe: Mapping[str, Any], arguments: Mapping[str, Any]) -> Any:
    """The configuration: the flags that were given, else the recipe, else the stage's defaults."""
    flags = {}
    for key, value in arguments.items():
        # Typer's values of a flag that is not given.
        if value is None or value == []:
            continue
        flags[key] = ",".join(value) if isinstance(value, list) else value
    config: Any = configuration.resolve(stage.Config, stage.name, recipe, flags)
    for _ in range(2):  # defaults may depend on options, such as the folder of a run, and those on its options
        defaults = stage.defaults(config)
        if defaults:
            config = configuration.resolve(stage.Config, stage.name, {**defaults, **recipe}, flags)
    return config


def _with_device(config: Any) -> Any:
    """The options with a device in place of ``auto``; a model behind a URL needs none."""
    if getattr(config, "device", None) != AUTO:
        return config
    has_url = configuration.is_url(str(getattr(config, "model", "")))
    return dataclasses.replace(config, device="cpu" if has_url else default_device())


def _with_kept_pipes(stage: Stage, config: Any) -> Any:
    """The options with a copy in place of each named pipe that the stage reads, because it may read it twice."""
    # A pipe that the stage writes must not be read here: it has no writer yet.
    written = {*stage.more_tables(config), *map(str, stage.side_outputs(config))}
    changes: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        parts = value if isinstance(value, tuple) else (value,)
        if not any(_is_pipe(part) and str(part) not in written for part in parts):
            continue
        kept = tuple(part if str(part) in written else _kept_pipe(part) for part in parts)
        changes[field.name] = kept if isinstance(value, tuple) else kept[0]
    return dataclasses.replace(config, **changes) if changes else config


def _is_pipe(part: Any) -> bool:
    if not isinstance(part, str | Path):
        return False
    try:
        # Raises where a text can be no path: it is too long, or has a null character.
        return Path(part).is_fifo()
    except (OSError, ValueError):
        return False


def _kept_pipe(part: Any) -> Any:
    """An option's value with the copy of the named pipe that it is."""
    from magcli.data import pipe

    if not _is_pipe(part):
        return part
    copy = pipe.keep(Path(part))
    return str(copy) if isinstance(part, str) else copy


def _models_of_recipe(recipe: Mapping[str, Mapping[str, Any]]) -> list[Path]:
    """The models that the stages of a recipe make."""
    models = []
    for name in ("sft", "rl"):
        if name in recipe:
            config: Any = stage_of(name).Config
            models.append(Path(recipe[name].get("run", config.run)) / "model")
    return models


def _read_recipe(stage: Stage, path: Path, stages: Iterable[str]) -> dict[str, dict[str, Any]]:
    """The tables of a recipe.

    Raises:
        UsageError: it cannot be read, or the table of another stage has a key that this stage does not know.
    """
    recipe = configuration.read_recipe(path, [*stages, *plugins.points().names])
    for name, table in recipe.items():
        # Of another stage of magcli, which this command does not run, misspelt keys are refused too.
        if name != stage.name and name not in plugins.points().names:
            configuration.check_keys(stage_of(name).Config, name, table)
    return recipe


def _own_table(stage: Stage, recipe: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    """A stage's table of a recipe; of another stage's table, only the options that this stage has."""
    if not stage.RECIPE_TABLE:
        return recipe.get(stage.name, {})
    table = recipe.get(stage.RECIPE_TABLE, {})
    names = {*configuration.field_types(stage.Config), *configuration.former_names(stage.Config)}
    return {key: value for key, value in table.items() if key.replace("-", "_") in names}
