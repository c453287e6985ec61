"""Stage options: declared once in a frozen dataclass; flags override the recipe, which overrides defaults.

An option may be an array of tables, such as ``[[rl.stage]]``: its type is a tuple of another frozen dataclass, and it
is set only in the recipe, without a flag.
"""

import dataclasses
import difflib
import keyword
import math
import os
import tomllib
import types
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin

from magcli import trl_names
from magcli.errors import UsageError

T = TypeVar("T")


class Bounds(NamedTuple):
    """The numbers that an option may be; None is no bound."""

    gt: float | None = None
    ge: float | None = None
    lt: float | None = None
    le: float | None = None

    def violation(self, value: float) -> str:
        """What is wrong with a number, such as "is negative"; empty if it is within the bounds."""
        above = (self.gt is None or value > self.gt) and (self.ge is None or value >= self.ge)
        below = (self.lt is None or value < self.lt) and (self.le is None or value <= self.le)
        return "" if above and below else self._broken()

    def _broken(self) -> str:
        low = self.ge if self.gt is None else self.gt
        high = self.le if self.lt is None else self.lt
        if high is not None:  # an option with an upper bound has a lower one too
            opening = "[" if self.gt is None else "("
            closing = "]" if self.lt is None else ")"
            return f"is not in {opening}{low:g}, {high:g}{closing}"
        if low == 0:
            return "is negative" if self.gt is None else "is not positive"
        return f"is less than {low:g}"


def opt(
    default: Any,
    help: str,
    *,
    panel: str = "Options",
    short: str = "",
    positional: bool = False,
    affects_rows: bool = True,
    preview_only: bool = False,
    owned_dir: bool = False,
    always_run: bool = False,
    output_table: bool = False,
    several: bool = False,
    former: str = "",
    gt: float | None = None,
    ge: float | None = None,
    lt: float | None = None,
    le: float | None = None,
) -> Any:
    """Declare one option of a stage.

    Args:
        default: its default.
        help: its description in ``--help``.
        panel: its heading there.
        short: a short flag like ``-n``.
        positional: it may be given without its name, before tables.
        affects_rows: False if the rows do not depend on it; histories do not record it.
        preview_only: it only makes sense with ``--dry-run``, which then reads the input and shows something.
        owned_dir: it is the folder that the stage owns: no other path of the command may be inside, and ``--restart``
            deletes it.
        always_run: if set, an existing output is never up to date.
        output_table: it is another table that the stage writes, with the same checks as the output.
        several: a text that may be given several times, which is then the values with commas between them.
        former: its former name, which still works but is not listed by ``--help``. A choice of yes and no was a switch.
        gt: its values are greater than this number, those of a list each.
        ge: its values are greater or equal.
        lt: its values are less than this number.
        le: its values are less or equal.
    """
    metadata = {
        "help": help,
        "panel": panel,
        "short": short,
        "former": former,
        "bounds": Bounds(gt, ge, lt, le),
        # Roles, as in ``with_role``.
        "positional": positional,
        "affects_rows": affects_rows,
        "preview_only": preview_only,
        "owned_dir": owned_dir,
        "always_run": always_run,
        "output_table": output_table,
        "several": several,
    }
    return dataclasses.field(default=default, metadata=metadata)


NO_BOUNDS = Bounds()


def options_of(config_class: Any) -> list[dataclasses.Field[Any]]:
    """The options of a stage: those that it declares, then those that it inherits."""
    inherited: set[str] = set()
    for base in config_class.__bases__:
        if dataclasses.is_dataclass(base):
            inherited |= {field.name for field in dataclasses.fields(base)}
    # Sorting is stable: both parts keep their order.
    return sorted(dataclasses.fields(config_class), key=lambda field: field.name in inherited)


def with_role(config_class: Any, role: str) -> list[str]:
    """The names of the options that were declared with a role of ``opt``, such as ``positional``."""
    return [field.name for field in dataclasses.fields(config_class) if field.metadata[role]]


def is_set(config: Any, role: str) -> bool:
    """Whether an option with a role has another value than its default."""
    return any(getattr(config, name) != getattr(type(config), name) for name in with_role(config, role))


def field_types(config_class: type) -> dict[str, Any]:
    """The options of a stage with their types, in the order they were declared."""
    hints = typing.get_type_hints(config_class)
    return {field.name: hints[field.name] for field in dataclasses.fields(config_class)}


def former_names(config_class: Any) -> dict[str, str]:
    """The options that have a former name, by that name."""
    fields = dataclasses.fields(config_class)
    return {field.metadata["former"]: field.name for field in fields if field.metadata.get("former")}


def former_type(kind: Any) -> Any:
    """The type that an option had under its former name: a choice of yes and no was a switch, others are unchanged."""
    return bool if {"yes", "no"} <= set(get_args(kind)) else kind


