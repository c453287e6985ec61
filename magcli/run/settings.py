"""The settings that determine a stage's rows, as histories, journals and the folders of runs record them."""

from collections.abc import Mapping
from typing import Any

CHOSEN = "chosen"
"""The key of a history's settings that holds what options left to ``auto`` resolved to."""


def differences(recorded: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """How two settings differ, for messages: ``max_tokens 8 (now 16), seed 0 (now 1)``; empty if they are equal."""
    differ = sorted(key for key in {**recorded, **now} if recorded.get(key) != now.get(key))
    return ", ".join(f"{key} {recorded.get(key)!r} (now {now.get(key)!r})" for key in differ)


def fingerprint(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that determine the rows: without ``CHOSEN``, and without the location of a model that has a digest.

    A server's URL is reduced to the name of the model after ``#``; one without a name stays.
    """
    settings = {key: value for key, value in settings.items() if key != CHOSEN}
    model = str(settings.get("model", ""))
    name = model.partition("#")[2]
    if "model_sha256" in settings:
        return {key: value for key, value in settings.items() if key != "model"}
    if name and model.startswith(("http://", "https://")):
        return {**settings, "model": f"#{name}"}
    return settings
