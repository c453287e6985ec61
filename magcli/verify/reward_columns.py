"""Rewards as columns of a table. A module of its own, because the workers that grade do without pyarrow."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from magcli.data.json_columns import encoded
from magcli.data.schema import CUSTOM_REWARD, REWARD, REWARD_PARTS
from magcli.verify.reward import Reward

_FIELD_OF = {
    "reward": "total",
    "reward_format": "format",
    "reward_correct": "correctness",
    "reward_length": "length",
    "reward_language": "language",
}
"""The field of a reward in a column of another name."""


def columns(rewards: Sequence[Reward], *, custom: bool = False) -> pa.RecordBatch:
    """The rewards as the columns of ``magcli.data.schema.REWARD``, in order; those of a custom reward as
    ``CUSTOM_REWARD``.
    """
    arrays = []
    for column in REWARD:
        field = _FIELD_OF.get(column.name, column.name)
        values = [getattr(reward, field) for reward in rewards]
        arrays.append(pa.array(values, column.type))
    if not custom:
        return pa.RecordBatch.from_arrays(arrays, schema=REWARD)
    # A reward without parts has null, not an empty object.
    parts = encoded(dict(reward.parts) or None for reward in rewards)
    # The only column that it has besides those of any reward.
    assert CUSTOM_REWARD.names[-1] == REWARD_PARTS
    return pa.RecordBatch.from_arrays([*arrays, parts], schema=CUSTOM_REWARD)


def from_row(row: Mapping[str, Any]) -> Reward:
    """The reward in a row's columns; the inverse of ``columns``."""
    values = {_FIELD_OF.get(name, name): row[name] for name in REWARD.names}
    parts = row.get(REWARD_PARTS)
    if isinstance(parts, str):
        parts = json.loads(parts)
    return Reward(**values, parts=parts or {})
