"""What the HTML pages of magcli may do when a browser shows them."""

CONTENT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
"""The content security policy of every page: its own styles and scripts, and no request to anywhere."""
