"""What tells two commands apart by their rows: where a model lies does not, where its bits or its name are known, nor
does what ``auto`` came to on the machine.
"""

from collections.abc import Mapping
from typing import Any

CHOSEN = "chosen"
"""The key of a history's settings under which it says what ``auto`` came to."""


def decisive(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings without ``CHOSEN`` and without the place of the model.

    Of a folder with a digest nothing is left, of a server's URL the name of the model, which follows ``#``. A server
    that is asked for the model it has keeps its place.
    """
    settings = {key: value for key, value in settings.items() if key != CHOSEN}
    model = str(settings.get("model", ""))
    name = model.partition("#")[2]
    if "model_sha256" in settings:
        return {key: value for key, value in settings.items() if key != "model"}
    if name and model.startswith(("http://", "https://")):
        return {**settings, "model": f"#{name}"}
    return settings
