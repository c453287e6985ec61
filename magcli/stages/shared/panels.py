"""The order of a stage's options in ``--help`` and on its page."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from magcli.config import options_of
from magcli.stages.shared.options import PANELS

FIRST = "Options"
"""The panel of the options that matter first, and of those of a stage without groups."""


def in_panels(config_class: Any, first: Sequence[str] = ()) -> list[tuple[str, dataclasses.Field[Any]]]:
    """A stage's options in the order of ``--help``, each with its panel.

    Those that matter ``first`` come first, in one panel. The others follow by panel; in each --model, then declared,
    then inherited ones.
    """
    # 0 is left for the panels of a single stage.
    ranks = {panel: rank for rank, panel in enumerate(PANELS, 1)}
    options = sorted(
        options_of(config_class), key=lambda field: (ranks.get(field.metadata["panel"], 0), field.name != "model")
    )
    by_name = {field.name: field for field in options}
    others = [(field.metadata["panel"], field) for field in options if field.name not in first]
    return [*((FIRST, by_name[name]) for name in first), *others]
