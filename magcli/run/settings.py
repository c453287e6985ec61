"""The settings that determine a stage's rows, as histories, journals and the folders of runs record them.

Content counts, not where it is: an option that names a model, a file or a function has its digest beside it, as
``OPTION_sha256``. Two settings with equal digests are equal, wherever the files are.
"""

from collections.abc import Mapping
from typing import Any

CHOSEN = "chosen"
"""The key of a history's settings that holds what options left to ``auto`` resolved to."""

PLAN = "plan"
"""The name under which a run's folder has its plan in words, among what was chosen."""

DIGEST = "_sha256"
"""The end of the keys of digests."""

FUNCTIONS = ("reward", "advantage", "loss")
"""Options that name a function of a file or a module."""

BY_DIGEST = "by its digest"
"""What stands for a location that has a digest."""


def unequal(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """The keys whose values differ, or that only one of two settings has."""
    return [key for key in {**one, **other} if one.get(key) != other.get(key)]


def differences(recorded: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """How two settings differ, for messages: ``max_tokens 8 (now 16), seed 0 (now 1)``; empty if they are equal.

    Of digests by file only those that differ are named.
    """
    one, other = _by_file(recorded), _by_file(now)
    differ = sorted(unequal(one, other))
    return ", ".join(f"{key} {one.get(key)!r} (now {other.get(key)!r})" for key in differ)


def changes(recorded: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """How settings that determine the rows differ, for messages: a digest that differs with the name of its file.

    Empty if they are equal but for the locations of files with equal digests.
    """
    differ = set(unequal(fingerprint(recorded), fingerprint(now)))
    # With a digest, the option that names the file: its location is not in the fingerprint.
    differ |= {key.removesuffix(DIGEST) for key in differ if key.endswith(DIGEST)}
    recorded = {key: value for key, value in recorded.items() if key in differ}
    now = {key: value for key, value in now.items() if key in differ}
    return differences(recorded, now)


def with_reason(changed: str) -> str:
    """A difference of settings, with why the digest of an unchanged model may differ from that of an older version."""
    if f"model{DIGEST} " not in changed:
        return changed
    return f"{changed}; the digest covers tokenizer, chat template and generation config, which older versions left out"


def fingerprint(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that determine the rows: without ``CHOSEN``, and without the locations of what has a digest.

    A server's URL is reduced to the name of the model after ``#``; one without a name stays.
    """
    settings = {key: value for key, value in settings.items() if key != CHOSEN}
    located = {key: _without_location(key, value, settings) for key, value in settings.items()}
    model = str(located.get("model", ""))
    _, _, name = model.partition("#")
    # The same model may be served at another address when the command is repeated.
    is_url = model.startswith(("http://", "https://"))
    if is_url and name:
        located["model"] = f"#{name}"
    return located


def _without_location(key: str, value: Any, settings: Mapping[str, Any]) -> Any:
    """The value of an option without the location of a file whose digest is among the settings."""
    if key == "stage" and isinstance(value, list):
        return [_stage_without_location(number, stage, settings) for number, stage in enumerate(value, 1)]
    # ``from_`` is the option --from, whose digest is named by the option.
    if not value or not _has_digest(key.rstrip("_"), settings):
        return value
    if key in FUNCTIONS:
        # Several functions may be named, with weights: a.py:right=0.7,b.py:style=0.3
        return ",".join(part.rpartition(":")[2] for part in str(value).split(","))
    return BY_DIGEST


def _stage_without_location(number: int, stage: Any, settings: Mapping[str, Any]) -> Any:
    """The options of a stage of training, whose table has a digest too."""
    has_digest = f"stage_{number}_data{DIGEST}" in settings
    return {**stage, "data": BY_DIGEST} if has_digest and stage.get("data") else stage


def _has_digest(option: str, settings: Mapping[str, Any]) -> bool:
    """Whether the settings have a digest of what an option names, or one of each of several tables."""
    if f"{option}{DIGEST}" in settings:
        return True
    return any(key.startswith(f"{option} ") and key.endswith(DIGEST) for key in settings)


def _by_file(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with an entry for each part of those that are mappings, such as digests by file."""
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping):
            flat |= {f"{key} {part}": content for part, content in value.items()}
        else:
            flat[key] = value
    return flat
