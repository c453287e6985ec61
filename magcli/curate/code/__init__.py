"""Code problems: their solutions and tests, and what the solutions agree on."""
