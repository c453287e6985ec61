"""What the HTML pages of magcli may do when a browser shows them, and how data gets into them."""

import json
from collections.abc import Mapping
from typing import Any

CONTENT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
"""The content security policy of every page: its own styles and scripts, and no request to anywhere."""

WATCHED_POLICY = f"{CONTENT_POLICY}; connect-src 'self'"
"""That of a page which is served while a run goes on: it may ask its own server for a newer version."""


def script_json(data: Mapping[str, Any]) -> str:
    """JSON that is safe inside a script element."""
    # ``</script>`` in a text would end the element, whatever surrounds it.
    return json.dumps(data, allow_nan=False).replace("<", "\\u003c")
