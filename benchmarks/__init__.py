"""Measurements of magcli: comparisons with other tools (``python -m benchmarks``) and scale (``benchmarks.scale``)."""