def removed_in(table: Mapping[str, Any], config_class: Any) -> dict[str, str]:
    """The keys of a recipe's table that were options of this stage, which ignores them, and why they are none now."""
    reasons: Mapping[str, str] = getattr(config_class, "REMOVED", {})
    return {key: reasons[_field_name(key)] for key in table if _field_name(key) in reasons}


def renamed(options: Mapping[str, Any], config_class: Any) -> dict[str, Any]:
    """Options by their present names, without removed ones; of one given under both names, the present one counts.

    A switch that is now a choice becomes yes or no.
    """
    former = former_names(config_class)
    kinds = field_types(config_class)
    gone = {*former, *getattr(config_class, "REMOVED", {})}
    present = {key: value for key, value in options.items() if _field_name(key) not in gone}
    present_names = {_field_name(key) for key in present}
    for key, value in options.items():
        name = former.get(_field_name(key))
        if name is None or name in present_names:
            continue
        if former_type(kinds[name]) is bool and isinstance(value, bool):
            value = "yes" if value else "no"
        present[name] = value
    return present


def resolve(config_class: type[T], stage: str, recipe: Mapping[str, Any], flags: Mapping[str, Any]) -> T:
    """Build a stage's configuration: defaults, overridden by the recipe's table, overridden by flags.

    Raises:
        UsageError: an unknown key (with a suggestion), a value of the wrong type, or a number out of bounds.
    """
    kinds = field_types(config_class)
    recipe = renamed(recipe, config_class)
    values = _by_field_name(recipe, kinds, f"recipe table [{stage}]")
    # Flags are made from the fields, so none of them is unknown.
    values |= renamed(flags, config_class)
    converted = {name: convert(kinds[name], value, f"{stage}.{name}") for name, value in values.items()}
    config = config_class(**converted)
    check_bounds(stage, config)
    return config


def check_bounds(prefix: str, config: Any) -> None:
    """Check that every number is within the bounds of its option; messages begin with ``prefix``.

    Raises:
        UsageError: one is not.
    """
    for field in dataclasses.fields(config):
        bounds: Bounds = field.metadata.get("bounds", NO_BOUNDS)  # a table of a recipe may be a plain dataclass
        for number in _parts(getattr(config, field.name)):
            problem = "" if number is None else bounds.violation(number)
            if problem:
                raise UsageError(f"{prefix}.{field.name.rstrip('_')}: {number} {problem}")


def paths(config: Any) -> list[Path]:
    """Every path among the options of a stage and its nested tables, including strings that name an existing path."""
    own: list[Path] = []
    nested: list[Path] = []
    for field in dataclasses.fields(config):
        for part in _parts(getattr(config, field.name)):
            # Such as --model, which may be a folder, a hub id or a URL.
            is_existing = isinstance(part, str) and os.path.exists(part)
            if isinstance(part, Path) or is_existing:
                own.append(Path(part))
            elif dataclasses.is_dataclass(part):
                nested += paths(part)
    return own + nested


def _parts(value: Any) -> tuple[Any, ...]:
    """The values of an option: those of a list, or the only one."""
    return value if isinstance(value, tuple) else (value,)


def is_url(model: str) -> bool:
    """Whether an option names a server by its URL, not a folder or a hub id."""
    return model.startswith(("http://", "https://"))


def has_flag(kind: Any) -> bool:
    """Whether an option of this type can be given as a flag; an array of tables cannot."""
    is_list = get_origin(kind) is tuple
    return not (is_list and dataclasses.is_dataclass(get_args(kind)[0]))


def _by_field_name(table: Mapping[str, Any], kinds: Mapping[str, Any], location: str) -> dict[str, Any]:
    """A recipe's table, keyed by the names of the options."""
    values = {}
    for key, value in table.items():
        name = _field_name(key)
        if name not in kinds:
            meant = trl_names.answer(name, kinds, str) or did_you_mean(key, kinds)
            raise UsageError(f"{location}: unknown key '{key}'{meant}")
        values[name] = value
    return values


def _field_name(key: str) -> str:
    """The field of an option; a Python keyword such as ``from`` gets a trailing underscore."""
    name = key.replace("-", "_")
    return name + "_" if keyword.iskeyword(name) else name


def flag_name(field: str) -> str:
    """The flag of a field: ``max_tokens`` is ``--max-tokens``, ``from_`` is ``--from``."""
    return "--" + field.rstrip("_").replace("_", "-")


def check_keys(config_class: Any, stage: str, table: Mapping[str, Any]) -> None:
    """Refuse a key of a stage's table in a recipe that is none of its options; the values are not looked at.

    Raises:
        UsageError: which key, with a suggestion.
    """
    kinds = field_types(config_class)
    options = _by_field_name(renamed(table, config_class), kinds, f"recipe table [{stage}]")
    for name, value in options.items():
        kind = kinds[name]
        if has_flag(kind) or not isinstance(value, list):
            continue
        table_kinds = field_types(get_args(kind)[0])
        for number, part in enumerate(value, 1):
            _by_field_name(part, table_kinds, f"{stage}.{name} {number}")


