"""Evaluation suites, the statistics of their results, and how these are laid out."""
