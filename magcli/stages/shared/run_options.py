"""Options of a stage that looks at an RL run: the run's own, unless the command gives others."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from magcli.data import checksum
from magcli.errors import DataError
from magcli.rl.training_stages import StageOptions, starts
from magcli.run.rundir import RunDir
from magcli.run.settings import differences

SAMPLED_WITH = ("max_tokens", "temperature", "system", "chat_template", "template_args", "thoughts", "stop")
GRADED_WITH = ("penalty_end", "penalty_width", "language", "reward", "num_tests", "partial")
"""Options of ``magcli rl`` on which the rewards and lengths of its completions depend."""
CONTENTS = {
    "system": ("system_sha256",),
    "chat_template": ("chat_template_sha256",),
    "reward": ("reward_sha256", "reward_imports"),
}
"""Options that name something whose digests a run records, that of the file itself first."""


def options_of_run(path: Path) -> dict[str, Any]:
    """The options with which an RL run samples and grades at its end, as its folder records them.

    They are those of its current stage if it has several. Empty for a folder without a record.
    """
    recorded = record(path)
    options = {name: recorded[name] for name in (*SAMPLED_WITH, *GRADED_WITH) if name in recorded}
    stage = _current_stage(recorded.get("stage") or [], RunDir(path))
    return options | {name: value for name, value in stage.items() if name in options}


def differences_from_run(path: Path, config: Mapping[str, Any], digests: Mapping[str, Any]) -> str:
    """How options (as JSON values) differ from those of a run, for a message; empty if they do not.

    ``digests`` are those of the files and functions that the options name, which may have changed since the run.
    """
    recorded = record(path)
    options = options_of_run(path)
    now = {name: config[name] for name in options}
    changed = [differences(options, now)] if options != now else []
    for name, keys in CONTENTS.items():
        if options.get(name) != now.get(name):
            continue  # said already
        of_file = keys[0]
        are_known = of_file in recorded and of_file in digests
        if are_known and any(recorded.get(key) != digests.get(key) for key in keys):
            changed.append(f"the content of {name}")
    return ", ".join(changed)


def record(path: Path) -> dict[str, Any]:
    """What an RL run recorded at its start; empty if there is no such run."""
    try:
        recorded = checksum.read_object(path / "run.json")
    except OSError:
        return {}
    except ValueError as error:
        raise DataError(f"{path / 'run.json'} is damaged ({error}); copy the folder again") from None
    return recorded if recorded.get("command") == "rl" else {}


def _current_stage(stages: list[dict[str, Any]], folder: RunDir) -> dict[str, Any]:
    """The options of the stage of a run's last update."""
    if not stages:
        return {}
    # Without the line of step 0, which has an evaluation only.
    updates = [line for line in folder.metrics() if line["step"]]
    # A stage may begin with the last update: what counts is what came before it.
    updates_before_last = updates[:-1]
    number = len(starts([StageOptions(**stage) for stage in stages], updates_before_last)) - 1
    return stages[number]