def read_recipe(path: Path, stages: Iterable[str], *, kind: str = "recipe") -> dict[str, dict[str, Any]]:
    """The tables of a TOML recipe by stage; each must belong to a known one. Errors call the file ``kind``.

    Raises:
        UsageError: the file is missing, cannot be read, is not TOML, or has a table that no stage reads.
    """
    try:
        recipe = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"{kind} {path} does not exist") from None
    except OSError as error:
        raise UsageError(f"{kind} {path} cannot be read: {error.strerror}") from None
    # The parser recurses into nested arrays.
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{kind} {path} is not valid TOML: {error}") from None
    tables = list(stages)
    for key, value in recipe.items():
        if key not in tables or not isinstance(value, dict):
            raise UsageError(f"{kind} {path}: unknown table [{key}]{did_you_mean(key, tables)}")
    return recipe


def did_you_mean(name: str, choices: Iterable[str]) -> str:
    """A suggestion to append to an error: the most similar of the valid names, or all of them."""
    names = list(choices)
    spellings = [choice.replace("-", "_") for choice in names]  # a hyphen in place of an underscore is no difference
    closest = difflib.get_close_matches(name.replace("-", "_"), spellings, n=1)
    if closest:
        meant = names[spellings.index(closest[0])]
        return f"; did you mean '{meant}'?"
    return f"; known: {', '.join(sorted(names))}"


def convert(kind: Any, value: Any, name: str) -> Any:
    """Check a value from a recipe or a flag against a field's type and convert it.

    Raises:
        UsageError: the value cannot be of that type.
    """
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):  # ``T | None``
        if value is None:
            return None
        inner = next(arg for arg in args if arg is not type(None))
        return convert(inner, value, name)
    if origin is Literal:
        if value not in args:
            choices = ", ".join(map(str, args))
            raise UsageError(f"{name}: '{value}' is not one of {choices}{_as_text(value)}")
        return value
    if not has_flag(kind):
        # An array of tables is a tuple too, so it comes before the other lists.
        return _tables(args[0], value, name)
    if origin is tuple:
        parts = value
        if isinstance(value, str):
            # As a flag has a list, and a recipe may.
            parts = [part.strip() for part in value.split(",") if part.strip()]
        if not isinstance(parts, list | tuple):
            raise UsageError(f"{name}: expected a list, got {value!r}")
        return tuple(convert(args[0], part, name) for part in parts)
    return _scalar(kind, value, name)


def _as_text(value: Any) -> str:
    """A hint for a TOML boolean given where a choice such as "yes" is expected."""
    if not isinstance(value, bool):
        return ""
    text = "yes" if value else "no"
    return f'; write "{text}", in quotes'


def _tables(kind: Any, value: Any, name: str) -> tuple[Any, ...]:
    """An array of tables; messages number them from 1."""
    is_list = isinstance(value, list | tuple)
    if not is_list or not all(isinstance(table, Mapping) for table in value):
        raise UsageError(f"{name}: expected tables, each under a line [[{name}]], got {value!r}")
    kinds = field_types(kind)
    tables = []
    for number, table in enumerate(value, 1):
        location = f"{name} {number}"
        options = {}
        for key, part in _by_field_name(table, kinds, location).items():
            options[key] = convert(kinds[key], part, f"{location}.{key}")
        tables.append(kind(**options))
    return tuple(tables)


def _scalar(kind: type, value: Any, name: str) -> Any:
    is_bool = isinstance(value, bool)  # in Python a bool is an int too
    # TOML has 1 where 1.0 is meant.
    if kind is float and isinstance(value, int) and not is_bool:
        return float(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise UsageError(f"{name}: {value} is not a finite number")
    if isinstance(value, kind) and not (kind is int and is_bool):
        return value
    if kind is not bool and isinstance(value, str):  # a flag is a text
        try:
            # Once more, because float() also reads "nan" and "inf".
            return _scalar(kind, kind(value), name)
        except ValueError:
            pass
    raise UsageError(f"{name}: expected {kind.__name__}, got {value!r}")


def as_json(config: Any) -> dict[str, Any]:
    """A configuration as plain JSON values, in declaration order; used by manifests and ``--dry-run``."""
    return {field.name: _plain(getattr(config, field.name)) for field in dataclasses.fields(config)}


def row_options(config: Any) -> dict[str, Any]:
    """The options that affect the rows, as plain JSON values."""
    names = with_role(config, "affects_rows")
    return {key: value for key, value in as_json(config).items() if key in names}


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    if dataclasses.is_dataclass(value):
        # Of a nested table only what it sets: an option that a later version adds changes no settings.
        return {key: part for key, part in as_json(value).items() if part is not None}
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    return value
