"""What determines the weights of `magcli rl` besides its options."""

from __future__ import annotations

from typing import Any

from magcli.stages.rl.config import Config, own_loss
from magcli.stages.shared import engines, graders, tables, templates


def settings(config: Config) -> dict[str, Any]:
    """What else determines the weights: digests of the model, the system prompt and the user's own functions."""
    identity = engines.model_identity(templates.open_model(config.model, config), config.system)
    identity |= graders.grader_identity(config, config.reward, config.environment)
    identity |= tables.table_identity("eval_table", config.eval_table)
    identity |= graders.function_identity(advantage=config.advantage, loss=own_loss(config))
    identity |= engines.teacher_identity(config.teacher)
    for number, stage in enumerate(config.stage, 1):
        identity |= tables.table_identity(f"stage_{number}_data", stage.data)
    return identity
