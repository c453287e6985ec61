"""Stages of other packages, which declare them as entry points of the group ``magcli.stages``."""

from importlib.metadata import EntryPoint, EntryPoints, entry_points

from magcli.errors import UsageError, first_line
from magcli.run.stage import Stage, declared

GROUP = "magcli.stages"


def points() -> EntryPoints:
    """The declared stages, not yet imported."""
    return entry_points(group=GROUP)


def load(point: EntryPoint) -> Stage:
    """Import a stage.

    Raises:
        UsageError: its module cannot be imported, or lacks a name that every stage has.
    """
    try:
        return declared(point.name, point.load())
    except Exception as error:  # whatever the code of another package raises
        raise UsageError(f"the stage {point.name} of {point.value} cannot be loaded: {first_line(error)}") from None
