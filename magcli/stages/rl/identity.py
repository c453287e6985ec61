"""What determines the weights of `magcli rl` besides its options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from magcli.rl.stored import StoredRollouts
from magcli.stages.rl.config import Config, own_loss, without_grading
from magcli.stages.shared import engines, graders, tables, templates


def settings(config: Config) -> dict[str, Any]:
    """What else determines the weights: digests of the model, the system prompt and the user's own functions.

    Of a replay those of the stored rollouts, whose prompts and rewards are there already.
    """
    if config.replay is not None:
        return _settings_of_replay(config, config.replay)
    identity = engines.model_identity(templates.open_model(config), config.system)
    identity |= graders.grader_identity(config, config.reward, config.environment)
    identity |= tables.table_identity("eval_table", config.eval_table)
    identity |= graders.function_identity(advantage=config.advantage, loss=own_loss(config))
    identity |= engines.teacher_identity(config.teacher)
    for number, stage in enumerate(config.stage, 1):
        # By the position of the stage: its table may be moved.
        identity |= tables.table_identity(f"stage_{number}_data", stage.data)
    return identity


def _settings_of_replay(config: Config, replayed: Path) -> dict[str, Any]:
    model = templates.open_model(without_grading(config))
    # The prompts are stored with their system prompt in them.
    identity = engines.model_identity(model, templates.NO_SYSTEM)
    identity |= graders.function_identity(advantage=config.advantage, loss=own_loss(config))
    identity |= engines.teacher_identity(config.teacher)
    return identity | {"replay_sha256": StoredRollouts(replayed).sha256}
