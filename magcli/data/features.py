"""Features of `datasets` that an Arrow type does not contain, such as ``Image`` and the names of a ``ClassLabel``.

`datasets` stores the features of all columns in one entry of the schema's metadata. Within magcli each column carries
its own, so that it follows the column when it is renamed or moved.
"""

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

FEATURE_KEY = b"magcli.feature"
"""Marks a column with its feature, as JSON."""
SCHEMA_KEY = b"huggingface"
PLAIN = {"Value", "List", "LargeList", "Sequence", "Json"}
"""Features that `datasets` infers from the Arrow type."""


def features_of(schema: pa.Schema) -> dict[str, Any]:
    """The features that `datasets` stored in a schema, by column; empty if there are none."""
    try:
        features = json.loads((schema.metadata or {})[SCHEMA_KEY])["info"]["features"]
    except (KeyError, ValueError, TypeError, RecursionError):
        return {}
    return features if isinstance(features, dict) else {}


def feature_marks(feature: Any) -> dict[bytes, bytes]:
    """The mark of a column with this feature; empty if its Arrow type says as much."""
    return {FEATURE_KEY: json.dumps(feature).encode()} if _has_more(feature) else {}


def _has_more(feature: Any) -> bool:
    """Whether a feature, or one within it, is none of the plain ones."""
    if isinstance(feature, list):
        return any(map(_has_more, feature))
    if not isinstance(feature, dict):
        return False
    kind = feature.get("_type")
    # A kind that is no text is the feature of a column with the name ``_type``.
    if isinstance(kind, str) and kind not in PLAIN:
        return True
    return any(_has_more(part) for part in feature.values())


def with_features(schema: pa.Schema) -> pa.Schema:
    """The schema as `datasets` writes it, with the features that its columns carry."""
    features = {field.name: json.loads(field.metadata[FEATURE_KEY]) for field in schema if _is_marked(field)}
    if not features:
        return schema
    fields = [field.with_metadata(_unmarked(field.metadata)) if _is_marked(field) else field for field in schema]
    entry = json.dumps({"info": {"features": features}}).encode()
    return pa.schema(fields, {**(schema.metadata or {}), SCHEMA_KEY: entry})


def _is_marked(field: pa.Field) -> bool:
    return FEATURE_KEY in (field.metadata or {})


def _unmarked(metadata: Mapping[bytes, bytes]) -> dict[bytes, bytes] | None:
    return {key: value for key, value in metadata.items() if key != FEATURE_KEY} or None
