"""What tells two commands apart by their rows: where a model lies does not, where its bits or its name are known."""

from collections.abc import Mapping
from typing import Any


def decisive(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings without the place of the model: of a folder with a digest nothing is left, of a server's URL the name
    of the model, which follows ``#``.
    """
    model = str(settings.get("model", ""))
    if "model_sha256" in settings:
        return {key: value for key, value in settings.items() if key != "model"}
    if model.startswith(("http://", "https://")):
        return {**settings, "model": "#" + model.partition("#")[2]}
    return dict(settings)
